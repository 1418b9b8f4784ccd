"""The deployment record of a release, for OpenDP's list: a template, filled in from a certificate alone."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from poolrl.certificate.certificate import Certificate, seen_in
from poolrl.certificate.leaflet import declared_sentences, for_other_periods, neighbours, whose
from poolrl.privacy.guarantee import KEEP_IDS
from poolrl.privacy.zcdp import rounded_up

TEMPLATE = Path(__file__).with_suffix(".yaml")
SENTENCES = (declared_sentences, for_other_periods, neighbours, whose, rounded_up)


def registry_record(claim: Certificate) -> str:
    """The record as YAML, in the order of OpenDP's schema."""
    import yaml
    from jinja2 import Environment, StrictUndefined

    public, seen = claim.assumed_public, seen_in(claim)
    names = re.sub(r"[^a-z0-9]+", "-", f"{public.publication.curator} {public.publication.name}".lower()).strip("-")
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # it becomes YAML, not HTML
    environment.globals |= {sentence.__name__: sentence for sentence in SENTENCES}
    environment.globals |= {"claim": claim, "public": public, "publication": public.publication, "words": public.words}
    environment.globals |= {"seen": seen, "slug": names or f"poolrl-{claim.policy_sha256[:12]}", "KEEP_IDS": KEEP_IDS}

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: filled(value) for key, value in part.items()}
        if isinstance(part, list):
            return [filled(value) for value in part]
        return environment.from_string(part).render() if isinstance(part, str) else part

    record = filled(yaml.safe_load(TEMPLATE.read_text(encoding="utf-8")))
    numbers = {"rho": float(Fraction(seen.rho)), "epsilon": seen.epsilon["1e-06"]}
    record["deployment"]["privacy_loss"]["privacy_parameters"] |= numbers
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=100)
    return text
