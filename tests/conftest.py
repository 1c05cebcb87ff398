"""Hypothesis profiles: how hard to look, chosen with `HYPOTHESIS_PROFILE`.

`dev` is for the daily loop, `ci` is the default where the variable CI is set, `nightly` digs.
No deadline: a slow machine is not a wrong answer, and pytest's own timeout catches a hang.
"""

import atexit
import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.module_marks import leaves_all_out
from tests.processor_budget import BUDGET_S, ProcessorBudget
from tests.program_files import FoundBy, look_at_all

FIXTURES = (
    "tests.fix_gcs",
    "tests.fix_installed",
    "tests.fix_postgres",
    "tests.fix_s3",
    "tests.fix_spark",
)

for name, examples in (("dev", 5), ("ci", 6), ("nightly", 10_000)):
    # To explain a failure takes longer than a test may: in CI the failure itself is what has to be printed.
    phases = [phase for phase in Phase if name != "ci" or phase is not Phase.explain]
    settings.register_profile(
        name, max_examples=examples, deadline=None, print_blob=True, phases=phases
    )
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make check` gives it."""
    parser.addoption(
        "--processor-budget",
        action="store_true",
        help=f"a test without a mark that takes more than {BUDGET_S:g} s of processor time is red",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Import fixtures, but where tests are only dealt out to other processes, and watch over the budget if asked to."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        for module in FIXTURES:
            config.pluginmanager.import_plugin(module)
    if config.getoption("processor_budget"):
        config.pluginmanager.register(ProcessorBudget())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of which no test is asked for: to import them takes a fifth of the time of collecting."""
    if collection_path.suffix != ".py":
        return None
    return leaves_all_out(config.getoption("markexpr"), collection_path.read_text("utf-8")) or None


@pytest.fixture(scope="session")
def found_by(pytestconfig: pytest.Config) -> FoundBy[Any]:
    """What each of the rules about Python files finds."""
    return look_at_all(pytestconfig.cache.mkdir("rules"))


@pytest.fixture
def frozen_heap() -> None:
    """For a test that calls `gc.collect`: it looks at what the test has made, and not at all that others keep."""
    gc.freeze()


def pytest_collection() -> None:
    """Switch the garbage collector off while tests are collected: all stay, and looking is a sixth of the time."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Seven thousand tests are a million objects that stay: the collector need not look at them again and again.

    And what tests make is mostly freed without it: looking seldom saves a twentieth of their time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    # What is left then need not be taken apart before the process ends.
    atexit.register(gc.freeze)
