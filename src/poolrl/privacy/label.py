"""Label: one page in plain words, from a certificate alone."""

from __future__ import annotations

import math
import textwrap
from fractions import Fraction
from typing import Any

WIDTH = 78


def label(facts: dict[str, Any]) -> str:
    """The whole page as text."""
    parts = []
    for title, paragraphs in sections(facts):
        parts.append(title.upper())
        parts += [textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs]
        parts.append("")
    return "\n".join(parts)


def sections(facts: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Titles and paragraphs, for the text and for the page."""
    rho = float(Fraction(facts["rho"]))
    attack, protected = facts["attack"], whose(facts)
    innocent = percent(attack["false_positives"])
    hit, best = percent(attack["true_positives_at_most"]), percent(attack["true_positives_of_best_known_attack"])
    epsilon = ", ".join(f"{eps:.2f} at delta {float(delta):g}" for delta, eps in facts["epsilon"].items())
    ledger = facts["ledger"]
    return [
        (
            "What this is",
            [
                "A table of order-up-to levels that was learned from a sensitive log. The log stays where it was; this "
                "table may be handed out.",
            ],
        ),
        (
            "Who is protected",
            [
                f"{protected[0].upper()}{protected[1:]}. The promise holds for each of them, whatever the others look "
                "like.",
            ],
        ),
        (
            f"What an attacker who knows everything else could learn about one {facts['unit']}",
            [
                f"Suppose somebody knows the whole log except for one {facts['unit']}, sees everything we published, "
                f"and wants to tell whether that one is the one they suspect. If they accept a false alarm in "
                f"{innocent} of the cases where it is not, they will find out in at most {hit} of the cases where it "
                f"is; the best attack known reaches {best}. Blind guessing reaches {innocent}.",
                strength(attack["true_positives_at_most"]),
            ],
        ),
        (
            "The numbers a specialist will ask for",
            [
                f"rho = {rho:g} (zero-concentrated differential privacy), that is epsilon = {epsilon}. Neighbouring "
                f"logs: {facts['adjacency']} {facts['unit']} by any other. Noise: exact discrete Gaussian, unseeded.",
            ],
        ),
        (
            "What is not protected",
            [
                f"What was declared beforehand: costs, bounds, names, and that the log holds "
                f"{facts['assumed_public']['units']:,} of these units. What is true of everybody: if all weeks are "
                "alike, the policy shows what they are like. Facts about groups larger than one unit are protected "
                "less, the less the larger they are.",
            ],
        ),
        (
            "What was spent",
            [
                f"Account {ledger['data_set']!r}, entry {ledger['entry']} of the ledger: "
                f"{float(Fraction(ledger['spent'])):g} of a budget of {float(Fraction(ledger['budget'])):g} are spent "
                f"with this release, {float(Fraction(ledger['left'])):g} are left.",
            ],
        ),
    ]


def whose(facts: dict[str, Any]) -> str:
    """Who is protected, in a phrase."""
    steps = facts["steps"]
    if facts["unit"] == "trajectory":
        return f"each trajectory with all its {steps} steps"
    column = facts["assumed_public"].get("unit_column")
    name = f"unit (column {column!r})" if column else facts["unit"]
    return f"each {name} with up to {facts['trajectories_per_unit']} trajectories of {steps} steps"


def strength(true_positives: float) -> str:
    """What the attack's best rate means, in a sentence; the thresholds are ours."""
    if true_positives <= 0.10:
        return "That is hardly better than guessing: strong protection."
    if true_positives <= 0.25:
        return "That is a weak hint, far from knowledge: good protection."
    if true_positives <= 0.60:
        return "That is a real hint about some: moderate protection. A smaller rho would protect more."
    return "That is close to knowing: weak protection. Use a smaller rho unless the log is not very sensitive."


def percent(share: float) -> str:
    """A share for people, rounded up, because it says what happens at most."""
    if 0.99 < share < 1:
        return "almost 100%"
    digits = 0 if share >= 0.1 else 1
    scale = 100 * 10**digits
    return f"{math.ceil(share * scale - 1e-9) / 10**digits:.{digits}f}".removesuffix(".0") + "%"
