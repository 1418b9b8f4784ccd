"""Feed hostile files to everything that the program reads. Files that reach new lines are kept and changed further.

    python -m attacks.fuzz                     135,500 cases, over all targets
    python -m attacks.fuzz policy --cases 5000
    python -m attacks.fuzz --seed 7            other cases

Coverage-guided by Atheris (libFuzzer). A finding is a case that fails without a documented refusal, reveals a value of
the log, writes outside its folder, or takes more than 30 seconds or 4 GB. Its bytes are kept in the folder fuzz/. They
belong into tests/recorded/hostile when the defect is fixed.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "tests" / "recorded" / "hostile"
KEPT = Path("fuzz")
# One in this many cases is random bytes. The others come from cases that reach new lines.
BEGINNINGS = 3


def main() -> int:
    """Run every target in its own process; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m attacks.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", help="which reader is attacked (default: all; an unknown name lists them)")
    parser.add_argument("--cases", type=int, default=None, help="how many cases, of the target or of all together")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer (default: 1)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cases is not None and arguments.cases < 1:
        parser.error(f"--cases must be at least 1, got {arguments.cases}")
    if arguments.inside:
        fuzz(arguments.target, arguments.cases, arguments.seed)
        return 0
    from attacks.targets import SHARES, TARGETS

    if arguments.target not in (None, *TARGETS):
        parser.error(f"there is no target {arguments.target}; choose from {', '.join(TARGETS)}")
    total = sum(SHARES.values())
    cases = {target.__name__: share for target, share in SHARES.items()}
    if arguments.target:
        cases = {arguments.target: arguments.cases or cases[arguments.target]}
    elif arguments.cases:
        cases = {name: max(1, share * arguments.cases // total) for name, share in cases.items()}
    print(f"{'target':<16} {'cases':>8} {'lines and branches':>19} {'kept':>6} {'seconds':>8}  found")
    ran, found = 0, 0
    for name, wanted in cases.items():
        done, failed = _one(name, wanted, arguments.seed)
        ran, found = ran + done, found + failed
    print(f"\n{ran:,} cases, {found} findings." + (f" Bytes that found them are in {KEPT}/." if found else ""))
    return 1 if found else 0


def _one(name: str, cases: int, seed: int) -> tuple[int, bool]:
    command = [sys.executable, "-m", "attacks.fuzz", name, "--cases", str(cases), "--seed", str(seed), "--inside"]
    began = time.monotonic()
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = answer.stderr + answer.stdout
    seconds = time.monotonic() - began
    done = max([int(number) for number in re.findall(r"^#(\d+)\t", said, re.MULTILINE)], default=0)
    reached = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)", said) or [("0", "0")]
    print(f"{name:<16} {done:>8,} {reached[-1][0]:>19} {reached[-1][1]:>6} {seconds:>8.0f}  ", end="")
    failed = answer.returncode != 0 or done < cases
    print("a finding:" if failed else "nothing", flush=True)
    if failed:
        shown = said[said.find("=== Uncaught Python exception") :] if "=== Uncaught" in said else said
        print("\n".join(f"    {line}" for line in shown.splitlines()[-30:]))
    return done, failed


def fuzz(name: str, cases: int, seed: int) -> None:
    """Fuzz one target in this process. libFuzzer ends the process."""
    import atheris

    # Loops that Numba compiles cannot carry the fuzzer's counters.
    with atheris.instrument_imports(include=["poolrl"], exclude=["poolrl.privacy.noise.inversion"]):
        from attacks.good_files import good
        from attacks.targets import TARGETS, attempt
    good()
    target = TARGETS[name]
    kept, corpus = KEPT / name, CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    # Bytes choose how a file is spoilt, so any bytes are a good start.
    for number in range(cases // BEGINNINGS):
        (kept / f"{seed}-{number}").write_bytes(rng.randbytes(rng.choice((8, 32, 128))))
    options = [
        f"-runs={cases}",
        f"-seed={seed}",
        "-max_len=4096",
        "-len_control=0",
        "-timeout=30",
        "-rss_limit_mb=4096",
    ]
    places = [str(kept), *([str(corpus)] if corpus.is_dir() else [])]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={KEPT}/{name}-", "-print_final_stats=1", *places],
        lambda content: attempt(target, content),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
