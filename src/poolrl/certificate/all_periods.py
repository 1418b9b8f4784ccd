"""Periods of a certificate: what it says of them, whether that adds up, and whether the ledger says the same."""

from __future__ import annotations

from fractions import Fraction

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.parts import CertifiedPeriod, InAll
from poolrl.ledger.accounts import Account, Entry
from poolrl.ledger.periods import Period, Portion, lost_by_one
from poolrl.privacy import zcdp

# More bins than any released tree has.
MOST_CERTIFIED_BINS = 1024


def periods_in_words(claim: Certificate) -> list[str]:
    """Who of the log was read, who neighbours are, and which earlier periods the policy rests on; none without one."""
    if claim.period is None:
        return []
    said = [f"Of the log only this period was read: {claim.period.period()}. {neighbours_keep(claim.unit)}"]
    if not claim.earlier:
        return said
    many = len(claim.earlier)
    said.append(
        f"The policy also rests on {many} release{'s' * (many > 1)} of earlier periods: "
        f"{'; '.join(f'{_ends(each.period)} (rho = {float(Fraction(each.rho)):g})' for each in claim.earlier)}. "
        f"In each update what came before counts {claim.forgetting:g} times as much."
    )
    lost = f"loses rho = {float(_together(claim)):g}"
    if claim.unit == "trajectory":
        said.append(f"A trajectory is in one of these periods. To all of them together it {lost} at most.")
    else:
        said.append(f"One {claim.unit} may be in all of them, and {lost} to them together.")
    return said


def seen_in(claim: Certificate) -> InAll:
    """What an attacker who sees this release alone can use: its own ρ, or that of all releases.

    A policy of several periods holds the trees of all of them. A trajectory is in one, so the others tell nothing of it
    and only add noise. But a unit may be in each, and its shifts add up where the noise adds up in squares.
    """
    if claim.earlier and claim.unit != "trajectory":
        return claim.in_all
    return InAll(rho=claim.rho, epsilon=claim.epsilon, attack=claim.attack)


def neighbours_keep(unit: str) -> str:
    """Which neighbouring logs a release of a period compares: how many units each period has is public."""
    if unit == "trajectory":
        return "The other trajectory begins at the same date or number: when one begins is not protected."
    return f"The other {unit} has trajectories in the same periods: when one has some is not protected."


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


def period_faults(claim: Certificate) -> list[str]:
    """What does not hold of the periods of a certificate."""
    if claim.period is None:
        unsaid = claim.earlier == [] and claim.forgetting is None and claim.bins is None
        return [] if unsaid else ["it speaks of earlier periods, but names none of its own"]
    try:
        known = [each.period.period() for each in claim.earlier]
        periods = [*known, claim.period.period()]
        costs = [zcdp.written(each.rho) for each in claim.earlier]
        lost, spent = _together(claim), zcdp.written(claim.ledger.spent)
    except (ValueError, ZeroDivisionError, OverflowError):
        return ["a period or its rho cannot be read"]
    faults = []
    if any(one.overlaps(other) for i, one in enumerate(periods) for other in periods[:i]):
        faults.append("two of its periods overlap")
    if any(cost <= 0 for cost in costs) or any(each.units < 1 or each.scale_memory < 0 for each in claim.earlier):
        faults.append("an earlier period has no cost or no units")
    if spent < lost:
        faults.append("its periods cost more than it says was spent in all")
    trees = claim.bins is None or 2 <= claim.bins <= MOST_CERTIFIED_BINS
    fades = claim.forgetting is not None and 0 < claim.forgetting <= 1
    if not (trees and fades and (claim.bins is None) == (not claim.earlier)):
        faults.append("how earlier periods count is not said")
    return faults


def unpaid_periods(claim: Certificate, entries: list[Entry], account: Account | None) -> list[str]:
    """Which periods of a certificate the ledger does not have, or has otherwise."""
    if period_faults(claim):
        return ["they do not add up"]
    spends = {} if account is None else account.spends
    faults = []
    own = None if claim.period is None else claim.period.period()
    spend = spends.get(claim.ledger.entry)
    if spend is None or spend.period != own:
        faults.append("its own period is not the one that was paid for")
    for each in claim.earlier:
        spend = spends.get(each.entry)
        commits = [e.note for e in entries if e.kind == "commit" and e.refers == each.entry]
        paid = spend is not None and (spend.period, str(spend.rho)) == (each.period.period(), each.rho)
        if not paid or each.certificate_sha256 not in [found for note in commits for found in note.values()]:
            faults.append(f"entry {each.entry} is not the release of {_ends(each.period)}")
    return faults


def _together(claim: Certificate) -> Fraction:
    """What one unit loses to the periods that a certificate names, its own included."""
    assert claim.period is not None
    named = [(each.rho, each.period, each.scale_memory) for each in claim.earlier]
    named.append((claim.rho, claim.period, claim.scale_memory))
    portions = [Portion(zcdp.written(rho), period.period(), memory) for rho, period, memory in named]
    if claim.unit != "trajectory":
        return sum((each.rho for each in portions), Fraction(0))
    return lost_by_one(portions)


def _ends(period: CertifiedPeriod | Period) -> str:
    return f"{period.first} to before {period.before}"
