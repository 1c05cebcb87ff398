"""Checks that a pipeline makes after its run, such as those of `dataflow.testing.assert_that`.

**Invariant:** a check is made, or an error is on its way to the user, or there is a warning that it was not made.
"""

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

from dataflow.runner import PipelineResult, PipelineState
from windowing.timestamps import DurationLike

#: A check of a result; raises an error if something is wrong.
Check = Callable[[PipelineResult], None]


class UncheckedWarning(UserWarning):
    """A pipeline with checks was thrown away before its run had ended, so they were never made."""


class ChecksAfterRun:
    """The checks of one pipeline; shared by the pipeline and the results of its runs."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, Check]] = []
        self._warning: Any = None

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, name: str, check: Check) -> None:
        """Add a check; ``name`` is how a person finds it.

        Args:
            name: of the check, for messages.
            check: called with the result of the run; raises if it is not satisfied.
        """
        self._checks.append((name, check))
        self.arm()

    def arm(self) -> None:
        """Have a warning given when these checks are garbage collected, unless they have been made by then."""
        self.disarm()
        if self._checks:
            names = [name for name, _ in self._checks]
            self._warning = weakref.finalize(self, _warn, names)

    def disarm(self) -> None:
        """No warning: the checks are being made, or an error is raised that makes them superfluous."""
        if self._warning is not None:
            self._warning.detach()

    def make(self, result: PipelineResult) -> None:
        """Make all of them, and only then fail.

        Raises:
            AssertionError: what the checks found, all in one.
        """
        self.disarm()
        failures = []
        for _, check in self._checks:
            try:
                check(result)
            except AssertionError as failure:
                failures.append(failure)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise AssertionError("\n\n".join(map(str, failures)))


def checked(result: PipelineResult, checks: ChecksAfterRun) -> PipelineResult:
    """The result of a run, which makes the checks when it is waited for.

    Args:
        result: of the run, not waited for yet.
        checks: to make.
    """
    return cast("PipelineResult", _CheckedResult(result, checks))


class _CheckedResult:
    """The result of a runner, with checks that are made when it is waited for."""

    def __init__(self, result: PipelineResult, checks: ChecksAfterRun) -> None:
        self._result, self._checks = result, checks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Block until the run has ended, then make the checks, and return how it has ended.

        Args:
            timeout: how long to wait; if the run is under way then, nothing is checked yet.

        Raises:
            AssertionError: a check failed.
        """
        try:
            state = self._result.wait_until_finish(timeout)
        except BaseException:
            self._checks.disarm()
            raise
        if state is not PipelineState.RUNNING:
            self._checks.make(self._result)
        return state


def _warn(names: Sequence[str]) -> None:
    warnings.warn(
        f"never checked: {', '.join(names)}; use `with df.Pipeline(...) as p`, or call p.run().wait_until_finish()",
        UncheckedWarning,
        stacklevel=2,
    )
