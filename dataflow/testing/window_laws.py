"""The law of window functions, as a function that a test calls (`dataflow.testing.laws`)."""

from collections.abc import Iterable, Sequence
from typing import Any

from dataflow.errors import PipelineError
from windowing.checks import checked_assignment, checked_merges
from windowing.errors import WindowError
from windowing.timestamps import format_timestamp
from windowing.window import Window
from windowing.window_fn import MergingWindowFn, WindowFn, slice_fn_of


def check_window_fn(
    window_fn: WindowFn, timestamps_us: Iterable[int], values: Iterable[Any] | None = None
) -> None:
    """Check that a window function keeps its laws for these elements, in whatever order and parts they come.

    * Each window that it assigns contains the element; the same element is always assigned the same, alone or with
      others.
    * Merging is commutative and associative: however the windows are ordered, and whether they are merged at once, in
      two parts or one by one, the same windows come out.
    * Merging is idempotent: what has been merged does not merge again.
    * A merged window covers its sources, so in the end some window covers each that was assigned.
    * If it has slices, an element is in one, and the windows of an element are those of the ends of its slice.

    Args:
        window_fn: yours, or any other.
        timestamps_us: event times, microseconds since 1970.
        values: as many elements; by default every element is None.

    Raises:
        AssertionError: it does not keep one of them; shows the windows.
        PipelineError: there are more or fewer values than timestamps.
    """
    timestamps_us = list(timestamps_us)
    values = [None] * len(timestamps_us) if values is None else list(values)
    if len(values) != len(timestamps_us):
        raise PipelineError("check_window_fn needs one value for each timestamp")
    complaint = _complaint(window_fn, timestamps_us, values)
    # Raised in one place only, for hypothesis takes two places for two mistakes, and shrinks each.
    if complaint:
        raise AssertionError(complaint)


def _complaint(
    window_fn: WindowFn, timestamps_us: Sequence[int], values: Sequence[Any]
) -> str | None:
    try:
        assigned = _assigned(window_fn, timestamps_us, values)
        if isinstance(window_fn, MergingWindowFn):
            windows = list(dict.fromkeys(window for each in assigned for window in each))
            _check_merging(window_fn, windows)
        if (slices := slice_fn_of(window_fn)) is not None:
            _check_slices(window_fn, slices, timestamps_us, values)
    except (AssertionError, WindowError) as error:
        return str(error)
    return None


def _assigned(
    window_fn: WindowFn, timestamps_us: Sequence[int], values: Sequence[Any]
) -> list[list[Window]]:
    name = type(window_fn).__name__
    together = checked_assignment(window_fn, timestamps_us, values)
    for timestamp_us, value, windows in zip(timestamps_us, values, together, strict=True):
        element = f"the element {value!r} at {format_timestamp(timestamp_us)}"
        alone = window_fn.assign_windows(timestamp_us, value)
        assert set(alone) == set(windows), (
            f"{name} is not deterministic, or assign_bundle differs from assign_windows:\n"
            f"  {element}\n  alone in {_shown(alone)}\n  with others in {_shown(windows)}"
        )
        for window in windows:
            assert timestamp_us in window, (
                f"{name} assigns a window that does not contain the element\n  {window} for {element}"
            )
    return [list(windows) for windows in together]


def _check_slices(
    window_fn: WindowFn, slices: WindowFn, timestamps_us: Sequence[int], values: Sequence[Any]
) -> None:
    name = type(window_fn).__name__
    found = _assigned(slices, timestamps_us, values)
    for timestamp_us, value, several in zip(timestamps_us, values, found, strict=True):
        element = f"the element {value!r} at {format_timestamp(timestamp_us)}"
        assert len(several) == 1, f"{name} has slices, of which {element} is in {_shown(several)}"
        (piece,) = several
        windows = window_fn.assign_windows(timestamp_us, value)
        for at_us in (piece.start_us, piece.max_timestamp_us):
            others = window_fn.assign_windows(at_us, None)
            assert set(others) == set(windows), (
                f"{name} has slices whose instants are not all in the same windows\n"
                f"  {element} in {_shown(windows)}\n"
                f"  {format_timestamp(at_us)}, in the same slice {piece}, in {_shown(others)}"
            )


def _check_merging(window_fn: MergingWindowFn, windows: Sequence[Window]) -> None:
    name = type(window_fn).__name__
    merged = _merged(window_fn, windows)
    for window in windows:
        assert any(_covers(outer, window) for outer in merged), (
            f"{name} loses a window: nothing covers {window}\n"
            f"  {_shown(windows)}\n  became {_shown(merged)}"
        )
    _check_same(
        name,
        "is not idempotent",
        windows,
        merged,
        "and then merged again",
        _merged(window_fn, merged),
    )
    for order in (windows[::-1], sorted(windows), sorted(windows, reverse=True)):
        in_order = _merged(window_fn, order)
        how = f"in the order: {_shown(order, in_order=True)}"
        _check_same(name, "is not commutative", windows, merged, how, in_order)
    for order in (list(windows), sorted(windows)):
        for cut in range(1, len(order)):
            first, second = _merged(window_fn, order[:cut]), _merged(window_fn, order[cut:])
            parts = _merged(window_fn, [*first, *(each for each in second if each not in first)])
            how = f"in parts: {_shown(order[:cut])}; {_shown(order[cut:])}"
            _check_same(name, "is not associative", windows, merged, how, parts)
        one_by_one: list[Window] = []
        for window in order:
            new = [window] if window not in one_by_one else []
            one_by_one = _merged(window_fn, [*one_by_one, *new])
        how = f"one by one: {_shown(order, in_order=True)}"
        _check_same(name, "is not associative", windows, merged, how, one_by_one)


def _merged(window_fn: MergingWindowFn, windows: Sequence[Window]) -> list[Window]:
    """The windows after merging."""
    remaining = dict.fromkeys(windows)
    for merged, sources in checked_merges(window_fn, windows):
        for source in sources:
            assert source in remaining, (
                f"{type(window_fn).__name__} merges a window that is not there, or not any more: {source}\n"
                f"  it was given {_shown(windows)}"
            )
            assert _covers(merged, source), (
                f"{type(window_fn).__name__} merges {_shown(sources)} into {merged}, which does not cover {source}"
            )
            del remaining[source]
        remaining[merged] = None
    return list(remaining)


def _check_same(
    name: str,
    law: str,
    windows: Sequence[Window],
    expected: Sequence[Window],
    how: str,
    found: Sequence[Window],
) -> None:
    assert set(expected) == set(found), (
        f"merging by {name} {law}\n"
        f"  all at once: {_shown(windows)}\n"
        f"    become {_shown(expected)}\n"
        f"  {how}\n"
        f"    become {_shown(found)}"
    )


def _covers(outer: Window, window: Window) -> bool:
    return outer.start_us <= window.start_us and window.end_us <= outer.end_us


def _shown(windows: Iterable[Window], *, in_order: bool = False) -> str:
    windows = list(windows) if in_order else sorted(windows)
    return " and ".join(map(str, windows)) or "nothing"
