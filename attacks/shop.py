"""A shop under attack: its commands, and what must hold after each fault."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from poolrl import LostSales
from poolrl.certificate.release_files import sha256
from poolrl.ledger.accounts import Entry
from poolrl.ledger.ledger import Ledger
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.verified import verify_folder

POOLRL = [sys.executable, "-m", "poolrl.cli.main"]
RHO, ROUND = 0.01, 20  # budget of a fit, and how many of them the owner allows at a time
ALWAYS = {"policy.npz", "certificate.json", "certificate.sig", "leaflet.txt", "registry.yaml", "poolrl.toml"}


class LostError(AssertionError):
    """Something that was confirmed is lost, or budget was gained."""


def hold(condition: object, what: str) -> None:
    """Raise if a condition that must hold does not."""
    if not condition:
        raise LostError(what)


@dataclass
class Shop:
    """A data set with its configuration, its ledger and its releases, in a folder."""

    folder: Path
    rng: random.Random
    seconds: float = 4.0  # about as long as a fit; a fault comes at a random moment of it
    fits: int = 0
    rounds: int = 1  # how often the owner has raised the budget
    seen: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem = LostSales(horizon=3, products=2, holding=0.2, shortage=[0.5, 0.6], demand_max=[40.0, 60.0])
        rng = np.random.default_rng(0)
        demand = np.minimum(rng.gamma(4.0, 4.0, (400, 3, 2)), problem.demand_max)
        pq.write_table(problem.simulate_log(demand, rng=rng).to_arrow(), self.folder / "log.parquet")
        self.write()

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger.sqlite"

    def write(self, *, source: str = "log.parquet", name: str = "poolrl.toml") -> Path:
        """Write the configuration with the present budget."""
        columns = {part: [f"{part}_0", f"{part}_1"] for part in ("state", "action", "next_state")}
        log = {"source": source, "trajectory": "trajectory", "step": "step", "first_step": 0}
        facts: dict[str, dict[str, Any]] = {
            "problem": {
                "kind": "lost sales",
                "products": ["bread", "milk"],
                "horizon": 3,
                "holding": 0.2,
                "shortage": [0.5, 0.6],
                "demand_max": [40.0, 60.0],
            },
            "log": log | {"opening": columns["state"], "order_up_to": columns["action"], "left": columns["next_state"]},
            "privacy": {
                "rho": RHO,
                "budget": float(Fraction(str(RHO)) * ROUND * self.rounds),
                "data_set": "shop",
                "ledger": "ledger.sqlite",
            },
            "plan": {"units": 400},
            "publication": {"name": "Orders", "curator": "Ann", "region": "Here", "intended_use": "Trying."},
        }
        path = self.folder / name
        path.write_text(write_toml(facts))
        return path

    def out(self) -> Path:
        """Where the next fit writes."""
        self.fits += 1
        return self.folder / f"out-{self.fits}"

    def fit(self, out: Path, *, config: str = "poolrl.toml", before: Callable[[], None] | None = None) -> Process:
        """Start a fit."""
        arguments = ["--config", str(self.folder / config), "--out", str(out), "--json"]
        return Process([*POOLRL, *self.first(), *arguments], before)

    def first(self) -> list[str]:
        """The verb, and the flag that only the first fit of a data set may have."""
        return ["fit", *([] if any(entry.kind == "open" for entry in self.entries()) else ["--new-account"])]

    def again(self, out: Path) -> str:
        """The same fit undisturbed: it succeeds, or it succeeds after the owner did what its message says."""
        ended = self.fit(out).end()
        if "does not allow rho" in ended.said:
            self.rounds += 1
            budget = float(Fraction(str(RHO)) * ROUND * self.rounds)
            raising = [
                "ledger",
                "budget",
                str(budget),
                "--reason",
                "more",
                "--config",
                str(self.folder / "poolrl.toml"),
            ]
            hold(Process([*POOLRL, *raising]).end().code == 0, "the owner could not raise the budget")
            self.write()
            ended = self.fit(out).end()
        if "a release is never overwritten" in ended.said:
            return "was done"
        hold(ended.code == 0, f"a fit could not be done again: {ended.said[-300:]}")
        hold(not (self.folder / f".{out.name}.draft").exists(), "a draft is left")
        return "done again"

    def entries(self) -> list[Entry]:
        """The ledger's entries as they are now."""
        if not self.ledger.exists() or self.ledger.stat().st_size == 0:
            return []
        with Ledger.existing(self.ledger) as ledger:
            return ledger.entries()

    def check(self) -> None:
        """Check what must hold after every fault."""
        # A ledger is made with its key in one transaction. Before that there is no file, or an empty one.
        if not self.ledger.exists() or self.ledger.stat().st_size == 0:
            hold(not self.seen and not list(self.folder.glob("out-*")), "the ledger is gone")
            return
        with Ledger.existing(self.ledger) as ledger:
            faults, entries = ledger.verify(), ledger.entries()
            hold(not faults, f"the ledger does not verify: {faults}")
            account = ledger.account("shop")
        hold(entries[: len(self.seen)] == self.seen, "an entry of the ledger is gone or was changed")
        self.seen = entries
        commits = [entry.note for entry in entries if entry.kind == "commit"]
        releases = sorted(self.folder.glob("out-*"))
        hold(len(releases) <= len(commits), "there are more releases than were paid for")
        drafts = list(self.folder.glob(".out-*.draft"))
        there = [hashes(place) for place in (*releases, *drafts)]
        hold(all(commit in there for commit in commits), "a release that was paid for is gone")
        spent = account.spent if account else Fraction(0)
        hold(spent >= len(commits) * Fraction(str(RHO)), "less is spent than was released")
        hold(not account or account.spent <= account.budget, "more is spent than was allowed")
        # Older releases were checked before.
        for release in releases[-3:]:
            names = {path.name for path in release.iterdir()}
            hold(names >= ALWAYS, f"a release is not complete: {sorted(names)}")
            checks = verify_folder(release / "policy.npz", release / "certificate.json", None, self.ledger)
            hold(all(check.good for check in checks), "a release does not verify against the ledger")

    def summary(self) -> str:
        """Releases and entries at the end."""
        kinds = ", ".join(f"{sum(e.kind == kind for e in self.seen)} {kind}" for kind in ("reserve", "void", "commit"))
        releases = len(list(self.folder.glob("out-*")))
        return f"{releases} releases, all complete; ledger: {len(self.seen)} entries ({kinds})"


def hashes(release: Path) -> dict[str, str]:
    """What the ledger knows of a release."""
    files = [release / name for name in ("policy.npz", "certificate.json")]
    return {file.name: sha256(file) for file in files if file.exists()}


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    said: str

    @property
    def word(self) -> str:
        """How it ended."""
        return "done" if self.code == 0 else "killed" if self.code < 0 else "refused"


class Process:
    """A command in its own process group, so that it can be killed together with its children."""

    def __init__(self, command: list[str], before: Callable[[], None] | None = None) -> None:
        def prepare() -> None:
            # A background process would ignore SIGINT.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if before is not None:
                before()

        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=prepare,
        )

    def end(self, *, after: float | None = None, by: signal.Signals = signal.SIGKILL) -> Ended:
        """Wait for its end, or end it after this many seconds."""
        try:
            said, _ = self._process.communicate(timeout=after if after is not None else 300)
        except subprocess.TimeoutExpired:
            hold(after is not None, "a command hangs")
            if by == signal.SIGKILL:
                os.killpg(self._process.pid, by)
            else:
                self._process.send_signal(by)
            said, _ = self._process.communicate(timeout=120)
        # Python's own traceback, if Ctrl-C comes before poolrl has started, is not poolrl's.
        early = self._process.returncode == -signal.SIGINT
        ours = "Traceback" in said and not early
        hold(not ours and "defect of poolrl" not in said, f"a traceback instead of a message: {said[-400:]}")
        return Ended(self._process.returncode, said)


def spent(shop: Shop) -> Fraction:
    """What the ledger counts as spent."""
    if not shop.ledger.exists():
        return Fraction(0)
    with Ledger.existing(shop.ledger) as ledger:
        account = ledger.account("shop")
    return account.spent if account else Fraction(0)
