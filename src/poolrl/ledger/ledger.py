"""Ledger: what was ever spent on a data set. A spend walks through three entries:

    reserve ──► read ──► commit        before the log is opened │ before noise is drawn │ after the policy is written
       └──────► void                   the log could not be read: nothing was released, and the budget comes back

Whatever is reserved and not void counts as spent. A crash can therefore lose budget and never gain it.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from poolrl.ledger.accounts import Account, Entry, OverspendError, apply, replay
from poolrl.ledger.chain import Chain
from poolrl.privacy import zcdp


class Ledger:
    """The accounts of one owner, in a sealed chain of entries.

    An account belongs to a data set by the name its owner gave it, so that a corrected or longer log is charged to
    the same budget. The log itself never enters: only keyed fingerprints, by which the same rows under another name
    are recognised.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self._chain = Chain(path, create=create)

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a ledger that must be there."""
        return cls(path, create=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._chain.close()

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._chain.path

    @property
    def key_path(self) -> Path:
        """Where its key lies."""
        return self._chain.key_path

    def account(self, data_set: str) -> Account | None:
        """What an account holds, or None if there is none of that name."""
        return self.accounts().get(self._name(data_set))

    def accounts(self) -> dict[str, Account]:
        """All accounts by their keyed fingerprint; refuses a ledger that was tampered with."""
        return self.state()[1]

    def entries(self) -> list[Entry]:
        """Every entry from the first to the last, whether or not its seal fits."""
        return self._chain.entries()

    def state(self) -> tuple[list[Entry], dict[str, Account]]:
        """One look at the file: its entries, with every seal checked, and the accounts that they add up to."""
        entries, faults = self._chain.checked_entries()
        if faults:
            raise ValueError(f"{self.path} was tampered with or damaged ({faults[0]}); see 'poolrl ledger verify'")
        return entries, replay(entries)

    def verify(self) -> list[str]:
        """Everything that is wrong with the seals or the accounts; an empty list if nothing is."""
        entries, faults = self._chain.checked_entries()
        if faults:
            return faults
        try:
            replay(entries)
        except (ValueError, KeyError, TypeError) as error:
            return [f"the accounts do not add up: {error}"]
        return []

    def open_account(self, data_set: str, budget: zcdp.Budget) -> Account:
        """The account of a data set, new if there is none; refuses a budget that is not the one it was opened with."""
        exact = zcdp.finite_budget(budget=budget)
        with self._chain.writing():
            accounts = self.accounts()
            account = accounts.get(self._name(data_set))
            if account is None:
                self._append(accounts, "open", self._name(data_set), rho=exact, note={"data_set": data_set})
                account = accounts[self._name(data_set)]
        if account.budget != exact:
            raise ValueError(
                f"{data_set!r} was given a budget of {float(account.budget):g} in the ledger, not {float(exact):g}. "
                "Its owner changes it with 'poolrl ledger budget'"
            )
        return account

    def change_budget(self, data_set: str, budget: zcdp.Budget, *, reason: str) -> Account:
        """Change what may be spent on a data set in all: an entry that everybody can see, with its reason."""
        exact = zcdp.finite_budget(budget=budget)
        if not reason.strip():
            raise ValueError("reason must say why the budget changes")
        with self._chain.writing():
            accounts = self.accounts()
            account = self._known(accounts, data_set)
            self._append(accounts, "budget", account.fingerprint, rho=exact, note={"reason": reason})
        return account

    def reserve(self, data_set: str, rho: zcdp.Budget) -> Entry:
        """Set ρ aside, before anything is read; refused if the account does not hold so much."""
        exact = zcdp.finite_budget(rho=rho)
        with self._chain.writing():
            accounts = self.accounts()
            account = self._known(accounts, data_set)
            if exact > account.left:
                raise OverspendError(
                    f"the budget of {data_set!r} does not allow this: asked for rho = {float(exact):g}, left are "
                    f"{float(account.left):g} of {float(account.budget):g}"
                )
            return self._append(accounts, "reserve", account.fingerprint, rho=exact)

    def read(self, reservation: Entry, contents: Collection[bytes]) -> Account:
        """Record whose rows are about to be released, by digests; from here on nothing comes back. The account then.

        Rows that share a digest with another account are refused: they are paid for there.
        """
        with self._chain.writing():
            accounts = self.accounts()
            mine = accounts[reservation.account]
            mine.require(reservation, "reserved")
            found = sorted(self._chain.fingerprint("content", content) for content in contents)
            other = next((a for a in accounts.values() if a is not mine and not a.contents.isdisjoint(found)), None)
            if other is not None:
                raise OverspendError(
                    f"these very rows have an account already, as {other.data_set!r}: a new name is no new budget"
                )
            self._append(accounts, "read", mine.fingerprint, refers=reservation.number, note={"contents": found})
            return mine

    def void(self, reservation: Entry) -> Entry:
        """Give a reservation back, because the log could not be read: nothing was released."""
        return self._continue(reservation, "reserved", "void")

    def commit(self, reservation: Entry, released: dict[str, str]) -> Entry:
        """Record what was handed out for a reservation, by names and hashes."""
        return self._continue(reservation, "read", "commit", released)

    def _continue(self, reservation: Entry, stage: str, kind: str, note: Any = None) -> Entry:
        with self._chain.writing():
            accounts = self.accounts()
            accounts[reservation.account].require(reservation, stage)
            return self._append(accounts, kind, reservation.account, refers=reservation.number, note=note)

    def _append(
        self,
        accounts: dict[str, Account],
        kind: str,
        account: str,
        *,
        rho: Fraction | None = None,
        refers: int | None = None,
        note: Any = None,
    ) -> Entry:
        entry = self._chain.append(kind, account, rho=rho, refers=refers, note=note)
        apply(entry, accounts)  # an entry that breaks the rules of the accounts never gets into the file
        return entry

    def _known(self, accounts: dict[str, Account], data_set: str) -> Account:
        account = accounts.get(self._name(data_set))
        if account is None:
            raise ValueError(f"the ledger has no account {data_set!r}: the first fit opens it with the file's budget")
        return account

    def _name(self, data_set: str) -> str:
        return self._chain.fingerprint("data set", data_set.encode())
