"""Checks of what window functions return, because a wrong result would lose records silently.

The functions of this package are correct by construction and tests, so they are not checked again: only users' own
window functions are checked, with a loop per bundle and a set per merge.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from windowing.errors import DataflowError, WindowError, error_text
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, format_timestamp
from windowing.window import Window
from windowing.window_columns import Int64s, WindowColumns
from windowing.window_fn import (
    Merge,
    MergingWindowFn,
    WindowFn,
    assigns_columns,
    assigns_element_columns,
)

_COLUMNS_HINT = "return df.WindowColumns(starts_us, ends_us), or None to have assign_windows called"
_OWN_MODULES = f"{__name__.partition('.')[0]}."


def checked_assignment(
    window_fn: WindowFn, timestamps_us: Sequence[int], values: Sequence[Any]
) -> Sequence[Sequence[Window]]:
    """Call ``window_fn.assign_bundle`` and return its result, if it can be right.

    Args:
        window_fn: the window function.
        timestamps_us: event times in microseconds.
        values: of the elements.

    Raises:
        WindowError: the function raised; it returned windows for another number of elements, or something else than a
            list of windows; or a window is empty, given twice to one element, or without the element's event time.
    """
    try:
        assigned = window_fn.assign_bundle(timestamps_us, values)
    except DataflowError:
        raise
    except Exception as error:
        raise _failed(window_fn, error, _culprit(window_fn, timestamps_us, values)) from error
    if _is_shipped(window_fn):
        return assigned
    if not isinstance(assigned, Sequence) or len(assigned) != len(timestamps_us):
        _refuse(
            window_fn,
            "does not answer once for each element of a bundle",
            f"assign_bundle was given {len(timestamps_us)} and returned {assigned!r}",
        )
    fine: set[Window] = set()
    for timestamp_us, value, windows in zip(timestamps_us, values, assigned, strict=True):
        _check_windows(window_fn, timestamp_us, value, windows, fine)
    return assigned


def checked_columns(
    window_fn: WindowFn, timestamps_us: Int64s, values: Sequence[Any] | None = None
) -> WindowColumns | None:
    """Call the method of ``window_fn`` for columns that may be used, and return its result, if it can be right.

    Args:
        window_fn: the window function.
        timestamps_us: event times in microseconds.
        values: the elements, for functions that read them; None: there are only their times.

    Returns:
        The windows; None where `checked_assignment` has to assign them.

    Raises:
        WindowError: the function raised; what it returned are no columns, or of different lengths; or a window is
            empty, outside of time, given twice to one element, or without the element's event time.
    """
    reads_elements = values is not None and assigns_element_columns(window_fn)
    if not len(timestamps_us) or not (reads_elements or assigns_columns(window_fn)):
        return None
    given_us = timestamps_us.view()
    given_us.flags.writeable = False
    try:
        if values is not None and reads_elements:
            found = window_fn.assign_element_columns(given_us, values)
        else:
            found = window_fn.assign_columns(given_us)
    except DataflowError:
        raise
    except Exception as error:
        raise _failed(window_fn, error, "in assign_columns") from error
    if found is not None and not _is_shipped(window_fn):
        _check_columns(window_fn, timestamps_us, found)
    return found


def checked_merges(window_fn: MergingWindowFn, windows: Iterable[Window]) -> Sequence[Merge]:
    """Call ``window_fn.merge_windows`` and return its result, if no window can be lost by it.

    Args:
        window_fn: the window function.
        windows: of one key.

    Raises:
        WindowError: the function raised; it returned something else than merges; a source is not one of
            ``windows`` or is in two merges; a merged window is empty, does not cover its sources, or
            exists already and is not one of them.
    """
    if _is_shipped(window_fn):
        return window_fn.merge_windows(windows)
    windows = list(windows)
    try:
        merges = [
            Merge(merged, tuple(sources)) for merged, sources in window_fn.merge_windows(windows)
        ]
    except DataflowError:
        raise
    except Exception as error:
        raise _failed(window_fn, error, f"while merging {_shown(windows)}") from error
    _check_merges(window_fn, windows, merges)
    return merges


def _is_shipped(window_fn: WindowFn) -> bool:
    """Whether the class itself, and not only a base of it, is from this package."""
    return type(window_fn).__module__.startswith(_OWN_MODULES)


def _check_windows(
    window_fn: WindowFn,
    timestamp_us: int,
    value: Any,
    windows: Sequence[Window],
    fine: set[Window],
) -> None:
    """Check the windows of one element; ``fine`` collects the windows that have been checked."""
    if isinstance(windows, Window) or not isinstance(windows, Sequence):
        _refuse(
            window_fn,
            "has to assign a list of windows",
            f"for the element {value!r} it returned {windows!r}",
        )
    for window in windows:
        # Types first: a plain pair would be equal to a window that has been checked.
        if type(window) is not Window or window not in fine:
            _check_window(window_fn, window)
            fine.add(window)
        if not window[0] <= timestamp_us < window[1]:
            _refuse(
                window_fn,
                "assigns a window that does not contain the element",
                f"{window} for the element {value!r} at {format_timestamp(timestamp_us)}",
            )
    if len(windows) > 1 and len(set(windows)) < len(windows):
        _refuse(
            window_fn,
            "assigns the same window twice",
            f"for the element {value!r} it returned {windows!r}",
        )


def _check_columns(window_fn: WindowFn, timestamps_us: Int64s, found: object) -> None:
    if not isinstance(found, WindowColumns):
        _refuse(
            window_fn, "has to assign columns", f"assign_columns returned {found!r}", _COLUMNS_HINT
        )
    starts_us, ends_us, elements = found.starts_us, found.ends_us, found.elements
    for array in (starts_us, ends_us) if elements is None else (starts_us, ends_us, elements):
        if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
            kind = getattr(array, "dtype", type(array).__name__)
            _refuse(
                window_fn,
                "has to assign columns of 64-bit integers",
                f"an array of assign_columns is of {kind}",
                "make them with numpy from the event times, and divide with //",
            )
    size = len(timestamps_us) if elements is None else len(elements)
    if not len(starts_us) == len(ends_us) == size:
        _refuse(
            window_fn,
            "assigns columns of different lengths",
            f"for {len(timestamps_us)} elements: {len(starts_us)} starts, {len(ends_us)} ends"
            + ("" if elements is None else f", and the indexes of {size} elements"),
            _COLUMNS_HINT,
        )
    if elements is not None:
        _check_elements(window_fn, elements, len(timestamps_us))
        timestamps_us = timestamps_us[elements]
    is_inside = (starts_us <= timestamps_us) & (timestamps_us < ends_us)
    is_inside &= (starts_us >= MIN_TIMESTAMP_US) & (ends_us <= MAX_TIMESTAMP_US)
    if not is_inside.all():
        at = int(is_inside.argmin())
        window = Window(int(starts_us[at]), int(ends_us[at]))
        _check_window(window_fn, window)
        _refuse(
            window_fn,
            "assigns a window that does not contain the element",
            f"assign_columns returned {window} for the event time {format_timestamp(int(timestamps_us[at]))}",
        )
    if found.size_us is not None and not (ends_us - starts_us == found.size_us).all():
        _refuse(
            window_fn,
            "assigns windows of another length than it says",
            f"assign_columns returned size_us={found.size_us}, which not all windows have",
            "leave size_us out where lengths differ",
        )
    if elements is not None and len(elements) > 1:
        order = np.lexsort((ends_us, starts_us, elements))
        columns = [each[order] for each in (elements, starts_us, ends_us)]
        is_same = np.logical_and.reduce([each[1:] == each[:-1] for each in columns])
        if is_same.any():
            at = int(order[is_same.argmax()])
            window = Window(int(starts_us[at]), int(ends_us[at]))
            _refuse(
                window_fn,
                "assigns the same window twice",
                f"assign_columns returned {window} twice",
            )


def _check_elements(window_fn: WindowFn, elements: Int64s, size: int) -> None:
    is_known = not len(elements) or (elements[0] >= 0 and elements[-1] < size)
    if not is_known or (elements[1:] < elements[:-1]).any():
        _refuse(
            window_fn,
            "assigns windows to elements that are not there, or not in order",
            f"the indexes of assign_columns are {elements!r}, for {size} elements",
            "elements are the indexes of the event times, in ascending order",
        )


def _check_merges(
    window_fn: MergingWindowFn, windows: Sequence[Window], merges: Sequence[Merge]
) -> None:
    given = remaining = frozenset(windows)
    for merged, sources in merges:
        _check_window(window_fn, merged)
        if not sources or len(set(sources)) < len(sources) or not remaining.issuperset(sources):
            _refuse(
                window_fn,
                "merges windows that are not there, or not any more",
                f"{_shown(sources)} became {merged}; it was given {_shown(windows)}",
                "each window is a source of at most one merge, and no source is made up",
            )
        remaining = remaining.difference(sources)
        if any(s.start_us < merged.start_us or merged.end_us < s.end_us for s in sources):
            _refuse(
                window_fn,
                "merges windows into one that does not cover them",
                f"{_shown(sources)} became {merged}",
            )
    made: set[Window] = set()
    for merged, sources in merges:
        if merged in made or (merged in given and merged not in sources):
            _refuse(
                window_fn,
                "merges windows into one that is there already",
                f"{_shown(sources)} became {merged}; it was given {_shown(windows)}",
                "a merged window has all the windows that it stands for among its sources",
            )
        made.add(merged)


def _check_window(window_fn: WindowFn, window: object) -> None:
    if not isinstance(window, Window):
        _refuse(
            window_fn,
            "returns something else than a window",
            f"it is {window!r}",
            "return df.Window(start_us, end_us), or a subclass",
        )
    if not all(isinstance(bound_us, int) for bound_us in window[:2]):
        _refuse(
            window_fn,
            "returns a window whose bounds are not whole microseconds",
            f"it is {window!r}",
            "bounds are microseconds since 1970: divide with //",
        )
    if window.start_us >= window.end_us:
        _refuse(
            window_fn,
            "returns a window with nothing in it",
            f"it starts at {window.start_us} and ends at {window.end_us}",
        )
    if window.start_us < MIN_TIMESTAMP_US or window.end_us > MAX_TIMESTAMP_US:
        _refuse(
            window_fn,
            "returns a window outside the years 1 to 9999",
            f"it starts at {window.start_us} and ends at {window.end_us}",
            "bounds are microseconds since 1970; clamp them to the ends of time",
        )


def _culprit(window_fn: WindowFn, timestamps_us: Sequence[int], values: Sequence[Any]) -> str:
    """A text that names the first element for which the function fails by itself."""
    for timestamp_us, value in zip(timestamps_us, values, strict=True):
        try:
            window_fn.assign_windows(timestamp_us, value)
        except Exception:  # noqa: BLE001 - whatever it is, it has been caught once already
            return f"for the element {value!r} at {format_timestamp(timestamp_us)}"
    return "in assign_bundle"


def _failed(window_fn: WindowFn, error: Exception, where: str) -> WindowError:
    return WindowError(
        f"{type(window_fn).__name__} raised {type(error).__name__}: {error_text(getattr(error, 'fact', error))}",
        detail=where,
        hint="correct the window function, or sort such elements out before the WindowInto",
    )


def _refuse(window_fn: WindowFn, what: str, detail: str, hint: str = "") -> NoReturn:
    raise WindowError(
        f"{type(window_fn).__name__} {what}",
        detail=detail,
        hint=hint or "correct the window function; windows are half-open, [start, end)",
    )


def _shown(windows: Iterable[Window]) -> str:
    return " and ".join(map(str, windows)) or "nothing"
