"""Ledger: what was ever spent on a data set. A spend has three entries:

    reserve ──► read ──► commit        before the log is opened │ before noise is drawn │ after the policy is written
       └──────► void                   the log could not be read: nothing was released, and the budget comes back

What is reserved and not void counts as spent. So a crash can lose budget, but never gain it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from poolrl.ledger.accounts import Account, Entry, OverspendError, apply, replay
from poolrl.ledger.chain import Chain
from poolrl.privacy import zcdp


class Ledger:
    """The accounts of one owner, in a sealed chain of entries.

    An account belongs to a data set by the name that its owner gave it. So a corrected or longer log is charged to the
    same budget. The log itself is not stored, only keyed fingerprints. By them the same rows are recognised under
    another name.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self._chain = Chain(path, create=create)
        self.path, self.key_path = self._chain.path, self._chain.key_path

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a ledger that must be there."""
        return cls(path, create=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._chain.close()

    def account(self, data_set: str) -> Account | None:
        """The account of a data set, if there is one."""
        return self.accounts().get(self._name(data_set))

    def accounts(self) -> dict[str, Account]:
        """All accounts by their keyed fingerprint; refuses a ledger that was tampered with."""
        return self.state()[1]

    def entries(self) -> list[Entry]:
        """Every entry from the first to the last; seals are not checked."""
        return self._chain.entries()

    def state(self) -> tuple[list[Entry], dict[str, Account]]:
        """The entries, with every seal checked, and the accounts that they add up to, by one look at the file."""
        entries, faults = self._chain.checked_entries()
        if faults:
            raise ValueError(f"{self.path} was tampered with or damaged ({faults[0]}); see 'poolrl ledger verify'")
        return entries, replay(entries)

    def verify(self) -> list[str]:
        """The faults of the file, its seals or its accounts; an empty list if there are none."""
        entries, faults = self._chain.checked_entries()
        if faults:
            return faults
        try:
            replay(entries)
        except (ValueError, KeyError, TypeError) as error:
            return [f"the accounts do not add up: {error}"]
        return []

    def open_account(self, data_set: str, budget: zcdp.Budget) -> Account:
        """The account of a data set, new if there is none; refuses a budget that is not the account's."""
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
        """Change the total budget of a data set, by an entry that gives the reason."""
        exact = zcdp.finite_budget(budget=budget)
        if not reason.strip():
            raise ValueError("reason must say why the budget changes")
        with self._chain.writing():
            accounts = self.accounts()
            account = self._known(accounts, data_set)
            self._append(accounts, "budget", account.fingerprint, rho=exact, note={"reason": reason})
        return account

    def reserve(self, data_set: str, rho: zcdp.Budget) -> Entry:
        """Set ρ aside before anything is read; refused if the account holds less."""
        exact = zcdp.finite_budget(rho=rho)
        with self._chain.writing():
            accounts = self.accounts()
            account = self._known(accounts, data_set)
            if exact > account.left:
                left = f"only {float(account.left):g} of {float(account.budget):g} is left"
                raise OverspendError(f"the budget of {data_set!r} does not allow rho = {float(exact):g}: {left}")
            return self._append(accounts, "reserve", account.fingerprint, rho=exact)

    def read(self, reservation: Entry, contents: Collection[bytes]) -> Account:
        """Record by digests whose rows are about to be released; returns the account. The budget cannot come back now.

        Rows that share a digest with another account are refused, because they are paid for there.
        """
        with self._chain.writing():
            accounts = self.accounts()
            mine = accounts[reservation.account]
            mine.require(reservation, "reserved")
            found = sorted(self._chain.fingerprint("content", content) for content in contents)
            other = next((a for a in accounts.values() if a is not mine and not a.contents.isdisjoint(found)), None)
            if other is not None:
                raise OverspendError(
                    f"these rows already have an account, as {other.data_set!r}: a new name gives no new budget"
                )
            self._append(accounts, "read", mine.fingerprint, refers=reservation.number, note={"contents": found})
            return mine

    def void(self, reservation: Entry) -> Entry:
        """Give a reservation back, because the log could not be read: nothing was released."""
        return self._continue(reservation, "reserved", "void")

    def commit(self, reservation: Entry, released: dict[str, str]) -> Entry:
        """Record what was released for a reservation, by names and hashes."""
        return self._continue(reservation, "read", "commit", released)

    def _continue(self, reservation: Entry, stage: str, kind: str, note: Any = None) -> Entry:
        with self._chain.writing():
            accounts = self.accounts()
            accounts[reservation.account].require(reservation, stage)
            return self._append(accounts, kind, reservation.account, refers=reservation.number, note=note)

    def _append(self, accounts: dict[str, Account], kind: str, account: str, **facts: Any) -> Entry:
        entry = self._chain.append(kind, account, **facts)
        # An entry that breaks a rule raises here, and the transaction is rolled back.
        apply(entry, accounts)
        return entry

    def _known(self, accounts: dict[str, Account], data_set: str) -> Account:
        account = accounts.get(self._name(data_set))
        if account is None:
            raise ValueError(f"the ledger has no account {data_set!r}: the first fit opens it with the file's budget")
        return account

    def _name(self, data_set: str) -> str:
        return self._chain.fingerprint("data set", data_set.encode())
