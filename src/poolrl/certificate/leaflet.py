"""The papers of a release in plain words, from its certificate alone: the leaflet, and OpenDP's deployment record.

Both are templates, `leaflet.yaml` and `registry_record.yaml`. Their sentences with more than one user are here.
"""

from __future__ import annotations

import re
import textwrap
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolrl.certificate.certificate import Certificate, PrivacyLoss, lost_to_periods, seen_in
from poolrl.ledger.accounts import Period
from poolrl.privacy.guarantee import KEEP_IDS, declared_in_words, neighbours_in_words
from poolrl.privacy.zcdp import ceiling, rounded_up

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH = 78
SIGN_HERE = (
    "Checked by (name, role): ____________________________________________",
    "",
    "Date, signature: " + "_" * 53,
)
# Beyond it (at δ = 10⁻⁶) the odds of an attacker's guess may grow by a factor of e²⁰: nothing is protected any more.
MEANINGLESS_EPSILON = 20.0


def leaflet(certificate: Certificate) -> str:
    """The whole page as text, with room for a signature."""
    parts = []
    for title, paragraphs in leaflet_sections(certificate):
        parts += [title.upper(), *(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs), ""]
    return "\n".join([*parts, *SIGN_HERE, ""])


def leaflet_sections(certificate: Certificate) -> list[tuple[str, list[str]]]:
    """Titles and paragraphs, for the text and for the page."""
    sections: dict[str, list[str]] = _filled("leaflet.yaml", certificate)
    return [(title, [one for one in paragraphs if one]) for title, paragraphs in sections.items()]


def registry_record(claim: Certificate) -> str:
    """The record for OpenDP's list of deployments as YAML, in the order of its schema."""
    import yaml

    record, seen = _filled("registry_record.yaml", claim), seen_in(claim)
    numbers = {"rho": float(Fraction(seen.rho)), "epsilon": seen.epsilon["1e-06"]}
    record["deployment"]["privacy_loss"]["privacy_parameters"] |= numbers
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=100)
    return text


def _filled(template: str, claim: Certificate) -> Any:
    """A file of templates, each filled in by itself."""
    import yaml

    public = claim.assumed_public
    names = re.sub(r"[^a-z0-9]+", "-", f"{public.publication.curator} {public.publication.name}".lower()).strip("-")
    facts: dict[str, Any] = {"claim": claim, "public": public, "publication": public.publication, "words": public.words}
    facts |= {"seen": seen_in(claim), "slug": names or f"poolrl-{claim.policy_sha256[:12]}"}

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {filled(key): filled(value) for key, value in part.items()}
        if isinstance(part, list):
            return [filled(value) for value in part]
        return " ".join(_template(part).render(facts).split()) if isinstance(part, str) else part

    return filled(yaml.safe_load(Path(__file__).with_name(template).read_text(encoding="utf-8")))


@cache
def _template(text: str) -> Template:
    """A template that knows the sentences of this file; compiled once, because every release fills in all of them."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False)  # it becomes text and YAML, not HTML
    sentences = (declared_sentences, ends, for_other_periods, neighbours, percent, rounded_up, short, strength, whose)
    environment.globals |= {sentence.__name__: sentence for sentence in sentences} | {"KEEP_IDS": KEEP_IDS}
    return environment.from_string(text)


def declared_sentences(certificate: Certificate) -> list[str]:
    """What was declared of scale, labels and periods, one sentence each."""
    return [*declared_in_words(certificate.promise), *periods_in_words(certificate)]


def neighbours(certificate: Certificate) -> str:
    """Which logs the promise compares, in a phrase."""
    keep_ids, phrase = certificate.adjacency == KEEP_IDS, neighbours_in_words(certificate.promise)
    if certificate.labels == "public":
        phrase += ", and so do labels" if keep_ids else " with the same labels"
    if certificate.period is not None and not keep_ids:
        phrase += " of the same date" if certificate.unit == "trajectory" else " of the same periods"
    return phrase


def periods_in_words(claim: Certificate) -> list[str]:
    """Which part of the log was read, its neighbours, and earlier periods that the policy rests on."""
    if claim.period is None:
        return []
    sentence = f"Of the log only this period was read: {claim.period}. {neighbours_keep(claim.unit)}"
    if not claim.earlier:
        return [sentence]
    many, lost = len(claim.earlier), f"loses rho = {float(lost_to_periods(claim)):g}"
    periods = "; ".join(f"{ends(each.period)} (rho = {short(each.rho)})" for each in claim.earlier)
    together = f"One {claim.unit} may be in all of them, and {lost} to them together."
    if claim.unit == "trajectory":
        together = f"A trajectory is in one of these periods. To all of them together it {lost} at most."
    return [
        sentence,
        f"The policy also rests on {many} release{'s' * (many > 1)} of earlier periods: {periods}. "
        f"In each update earlier periods count {claim.forgetting:g} times as much.",
        together,
    ]


def neighbours_keep(unit: str) -> str:
    """Which neighbouring logs a release of a period compares: the number of units of each period is public."""
    if unit == "trajectory":
        return "The other trajectory begins at the same date or number: the promise does not hide when one begins."
    return f"The other {unit} has trajectories in the same periods: the promise does not hide in which ones."


def for_other_periods(claim: Certificate) -> str:
    """What the release costs those whom it did not read, in a sentence."""
    if claim.period is None or claim.unit != "trajectory":
        return ""
    if claim.scale_memory:
        return " Trajectories of other periods lose to it only through the scales that they served for."
    return " Trajectories of other periods lose nothing to it that was not paid for before."


def whose(certificate: Certificate) -> str:
    """Who is protected, in a phrase."""
    steps, public = certificate.steps, certificate.assumed_public
    words = f" (described by the data holder as: {public.protects})" if public.protects else ""
    if certificate.unit == "trajectory":
        return f"each trajectory{words} with all its {steps} steps"
    column = f" of column {public.unit_column}" if public.unit_column else ""
    many = certificate.trajectories_per_unit
    used = f"up to {many} trajectories" if many > 1 else "one trajectory"
    return f"each {certificate.unit}{column}{words} with {used} of {steps} steps"


def strength(in_all: PrivacyLoss) -> str:
    """The meaning of the numbers, in a sentence; the thresholds are ours."""
    if in_all.epsilon["1e-06"] > MEANINGLESS_EPSILON:
        return f"This is no meaningful protection. {meaningless(in_all.epsilon['1e-06'])}"
    true_positives = in_all.attack.true_positives_at_most
    if true_positives <= 0.10:
        return "We call that strong protection: hardly better than guessing."
    if true_positives <= 0.25:
        return "We call that good protection: a weak hint, far from knowledge."
    if true_positives <= 0.60:
        return "We call that moderate protection: a real hint about some. A smaller rho would protect more."
    return "We call that weak protection: close to knowing. Use a smaller rho unless the log is not very sensitive."


def meaningless(epsilon: float) -> str:
    """Why an ε (at δ = 10⁻⁶) protects nobody, for the leaflet and for the command."""
    return (
        f"Epsilon is {rounded_up(epsilon)} at delta 1e-06; above {MEANINGLESS_EPSILON:g} an attacker may learn "
        "practically everything about one unit. Treat this release as if the log itself were handed out."
    )


def percent(share: float) -> str:
    """A share for people, rounded up, because it says what happens at most."""
    digits = 0 if share >= 0.1 else 1
    return f"{ceiling(100 * share, digits):.{digits}f}".removesuffix(".0") + "%"


def short(number: str) -> str:
    """A fraction of the certificate, with a few digits."""
    return f"{float(Fraction(number)):g}"


def ends(period: Period) -> str:
    """A period without its column."""
    return f"{period.first} to before {period.before}"
