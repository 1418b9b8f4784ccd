"""A configuration for problems other than shops: from answers, or a simulated table to try things on."""

from __future__ import annotations

import csv
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.problems.rounds import Rounds
from poolrl.simulation.logs import simulate_log
from poolrl.workflow.answers import SIGNS, Answers, value_of
from poolrl.workflow.config_keys import Key, config_keys
from poolrl.workflow.config_kind import arguments_of
from poolrl.workflow.trades.trade import trade_named

# Sections and keys that only shops have.
OF_SHOPS = ("sales", "operations")
KEYS_OF_SHOPS = ("opening", "order_up_to", "left", "weeks_public", "together")
# Keys that every kind is asked for beside its own.
ASKED = ("source", "data_set", "rho", "units")
EXAMPLE_SALES, EXAMPLE_SEED = 800, 1


def own_keys(kind: type[Problem]) -> dict[str, str]:
    """The constructor's arguments with the reason for each."""
    return {name: kind.words.keys.get(name, "an argument of the problem") for name in arguments_of(kind)}


def needed_keys(kind: type[Problem]) -> list[str]:
    """Those without which nothing can be made."""
    return [name for name, default in arguments_of(kind).items() if default is inspect.Parameter.empty]


def kind_facts(name: str, answers: Answers, facts: str, columns: str) -> dict[str, dict[str, Any]]:
    """The facts of a configuration; says all that is missing at once."""
    kind, answers = trade_named(name).problem, dict(answers)
    given = {key: _value(text) for key, text in pairs(facts, "facts").items()}
    if unknown := [key for key in given if key not in arguments_of(kind)]:
        raise ValueError(f"{name} has no key {unknown[0]!r}: its keys are {', '.join(arguments_of(kind))}")
    missing = [f"--facts '{key}=...'" for key in needed_keys(kind) if key not in given]
    missing += [f"--{key.replace('_', '-')}" for key in ASKED if not answers.get(key, "").strip()]
    if missing:
        raise ValueError(f"init --problem {name} needs {', '.join(missing)} as well")
    found: dict[str, dict[str, Any]] = {"problem": {"kind": name, **given}}
    for key in kind_keys():
        text = answers.get(key.flag, "").strip()
        section = found.setdefault(key.section, {})
        if text:
            section[key.name] = value_of(key, text, [])
        elif key.section != "problem" and not key.asked and key.field.default not in (None, [], {}):
            section[key.name] = key.field.default
    for name_of_sign in ("delimiter", "decimal"):
        if sign := answers.pop(name_of_sign, "").strip():
            found["log"][name_of_sign] = SIGNS.get(sign.lower(), sign)
    if extra := sorted(set(answers) - {key.flag for key in kind_keys()}):
        raise ValueError(f"--{extra[0].replace('_', '-')} is for shops; the keys of {name} go into --facts")
    found["log"] |= {"columns": pairs(columns, "columns")}
    found["log"].setdefault("trajectory", kind.words.trajectory)
    found["log"].setdefault("first_step", 1)
    if int(given.get("horizon", arguments_of(kind).get("horizon", 0)) or 0) == 1:
        found["log"].setdefault("step", "")
    found["log"].setdefault("step", kind.words.step)
    alone = found["log"]["step"] == "" and kind.words.alone
    found["privacy"].setdefault("protects", f"one {alone or kind.words.trajectory}")
    decisions = kind.words.decisions.capitalize()
    found["publication"] |= {"name": decisions, "intended_use": f"{decisions} to come."}
    found["privacy"].setdefault("budget", found["privacy"]["rho"])
    return found


def kind_keys() -> list[Key]:
    """The keys of the file that a kind shares with shops."""
    shared = ("steps", "labels", "step_labels")
    return [
        key
        for key in config_keys()
        if key.section not in OF_SHOPS
        and key.name not in KEYS_OF_SHOPS
        and (key.section != "problem" or key.name in shared)
    ]


def pairs(text: str, what: str) -> dict[str, str]:
    """`lots=3; bid_max=4`."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, sign, value = (each.strip() for each in part.partition("="))
        if not (name and sign and value):
            raise ValueError(f"--{what} must be written like 'lots=3; bid_max=4', got {part!r}")
        found[name] = value
    return found


def _value(text: str) -> Any:
    """A number, a truth value or a list, as JSON has them; otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def write_kind_example(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """A simulated table, and the facts of its configuration.

    Things of very different size: their scale is what an expert thought before. People decide by that, and a little by
    chance. Outcomes are about as large as the scale, more or less.
    """
    kind = trade_named(name).problem
    problem = kind(**kind.words.example)
    if not isinstance(problem, Rounds):
        raise ValueError(f"there is no example of {name}: write --facts, and --columns for your table")
    rng = np.random.default_rng(EXAMPLE_SEED)
    size = np.exp(rng.normal(4.0, 1.2, EXAMPLE_SALES))
    scale = np.broadcast_to(size[:, None, None], (EXAMPLE_SALES, problem.horizon, 1))
    value = rng.lognormal(-0.05, 0.35, (EXAMPLE_SALES, problem.horizon, problem.outcome_dim))
    outcomes = problem.arranged(np.minimum(value, problem.outcome_high)) * scale

    def behaviour(step: int, state: Any, rng: np.random.Generator) -> Any:
        return scale[:, step] * rng.uniform(0.4, 1.3, (len(state), 1))

    log = simulate_log(problem, outcomes, rng=rng, behaviour=behaviour, scale=scale)
    words, source = kind.words, f"{kind.words.trajectory}s.csv"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / source).open("w", newline="", encoding="utf-8") as file:
        names = [column.name for column in words.columns]
        writer = csv.DictWriter(file, [words.trajectory, words.step, "estimate", *names])
        writer.writeheader()
        for number, step in np.ndindex(EXAMPLE_SALES, problem.horizon):
            writer.writerow(
                {words.trajectory: number + 1, words.step: step + 1, "estimate": f"{size[number]:.2f}"}
                | table_row(problem, *(part[number, step] for part in (log.states, log.actions, log.next_states)))
            )
    return {
        "problem": {"kind": name, **dict(words.example)},
        "log": {
            "source": source,
            "trajectory": words.trajectory,
            "step": words.step,
            "first_step": 1,
            "scale": ["estimate"],
            "scale_memory": 0,
        },
        "privacy": {
            "protects": f"one {words.trajectory}",
            "rho": 1.0,
            "budget": 2.0,
            "data_set": f"example of {name}",
            "ledger": "ledger.sqlite",
        },
        "plan": {"units": EXAMPLE_SALES},
    }


def table_row(problem: OutcomeProblem, state: Any, action: Any, after: Any) -> dict[str, Any]:
    """A row of rounds as people have it: count, decision, flag, and what is shown, where it is."""
    count, decision, flag, *_ = (column.name for column in problem.words.columns)
    success = bool(after[0] <= state[0] - 0.5)
    shown = {
        name: f"{value:.4f}" if abs(value - action[0]) > 0 or success else ""
        for name, value in zip(problem.shows, after[problem.state_dim :], strict=True)
    }
    return {count: f"{state[0]:g}", decision: f"{action[0]:.4f}", flag: "yes" if success else "no"} | shown
