"""Certificate: the claim of one release as canonical JSON, complete enough to be checked by somebody else.

Amounts are exact fractions; what is derived from them (ε, the power of an attack) is rounded up to four decimals, so
that the same release gives the same bytes on every machine and never claims too little.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import MOST_MECHANISMS, Guarantee

FORMAT = "poolrl certificate 1"
DELTAS = ("1e-05", "1e-06", "1e-09")
FALSE_POSITIVES = 0.05
DECIMALS = 10**4

_ATTACK = dict.fromkeys(("false_positives", "true_positives_at_most", "true_positives_of_best_known_attack"), float)
_EPSILON = dict.fromkeys(DELTAS, float)
SHAPE: dict[str, Any] = {
    "issued": str,
    "private": bool,
    "rho": str,
    "epsilon": _EPSILON,
    "attack": _ATTACK,
    "in_all": {"rho": str, "epsilon": _EPSILON, "attack": _ATTACK},
    "unit": str,
    "trajectories_per_unit": int,
    "steps": int,
    "adjacency": str,
    "mechanisms": [
        {"name": str, "noise": str, "cells": int, "sensitivity_squared": str, "variance": str, "rho": str},
    ],
    "composition": str,
    "post_processing": [str],
    "assumed_public": {
        "problem": {"kind": str},
        "products": [str],
        "steps": [str],
        "columns": [str],
        "units": int,
        "clip": bool,
        "protects": str,
        "query": str | None,
        "unit_column": str | None,
        "what": str,
        "publication": dict.fromkeys(("name", "curator", "region", "intended_use"), str),
    },
    "versions": {"poolrl": str, "opendp": str},
    "policy_sha256": str,
    "config_sha256": str,
    "ledger": {"entry": int} | dict.fromkeys(("data_set", "account", "seal", "budget", "spent", "left"), str),
}

COMPOSITION = (
    "zCDP budgets of all mechanisms add up: rho is their exact sum, and rho = sensitivity_squared / (2 variance)"
)


def post_processing(problem: dict[str, Any]) -> list[str]:
    """What happens after the release, for nothing; demand that waits in a backlog is never cut off."""
    return [
        "noisy counts made consistent",
        "shrinkage towards other steps, other products and the public prior",
        *([] if problem["kind"] == "Backlog" else ["Kaplan-Meier estimate of demand beyond empty shelves"]),
        "backward induction to order-up-to levels",
        "simulated costs and every picture of the report",
    ]


@dataclass(frozen=True)
class Release:
    """What a certificate is about, beside the guarantee: hashes, public facts and the ledger's entry."""

    issued: str
    policy_sha256: str
    config_sha256: str
    public: dict[str, Any]
    versions: dict[str, str]
    ledger: dict[str, Any]


def certificate(guarantee: Guarantee, release: Release) -> dict[str, Any]:
    """The facts of a certificate, from what was paid and what was released."""
    rho = _exact_rho(guarantee)
    return {
        "format": FORMAT,
        "issued": release.issued,
        "private": True,
        "rho": str(rho),
        "epsilon": epsilons(rho),
        "attack": attack(rho),
        "in_all": in_all(Fraction(release.ledger["spent"])),
        "unit": guarantee.unit,
        "trajectories_per_unit": guarantee.trajectories_per_unit,
        "steps": guarantee.steps,
        "adjacency": guarantee.adjacency,
        "mechanisms": mechanisms(guarantee),
        "composition": COMPOSITION,
        "post_processing": post_processing(release.public["problem"]),
        "assumed_public": release.public,
        "versions": release.versions,
        "policy_sha256": release.policy_sha256,
        "config_sha256": release.config_sha256,
        "ledger": release.ledger,
    }


def canonical(facts: dict[str, Any]) -> bytes:
    """Sorted keys, two spaces, UTF-8, a line feed at the end; no NaN and no infinity."""
    return (json.dumps(facts, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_certificate(content: bytes) -> dict[str, Any]:
    """Certificate facts from their bytes; refuses anything that is not one."""
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("not a certificate: it is not JSON") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"not a certificate of this version ({FORMAT!r})")
    if not _has_shape(facts, SHAPE):
        raise ValueError("not a whole certificate: an entry is missing or of another kind")
    return facts


def _has_shape(facts: Any, shape: Any) -> bool:
    """Whether facts have every entry of a shape, each of its kind: a type, a dictionary of them, or a list of one."""
    if isinstance(shape, dict):
        return isinstance(facts, dict) and all(key in facts and _has_shape(facts[key], shape[key]) for key in shape)
    if isinstance(shape, list):
        return isinstance(facts, list) and all(_has_shape(each, shape[0]) for each in facts)
    return isinstance(facts, shape) and not (shape is int and isinstance(facts, bool))


def epsilons(rho: Fraction) -> dict[str, float]:
    """ε at each δ, rounded up."""
    return {delta: _up(zcdp.epsilon(float(rho), float(delta))) for delta in DELTAS}


def attack(rho: Fraction) -> dict[str, float]:
    """What an attacker who knows all but one unit gets right, when 5% of the innocent may be accused."""
    return {
        "false_positives": FALSE_POSITIVES,
        "true_positives_at_most": min(1.0, _up(zcdp.attack_power(float(rho), FALSE_POSITIVES))),
        "true_positives_of_best_known_attack": min(1.0, _up(zcdp.gaussian_attack_power(float(rho), FALSE_POSITIVES))),
    }


def in_all(spent: Fraction) -> dict[str, Any]:
    """What all releases of the data set together come to, this one included."""
    return {"rho": str(spent), "epsilon": epsilons(spent), "attack": attack(spent)}


def mechanisms(guarantee: Guarantee) -> list[dict[str, Any]]:
    """Every release with its sensitivity, its noise and its cost."""
    return [
        {
            "name": each.name,
            "noise": "discrete Gaussian, exact, from the operating system's entropy",
            "cells": each.cells,
            "sensitivity_squared": str(each.sensitivity_squared),
            "variance": str(each.variance),
            "rho": str(each.rho),
        }
        for each in guarantee.mechanisms
    ]


def arithmetic_faults(facts: dict[str, Any]) -> list[str]:
    """Which numbers of a certificate do not follow from its mechanisms."""
    faults = []
    if len(facts["mechanisms"]) > MOST_MECHANISMS:
        return ["more mechanisms than any release has"]
    try:
        costs = []
        for each in facts["mechanisms"]:
            variance, sensitivity = zcdp.written(each["variance"]), zcdp.written(each["sensitivity_squared"])
            if variance <= 0 or sensitivity <= 0:
                return ["a mechanism has no noise or no sensitivity"]
            costs.append(sensitivity / (2 * variance))
            if costs[-1] != zcdp.written(each["rho"]):
                faults.append(f"the rho of {each['name']!r} is not sensitivity_squared / (2 variance)")
        rho = sum(costs, Fraction(0))
        if not costs or rho != zcdp.written(facts["rho"]):
            return [*faults, "rho is not the sum over the mechanisms"]
        if facts["epsilon"] != epsilons(rho):
            faults.append("epsilon does not follow from rho")
        if facts["attack"] != attack(rho):
            faults.append("the power of an attack does not follow from rho")
        spent = zcdp.written(facts["ledger"]["spent"])
        if spent < rho or facts["in_all"] != in_all(spent):
            faults.append("what was spent in all does not follow from the ledger's entry")
        if facts["private"] is not True:
            faults.append("it does not say that anything is private")
        budget, left = zcdp.written(facts["ledger"]["budget"]), zcdp.written(facts["ledger"]["left"])
        if left != max(Fraction(0), budget - spent):
            faults.append("what is left does not follow from the budget and what was spent")
        problem = facts["assumed_public"]["problem"]
        if facts["composition"] != COMPOSITION or facts["post_processing"] != post_processing(problem):
            faults.append("composition or post-processing were reworded")
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        faults.append("it lacks a number, or holds one that is none")
    return faults


def _exact_rho(guarantee: Guarantee) -> Fraction:
    rho = zcdp.compose(each.rho for each in guarantee.mechanisms)
    if not guarantee.private or isinstance(rho, float):
        raise ValueError("only a private release can be certified: secure noise and a finite rho")
    return rho


def _up(value: float) -> float:
    # A little more, because the optimiser behind ε differs between machines in digits that nobody needs.
    return math.ceil(value * DECIMALS + 1e-3) / DECIMALS
