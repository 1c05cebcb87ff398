"""Every window function in a pipeline, from records to panes, and its failures with the transform's name."""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from tests.ids import shown
from tests.pane_log import run_logged
from windowing.timestamps import to_timestamp_us


def grouped(
    window_fn: df.WindowFn, records: Sequence[tuple[str, Any, Any]]
) -> dict[tuple[str, datetime, datetime], list[Any]]:
    """The values of ``(key, value, time)`` by key, start and end of their windows."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Create([df.TimestampedValue((key, value), at) for key, value, at in records])
        | "windows" >> df.WindowInto(window_fn)
        | "group" >> df.GroupByKey()
    )
    panes = run_logged(pipeline).panes
    emitted = {(p.key, p.window.start, p.window.end): sorted(p.value) for p in panes}
    assert len(emitted) == len(panes)
    return emitted


def by_seconds(emitted: dict[tuple[str, datetime, datetime], list[Any]]) -> dict[Any, list[Any]]:
    return {
        (key, start.timestamp(), end.timestamp()): values
        for (key, start, end), values in emitted.items()
    }


def test_sliding_windows() -> None:
    emitted = grouped(df.SlidingWindows(60, period=30), [("a", 1, 70), ("a", 2, 95)])

    assert {("a", 30, 90): [1], ("a", 60, 120): [1, 2], ("a", 90, 150): [2]} == by_seconds(emitted)


def test_records_between_sliding_windows_are_in_none() -> None:
    emitted = grouped(df.SlidingWindows(10, period=60), [("a", 1, 69), ("a", 2, 70), ("a", 3, 120)])

    assert {("a", 60, 70): [1], ("a", 120, 130): [3]} == by_seconds(emitted)


def test_phase_shifted_windows() -> None:
    """Hourly, but each key by its own hour; together the records of a key are those of an hour."""
    fn = df.PhaseShiftedWindows(3600)
    emitted = grouped(fn, [(key, at, at) for key in ("ann", "bob") for at in range(0, 36_000, 600)])
    for key in ("ann", "bob"):
        shift_us = fn.shift_us(key)
        mine = {start: values for (k, start, _), values in emitted.items() if k == key}
        assert {to_timestamp_us(start) % 3_600_000_000 for start in mine} == {shift_us}
        assert sorted(at for values in mine.values() for at in values) == [*range(0, 36_000, 600)]
    assert fn.shift_us("ann") != fn.shift_us("bob")


def test_sessions_with_a_gap_for_each_element() -> None:
    """Paying ends a visit within a minute, anything else keeps it open for half an hour."""
    fn = df.Sessions(lambda pair: timedelta(minutes=1 if pair[1] == "pay" else 30))
    emitted = grouped(
        fn, [("a", "look", 0), ("a", "pay", 1800), ("a", "look", 1850), ("a", "x", 3700)]
    )

    assert {
        ("a", 0, 1800): ["look"],
        ("a", 1800, 3650): ["look", "pay"],
        ("a", 3700, 5500): ["x"],
    } == by_seconds(emitted)


@pytest.mark.parametrize(
    ("fn", "start", "end"),
    [
        (df.CalendarWindows.days(time_zone="Europe/Berlin"), "2024-10-26T22", "2024-10-27T23"),
        (df.CalendarWindows.weeks(time_zone="America/New_York"), "2024-10-21T04", "2024-10-28T04"),
        (df.CalendarWindows.months(time_zone="Europe/Berlin"), "2024-09-30T22", "2024-10-31T23"),
        (
            df.CalendarWindows.years(time_zone="UTC", start=date(2000, 7, 1)),
            "2024-07-01T00",
            "2025-07-01T00",
        ),
    ],
    ids=shown,
)
def test_calendar_windows(fn: df.WindowFn, start: str, end: str) -> None:
    first, after = (
        datetime.fromisoformat(hour + ":00").replace(tzinfo=UTC) for hour in (start, end)
    )
    blink = timedelta(microseconds=1)
    records = [("a", n, at) for n, at in enumerate([first - blink, first, after - blink, after])]
    emitted = grouped(fn, records)

    assert [1, 2] == emitted["a", first, after]
    assert [[0], [1, 2], [3]] == sorted(emitted.values())


class Broken(df.MergingWindowFn):
    """Assigns well, and forgets the end of what it merges."""

    def assign_windows(self, timestamp_us: int, value: Any) -> Sequence[df.Window]:
        return [df.Window(timestamp_us, timestamp_us + value[1])]

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        return [
            df.Merge(df.Window(merged.start_us, sources[0].end_us), sources)
            for merged, sources in df.merge_overlapping(windows)
        ]


def test_wrong_windows_name_the_transform() -> None:
    with pytest.raises(
        df.WindowError, match=r"transform 'windows' \(.*test_window_into.py:\d+\): Broken returns"
    ):
        grouped(Broken(), [("a", 0, 0)])


def test_wrong_merges_name_the_transform() -> None:
    with pytest.raises(
        df.WindowError, match=r"transform 'group' \(.*test_window_into.py:\d+\): Broken merges"
    ):
        grouped(Broken(), [("a", 2_000_000, 0), ("a", 2_000_000, 1)])


def test_wrong_gaps_name_the_transform() -> None:
    with pytest.raises(df.WindowError, match=r"^transform 'windows' .*positive gap, not 0"):
        grouped(df.Sessions(lambda pair: pair[1]), [("a", 5, 0), ("a", 0, 1)])


def test_elements_without_a_key_name_the_transform() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([df.TimestampedValue(1, 1)]) | df.WindowInto(df.PhaseShiftedWindows(60))

    with pytest.raises(df.WindowError, match=r"'WindowInto.PhaseShiftedWindows.' .*value. pairs"):
        pipeline.run()


def test_a_function_that_cannot_travel_is_refused_where_it_is_written() -> None:
    lock = threading.Lock()
    pipeline = df.Pipeline(DirectRunner())

    with pytest.raises(df.PipelineError, match=r"'WindowInto.Sessions.' .* cannot be sent"):
        pipeline | df.Create([1]) | df.WindowInto(df.Sessions(lambda _: lock.locked() + 1))


def test_a_merge_that_loses_windows_across_bundles_is_found() -> None:
    """Windows of one bundle merge before the shuffle, those of several in the grouping: both are checked."""

    class Forgetful(df.MergingWindowFn):
        def assign_windows(self, timestamp_us: int, value: Any) -> list[df.Window]:
            return [df.Window(timestamp_us, timestamp_us + 10)]

        def merge_windows(self, windows: Any) -> list[df.Merge]:
            several = sorted(windows)
            return [df.Merge(several[0], tuple(several))] if len(several) > 1 else []

    pipeline = df.Pipeline(DirectRunner(bundle_records=1))
    elements = [df.TimestampedValue(("k", 1), 0), df.TimestampedValue(("k", 2), 0.000005)]
    pipeline | df.Create(elements) | df.WindowInto(Forgetful()) | "group" >> df.GroupByKey()
    with pytest.raises(df.WindowError, match=r"transform 'group' .*does not cover them"):
        pipeline.run()
