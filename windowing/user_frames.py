"""The frames of a traceback that are the user's; errors are shown with these alone (`windowing.errors.in_brief`).

Between the user's line that runs a pipeline and the user's function that fails there are dozens of frames of ours, and
of the standard library: they tell the user nothing, and push what does off the screen.
"""

import sysconfig
from types import FrameType, TracebackType
from typing import Final

from windowing.location import is_own

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


def _is_users(frame: FrameType) -> bool:
    if is_own(frame):
        return False
    path = frame.f_code.co_filename
    if any(part in path for part in _ANY_LIBRARY):
        return "/cloudpickle/" not in path.replace("\\", "/")
    return not path.startswith((*_STANDARD_LIBRARY, "<frozen "))


_STANDARD_LIBRARY: Final = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib")})
