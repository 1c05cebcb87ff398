"""The place in the user's code where something was written, for error messages."""

import sys
from pathlib import Path
from types import FrameType

_OWN_PACKAGES = ("windowing", "triggers", "dataflow", "runners")
#: What calls a class that is subscripted, as `df.OutputTag[str](...)`, for the user.
_BETWEEN = "typing"
#: Where user code is called for the elements of a run.
_ENGINE = "runners.core."


def user_location() -> str:
    """``file:line`` of the nearest caller outside this SDK, or "unknown place"."""
    # Walking frames looks at the callers without building a traceback.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the fast way to the caller, as `logging` goes
    while frame is not None:
        if not is_own(frame):
            return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


def written_at() -> str:
    """``written at file:line`` of the nearest caller outside this SDK; empty if a running pipeline stands between.

    What a user's function has returned to an engine was not written at the line that runs the pipeline.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the fast way to the caller, as `logging` goes
    while frame is not None and is_own(frame):
        if frame.f_globals["__name__"].startswith(_ENGINE):
            return ""
        frame = frame.f_back
    return f"written at {_short(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


def user_stacklevel() -> int:
    """The ``stacklevel`` with which `warnings.warn`, called in the caller, names the nearest line outside this SDK."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the fast way to the caller, as `logging` goes
    level = 1
    while frame is not None and is_own(frame):
        frame, level = frame.f_back, level + 1
    return level


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs code of this package, or what stands between it and the user's."""
    module: str = frame.f_globals.get("__name__", "")
    return module == _BETWEEN or module.partition(".")[0] in _OWN_PACKAGES


def _short(filename: str) -> str:
    # Every transform that is applied asks, and to make a Path of each file name is ten times as much work.
    return filename.removeprefix(str(Path.cwd() / "_")[:-1])
