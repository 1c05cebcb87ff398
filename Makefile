# `make check` is the daily loop, `make test` is what has to be green before anything is merged.
# Nothing here needs Java or Postgres on the machine: both come with the virtual environment.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Images of containers often have it.  Without bytecode each worker of pytest rewrites the asserts of 400 files anew, and
# each process that a test or a benchmark starts compiles the whole package first.
unexport PYTHONDONTWRITEBYTECODE

# Which Python makes the virtual environment; empty: the first that is new enough.
PYTHON ?=
# A slice of the tests, as for pytest -k:  make test K=sessions
K ?=
# Cases and more options of the benchmarks:  make bench CASE="B2 S1" ARGS="--reps 3"
CASE ?=
ARGS ?=

# Tests that neither start anything nor take long, and how they are dealt out.
FAST := not spark and not postgres and not slow and not nightly
SERVERS := spark or postgres
# What an update makes of state in the core: the simulator alone has updates without a server.
CONVERSIONS := tests/simulation/test_plain_input.py tests/simulation/test_plain_elements.py
# Percent of lines and branches of the core; it only grows.
COVERED_MIN := 97
ALL_CORES := -n auto --maxprocesses 8 --dist worksteal
# More than a machine of two cores can do at once: each waits most of the time.  By default modules with few tests come
# last, and those with a single one are the longest: for minutes the last would run alone.
SERVER_TESTS := -n 3 --dist loadfile --no-loadscope-reorder
# One more than cores: some wait for a process that they have started.
OTHER_TESTS := -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) --maxprocesses 8 --dist worksteal
# What each half of `make test` prints at its end.
SLOWEST := --durations=25 --durations-min=5

BIN := .venv/bin
READY := .venv/.ready

.PHONY: dist docs help setup demo demo-cdc test faults check coverage rest nightly bench soak static fix hooks changelog clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything in it (done by the others as needed)
	@:

$(READY): pyproject.toml tools/setup.sh
	@tools/setup.sh .venv "$(PYTHON)"
	@touch $@

demo: setup ## Run the flights example: a month in batch, then as a stream, and the same answers
	@$(BIN)/python -m examples.flight_delays --demo

demo-cdc: setup ## Follow the changes of two tables into totals and sessions while the job is killed, and compare with SQL
	@$(BIN)/python -m examples.orders_cdc --demo

# A test that takes more than its budget is red here and nowhere else: in CI there are more examples.
check: setup ## What to run before every commit; less than a minute on two idle cores
	@tools/check.sh $(if $(K),-k "$(K)",$(ALL_CORES) --processor-budget) -m "$(FAST)"

# The laws and the oracle count as much as unit tests; a line that only a server reaches is not of the core.
coverage: setup ## Branches of windowing, triggers and runners/core that fast tests take; fails below the floor
	@$(BIN)/pytest -q $(ALL_CORES) -m "$(FAST)" --cov --cov-report= \
		tests/unit/windowing tests/unit/triggers tests/unit/dataflow tests/unit/runners/core tests/unit/runners/direct \
		tests/property tests/oracle tests/conformance
	@$(BIN)/pytest -q $(ALL_CORES) --cov --cov-append --cov-report= $(CONVERSIONS)
	@$(BIN)/coverage report --skip-covered --fail-under=$(COVERED_MIN)

# The static checks and both halves run to their end, side by side, and name what is red.
test: setup ## All but faults and nightly, also with real Spark and Postgres; a quarter of an hour on two cores
	@$(if $(K),tools/check.sh -k "$(K)",tools/test.sh "$(SERVERS)" "$(SERVER_TESTS) $(SLOWEST)" "$(OTHER_TESTS) $(SLOWEST)")

# Against the clock, so on a machine with nothing else to do.
faults: setup ## Kill, stop and starve real workers, drivers and Postgres, and the servers of connectors; twenty minutes
	@tools/fault_setup.sh
	@$(BIN)/pytest -q -m faults $(if $(K),-k "$(K)") tests/integration/faults

static: setup
	@tools/static.sh

rest: setup ## What `make test` leaves out, one after the other: kills, variants, whole benchmarks; three quarters of an hour
	@$(BIN)/pytest -q -m nightly $(if $(K),-k "$(K)") tests

nightly: rest ## The rest, then laws and simulator with ten thousand examples each; takes hours
	@HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -q --timeout=14400 $(ALL_CORES) \
		-m "not spark and not postgres" $(if $(K),-k "$(K)") tests/property tests/oracle tests/simulation

dist: setup ## Build the wheel and the sources of this commit, twice, and compare
	@$(BIN)/python tools/dist.py dist

docs: setup ## Build the site of the documentation into build/site/VERSION; a warning is an error
	@$(BIN)/python -m tools.site build/site

bench: setup ## Measure ours beside its peers; CASE="B2 S1", ARGS=--help: docs/benchmarks.md
	@$(BIN)/python -m benchmarks.bench $(if $(CASE),--case $(CASE)) $(ARGS)

soak: setup ## Run a stream for MINUTES=60 while everything around it fails, and see that nothing grows: docs/soak.md
	@$(BIN)/python -m benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

fix: setup ## Format, and repair what can be repaired safely
	@$(BIN)/ruff check --quiet --fix --exit-zero .
	@$(BIN)/ruff format .

hooks: setup ## Have git run the static checks before each commit
	@$(BIN)/pre-commit install

changelog: setup ## Show what the next release would say
	@$(BIN)/towncrier build --draft --version next

clean: ## Remove .venv and every cache (not your data)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
