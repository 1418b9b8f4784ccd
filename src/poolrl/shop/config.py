"""`poolrl.toml`: everything that must be public, declared by a person. Nothing in it is read off the log."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from poolrl.data.log import Columns
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.shop.toml import read_toml

KINDS: dict[str, type[LostSales] | type[Backlog]] = {"lost sales": LostSales, "backlog": Backlog}
AMOUNTS = (
    "holding",
    "shortage",
    "boundary",
    "demand_max",
)  # one number, one per product, or (but for the last) per step
Costs = float | list[float] | list[list[float]]
Text = Field(min_length=1, max_length=10_000)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class ProblemFacts(_Section):
    """What is decided, how often, at which cost, within which bounds."""

    kind: Literal["lost sales", "backlog"]
    products: list[str] = Field(min_length=1, max_length=10_000)
    horizon: int = Field(ge=1, le=10_000)
    steps: list[str] = []
    holding: Costs
    shortage: Costs
    demand_max: float | list[float]
    boundary: Costs = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        for name, names in (("products", self.products), ("steps", self.steps)):
            if len({each.lower() for each in names}) < len(names) or not all(map(_is_name, names)):
                faults.append(f"{name} must be different names, also in small letters, of characters that can be seen")
        if "step" in self.products:
            faults.append("products must not be called step: decide has a column of that name")
        if self.steps and len(self.steps) != self.horizon:
            faults.append(f"steps must name each of the {self.horizon} steps, or be left out; got {len(self.steps)}")
        products = len(self.products)
        for name in AMOUNTS:
            shape = np.shape(np.asarray(getattr(self, name), dtype=object))
            shapes: list[tuple[int, ...]] = [(), (products,)] + (
                [] if name == "demand_max" else [(self.horizon, products), (self.horizon, 1)]
            )
            if shape not in shapes:
                lists = "" if name == "demand_max" else f", or {self.horizon} lists of {products}, one per step"
                faults.append(f"{name} must be one number, or {products}, one per product{lists}")
        if faults:
            raise ValueError("; ".join(faults))
        self.problem()  # says what else is wrong with costs and bounds
        return self

    def problem(self) -> LostSales | Backlog:
        """The problem that the learner sees."""
        return KINDS[self.kind](
            horizon=self.horizon,
            products=len(self.products),
            holding=self.holding,
            shortage=self.shortage,
            demand_max=self.demand_max,
            boundary=self.boundary,
        )


class LogTable(_Section):
    """Where the log lies and what its columns mean; column names are public, their contents are not."""

    source: str = Text
    query: str | None = None
    trajectory: str = Text
    step: str = Text
    first_step: int = Field(default=0, ge=-(2**53), le=2**53)
    opening: list[str] = Field(min_length=1)
    order_up_to: list[str] = Field(min_length=1)
    left: list[str] = Field(min_length=1)
    clip: bool = False

    @model_validator(mode="after")
    def _server_is_complete(self) -> Self:
        if "://" not in self.source:
            return self
        from poolrl.data.sources.opening import POSTGRES

        if not self.source.startswith(POSTGRES):
            return self
        if not self.query:
            raise ValueError("source is a PostgreSQL server: add a query that gives the log's rows")
        if "password=" in self.source or urlsplit(self.source).password is not None:
            raise ValueError("source must not hold a password, for this file is public: use PGPASSWORD or ~/.pgpass")
        return self


class Privacy(_Section):
    """Who is protected, how strongly, and what may be spent in all."""

    rho: float = Field(ge=1e-9)
    budget: float = Field(gt=0)
    data_set: str = Text
    unit: str | None = None
    max_per_unit: int | None = Field(default=None, ge=1, le=10**6)
    protects: str = ""
    ledger: str = "ledger.sqlite"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.unit is None and self.max_per_unit is not None:
            raise ValueError("max_per_unit needs unit: name the column that says whose trajectory it is")
        if self.unit is not None and self.max_per_unit is None:
            raise ValueError("unit needs max_per_unit: say how many trajectories of one unit are used")
        if self.rho > self.budget:
            raise ValueError(f"rho must not exceed budget: {self.rho:g} is more than {self.budget:g}")
        return self

    @property
    def per_unit(self) -> int:
        """c, the trajectories that one unit may own."""
        return self.max_per_unit or 1


class PlanFacts(_Section):
    """What `poolrl plan` assumes: how many units the log holds, and which demand to try."""

    units: int = Field(default=1000, ge=1, le=10**12)
    trajectories_per_unit: int | None = Field(default=None, ge=1, le=10**6)
    demand: str = "any"


class Publication(_Section):
    """What the record for the registry of deployments says about the product."""

    name: str = "Ordering policy"
    curator: str = "not stated"
    region: str = "not stated"
    intended_use: str = "Order-up-to levels for the coming periods."


class Config(_Section):
    """The whole file."""

    problem: ProblemFacts
    log: LogTable
    privacy: Privacy
    plan: PlanFacts = PlanFacts()
    publication: Publication = Publication()

    @model_validator(mode="after")
    def _columns_fit_products(self) -> Self:
        for name in ("opening", "order_up_to", "left"):
            given = len(getattr(self.log, name))
            if given != len(self.problem.products):
                raise ValueError(
                    f"[log] {name} must name one column for each of the {len(self.problem.products)} products, "
                    f"got {given}"
                )
        return self

    @model_validator(mode="after")
    def _numbers_are_no_names(self) -> Self:
        first = self.log.first_step
        for number, name in enumerate(self.problem.steps):
            if name.isdecimal() and int(name) != first + number and first <= int(name) < first + self.problem.horizon:
                raise ValueError(f"[problem] steps must not call a step by the number of another one, as {name!r} does")
        return self

    def columns(self) -> Columns:
        """Which column holds what."""
        log = self.log
        return Columns(
            log.trajectory,
            log.step,
            tuple(log.opening),
            tuple(log.order_up_to),
            tuple(log.left),
            self.privacy.unit,
        )

    def step_names(self) -> list[str]:
        """A name for every step: the user's, or the number it has in the log."""
        first = self.log.first_step
        return self.problem.steps or [str(first + step) for step in range(self.problem.horizon)]

    def declared(self) -> dict[str, Any]:
        """What a certificate repeats of this file."""
        return {
            "problem": self.problem.problem().facts(),
            "products": self.problem.products,
            "steps": self.step_names(),
            "columns": self.columns().names(),
            "unit_column": self.privacy.unit,
            "clip": self.log.clip,
            "query": self.log.query,
            "protects": self.privacy.protects,
            "publication": self.publication.model_dump(),
        }

    def labels(self) -> dict[str, Any]:
        """The names that go with a policy, so that it can be asked in the user's words."""
        return {"products": self.problem.products, "steps": self.step_names(), "first_step": self.log.first_step}


@dataclass(frozen=True)
class ConfigFile:
    """A configuration, where it lies, and its bytes."""

    path: Path
    config: Config
    content: bytes

    @property
    def sha256(self) -> str:
        """The hash that a certificate names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.path.parent

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.folder / Path(self.config.privacy.ledger).expanduser()


def load_config(path: Path) -> ConfigFile:
    """Read and check a configuration; every mistake is told with its key."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; 'poolrl init' writes one, 'poolrl init --example' one to try")
    return parse_config(path, path.read_bytes())


def parse_config(path: Path, content: bytes) -> ConfigFile:
    """Check the bytes of a configuration that lies, or is about to lie, at a path."""
    try:
        facts = read_toml(content)
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    try:
        return ConfigFile(path, Config.model_validate(facts), content)
    except ValidationError as error:
        faults = list(dict.fromkeys(_fault(each) for each in error.errors()))
        raise ValueError(
            "\n  ".join([f"{path} has {len(faults)} mistake{'s' * (len(faults) > 1)}:", *faults])
        ) from None


def _is_name(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


def _fault(error: Any) -> str:
    """One mistake as `[section] key: what is wrong`, with the key that was probably meant."""
    where: tuple[Any, ...] = error["loc"] or ("",)
    kind = error["type"]
    section = f"[{where[0]}]"
    key = section if len(where) == 1 else f"{section} {'.'.join(map(str, where[1:]))}"
    if kind == "extra_forbidden":
        owner = Config.model_fields[str(where[0])].annotation if len(where) > 1 else Config
        known = list(owner.model_fields) if isinstance(owner, type) and issubclass(owner, BaseModel) else []
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{key} is not known; {hint}"
    if kind == "missing":
        return f"{key} is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return message if message.startswith("[") else f"{section} {message}"
    if len(where) > 1 and where[1] in AMOUNTS:
        return f"{section} {where[1]} must be a number, a list (one per product), or a list per step of such lists"
    given = error["input"]
    shown = f", got {given!r}" if isinstance(given, str | int | float) and len(repr(given)) < 80 else ""
    return f"{key}: {message[0].lower()}{message[1:]}{shown}"
