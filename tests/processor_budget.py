"""What a test without a mark may cost in the daily loop: with `--processor-budget` one that takes more is red.

Processor time, of the test and the processes that it waits for, so that a busy machine turns nothing red; and of a
machine like that on which the budget was set, so that a slow one does not either.
"""

import os
import time
from collections.abc import Generator
from typing import Any

import pytest

#: Five times what is little enough not to be slow.
BUDGET_S = 1.0
#: How many budgets a rule has that looks at every file of the repository.
OF_REPOSITORY = 2
#: Processor time of `_loop` where the budget was set.
LOOP_S = 0.05
STEPS = 1_000_000
#: Those that are not of the daily loop.
MARKS = ("spark", "postgres", "slow", "faults", "nightly")


def spent_s() -> float:
    """Processor time of this process so far, and of its children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _loop() -> None:
    step = 0
    while step < STEPS:
        step += 1


def slowness() -> float:
    """How many times as long this machine takes, now, as that on which the budget was set; at least once."""
    began_s = time.process_time()
    _loop()
    return max(1.0, (time.process_time() - began_s) / LOOP_S)


class ProcessorBudget:
    """Plugin of pytest that makes a test red which passes and has taken more than its budget.

    What a fixture takes, of a module for example, is not counted: it is of all tests that have it.

    Args:
        budget_s: of a test, in seconds of processor time on a machine like that on which it was set.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._budget_s = budget_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a test that has passed, but for too much.

        Raises:
            Failed: it has taken more than its budget.
        """
        began_s = spent_s()
        found = yield
        taken_s = spent_s() - began_s
        budget_s = self._budget_s * (OF_REPOSITORY if "repo" in item.path.parts else 1)
        if taken_s <= budget_s or any(item.get_closest_marker(mark) for mark in MARKS):
            return found
        allowed_s = budget_s * slowness()
        if taken_s > allowed_s:
            pytest.fail(
                f"takes {taken_s:.1f} s of processor time\n"
                f"  detail: a test without a mark may take {allowed_s:.1f} s on this machine, so that make check "
                "does not grow\n"
                "  what to do: make it cheaper, give it fewer examples in the profile dev (tests/effort.py), or mark "
                "it slow",
                pytrace=False,
            )
        return found
