"""InterruptedRun: a run that Ctrl-C has ended: one line that says what stays and how to go on, and exit status 130.

It is a `KeyboardInterrupt`, so whoever catches that catches this; where nobody does, no traceback is shown, as there is
no mistake to look for.

Errors of this package that nobody catches are shown by the same hook, with the user's frames alone: one that a
constructor raises, on the user's line, would bring all of ours.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from windowing.errors import DataflowError, in_brief

#: Of a program that was ended by SIGINT, as shells give it.
EXIT_STATUS = 130


class InterruptedRun(KeyboardInterrupt):
    """A run was interrupted; its text is one line for the user."""

    def _render_traceback_(self) -> list[str]:
        # Looked for by IPython, so by notebooks, whose errors do not come to `sys.excepthook`.
        return [str(self)]


@contextmanager
def if_interrupted(what_stays: str) -> Iterator[None]:
    """Have an interruption meanwhile say what stays of a run, and how to go on; for runners.

    Args:
        what_stays: on one line.

    Raises:
        InterruptedRun: Ctrl-C.
    """
    try:
        yield
    except InterruptedRun:
        raise
    except KeyboardInterrupt:
        raise_interrupted(what_stays)


def raise_interrupted(what_stays: str) -> NoReturn:
    """Raise what ends a run that was interrupted; uncaught, it is one line on stderr and exit status 130.

    Args:
        what_stays: on one line.

    Raises:
        InterruptedRun: always.
    """
    show_in_brief()
    raise InterruptedRun(f"interrupted: {what_stays}") from None


def show_in_brief() -> None:
    """Have what nobody catches shown as above; errors of others as before."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)


class _Hook:
    """What is called for an error that nobody catches; all but interruptions go to the one that was there before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, InterruptedRun):
            if isinstance(error, DataflowError):
                traceback = in_brief(error.with_traceback(traceback)).__traceback__
            self._before(kind, error, traceback)
            return
        print(error, file=sys.stderr)  # noqa: T201 - in place of the traceback, which is printed there
        # The interpreter ends with this status, and not at once: Spark is stopped as at any end.
        raise SystemExit(EXIT_STATUS)
