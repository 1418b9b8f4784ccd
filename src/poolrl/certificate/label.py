"""Label: one page in plain words, from a certificate alone."""

from __future__ import annotations

import math
import textwrap
from fractions import Fraction
from typing import Any

from poolrl.privacy.zcdp import rounded_up

WIDTH = 78
SIGNATURE = (
    "Checked by (name, role): ____________________________________________",
    "",
    "Date, signature: " + "_" * 53,
)


def label(facts: dict[str, Any]) -> str:
    """The whole page as text, with room for a signature."""
    parts = []
    for title, paragraphs in sections(facts):
        parts.append(title.upper())
        parts += [textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs]
        parts.append("")
    return "\n".join([*parts, *SIGNATURE, ""])


def sections(facts: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Titles and paragraphs, for the text and for the page."""
    unit, ledger = facts["unit"], facts["ledger"]
    epsilon = ", ".join(f"{rounded_up(eps)} at delta {float(delta):g}" for delta, eps in facts["epsilon"].items())
    spent, budget, left = (_short(ledger[name]) for name in ("spent", "budget", "left"))
    return [
        (
            "What this is",
            [
                "A table of order-up-to levels that was learned from a sensitive log, with the estimate of demand and "
                "of past orders behind it and the configuration it was made with. The log stays where it was. Whether "
                "this may be handed out is for whoever signs to decide.",
            ],
        ),
        ("Who is protected", [f"{_capital(whose(facts))}. The promise holds for each of them."]),
        (f"What an attacker who knows everything else could learn about one {unit}", _attack(facts)),
        (
            "What is not protected",
            [
                f"Whoever is in more than one {unit}: k of them together are protected as if rho were k times k as "
                "large, 100 times for somebody who is in ten. What is true of everybody: if all weeks are alike, the "
                "policy shows what they are like. What was declared beforehand: costs, bounds, names. And the exact "
                f"number of units in the log, {facts['assumed_public']['units']:,}.",
            ],
        ),
        (
            "The numbers a specialist will ask for",
            [
                f"rho = {_short(facts['rho'])} (zero-concentrated differential privacy), that is epsilon = {epsilon}. "
                f"Neighbouring logs: {facts['adjacency']} {unit} by any other. Noise: exact discrete Gaussian.",
            ],
        ),
        (
            "What was spent",
            [
                f'Account "{ledger["data_set"]}", entry {ledger["entry"]} of the ledger: this release takes rho = '
                f"{_short(facts['rho'])}. All releases of this data set that this ledger knows of: {spent} of a budget "
                f"of {budget}, which leaves {left}.",
            ],
        ),
        (
            "What is signed",
            [
                f"The policy with SHA-256 {facts['policy_sha256']}, issued {facts['issued'][:10]} by poolrl "
                f"{facts['versions']['poolrl']}, entered in the ledger under seal {ledger['seal'][:16]}.",
                f"It was made with the configuration of SHA-256 {facts['config_sha256']}.{_query(facts)}",
            ],
        ),
    ]


def _query(facts: dict[str, Any]) -> str:
    if not facts["assumed_public"].get("query"):
        return ""
    return " The rows came through a query, which the promise trusts to look at each protected one by itself: read it."


def _attack(facts: dict[str, Any]) -> list[str]:
    unit, attack, all_of_them = facts["unit"], facts["attack"], facts["in_all"]["attack"]
    innocent, hit = percent(attack["false_positives"]), percent(attack["true_positives_at_most"])
    best = percent(attack["true_positives_of_best_known_attack"])
    paragraphs = [
        f"Suppose somebody knows the whole log except for one {unit}, sees this release, and wants to tell whether "
        f"that one is the one they suspect. If they accept a false alarm in {innocent} of the cases where it is not, "
        f"they will find out in at most {hit} of the cases where it is; the best attack known reaches {best}. Blind "
        f"guessing reaches {innocent}.",
    ]
    if facts["in_all"]["rho"] != facts["rho"]:
        paragraphs.append(
            "Earlier releases, or attempts at them, have taken budget from this data set too. Somebody who sees all "
            f"that there may be, rho = {_short(facts['in_all']['rho'])} together (epsilon = "
            f"{rounded_up(facts['in_all']['epsilon']['1e-06'])} at delta 1e-06), will find out in at most "
            f"{percent(all_of_them['true_positives_at_most'])}."
        )
    return [*paragraphs, strength(all_of_them["true_positives_at_most"])]


def whose(facts: dict[str, Any]) -> str:
    """Who is protected, in a phrase."""
    steps, public = facts["steps"], facts["assumed_public"]
    words = f" (described by the data holder as: {public['protects']})" if public.get("protects") else ""
    if facts["unit"] == "trajectory":
        return f"each trajectory{words} with all its {steps} steps"
    column = f" of column {public['unit_column']}" if public.get("unit_column") else ""
    many = facts["trajectories_per_unit"]
    used = f"up to {many} trajectories" if many > 1 else "one trajectory"
    return f"each {facts['unit']}{column}{words} with {used} of {steps} steps"


def strength(true_positives: float) -> str:
    """What the attack's best rate means, in a sentence; the thresholds are ours."""
    if true_positives <= 0.10:
        return "We call that strong protection: hardly better than guessing."
    if true_positives <= 0.25:
        return "We call that good protection: a weak hint, far from knowledge."
    if true_positives <= 0.60:
        return "We call that moderate protection: a real hint about some. A smaller rho would protect more."
    return "We call that weak protection: close to knowing. Use a smaller rho unless the log is not very sensitive."


def percent(share: float) -> str:
    """A share for people, rounded up, because it says what happens at most."""
    digits = 0 if share >= 0.1 else 1
    scale = 100 * 10**digits
    return f"{math.ceil(share * scale - 1e-9) / 10**digits:.{digits}f}".removesuffix(".0") + "%"


def _short(fraction: str) -> str:
    return f"{float(Fraction(fraction)):g}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
