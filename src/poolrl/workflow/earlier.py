"""An earlier release that an update continues: verified, and added to what a new period shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from poolrl.certificate.all_periods import neighbours_keep
from poolrl.certificate.certificate import Certificate, certified_unit
from poolrl.certificate.files import CERTIFICATE, POLICY, TREES, sha256
from poolrl.certificate.parts import CertifiedPeriod, EarlierRelease
from poolrl.certificate.verify import Terms, verify_release
from poolrl.data.sources.engine import NoRowsError
from poolrl.data.table import Table
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.policy import Policy
from poolrl.ledger.accounts import Account
from poolrl.ledger.ledger import normal_name
from poolrl.ledger.periods import Period
from poolrl.privacy.released import PrivateOutcomes
from poolrl.workflow.config_file import ConfigFile, terms_of

NOTHING_SPENT = "Nothing was spent"
# Public facts that may change from one period to the next: trees do not depend on costs.
COSTS = ("holding", "shortage")


@dataclass(frozen=True)
class Earlier:
    """The public files of a release, verified."""

    policy: Policy
    certificate: Certificate
    certificate_sha256: str
    trees: FadedTrees

    def releases(self) -> list[EarlierRelease]:
        """It, and all those before it that it rests on."""
        claim = self.certificate
        assert claim.period is not None
        last = EarlierRelease(
            period=claim.period,
            rho=claim.rho,
            units=claim.assumed_public.units,
            scale_memory=claim.scale_memory,
            entry=claim.ledger.entry,
            certificate_sha256=self.certificate_sha256,
        )
        return [*claim.earlier, last]


def load_earlier(file: ConfigFile, folder: Path) -> Earlier:
    """A release of the same account that can be continued. Its certificate must hold, and the ledger must know it."""
    paths = [folder / name for name in (POLICY, CERTIFICATE, TREES)]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{folder} cannot be continued: it has no {path.name}. 'poolrl fit' makes a release")
    checks = verify_release(*paths[:2], read_terms=terms_of, ledger=file.ledger)
    broken = [check for check in checks if not check.good]
    if broken:
        raise ValueError(f"{paths[1]} does not hold ({broken[0].what}); see 'poolrl verify'")
    claim = Certificate.read(paths[1].read_bytes())
    _require_alike(claim, file.config.terms(units=claim.assumed_public.units), folder)
    return Earlier(Policy.load(paths[0]), claim, sha256(paths[1]), FadedTrees.load(paths[2]))


def _require_alike(claim: Certificate, terms: Terms, folder: Path) -> None:
    """Refuse a release whose trees mean something else, by public facts alone."""
    if claim.period is None or terms.period is None:
        which = f"{folder} read everything" if claim.period is None else "the configuration has no [period]"
        raise ValueError(
            f"an update adds one period to another, but {which}: declare [period] before the first fit, and a later "
            "one for each update"
        )
    facts = [
        {name: fact for name, fact in public.problem.items() if name not in COSTS}
        for public in (claim.assumed_public, terms.public)
    ]
    differences = {
        "the data set's name": normal_name(claim.ledger.data_set) != normal_name(terms.data_set),
        "the problem (costs may change)": facts[0] != facts[1],
        "products or steps": (claim.assumed_public.products, claim.assumed_public.steps)
        != (terms.public.products, terms.public.steps),
        "who is protected": replace(certified_unit(claim), owns_at_most=None) != replace(terms.unit, owns_at_most=None),
        "the column of [period], or the scale": (claim.period.period().axis, claim.period.period().scale)
        != (terms.period.axis, terms.period.scale),
    }
    if changed := [what for what, differs in differences.items() if differs]:
        raise ValueError(f"{folder} was made with another configuration: {changed[0]} differs. Fit anew instead")
    for each in [*(known.period for known in claim.earlier), claim.period]:
        if each.period().overlaps(terms.period):
            raise ValueError(
                f"{folder} has read {each.period()} already, which overlaps with [period] of the configuration: say "
                "which weeks no release has read"
            )


def refuse_read_periods(account: Account, period: Period) -> None:
    """Refuse an update whose period a finished release has read. What read everything is added up instead."""
    if read := [found for found in account.released_in(period) if found is not None]:
        raise ValueError(
            f"a release has read {read[0]} already, which overlaps with [period] of the configuration: say which weeks "
            f"no release has read. {NOTHING_SPENT}"
        )


def units_in(log: Table, period: Period | None) -> int:
    """The number of units that a release reads, which is public."""
    try:
        return log.units
    except NoRowsError:
        if period is None:
            raise
        raise NoRowsError(f"no trajectory begins in {period}: are dates written like 2025-01-31?") from None


def with_earlier(
    released: PrivateOutcomes, terms: Terms, earlier: Earlier | None
) -> tuple[PrivateOutcomes, FadedTrees]:
    """What to learn from, and the sums that a later update adds to."""
    trees = FadedTrees.of(released)
    if terms.period is None:
        return released, trees
    words = f"Of the log only this period was read: {terms.period}. {neighbours_keep(released.guarantee.unit)}"
    if earlier is not None:
        trees = trees.after(earlier.trees, terms.forgetting)
        released = trees.to_learn_from(released)
        words += f" The policy also rests on {len(earlier.releases())} earlier periods, each with its own certificate."
        if released.guarantee.unit != "trajectory":
            words += f" One {released.guarantee.unit} may be in all of them, and loses the sum of their rho."
    return replace(released, guarantee=replace(released.guarantee, periods=words)), trees


def said_of_periods(terms: Terms, earlier: Earlier | None) -> dict[str, Any]:
    """What the certificate says of this period and of earlier ones; nothing where everything is read."""
    if terms.period is None:
        return {}
    before = [] if earlier is None else earlier.releases()
    return {
        "period": CertifiedPeriod.named(terms.period).model_dump(),
        "forgetting": terms.forgetting,
        "bins": None if earlier is None else earlier.trees.bins,
        "earlier": [each.model_dump() for each in before],
    }
