"""Leaflet: the privacy page of a release in plain words, from its certificate alone."""

from __future__ import annotations

import math
import textwrap
from fractions import Fraction

from poolrl.certificate.certificate import Certificate, CertifiedPeriod, InAll, lost_to_periods, seen_in
from poolrl.privacy.guarantee import KEEP_IDS, declared_in_words, neighbours_in_words
from poolrl.privacy.zcdp import rounded_up

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
        parts.append(title.upper())
        parts += [textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs]
        parts.append("")
    return "\n".join([*parts, *SIGN_HERE, ""])


def leaflet_sections(certificate: Certificate) -> list[tuple[str, list[str]]]:
    """Titles and paragraphs, for the text and for the page."""
    unit, ledger, public = certificate.unit, certificate.ledger, certificate.assumed_public
    seen, words = seen_in(certificate), public.words
    epsilon = ", ".join(f"{rounded_up(eps)} at delta {float(delta):g}" for delta, eps in seen.epsilon.items())
    spent, budget, left = (_short(amount) for amount in (ledger.spent, ledger.budget, ledger.left))
    return [
        (
            "This release",
            [
                f"A table of {words.decisions}, learned from a sensitive log. With it come the estimate of "
                f"{words.outcome} and of past {words.past} behind it, and the configuration it was made with. The log "
                "stays where it was. The person who signs decides whether this may be handed out.",
            ],
        ),
        ("Who is protected", [_protected(certificate)]),
        (f"What an attacker who knows everything else could learn about one {unit}", _attack(certificate)),
        (
            "What is not protected",
            [
                f"Anyone who is in more than one {unit}: k of them together are protected as if rho were k times k as "
                "large, 100 times for a person who is in ten. What is true of everybody: if all "
                f"{words.trajectory}s are alike, the policy shows what they are like. What was declared beforehand: "
                "costs, bounds, names. And the exact number of units in the log, "
                f"{public.units:,}{_also_public(certificate)}.",
            ],
        ),
        (
            "The numbers a specialist will ask for",
            [
                f"rho = {_short(seen.rho)} (zero-concentrated differential privacy), that is epsilon = "
                f"{epsilon}. Neighbouring logs: {neighbours(certificate)}. Noise: exact discrete Gaussian.",
            ],
        ),
        (
            "What was spent",
            [
                f'Account "{ledger.data_set}", entry {ledger.entry} of the ledger: this release takes rho = '
                f"{_short(certificate.rho)}{in_this_period(certificate)}. All releases of this data set that this "
                f"ledger knows of cost one {unit}: "
                f"{spent} of a budget of {budget}, which leaves {left}.{for_other_periods(certificate)}"
                f"{_others(certificate)}",
            ],
        ),
        (
            "What is signed",
            [
                f"The policy with SHA-256 {certificate.policy_sha256}, issued {certificate.issued[:10]} by poolrl "
                f"{certificate.versions.get('poolrl')}, entered in the ledger under seal {ledger.seal[:16]}.",
                f"It was made with the configuration of SHA-256 {certificate.config_sha256}.{_query(certificate)}",
                *_key_and_audit(certificate),
            ],
        ),
    ]


def _protected(certificate: Certificate) -> str:
    declared = "".join(f" {sentence}" for sentence in declared_sentences(certificate))
    kept = ""
    if certificate.adjacency == KEEP_IDS:
        kept = " The promise covers what happened in each of them, not that it is in the log: their ids are public."
    return f"{_capital(whose(certificate))}. The promise holds for each of them.{kept}{declared}"


def declared_sentences(certificate: Certificate) -> list[str]:
    """What was declared of scale, labels and periods, one sentence each."""
    return [*declared_in_words(certificate), *periods_in_words(certificate)]


def neighbours(certificate: Certificate) -> str:
    """Which logs the promise compares, in a phrase."""
    keep_ids, phrase = certificate.adjacency == KEEP_IDS, neighbours_in_words(certificate)
    if certificate.labels == "public":
        phrase += ", and so do labels" if keep_ids else " with the same labels"
    if certificate.period is not None and not keep_ids:
        phrase += " of the same date" if certificate.unit == "trajectory" else " of the same periods"
    return phrase


def _also_public(certificate: Certificate) -> str:
    labels = ", and how many rows have which labels" if certificate.labels == "public" else ""
    ids = ", and the ids of all of them" * (certificate.adjacency == KEEP_IDS)
    others = ", and how many trajectories and units other releases have counted" * bool(certificate.other_units)
    return f"{ids}{labels}{others}"


def _others(certificate: Certificate) -> str:
    """How releases that protect other units are counted."""
    if not certificate.other_units:
        return ""
    who = " and ".join(f"one {name}" for name in certificate.other_units)
    many = f", for every trajectory belongs to one unit, which owns at most {certificate.owns_at_most}"
    declared = f" The data holder declares how{many if certificate.owns_at_most else ''}."
    return f" Releases that protect {who} are counted by what they cost one {certificate.unit} at most.{declared}"


def _query(certificate: Certificate) -> str:
    if not certificate.assumed_public.query:
        return ""
    through = ""
    if many := len(certificate.definitions):
        through = f" and through {many} definition{'s' * (many > 1)} of its source, which the certificate repeats"
    return (
        f" The rows came through a query{through}. The promise trusts it to look at each protected unit by itself: "
        "read it."
    )


def _key_and_audit(certificate: Certificate) -> list[str]:
    """The key of the signature, and the result of an audit, where the certificate names them."""
    sentences = []
    if certificate.signed_by:
        sentences.append(f"It is signed with the key of SHA-256 {certificate.signed_by}.")
    if (audit := certificate.audit) is not None:
        sentences.append(
            f"As the data holder reports, an audit of this configuration attacked {audit.releases:,} simulated "
            "releases. "
            f"It proved a loss of at least rho = {audit.proved_rho:.3g} of {audit.claimed_rho:g} claimed: "
            f"{audit.verdict}."
        )
    return sentences


def _attack(certificate: Certificate) -> list[str]:
    unit, in_all, attack = certificate.unit, certificate.in_all, seen_in(certificate).attack
    innocent, hit = percent(attack.false_positives), percent(attack.true_positives_at_most)
    best = percent(attack.true_positives_of_best_known_attack)
    paragraphs = [
        f"Suppose an attacker knows the whole log except for one {unit}, sees this release, and wants to know whether "
        f"that one is the one they suspect. They accept a false alarm in {innocent} of the cases where it is not. Then "
        f"they find out in at most {hit} of the cases where it is. The best attack known reaches {best}. Blind "
        f"guessing reaches {innocent}.",
    ]
    if in_all.rho != seen_in(certificate).rho:
        paragraphs.append(
            "Earlier releases, or attempts at them, have taken budget from this data set too. An attacker who sees all "
            f"of them (rho = {_short(in_all.rho)} together, epsilon = {rounded_up(in_all.epsilon['1e-06'])} at delta "
            f"1e-06) finds out in at most {percent(in_all.attack.true_positives_at_most)}."
        )
    return [*paragraphs, strength(in_all)]


def periods_in_words(claim: Certificate) -> list[str]:
    """Which part of the log was read, its neighbours, and earlier periods that the policy rests on."""
    if claim.period is None:
        return []
    sentences = [f"Of the log only this period was read: {claim.period.period()}. {neighbours_keep(claim.unit)}"]
    if not claim.earlier:
        return sentences
    many = len(claim.earlier)
    sentences.append(
        f"The policy also rests on {many} release{'s' * (many > 1)} of earlier periods: "
        f"{'; '.join(f'{_ends(each.period)} (rho = {float(Fraction(each.rho)):g})' for each in claim.earlier)}. "
        f"In each update earlier periods count {claim.forgetting:g} times as much."
    )
    lost = f"loses rho = {float(lost_to_periods(claim)):g}"
    if claim.unit == "trajectory":
        sentences.append(f"A trajectory is in one of these periods. To all of them together it {lost} at most.")
    else:
        sentences.append(f"One {claim.unit} may be in all of them, and {lost} to them together.")
    return sentences


def neighbours_keep(unit: str) -> str:
    """Which neighbouring logs a release of a period compares: the number of units of each period is public."""
    if unit == "trajectory":
        return "The other trajectory begins at the same date or number: the promise does not hide when one begins."
    return f"The other {unit} has trajectories in the same periods: the promise does not hide in which ones."


def in_this_period(claim: Certificate) -> str:
    """Whose loss the release's ρ is, in a phrase."""
    return "" if claim.period is None else f" for those of {_ends(claim.period)}"


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


def strength(in_all: InAll) -> str:
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
    scale = 100 * 10**digits
    return f"{math.ceil(share * scale - 1e-9) / 10**digits:.{digits}f}".removesuffix(".0") + "%"


def _short(fraction: str) -> str:
    return f"{float(Fraction(fraction)):g}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _ends(period: CertifiedPeriod) -> str:
    return f"{period.first} to before {period.before}"
