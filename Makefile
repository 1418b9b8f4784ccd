# The commands of the README: `make install`, `make demo`, `make test`, ... Each installs what it needs; a second call is
# quick. Three stages: a user's install, then what the quick tests need, then servers, clusters, browsers and checkers.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable
INSTALLED := .venv/.installed
TESTABLE := .venv/.testable
COMPLETE := .venv/.complete

.PHONY: install demo test test-all test-slow check audit fuzz mutants soak results quality benchmarks decisions departures clean

install: $(INSTALLED)

demo: $(INSTALLED)
	rm -rf demo
	$(BIN)/poolrl demo

# What a contributor runs: two minutes on 2 idle cores. One thread of linear algebra for each worker. What pytest makes of
# assertions is kept for the next time.
test: $(TESTABLE)
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2
	@echo "The rest (servers, browser, clusters, soaks, large statistics): make test-all"

test-all: $(COMPLETE)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m ""

# What the quick run leaves out.
test-slow: $(COMPLETE)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

check: $(COMPLETE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Attacks on our own releases: is the privacy loss what is claimed? Three minutes on 2 cores.
audit: $(INSTALLED)
	$(BIN)/poolrl audit

# 135,500 hostile files, in some twenty minutes.
fuzz: $(TESTABLE)
	$(PIP) '.[fuzz]'
	$(BIN)/python -m attacks.fuzz

# Every small change of the code that counts and adds noise: does a test notice? Survivors need a written reason.
mutants: $(TESTABLE)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m attacks.mutants

# An hour of random faults: kill -9, full disks, clocks that jump.
soak: $(TESTABLE)
	$(BIN)/python -m attacks.soak

# The whole reproduction, about five minutes on 2 cores, on Kaggle's train.csv as well.
results: $(INSTALLED)
	@test -n "$$POOLRL_ROSSMANN" || { echo "set POOLRL_ROSSMANN to Kaggle's Rossmann train.csv, for docs/results.md has both data sets; 'poolrl reproduce' runs without it" >&2; exit 1; }
	$(BIN)/poolrl reproduce
	mkdir -p docs/figures
	cp reproduction/results.md docs/results.md
	for figure in $$(grep -o 'figures/[^)]*' docs/results.md); do cp reproduction/$$figure docs/$$figure; done

quality: $(TESTABLE)
	$(BIN)/python -m benchmarks.quality
	$(BIN)/python -m benchmarks.worlds

# Tables of docs/benchmarks.md, and one of docs/threat-model.md; logs are made on the fly, and 1e9 rows need 30 GB of disk.
benchmarks: $(TESTABLE)
	$(BIN)/python -m benchmarks.counting --write
	$(BIN)/python -m benchmarks.counting_labels --rows 1e9 --write
	$(BIN)/python -m benchmarks.audits --write
	$(BIN)/python -m benchmarks.side_channels
	$(BIN)/python -m benchmarks.decisions --write
	$(BIN)/python -m benchmarks.growth --write
	$(BIN)/python -m benchmarks.updates --write
	$(BIN)/python -m benchmarks.chain_workflow
	$(BIN)/python -m benchmarks.predicted --write

decisions: $(TESTABLE)
	$(BIN)/python -m benchmarks.decisions

departures: $(TESTABLE)
	$(BIN)/python -m benchmarks.departures

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "poolrl needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(PIP) .
	@# Byte code of what a fit uses, and of no more.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import poolrl.cli.init, poolrl.cli.fit, poolrl.cli.decide, poolrl.cli.plan'
	PYTHONDONTWRITEBYTECODE= $(BIN)/poolrl --help >/dev/null
	touch $(INSTALLED)

$(TESTABLE): $(INSTALLED)
	$(PIP) '.[test]'
	@# Tests start many processes, which would compile the same files again and again.
	-$(BIN)/python -m compileall -q -j 2 .venv/lib src tests attacks benchmarks >/dev/null 2>&1
	touch $(TESTABLE)

$(COMPLETE): $(TESTABLE)
	$(PIP) '.[dev]'
	touch $(COMPLETE)

clean:
	rm -rf .venv build dist demo reproduction audit fuzz mutants src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
