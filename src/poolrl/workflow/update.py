"""Next month: add a period that no release has read to an earlier release, and say what it will cost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from poolrl.certificate.parts import AuditSummary
from poolrl.ledger.accounts import Account
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.periods import Period
from poolrl.ledger.units import ProtectedUnit
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.earlier import Earlier
from poolrl.workflow.fit import Released, fit_release


def update_release(file: ConfigFile, earlier: Earlier, folder: Path, *, audit: AuditSummary | None = None) -> Released:
    """Spend ρ on the trajectories of the new period, add the earlier trees, and leave a release in a new folder."""
    return fit_release(file, folder, audit=audit, earlier=earlier)


def cost_in_words(file: ConfigFile) -> list[str]:
    """What the update of a configuration will cost whom, and how many more of them the budget allows. Spends nothing.

    The numbers come from the ledger, the configuration and nothing else.
    """
    account, period = _account(file)
    terms = file.config.terms(units=0)
    unit, rho = terms.unit, terms.rho
    before, after = account.spent_by(unit), account.with_spend(rho, unit, period)
    budget = account.budget
    said = [f"This update reads {period}, and takes rho = {float(rho):g}."]
    if unit.column is None:
        said.append(
            f"{_losers(unit)} One {unit.name} will then have lost {float(after):g} at most, "
            f"of a budget of {float(budget):g}."
        )
        if any(found is None for found in account.released_in(period)):
            said.append("An earlier release read everything, without a period. So it counts for this period too.")
    else:
        more = max(Fraction(0), budget - after) // rho
        many = f"{more} more update{'s' * (more != 1)}" if more else "no further update"
        said.append(
            f"One {unit.name} may be in all periods, so they add up: from {float(before):g} to {float(after):g}, of a "
            f"budget of {float(budget):g}. After it the budget lasts for {many} of this size."
        )
    if after > budget:
        said.append("That is more than the budget allows.")
    return said


def noise_in_words(file: ConfigFile, earlier: Earlier) -> str:
    """How long the new period must be, so that the update is no noisier than the release before it. Spends nothing."""
    claim, trees, keep = earlier.certificate, earlier.trees, file.config.forgetting
    # The same counts with another budget: variances are as 1/ρ.
    variance = Fraction(claim.mechanisms[0].variance) * Fraction(claim.rho) / file.config.terms(units=0).rho
    many, enough = (round(each) for each in (trees.slots, trees.slots_to_match(float(variance), keep)))
    called = "trajectories" if file.config.sales is None else "weeks of shops"
    return (
        f"Earlier releases count as {many:,} {called}, and {keep:g} times as much after this one. Noise will weigh no "
        f"more than before if this period has {enough:,} {called} or more. With fewer it still pays where demand has "
        "changed; the update will say so."
    )


def _account(file: ConfigFile) -> tuple[Account, Period]:
    period = file.config.declared_period()
    if period is None:
        raise ValueError(f"{file.path} has no [period]: say which weeks the update reads")
    with Ledger.existing(file.ledger) as ledger:
        account = ledger.account(file.config.privacy.data_set)
    if account is None:
        raise ValueError(f"{file.ledger} has no account {file.config.privacy.data_set!r}: the first fit opens it")
    return account, period


def _losers(unit: ProtectedUnit) -> str:
    if unit.scale_memory:
        return "Trajectories of this period lose it, and less of it those before that its scales come from."
    return "Only trajectories of this period lose it."
