"""Which tables of the documents are older than the code that they measure?

    python -m benchmarks.stale       # exits with 1 if there is such a table, with 2 if it cannot tell of some

The first line under a table's heading says which version and commit made it, and of which rooms and files below
src/poolrl. A table is stale if these have changed since that commit. That commit must be in this clone.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("docs/benchmarks.md", "docs/threat-model.md", "docs/results.md")
# As `Report.write` and `write_up.made_by` put it.
MADE = re.compile(r"`([^`]+)`, poolrl (\S+) \(([^)]+)\), of ((?:`[\w./]+`(?:, )?)+);")


@dataclass(frozen=True)
class Made:
    """Which command made a table, of which code, and what it measures."""

    page: str
    command: str
    version: str
    commit: str
    places: tuple[str, ...]


def tables(page: str, text: str) -> Iterator[Made]:
    """Every table of a page that says how it was made."""
    for command, version, commit, places in MADE.findall(text):
        yield Made(page, command, version, commit, tuple(re.findall(r"`([^`]+)`", places)))


def changes(made: Made, root: Path = ROOT) -> int | None:
    """How many commits have changed what a table measures; None where this clone does not know."""
    commit = made.commit.rstrip("+")
    known = _git(root, "merge-base", "--is-ancestor", f"{commit}^{{commit}}", "HEAD")
    if known is None:
        return None
    places = [f"src/poolrl/{place}" for place in made.places]
    listed = _git(root, "log", "--format=%h", f"{commit}..HEAD", "--", *places)
    return None if listed is None else len(listed.split())


def _git(root: Path, *words: str) -> str | None:
    """What git prints, or None if it fails."""
    try:
        answer = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout if answer.returncode == 0 else None


def verdict(made: Made, root: Path = ROOT) -> str:
    """ "up to date", "stale" with the reason, or "cannot tell" with the reason."""
    count = changes(made, root)
    if count is None:
        return f"cannot tell: this clone does not have {made.commit}; try git fetch --unshallow"
    if made.commit.endswith("+"):
        return "cannot tell: it was made by code that was not committed"
    return f"stale: {count} commits since have changed {', '.join(made.places)}" if count else "up to date"


def main() -> None:
    """Print a line for each table."""
    found = [made for page in PAGES for made in tables(page, (ROOT / page).read_text())]
    verdicts = [verdict(made) for made in found]
    for made, said in zip(found, verdicts, strict=True):
        print(f"{made.page}: {made.command} ({made.version}, {made.commit}): {said}")
    stale = any(said.startswith("stale") for said in verdicts)
    raise SystemExit(1 if stale else 2 * any(said.startswith("cannot") for said in verdicts))


if __name__ == "__main__":
    main()
