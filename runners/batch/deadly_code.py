"""CodeWatch: user code of one attempt at a task that may end its process, or never come back.

Nothing in a process survives that, so Spark tries the task again, and the next attempt runs user code on trial, in a
process that is forked for it, before it runs it itself: so it learns which code does not come back, and where records
are left out that fail, the record concerned is a dead letter like one that raises.  What an attempt has done before it
ended is gone with it, so it does not matter where that was.

Where records are not left out, only the last attempt does so, to report what it is that ends all of them.
"""

import faulthandler
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from runners.core.user_code.poison import Trial
from runners.spark.trials import ForkedTrial

T = TypeVar("T")


class CodeWatch:
    """Watches the user code of one attempt.

    Args:
        attempt: how many attempts there were before.
        attempts_max: how often the task is tried.
        tries: how often a record that fails is tried before it is left out; None: none is left out.
        step_timeout_ms: how long user code may be at work on one bundle, before the process is ended; None: as long
            as it likes.
        can_fork: whether the attempt has a process of its own, which may be forked.
    """

    def __init__(
        self,
        attempt: int,
        attempts_max: int,
        *,
        tries: int | None,
        step_timeout_ms: int | None,
        can_fork: bool,
    ) -> None:
        self._timeout_ms = step_timeout_ms
        is_last = attempt + 1 >= attempts_max
        #: Runs code in a process of its own before it is run here; None: it is run here at once.
        self.trial: Trial | None = None
        if can_fork and attempt > 0 and (tries is not None or is_last):
            self.trial = ForkedTrial(step_timeout_ms, self._end, self._begin)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """User code may be at work from here on."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def steps(self, steps: Iterable[T]) -> Iterator[T]:
        """Iterate, with each step taken for user code at work."""
        iterator = iter(steps)
        while True:
            with self.at_work():
                try:
                    step = next(iterator)
                except StopIteration:
                    return
            yield step

    def inputs(self, inputs: Iterable[T]) -> Iterator[T]:
        """Iterate, with no step counted into the time of user code."""
        iterator = iter(inputs)
        while True:
            self._end()
            try:
                each = next(iterator)
            except StopIteration:
                return
            finally:
                self._begin()
            yield each

    def _begin(self) -> None:
        if self._timeout_ms is not None:
            # Needs neither this thread nor the interpreter, and prints where they are.
            faulthandler.dump_traceback_later(
                self._timeout_ms / 1_000, exit=True, file=sys.__stderr__ or sys.stderr
            )

    def _end(self) -> None:
        if self._timeout_ms is not None:
            faulthandler.cancel_dump_traceback_later()


#: The watch of an attempt that cannot be tried again.
UNWATCHED = CodeWatch(0, 1, tries=None, step_timeout_ms=None, can_fork=False)
