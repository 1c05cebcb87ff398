"""The frames of a traceback that are the user's, and errors that are shown with these alone.

Between the user's line that runs a pipeline and the user's function that fails there are dozens of frames of ours, and
of the standard library: they tell the user nothing, and push what does off the screen.
"""

import sysconfig
from types import FrameType, TracebackType
from typing import Final, TypeVar

from windowing.errors import DataflowError
from windowing.location import is_own

_Error = TypeVar("_Error", bound=BaseException)

#: So many frames are shown at most: the first ones, where user code is entered, and the last ones, where it fails.
FRAMES_MAX: Final = 4
_ANY_LIBRARY: Final = ("site-packages", "dist-packages")


def user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that are ours, of the standard library, or of the pickler; None if none is left.

    Args:
        traceback: stays as it is.
    """
    kept = []
    while traceback is not None:
        if _is_users(traceback.tb_frame):
            kept.append(traceback)
        traceback = traceback.tb_next
    if len(kept) > FRAMES_MAX:
        half = FRAMES_MAX // 2
        kept = [*kept[:half], *kept[-half:]]
    found: TracebackType | None = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def in_brief(error: _Error) -> _Error:
    """An error to raise where the user called us: of its frames, those of user code remain.

    Its cause is what user code raised, which its text names already: it is not printed a second time, and stays in
    ``__context__``, with all frames.  What is no error of this package is returned as it is.
    """
    if not isinstance(error, DataflowError):
        return error
    cause = error.__cause__
    frames = None if cause is None else user_traceback(cause.__traceback__)
    frames = frames or user_traceback(error.__traceback__)
    if cause is not None:
        error.__cause__, error.__context__ = None, cause
    error.__suppress_context__ = True
    return error.with_traceback(frames)


def _is_users(frame: FrameType) -> bool:
    if is_own(frame):
        return False
    path = frame.f_code.co_filename
    if any(part in path for part in _ANY_LIBRARY):
        return "/cloudpickle/" not in path.replace("\\", "/")
    return not path.startswith((*_STANDARD_LIBRARY, "<frozen "))


_STANDARD_LIBRARY: Final = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib")})
