"""`poolrl.toml` as a whole: its sections, what they say together, and reading it with every mistake by its key."""

import hashlib
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, get_args

from platformdirs import user_data_path
from pydantic import BaseModel, ValidationError, field_validator, model_validator

from poolrl.certificate.certificate import AssumedPublic, Facts, Publication, Terms
from poolrl.checks import nearest
from poolrl.data.log import Columns
from poolrl.learning.stored import Names
from poolrl.ledger.accounts import Period, ProtectedUnit
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import KEEP_IDS, REPLACE_ANY
from poolrl.privacy.sensitivity import moved_trajectories
from poolrl.workflow.config import sections
from poolrl.workflow.config.sales import MONDAY, WEEKDAYS, SalesTable, export_query
from poolrl.workflow.config.sections import Key, LogTable, PeriodFacts, PlanFacts, Privacy, ProblemSection
from poolrl.workflow.trades.problem_section import AMOUNTS, OperationFacts
from poolrl.workflow.trades.trade import Trade, code_beside, trade_named, trade_of

LOST_SALES = "lost sales"
# A key of many parts takes a parser memory and time that grow with their square.
LARGEST_CONFIG, DEEP_KEY = 2**20, re.compile(r"""(?:["']?[\w-]+["']?[ \t]*\.[ \t]*){100}""")


class Config(Facts):
    """The whole file."""

    problem: ProblemSection
    log: LogTable
    sales: SalesTable | None = None
    privacy: Privacy
    plan: PlanFacts = PlanFacts()
    publication: Publication = Publication()
    period: PeriodFacts = PeriodFacts()
    operations: OperationFacts = OperationFacts()

    @field_validator("problem", mode="before")
    @classmethod
    def _of_its_trade(cls, problem: Any) -> Any:
        """The kind says which trade it is, and the trade says which keys there are; without one, shops."""
        if not isinstance(problem, dict):
            return problem
        kind = problem.get("kind")
        return trade_named(kind if isinstance(kind, str) else LOST_SALES).section.model_validate(problem)

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        faults = [why for place, why in self.problem.unused.items() if self._says(place)]
        faults += faults or self.problem.faults(self)
        first, horizon = self.first_step, self.problem.horizon
        faults += [
            f"[problem] steps must not call a step by the number of another one, as {name!r} does"
            for number, name in enumerate(self.problem.steps, first)
            if name.isdecimal() and int(name) != number and first <= int(name) < first + horizon
        ]
        if self.privacy.labels_public and not self.problem.labels:
            faults.append("[privacy] labels_public needs [problem] labels")
        if faults:
            raise ValueError("; ".join(dict.fromkeys(faults)))
        self.columns()  # refuses a column that is named twice
        self.declared_period()  # and a period that has no beginning or end
        return self

    def _says(self, place: str) -> bool:
        """Whether a section, or a key of it, says anything but what is usual."""
        section, _, name = place.rpartition(".")
        owner = getattr(self, section) if section else self
        return bool(getattr(owner, name) != type(owner).model_fields[name].default)

    @property
    def in_words(self) -> str:
        """The subject of the problem, for `poolrl check` and for an audit."""
        problem, words = self.problem, trade_of(self.problem.posed).words
        scope = words.certified(problem.products, censored=problem.posed.censored).scope
        plural = "s" * (problem.horizon != 1)
        return f"{problem.kind}: {words.decisions} for {scope}, {problem.horizon} {words.step}{plural}"

    @property
    def first_step(self) -> int:
        """The number of the first step in the log; Monday is day 1 of a sales export."""
        return self.log.first_step if self.sales is None else 1

    @property
    def scale_memory(self) -> int:
        """How many other trajectories' scales may change with one."""
        if self.sales is None:
            return self.log.scale_memory or 0
        return self.sales.memory(weeks_public=self.privacy.weeks_public)

    @property
    def scale_in_words(self) -> str:
        """The scale in words, for the page; nothing where levels are in units."""
        columns = list(self.log.scale)
        if self.sales is not None:
            if self.sales.weeks is not None:
                last = "last same weekday" if self.sales.weeks == 1 else f"last {self.sales.weeks} same weekdays"
                return f"the average of the {last}"
            columns = [self.sales.scale] if self.sales.scale else []
        return f"what {columns[0]} says" if len(columns) == 1 else "the expected amount" if columns else ""

    @property
    def moved(self) -> int:
        """c, the trajectories that one unit moves."""
        privacy, memory = self.privacy, self.scale_memory
        return moved_trajectories(per_unit=privacy.per_unit, scale_memory=memory, has_units=privacy.unit is not None)

    def query(self, *, explained: bool = False) -> str | None:
        """The SQL of the log's rows, on the answer to `export` if any; `explained` adds why one is unobserved."""
        return self.problem.query(self, explained=explained)

    def columns(self) -> Columns:
        """Which column holds what."""
        return self.problem.columns(self)

    def export(self) -> str | None:
        """The SQL that gives the rows of a sales export in a database file."""
        return None if self.sales is None else export_query(self.sales, self.columns_of_labels())

    def columns_of_labels(self) -> dict[str, str]:
        """Which column of a sales export holds which label."""
        if self.sales is None:
            return {}
        usual = {name: name for name in self.problem.labels} | {"shop": self.sales.shop}
        return {name: self.sales.labels.get(name, usual[name]) for name in self.problem.labels}

    def declared_period(self) -> Period | None:
        """Which trajectories a release reads; None stands for all of them."""
        rule = () if self.sales is None or self.sales.scale is None else (self.sales.scale,)
        period = self.period.of(rule or self.columns().scale)
        return period and (replace(period, column=f"{MONDAY} by {self._dates}") if self.sales else period)

    @property
    def forgetting(self) -> float:
        """The weight of earlier periods in each update, as declared or as is usual."""
        usual = sections.FORGETTING_SCALED if self.columns().scale else sections.FORGETTING
        return usual if self.period.forgetting is None else self.period.forgetting

    @property
    def _dates(self) -> str:
        """Which column of a sales export holds dates, and how they are read."""
        assert self.sales is not None
        return f"{self.sales.date} ({self.sales.date_format or 'ISO'})"

    def unit(self) -> ProtectedUnit:
        """Whom a release protects, for the ledger, by names that differ where other columns say who it is.

        Every sales export has weeks and shops. Those of another column, or of dates read in another way, are others.
        """
        privacy, trajectory, owner = self.privacy, self.columns().trajectory, self.privacy.unit
        if self.sales is not None:
            trajectory, owner = f"week of {self.sales.shop} by {self._dates}", owner and self.sales.shop
        return ProtectedUnit(
            trajectory,
            owner,
            privacy.per_unit,
            privacy.owns_at_most,
            scale_memory=self.scale_memory,
            labels_kept=privacy.labels_public,
            adjacency=KEEP_IDS if privacy.weeks_public else REPLACE_ANY,
        )

    def names(self) -> Names:
        """The user's names of products, steps and columns; a step without a name has its number in the log."""
        first, problem, sales = self.first_step, self.problem, self.sales
        numbers = [str(first + step) for step in range(problem.horizon)]
        days = [] if sales is None else [WEEKDAYS[number - 1] for number in sales.open_days]
        # The columns that a table of `poolrl decide` has too.
        if sales is None:
            asked = self.log.columns | {"scale": self.log.scale[0] if len(self.log.scale) == 1 else ""}
            asked |= {"step": self.log.step}
        else:
            asked = {"product": sales.product, "stock": sales.opening} | self.columns_of_labels()
            asked |= {"scale": sales.scale or "" if sales.weeks is None else ""}
        columns = {meaning: column for meaning, column in asked.items() if column}
        return Names(problem.products, problem.steps or days or numbers, first, columns)

    def terms(self, units: int) -> Terms:
        """What a certificate repeats of this file, beside the number of units of the log."""
        query, export = self.query(), self.export()
        if query is not None and export is not None:
            query = query.replace("WITH ", f"WITH log AS ({export}), ", 1)
        posed, trade, unit = self.problem.posed, trade_of(self.problem.posed), self.unit()
        # The record speaks in the words of the trade, where nobody has chosen others.
        said, usual = self.publication, self.problem.usual(trade)
        chosen = {name: usual.get(name, value) for name, value in said if name not in said.model_fields_set}
        public = AssumedPublic(
            problem=posed.facts(),
            words=trade.words.certified(self.problem.products, censored=posed.censored),
            products=self.problem.products,
            steps=self.names().steps,
            columns=[unit.trajectory, *self.columns().names()[1:]],
            unit_column=unit.column,
            clip=self.log.clip,
            query=query,
            protects=self.privacy.protects,
            publication=said.model_copy(update=chosen),
            units=units,
        )
        rho, budget = zcdp.finite_budget(rho=self.privacy.rho), zcdp.finite_budget(budget=self.privacy.budget)
        period = self.declared_period()
        forgetting = None if period is None else self.forgetting
        return Terms(public, self.privacy.data_set, rho, budget, unit, period, forgetting)


def keys_of(trade: Trade, *, sales: bool) -> list[Key]:
    """Every key that the file of a trade has, in its order; those of a sales export and a wide table differ."""
    of_other = [f"log.{name}" for name in sections.WIDE_ONLY] if sales else ["sales", "privacy.weeks_public"]
    left_out = {*trade.section.unused, *of_other}
    keys = {section: sections.keys_of_model(section, model) for section, model in _section_models().items()}
    keys["problem"] = trade.section.keys(trade)
    usual = trade.section.usual(trade)
    return [
        replace(key, answer=usual.get(key.flag, key.answer))
        for keys_there in keys.values()
        for key in keys_there
        if not left_out & {key.section, key.place}
    ]


def _section_models() -> dict[str, type[BaseModel]]:
    """The model of each section, [problem] as shops have it; one that may be left out is a union with None."""
    kinds = {name: field.annotation for name, field in Config.model_fields.items()}
    kinds["problem"] = trade_named(LOST_SALES).section
    return {name: (get_args(kind) or (kind,))[0] for name, kind in kinds.items()}


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
        """The folder to which paths in the file are relative."""
        return self.path.parent

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        named = self.config.privacy.ledger
        return user_ledger() if named is None else self.folder / Path(named).expanduser()


def user_ledger() -> Path:
    """The ledger of all data sets of this user, wherever their configurations lie."""
    return user_data_path("poolrl") / "ledger.sqlite"


def load_config(path: Path) -> ConfigFile:
    """Read and check a configuration that the user names. It may name a problem of their own, whose code then runs."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; 'poolrl init' writes one, 'poolrl init --example' one to try")
    with code_beside(path):
        return parse_config(path, path.read_bytes())


def ledger_named_in(path: Path) -> Path:
    """The ledger that a configuration names. Nothing else of it is read: it may be a stranger's, and name code."""
    section = read_toml(path.read_bytes()).get("privacy", {})
    named = section.get("ledger") if isinstance(section, dict) else None
    return path.parent / Path(named).expanduser() if isinstance(named, str) else user_ledger()


def parse_config(path: Path, content: bytes) -> ConfigFile:
    """Check the bytes of a configuration that lies, or is about to lie, at a path."""
    try:
        facts = read_toml(content)
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    try:
        return ConfigFile(path, Config.model_validate(facts), content)
    except ValidationError as error:
        wrong = list(dict.fromkeys(fault_in_words(each) for each in error.errors()))
        raise ValueError("\n  ".join([f"{path} has {len(wrong)} mistake{'s' * (len(wrong) > 1)}:", *wrong])) from None


def fault_in_words(error: Any) -> str:
    """One mistake as `[section] key: what is wrong`, with the key that was probably meant."""
    where: tuple[Any, ...] = error["loc"] or ("",)
    kind = error["type"]
    section = f"[{where[0]}]"
    key = section if len(where) == 1 else f"{section} {'.'.join(map(str, where[1:]))}"
    if kind == "extra_forbidden":
        owner = _section_models().get(str(where[0])) if len(where) > 1 else Config
        return f"{key} is not known; {nearest(str(where[-1]), [] if owner is None else owner.model_fields)}"
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


def read_toml(content: bytes) -> dict[str, Any]:
    """Facts from the bytes of a file; refuses, in words, what is no TOML or would take too long to read."""
    if len(content) > LARGEST_CONFIG:
        raise ValueError(f"it is larger than {LARGEST_CONFIG:,} bytes")
    try:
        text = content.decode()
        if DEEP_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
