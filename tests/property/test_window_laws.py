"""Laws of window functions: assignment contains, merging is a closure of overlap in any order."""

from collections.abc import Iterable
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.oracle.laws import microseconds
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import FrozenWindows, WindowFn

TIMES_US = st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US - 1)
SMALL_WINDOWS = st.builds(
    lambda start_us, size_us: Window(start_us, start_us + size_us),
    st.integers(0, 40),
    st.integers(1, 9),
)
SESSIONS = df.Sessions(microseconds(5))


def merged(windows: Iterable[Window]) -> set[Window]:
    """The windows after merging."""
    result = set(windows)
    for merge in SESSIONS.merge_windows(result):
        result = result - set(merge.sources) | {merge.merged}
    return result


@given(size_us=st.integers(1, 10**13), offset_us=st.integers(-(10**13), 10**13), time_us=TIMES_US)
def test_fixed_windows_tile_time(size_us: int, offset_us: int, time_us: int) -> None:
    """One window contains a time; it has the size, and starts multiples away from the offset."""
    fn = df.FixedWindows(microseconds(size_us), offset=microseconds(offset_us))
    (window,) = fn.assign_windows(time_us, None)

    assert time_us in window
    if MIN_TIMESTAMP_US < window.start_us and window.end_us < MAX_TIMESTAMP_US:
        assert size_us == window.end_us - window.start_us
        assert (window.start_us - offset_us) % size_us == 0
        assert [(Window(window.end_us, window.end_us + size_us))] == list(
            fn.assign_windows(window.end_us, None)
        ) or window.end_us + size_us > MAX_TIMESTAMP_US


@pytest.mark.parametrize(
    "fn", [df.FixedWindows(7, offset=3), SESSIONS, df.GlobalWindows()], ids=repr
)
@given(times_us=st.lists(TIMES_US, max_size=20))
def test_a_bundle_is_assigned_like_its_records(fn: WindowFn, times_us: list[int]) -> None:
    """`assign_bundle` is `assign_windows` for each, and every window contains its time."""
    values = [None] * len(times_us)
    windows = [list(each) for each in fn.assign_bundle(times_us, values)]

    assert [list(fn.assign_windows(time_us, None)) for time_us in times_us] == windows
    assert all(t in w for t, each in zip(times_us, windows, strict=True) for w in each)


@given(windows=st.lists(SMALL_WINDOWS, max_size=12), data=st.data())
def test_merging_is_associative_and_commutative(windows: list[Window], data: st.DataObject) -> None:
    """Merging any part first, in any order, changes nothing; merging again changes nothing."""
    shuffled = data.draw(st.permutations(windows))
    cut = data.draw(st.integers(0, len(windows)))
    in_parts = merged([*merged(shuffled[:cut]), *merged(shuffled[cut:])])

    assert merged(windows) == in_parts
    assert in_parts == merged(in_parts)
    assert not SESSIONS.merge_windows(in_parts)


@given(windows=st.lists(SMALL_WINDOWS, unique=True, max_size=12))
def test_merging_covers_and_separates(windows: list[Window]) -> None:
    """A merged window spans its sources and no more, each in one merge; results are disjoint."""
    merges = SESSIONS.merge_windows(windows)
    sources = [source for merge in merges for source in merge.sources]
    after = sorted(merged(windows))

    assert len(set(sources)) == len(sources)
    for window, of in merges:
        assert len(of) > 1
        assert window == Window(min(s.start_us for s in of), max(s.end_us for s in of))
    assert all(a.end_us <= b.start_us for a, b in pairwise(after))
    covered = {t for w in windows for t in range(*w)}

    assert covered == {t for w in after for t in range(*w)}


@given(window=SMALL_WINDOWS, time_us=st.integers(-5, 60))
def test_windows_are_half_open(window: Window, time_us: int) -> None:
    """The start is inside, the end is not, and the last instant is one before the end."""
    assert (window.start_us <= time_us < window.end_us) == (time_us in window)
    assert window.max_timestamp_us in window
    assert window.end_us not in window


@pytest.mark.parametrize(
    ("fn", "same", "other"),
    [
        (df.FixedWindows(60), df.FixedWindows(60.0, offset=120), df.FixedWindows(60, offset=1)),
        (SESSIONS, df.Sessions(microseconds(5)), df.Sessions(5)),
        (df.GlobalWindows(), df.GlobalWindows(), FrozenWindows()),
        (FrozenWindows(), FrozenWindows(), df.GlobalWindows()),
    ],
    ids=repr,
)
def test_window_fns_are_values(fn: WindowFn, same: WindowFn, other: WindowFn) -> None:
    """Equal configuration, equal function."""
    assert fn == same
    assert hash(fn) == hash(same)
    assert fn != other


@pytest.mark.parametrize("wrong", [0, -1, microseconds(-1)])
def test_window_fns_refuse_sizes_that_are_not_positive(wrong: float) -> None:
    with pytest.raises(df.WindowError, match="positive size"):
        df.FixedWindows(wrong)
    with pytest.raises(df.WindowError, match="positive gap"):
        df.Sessions(wrong)


def test_frozen_windows_are_never_assigned() -> None:
    with pytest.raises(AssertionError):
        FrozenWindows().assign_windows(0, None)


def test_window_fns_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SESSIONS.gap_us = 3  # type: ignore[misc]
