"""Tables say which code made them, and `benchmarks.stale` finds those whose subject has changed since."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from benchmarks import report, stale

from poolrl import __version__
from poolrl.paper.write_up import made_by

ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("page", stale.PAGES)
def test_every_generated_table_says_what_made_it_and_what_it_measures(page: str) -> None:
    text = (ROOT / page).read_text()
    found = list(stale.tables(page, text))
    assert len(found) == max(1, len(re.findall(r"^<!-- end of ", text, re.MULTILINE)))
    for made in found:
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", made.commit), made
        assert all((ROOT / "src/poolrl" / place).exists() for place in made.places), made


def test_a_table_is_stale_once_what_it_measures_has_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for place in ("learning", "data"):
        (tmp_path / "src/poolrl" / place).mkdir(parents=True)
        (tmp_path / "src/poolrl" / place / "law.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    first = git(tmp_path, "rev-parse", "HEAD").strip()
    of_learning, of_data = (stale.Made("page", "run", "1.0.0", first, (place,)) for place in ("learning", "data"))
    (tmp_path / "src/poolrl/learning/law.py").write_text("a = 2\n")
    git(tmp_path, "commit", "-qam", "second")
    assert stale.verdict(of_learning, tmp_path) == "stale: 1 commits since have changed learning"
    assert stale.verdict(of_data, tmp_path) == "up to date"
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), str(shallow))
    assert stale.verdict(of_data, shallow).startswith("cannot tell")
    assert stale.verdict(of_data, Path("/")).startswith("cannot tell")


def test_a_section_carries_the_version_and_the_commit(tmp_path: Path) -> None:
    section = report.Report("noise", "Noise", ("privacy/noise", "pool.py"), tmp_path / "page.md", part="a")
    section.write()
    (made,) = stale.tables("page.md", (tmp_path / "page.md").read_text())
    assert made.version == __version__
    assert made.places == ("privacy/noise", "pool.py")
    assert f"poolrl {made.version} ({made.commit})" == made_by()
