"""Laws of window functions: assignment contains, merging is a closure of overlap in any order.

Of the calendar's edges `tests/unit/windowing/test_calendar_windows.py` knows more.
"""

import pickle
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs
import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from tests.effort import stated
from tests.ids import shown
from tests.oracle.laws import microseconds
from windowing.checks import checked_merges
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_timestamp_us
from windowing.window import Window
from windowing.window_fn import FrozenWindows, MergingWindowFn, WindowFn

TIMES_US = st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US - 1)
SMALL_WINDOWS = st.builds(
    lambda start_us, size_us: Window(start_us, start_us + size_us),
    st.integers(0, 40),
    st.integers(1, 9),
)
SESSIONS = df.Sessions(microseconds(5))


def own_gap(pair: tuple[Any, int]) -> timedelta:
    return microseconds(pair[1])


OWN_GAPS = df.Sessions(own_gap)
#: In the last one clocks went from a minute past midnight back into the day before.
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/St_Johns",
]
CHANGES_US = [
    to_timestamp_us(at)
    for at in (
        datetime(2008, 11, 2, 2, 31, tzinfo=UTC),  # St John's
        datetime(2024, 3, 10, 5, tzinfo=UTC),  # Havana: midnight is skipped
        datetime(2024, 11, 3, 5, tzinfo=UTC),  # Havana: midnight comes twice
        datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia: a day is skipped
    )
]
#: Whole minutes around the present, where calendars are dense, changes of clocks, both ends of time, and all of it.
CALENDAR_TIMES_US = st.one_of(
    st.integers(0, 40_000_000).map(lambda minutes: minutes * 60_000_000),
    st.builds(
        lambda change_us, minutes: change_us + minutes * 60_000_000,
        st.sampled_from(CHANGES_US),
        st.integers(-90, 90),
    ),
    st.integers(MIN_TIMESTAMP_US, MIN_TIMESTAMP_US + 9),
    st.integers(MAX_TIMESTAMP_US - 9, MAX_TIMESTAMP_US - 1),
    TIMES_US,
)
#: Every window function, in every way in which it takes its times.
WINDOW_FNS: list[WindowFn] = [
    df.GlobalWindows(),
    df.FixedWindows(7, offset=3),
    df.PhaseShiftedWindows(7),
    df.SlidingWindows(12, period=4, offset=1),
    df.SlidingWindows(10, period=4),
    df.SlidingWindows(3, period=5, offset=-1),
    df.SlidingWindows(10**12, period=10**11),
    SESSIONS,
    OWN_GAPS,
    *(df.CalendarWindows.days(time_zone=zone) for zone in ZONES),
    df.CalendarWindows.days(10, time_zone="Asia/Tokyo", start=date(2024, 2, 29)),
    df.CalendarWindows.weeks(2, time_zone="America/Havana", first_day="sunday"),
    df.CalendarWindows.months(time_zone="America/New_York"),
    df.CalendarWindows.months(5, time_zone="Pacific/Apia", start=date(2024, 2, 15)),
    df.CalendarWindows.years(time_zone="Europe/London", start=date(2024, 4, 6)),
    df.CalendarWindows.years(400, time_zone="UTC"),
]


def merged(windows: Iterable[Window], fn: MergingWindowFn = SESSIONS) -> set[Window]:
    """The windows after merging."""
    result = set(windows)
    for merge in checked_merges(fn, result):
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


@pytest.mark.parametrize("fn", WINDOW_FNS, ids=shown)
@stated(cells=len(WINDOW_FNS))
@given(
    inner_us=st.lists(CALENDAR_TIMES_US, max_size=20),
    values=st.lists(
        st.tuples(st.sampled_from(["a", "b", 1]), st.integers(1, 9)), min_size=60, max_size=60
    ),
)
def test_a_bundle_is_assigned_like_its_records(
    fn: WindowFn, inner_us: list[int], values: list[Any]
) -> None:
    """`assign_bundle` is `assign_windows` for each; windows contain their time, in order, each once.

    Also where one window ends and the next begins, after a time within.
    """
    inside = zip(inner_us, values, strict=False)
    around = [(at, fn.assign_windows(at, value)) for at, value in inside]
    bounds_us = [(at, bound) for at, each in around for window in each[:1] for bound in window]
    times_us = [at for each in bounds_us for at in each if at < MAX_TIMESTAMP_US] + inner_us
    del times_us[len(values) :]
    del values[len(times_us) :]
    windows = [list(each) for each in fn.assign_bundle(times_us, values)]

    assert [list(map(fn.assign_windows, times_us, values))] == [list(map(tuple, windows))]
    assert all(t in w for t, each in zip(times_us, windows, strict=True) for w in each)
    assert all(sorted(set(each)) == each for each in windows)
    assert all(MIN_TIMESTAMP_US <= w.start_us for each in windows for w in each)
    assert all(w.end_us <= MAX_TIMESTAMP_US for each in windows for w in each)


@pytest.mark.parametrize(
    "fn", [fn for fn in WINDOW_FNS if not isinstance(fn, MergingWindowFn)], ids=shown
)
@stated(cells=len(WINDOW_FNS))
@given(times_us=st.lists(CALENDAR_TIMES_US, min_size=1, max_size=9))
def test_records_of_a_window_share_the_object(fn: WindowFn, times_us: list[int]) -> None:
    """So that a bundle is small when it is pickled, and equal windows are found without comparing."""
    values = [("a", 1)] * len(times_us)
    shared: dict[Window, int] = {}
    for windows in fn.assign_bundle(times_us, values):
        for window in windows:
            assert shared.setdefault(window, id(window)) == id(window)


@pytest.mark.parametrize("fn", WINDOW_FNS, ids=shown)
@stated(cells=len(WINDOW_FNS))
@given(times_us=st.lists(CALENDAR_TIMES_US, max_size=9))
def test_window_fns_survive_pickling(fn: WindowFn, times_us: list[int]) -> None:
    """A copy is equal, hashes equally and assigns the same."""
    copied = pickle.loads(cloudpickle.dumps(fn))
    values = [("k", 3)] * len(times_us)

    assert fn == copied
    assert hash(fn) == hash(copied)
    assert list(fn.assign_bundle(times_us, values)) == list(copied.assign_bundle(times_us, values))


@given(
    size_us=st.integers(1, 60),
    period_us=st.integers(1, 60),
    offset_us=st.integers(-90, 90),
    time_us=st.integers(-200, 200),
)
def test_sliding_windows_are_all_those_around_a_time(
    size_us: int, period_us: int, offset_us: int, time_us: int
) -> None:
    """Of the windows that start a multiple of the period from the offset, exactly those with the time."""
    fn = df.SlidingWindows(
        microseconds(size_us), period=microseconds(period_us), offset=microseconds(offset_us)
    )
    expected = [
        Window(start_us, start_us + size_us)
        for start_us in range(-300, 300)
        if (start_us - offset_us) % period_us == 0 and start_us <= time_us < start_us + size_us
    ]

    assert expected == list(fn.assign_windows(time_us, None))
    if size_us == period_us:
        fixed = df.FixedWindows(microseconds(size_us), offset=microseconds(offset_us))
        assert expected == list(fixed.assign_windows(time_us, None))


@given(size_us=st.integers(1, 10**13), time_us=st.integers(-(10**15), 10**15), number=st.integers())
def test_phase_shifted_windows_tile_time_for_each_key(
    size_us: int, time_us: int, number: int
) -> None:
    """They are fixed windows whose offset is the key's shift."""
    fn = df.PhaseShiftedWindows(microseconds(size_us))
    for key in (number, f"{number}", (number, None)):
        shift_us = fn.shift_us(key)
        fixed = df.FixedWindows(microseconds(size_us), offset=microseconds(shift_us))

        assert 0 <= shift_us < size_us
        assert fixed.assign_windows(time_us, None) == fn.assign_windows(time_us, (key, "value"))


@given(data=st.data(), fn=st.sampled_from([f for f in WINDOW_FNS if "Calendar" in repr(f)]))
def test_calendar_windows_tile_time(data: st.DataObject, fn: WindowFn) -> None:
    """Where one window ends the next begins, and both are where any time of theirs finds them."""
    time_us = data.draw(CALENDAR_TIMES_US)
    (window,) = fn.assign_windows(time_us, None)
    inside_us = data.draw(st.integers(window.start_us, window.end_us - 1))

    assert [window] == list(fn.assign_windows(inside_us, None))
    if window.end_us < MAX_TIMESTAMP_US:
        (after,) = fn.assign_windows(window.end_us, None)
        assert window.end_us == after.start_us
    if window.start_us > MIN_TIMESTAMP_US:
        (before,) = fn.assign_windows(window.start_us - 1, None)
        assert window.start_us == before.end_us


@given(records=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_sessions_with_own_gaps_are_where_spans_overlap(records: list[tuple[int, int]]) -> None:
    """Whatever the gaps, an instant is in a session exactly if it is in the span of a record."""
    values = [("k", gap) for _, gap in records]
    assigned = OWN_GAPS.assign_bundle([time_us for time_us, _ in records], values)
    after = sorted(merged((window for (window,) in assigned), OWN_GAPS))

    assert all(a.end_us <= b.start_us for a, b in pairwise(after))
    assert {t for at, gap in records for t in range(at, at + gap)} == {
        t for window in after for t in range(*window)
    }


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
        (df.PhaseShiftedWindows(60), df.PhaseShiftedWindows(60.0), df.FixedWindows(60)),
        (
            df.SlidingWindows(60, period=5),
            df.SlidingWindows(timedelta(minutes=1), period=5, offset=10),
            df.SlidingWindows(60, period=5, offset=1),
        ),
        (OWN_GAPS, df.Sessions(own_gap), SESSIONS),
        (
            df.CalendarWindows.weeks(time_zone="UTC"),
            df.CalendarWindows.days(7, time_zone="UTC", start=date(1969, 12, 29)),
            df.CalendarWindows.weeks(time_zone="Europe/Berlin"),
        ),
        (
            df.CalendarWindows.years(time_zone="UTC"),
            df.CalendarWindows.months(12, time_zone="UTC"),
            df.CalendarWindows.months(time_zone="UTC"),
        ),
        (df.GlobalWindows(), df.GlobalWindows(), FrozenWindows()),
        (FrozenWindows(), FrozenWindows(), df.GlobalWindows()),
    ],
    ids=shown,
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
    with pytest.raises(df.WindowError, match="positive size"):
        df.PhaseShiftedWindows(wrong)
    with pytest.raises(df.WindowError, match="positive size"):
        df.SlidingWindows(wrong, period=1)
    with pytest.raises(df.WindowError, match="positive period"):
        df.SlidingWindows(1, period=wrong)


def test_frozen_windows_are_never_assigned() -> None:
    with pytest.raises(AssertionError):
        FrozenWindows().assign_windows(0, None)


def test_window_fns_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SESSIONS.gap_us = 3  # type: ignore[misc]
