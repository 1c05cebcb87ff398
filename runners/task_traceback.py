"""The traceback of what was raised in a worker, on its way to the driver as text: a traceback cannot be pickled.

The driver makes frames of the text again, so that an error is shown alike on all runners: with the user's lines, which
are read from the files of the driver.
"""

import os
import re
import traceback
from pathlib import Path
from types import CodeType, TracebackType

from dataflow.errors import DataflowError
from windowing.user_frames import user_traceback

_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
#: The folders of this package.
_ROOT = Path(__file__).parents[1]
_OWN = tuple(f"{_ROOT / each}{os.sep}" for each in ("windowing", "triggers", "dataflow", "runners"))
#: The first byte of an entry of a code's table of lines that says nothing of columns, for so many units at most.
_NO_COLUMNS, _UNITS_MAX = 0x80 | 13 << 3, 8


class TaskTraceback(Exception):  # noqa: N818 - never raised by itself
    """Where in the worker it happened: the cause of what the driver raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def traceback_of(error: BaseException) -> str:
    """The frames of an error as text: of the user's own, where an error of ours was raised because of it.

    The frames between these and our own error are left out: they are ours, and do not help.
    """
    if isinstance(error.__cause__, TaskTraceback):
        text: str = error.__cause__.args[0]
        return text
    is_of_ours = isinstance(error, DataflowError) and error.__cause__ is not None
    shown = (error.__cause__ or error) if is_of_ours else error
    frames = user_traceback(shown.__traceback__)
    if frames is None:
        return "".join(traceback.format_exception(shown))
    return "".join(traceback.format_exception(type(shown), shown, frames))


def task_traceback(text: str) -> TaskTraceback:
    """The cause of an error that came from a worker, with the frames that a text of a traceback names.

    Args:
        text: as `traceback_of` returned it.
    """
    last = text.rpartition("Traceback (most recent call last)")[2]
    found: TracebackType | None = None
    for file, line, function in reversed(_FRAME.findall(last)):
        found = _frame(file, int(line), function, found)
    return TaskTraceback(text).with_traceback(found)


def _frame(
    file: str, line: int, function: str, following: TracebackType | None
) -> TracebackType | None:
    """A frame that looks like one of the worker's, in front of those that follow it."""
    try:
        exec(_raising(file, line, function), {"__name__": _module(file)})  # noqa: S102 - our own code
    except ZeroDivisionError as error:
        raised = error.__traceback__.tb_next  # type: ignore[union-attr]
        return TracebackType(following, raised.tb_frame, raised.tb_lasti, line)  # type: ignore[union-attr]
    return following


def _module(file: str) -> str:
    """The name of a module for the frame of a file: ours is known by it, and is not shown."""
    return f"{__package__}.worker" if file.startswith(_OWN) else "worker"


def _raising(file: str, line: int, function: str) -> CodeType:
    """Code that raises, with the name and the line of other code, and with no columns: the text has none."""
    code = compile("1 / 0", file, "exec")
    units = len(code.co_code) // 2
    places = b"".join(
        bytes([_NO_COLUMNS | min(units - start, _UNITS_MAX) - 1, 0])
        for start in range(0, units, _UNITS_MAX)
    )
    return code.replace(co_name=function, co_firstlineno=line, co_linetable=places)
