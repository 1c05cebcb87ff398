"""Windows of event time over elements for which nobody has set when they happened."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner


class Row(NamedTuple):
    at: int
    name: str


class Untimed(df.Source):
    """Declares that it does not know whether it ends."""

    has_event_times = False

    def splits(self, desired: int) -> Sequence[int]:
        raise AssertionError(desired)

    def open(self, split: int, position: Any, *, fence: int) -> df.SourceReader:
        raise AssertionError(split)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"at": 5, "name": "a"}\n{"at": 70, "name": "b"}\n')
    return path


WINDOWS = [
    df.FixedWindows(60),
    df.SlidingWindows(60, period=30),
    df.Sessions(60),
    df.Sessions(lambda pair: 60),
    df.CalendarWindows.days(1, time_zone="UTC"),
    df.PhaseShiftedWindows(60),
]


def untimed(path: Path) -> list[Any]:
    return [
        df.Create(["a", "b"]),
        df.ReadFromJsonLines(path),
        df.ReadFromJsonLines(path, rows=Row),
        df.Read(Untimed()),
    ]


def timed(path: Path) -> list[Any]:
    return [
        df.Create([df.TimestampedValue("a", 5)]),
        df.Create([]),
        df.ReadFromJsonLines(path, event_time=lambda row: row["at"]),
        df.ReadFromJsonLines(path, event_time=df.ARRIVAL_TIME),
        df.ReadFromJsonLines(path, rows=Row, event_time="at"),
        df.Read(Untimed(), event_time=df.ARRIVAL_TIME),
    ]


@pytest.mark.parametrize("window_fn", WINDOWS, ids=lambda each: type(each).__name__)
def test_where_nobody_can_have_set_it_it_is_refused_when_built(
    path: Path, window_fn: df.WindowFn
) -> None:
    for read in untimed(path):
        p = df.Pipeline(DirectRunner())
        between = p | "read" >> read | df.Filter(bool) | df.WindowInto(df.GlobalWindows())
        with pytest.raises(df.PipelineError) as caught:
            between | "windows" >> df.WindowInto(window_fn)
        assert "transform 'windows' (tests/unit/dataflow/test_event_times.py:" in caught.value.fact
        assert "needs event times, and transform 'read" in caught.value.fact
        assert "event_time=" in caught.value.hint
        assert "df.WithTimestamps" in caught.value.hint


def test_one_of_several_inputs_is_enough(path: Path) -> None:
    p = df.Pipeline(DirectRunner())
    both = (p | "a" >> timed(path)[0], p | "b" >> untimed(path)[0]) | df.Flatten()
    with pytest.raises(df.PipelineError, match="transform 'b/"):
        both | df.WindowInto(df.FixedWindows(60))


@pytest.mark.parametrize("number", range(6))
def test_who_knows_is_not_asked(path: Path, number: int) -> None:
    p = df.Pipeline(DirectRunner())
    p | timed(path)[number] | df.WindowInto(df.FixedWindows(60))
    p | "all of time" >> df.Create(["a"]) | df.WindowInto(df.GlobalWindows()) | df.Map(str)


@pytest.mark.parametrize(
    "set_times",
    [
        df.WithTimestamps(lambda row: 0),
        df.Map(lambda row: df.TimestampedValue(row, 0)),
        df.FlatMap(lambda row: [df.TimestampedValue(row, 0)]),
    ],
)
def test_the_event_time_may_be_set_in_between(path: Path, set_times: Any) -> None:
    seen: list[Any] = []
    for read in untimed(path)[:-1]:
        p = df.Pipeline(DirectRunner())
        timed = p | read | set_times | df.WindowInto(df.FixedWindows(60))
        timed | df.Map(lambda row, window=df.DoFn.WindowParam: seen.append(window.start_us))
        p.run()

    assert [0] * 6 == seen


@pytest.mark.parametrize("window_fn", WINDOWS, ids=lambda each: type(each).__name__)
def test_what_only_a_run_can_find_is_an_error_of_the_first_element(
    path: Path, window_fn: df.WindowFn
) -> None:
    reads: list[Callable[[], Any]] = [
        lambda: df.Create(["a", "b"]),
        lambda: df.Create([df.TimestampedValue("a", 1), "b"]),
        lambda: df.ReadFromJsonLines(path),
        lambda: df.ReadFromJsonLines(path, rows=Row),
        lambda: TestStream().add_elements(["a"]),
    ]
    for make in reads:
        p = df.Pipeline(DirectRunner())
        pairs = p | "read" >> make() | df.Map(lambda each: ("k", 1))
        pairs | "windows" >> df.WindowInto(window_fn) | df.GroupByKey()
        with pytest.raises(df.WindowError) as caught:
            p.run()
        assert "transform 'windows' (tests/unit/dataflow/test_event_times.py:" in caught.value.fact
        assert "it comes from transform 'read" in caught.value.detail
        assert "event_time=" in caught.value.hint


def test_columns_are_looked_at_too(path: Path) -> None:
    """No function between the rows and their windows asks for single ones."""
    p = df.Pipeline(DirectRunner())
    rows = p | df.ReadFromJsonLines(path, rows=Row) | "same" >> df.Map(lambda row: row)
    rows | "windows" >> df.WindowInto(df.FixedWindows(60)) | df.GroupByKey()
    with pytest.raises(df.WindowError, match=r"'windows' .* needs event times"):
        p.run()


def test_an_element_without_one_is_a_dead_letter_where_these_are_kept() -> None:
    seen: list[Any] = []
    p = df.Pipeline(DirectRunner(tries_per_record=1))
    values = p | df.Create([df.TimestampedValue("a", 1), "b", df.TimestampedValue("c", 3)])
    values | df.Map(str) | df.WindowInto(df.FixedWindows(60)) | df.Map(seen.append)
    (letter,) = p.run().dead_letters()

    assert ["a", "c"] == seen
    assert "b" == letter["element"].value


def test_a_window_function_of_ones_own_may_do_without() -> None:
    class Everything(df.WindowFn):
        needs_event_time = False

        def assign_windows(self, timestamp_us: int, value: Any) -> list[df.Window]:
            return [df.Window(timestamp_us, timestamp_us + 1)]

    seen: list[Any] = []
    p = df.Pipeline(DirectRunner())
    p | df.Create(["a"]) | df.WindowInto(Everything()) | df.Map(seen.append)
    p.run()

    assert ["a"] == seen
