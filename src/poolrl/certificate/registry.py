"""The record of a release for OpenDP's registry of deployments, as YAML, from a certificate alone.

The models are the registry's `deployments-schema`, as far as poolrl fills it in: all three of its tiers.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from pydantic import BaseModel, ConfigDict

from poolrl.certificate.all_periods import for_other_periods, periods_in_words, seen_in
from poolrl.certificate.certificate import Certificate
from poolrl.certificate.label import neighbours, whose
from poolrl.privacy.guarantee import KEEP_IDS, declared_in_words
from poolrl.privacy.zcdp import rounded_up


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Basic(_Part):
    """Tier 1: the data product."""

    name: str
    data_curators: list[str]
    description: str
    intended_use: str
    data_product_type: Literal["Machine learning model"] = "Machine learning model"
    data_product_region: str
    publication_date: str


class Variant(_Part):
    """Which differential privacy, of what."""

    variant_name: Literal["Zero-concentrated DP"] = "Zero-concentrated DP"
    data_domain: str
    unprotected_quantities: str


class Parameters(_Part):
    """Numbers of the privacy loss."""

    rho: float
    epsilon: float
    delta: float


class Loss(_Part):
    """Who is protected, and how strongly."""

    privacy_unit: str
    privacy_unit_details: str
    privacy_parameters: Parameters
    privacy_parameters_details: str


class Model(_Part):
    """Who runs what, and how often."""

    model_name: Literal["Central"] = "Central"
    actors: str = "The data holder runs the release and is trusted; a person who sees the policy is not."
    release_type: Literal["One release", "Many releases"]
    release_type_details: str
    data_source_type: Literal["Static"] = "Static"
    access_type: Literal["Non-interactive"] = "Non-interactive"


class Accounting(_Part):
    """How costs add up, and what is free."""

    composition: str
    post_processing: str


class Implementation(_Part):
    """How it was done."""

    preprocessing_and_hyperparameter_tuning: str
    mechanisms: str
    justification: str = (
        "The budget was set in a configuration whose hash the certificate names, and reserved in a ledger before the "
        "log was opened."
    )


class Administrative(_Part):
    """Who wrote the record."""

    registry_authors: list[str]
    notes: str


class Deployment(_Part):
    """All parts."""

    basic: Basic
    dp_variant: Variant
    privacy_loss: Loss
    deployment_model: Model
    accounting: Accounting
    implementation: Implementation
    administrative: Administrative


class RegistryRecord(_Part):
    """The whole record."""

    url_slug: str
    status: Literal["Draft"] = "Draft"
    tier: Literal[3] = 3
    deployment: Deployment

    def yaml(self) -> str:
        """As YAML text, in the schema's order."""
        import yaml

        text: str = yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True, width=100)
        return text


def registry_record(certificate: Certificate) -> RegistryRecord:
    """The record that says what the certificate says."""
    public, ledger, versions = certificate.assumed_public, certificate.ledger, certificate.versions
    publication, steps, seen, said = public.publication, certificate.steps, seen_in(certificate), certificate.said
    curve = "; ".join(f"epsilon {rounded_up(eps)} at delta {float(delta):g}" for delta, eps in seen.epsilon.items())
    mechanisms = "; ".join(
        f"{each.name}: {each.noise}, on {each.cells} integer counts of squared sensitivity "
        f"{each.sensitivity_squared}, variance {each.variance}"
        for each in certificate.mechanisms
    )
    sampler = (
        f"Noise by poolrl {versions.get('poolrl')} with AES-256-CTR of cryptography {versions.get('cryptography')}, "
        f"beyond its tables by OpenDP ({versions.get('opendp')})"
    )
    return RegistryRecord(
        url_slug=_slug(f"{publication.curator} {publication.name}") or f"poolrl-{certificate.policy_sha256[:12]}",
        deployment=Deployment(
            basic=Basic(
                name=publication.name,
                data_curators=[publication.curator],
                description=(
                    f"{said.decisions.capitalize()} for {_many(certificate)} over {steps} steps, learned from a log of "
                    f"{said.logged}."
                ),
                intended_use=publication.intended_use,
                data_product_region=publication.region,
                publication_date=certificate.issued[:10],
            ),
            dp_variant=Variant(
                data_domain=(
                    f"Logs of {public.units} units, each of up to {certificate.trajectories_per_unit} trajectories of "
                    f"{steps} steps, with {said.logged} within declared bounds."
                ),
                unprotected_quantities=(
                    f"The number of units, {public.units}; declared costs, bounds, product and column names"
                    f"{'; how many rows have which labels' if certificate.labels == 'public' else ''}"
                    f"{'; which trajectories there are' if certificate.adjacency == KEEP_IDS else ''}."
                ),
            ),
            privacy_loss=Loss(
                privacy_unit=whose(certificate),
                privacy_unit_details=" ".join(
                    [
                        f"Adjacent logs: {neighbours(certificate)}.",
                        *declared_in_words(certificate),
                        *periods_in_words(certificate),
                    ]
                ),
                privacy_parameters=Parameters(rho=float(Fraction(seen.rho)), epsilon=seen.epsilon["1e-06"], delta=1e-6),
                privacy_parameters_details=(
                    f"rho = {seen.rho} exactly; {curve}. All releases that the ledger knows of: rho = "
                    f"{certificate.in_all.rho}."
                ),
            ),
            deployment_model=Model(
                release_type=_release_type(certificate),
                release_type_details=(
                    f"A ledger allows rho = {ledger.budget} in all for this data set; {ledger.left} are left after "
                    f"this release. It does not refresh with time.{for_other_periods(certificate)}"
                ),
            ),
            accounting=Accounting(
                composition=certificate.composition, post_processing="; ".join(certificate.post_processing) + "."
            ),
            implementation=Implementation(
                preprocessing_and_hyperparameter_tuning=_preprocessing(certificate),
                mechanisms=f"{mechanisms}. {sampler}.",
            ),
            administrative=Administrative(
                registry_authors=[publication.curator],
                notes=f"Policy SHA-256 {certificate.policy_sha256}.{_signed(certificate)}",
            ),
        ),
    )


def _many(certificate: Certificate) -> str:
    """What decisions are for: products, or values of the state."""
    products = certificate.assumed_public.products
    return f"{len(products)} products" if certificate.words is None else f"each number of {' and '.join(products)}"


def _release_type(certificate: Certificate) -> Literal["One release", "Many releases"]:
    """One release is one that was the first and leaves nothing for another, nor other periods to release."""
    alone = (
        certificate.period is None
        and certificate.ledger.spent == certificate.rho
        and Fraction(certificate.ledger.left) == 0
    )
    return "One release" if alone else "Many releases"


def _signed(certificate: Certificate) -> str:
    return f" Signed with the Ed25519 key of SHA-256 {certificate.signed_by}." if certificate.signed_by else ""


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _preprocessing(certificate: Certificate) -> str:
    """Everything that happened to rows before they were counted."""
    public, unit = certificate.assumed_public, certificate.unit
    steps = ["Bins and noise follow from declared facts, which the data holder declares not to have read off the log."]
    if public.query:
        steps.append(f"Rows came from this query, which must judge each {unit} by itself: {public.query}")
    if certificate.definitions:
        steps.append(f"It could use these definitions of its source: {'; '.join(certificate.definitions)}")
    if public.clip:
        steps.append("Values were clipped to the declared bounds, row by row.")
    if unit != "trajectory":
        many = certificate.trajectories_per_unit
        steps.append(f"Of each unit the first {many} trajectories in the order of their ids were used.")
    return " ".join(steps)
