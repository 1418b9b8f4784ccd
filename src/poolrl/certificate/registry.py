"""The record of a release for OpenDP's registry of deployments, as YAML, from a certificate alone.

The registry's fields are those of its `deployments-schema`; all three of its tiers are filled in.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from poolrl.certificate.label import whose


def registry_record(facts: dict[str, Any]) -> dict[str, Any]:
    """The record."""
    rho, public = Fraction(facts["rho"]), facts["assumed_public"]
    publication = public["publication"]
    delta, epsilon = "1e-06", facts["epsilon"]["1e-06"]
    curve = "; ".join(f"epsilon {eps:g} at delta {float(d):g}" for d, eps in facts["epsilon"].items())
    return {
        "url_slug": _slug(f"{publication['curator']} {publication['name']}") or f"poolrl-{facts['policy_sha256'][:12]}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": publication["name"],
                "data_curators": [publication["curator"]],
                "description": (
                    f"Order-up-to levels for {len(public['products'])} products over {facts['steps']} steps, learned "
                    "from a log of stocks and sales."
                ),
                "intended_use": publication["intended_use"],
                "data_product_type": "Machine learning model",
                "data_product_region": publication["region"],
                "publication_date": facts["issued"][:10],
            },
            "dp_variant": {
                "variant_name": "Zero-concentrated DP",
                "data_domain": (
                    f"Logs of {public['units']} units, each of up to {facts['trajectories_per_unit']} trajectories of "
                    f"{facts['steps']} steps, with stocks and sales within declared bounds."
                ),
                "unprotected_quantities": (
                    f"The number of units, {public['units']}; declared costs, bounds, product and column names."
                ),
            },
            "privacy_loss": {
                "privacy_unit": whose(facts),
                "privacy_unit_details": f"Adjacent logs: {facts['adjacency']} {facts['unit']} by any other.",
                "privacy_parameters": {"rho": float(rho), "epsilon": epsilon, "delta": float(delta)},
                "privacy_parameters_details": (
                    f"rho = {facts['rho']} exactly; {curve}. All releases that the ledger knows of: rho = "
                    f"{facts['in_all']['rho']}."
                ),
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": "The data holder runs the release and is trusted; whoever sees the policy is not.",
                "release_type": _release_type(facts),
                "release_type_details": (
                    f"A ledger allows rho = {facts['ledger']['budget']} in all for this data set; "
                    f"{facts['ledger']['left']} are left after this release. It does not refresh with time."
                ),
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "composition": facts["composition"],
                "post_processing": "; ".join(facts["post_processing"]) + ".",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _preprocessing(facts),
                "mechanisms": "; ".join(
                    f"{each['name']}: {each['noise']}, on {each['cells']} integer counts of squared sensitivity "
                    f"{each['sensitivity_squared']}, variance {each['variance']}"
                    for each in facts["mechanisms"]
                )
                + f". {_software(facts['versions'])}.",
                "justification": (
                    "The budget was set in a configuration whose hash the certificate names, and reserved in a ledger "
                    "before the log was opened."
                ),
            },
            "administrative": {
                "registry_authors": [publication["curator"]],
                "notes": f"Policy SHA-256 {facts['policy_sha256']}.",
            },
        },
    }


def _software(versions: dict[str, str]) -> str:
    """What drew the noise: since 0.5 poolrl's own sampler on the words of AES, OpenDP's where its tables end."""
    if "cryptography" not in versions:
        return f"poolrl {versions['poolrl']}, OpenDP {versions['opendp']}"
    return (
        f"Noise by poolrl {versions['poolrl']} with AES-256-CTR of cryptography {versions['cryptography']}, beyond its "
        f"tables by OpenDP {versions['opendp']}"
    )


def _release_type(facts: dict[str, Any]) -> str:
    """One release is one that was the first and leaves nothing for another."""
    alone = facts["ledger"]["spent"] == facts["rho"] and Fraction(facts["ledger"]["left"]) == 0
    return "One release" if alone else "Many releases"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _preprocessing(facts: dict[str, Any]) -> str:
    """Everything that happened to rows before they were counted."""
    public, per_unit = facts["assumed_public"], facts["trajectories_per_unit"]
    steps = ["Bins and noise follow from declared facts, which the data holder declares not to have read off the log."]
    if public["query"]:
        steps.append(f"Rows came from this query, which must judge each {facts['unit']} by itself: {public['query']}")
    if public["clip"]:
        steps.append("Values were clipped to the declared bounds, row by row.")
    if facts["unit"] != "trajectory":
        steps.append(f"Of each unit the first {per_unit} trajectories in the order of their ids were used.")
    return " ".join(steps)


def registry_yaml(record: dict[str, Any]) -> str:
    """The record as YAML text."""
    import yaml

    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=100)
    return text
