"""DirectRunner: watermarks of several splits, idle and finished ones, and what a run leaves."""

from typing import Any

import pytest

import dataflow as df
from dataflow.io.arrival import ArrivalTime
from dataflow.io.periodic import PeriodicSource
from runners.direct import DirectRunner
from runners.direct.job import Job
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.laws import microseconds
from tests.pane_log import PaneLog, run_logged
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

IDLE, FINISHED = df.SplitStatus.IDLE, df.SplitStatus.FINISHED


def run(*scripts: list[Batch]) -> PaneLog:
    """Count records in windows of ten microseconds."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(ScriptedSource(*scripts))
        | df.Map(lambda value: ("k", value))
        | df.WindowInto(df.FixedWindows(microseconds(10)))
        | df.GroupByKey()
    )
    return run_logged(pipeline)


def emitted(log: PaneLog) -> list[Any]:
    return [(pane.value, pane.window.start_us) for pane in log.panes]


def test_the_slowest_split_holds_the_watermark() -> None:
    log = run([Batch(["a"], [1], 90), Batch([], [], 90)], [Batch([], [], 5), Batch(["b"], [6], 90)])

    assert [(["a", "b"], 0)] == emitted(log)
    assert [] == log.late_records()


def test_an_idle_split_holds_nothing_back() -> None:
    """So what it brings when it wakes may be late."""
    log = run(
        [Batch(["a"], [1], 90), Batch([], [], 90)],
        [Batch([], [], 5, IDLE), Batch(["b"], [6], 90)],
    )

    assert [(["a"], 0)] == emitted(log)
    assert [["b"]] == [record["payload"] for record in log.late_records()]


def test_the_end_of_one_split_does_not_end_time_for_an_idle_one() -> None:
    """There may be more to come from it."""
    log = run([Batch(["a"], [1], 5)], [Batch([], [], 5, IDLE)] * 3 + [Batch(["b"], [6], 7)])

    assert [(["a", "b"], 0)] == emitted(log)


def test_a_split_that_ends_lets_time_end_whatever_its_watermark_was() -> None:
    log = run([Batch(["a"], [1], 0, FINISHED)])

    assert [(["a"], 0)] == emitted(log)
    assert (0, 0) == (log.cells_left, log.timers_left)


def test_watermarks_do_not_go_back() -> None:
    log = run([Batch([], [], 50), Batch([], [], 3), Batch(["a"], [5])])

    assert 1 == len(log.late_records())


def test_a_source_of_nothing() -> None:
    assert [] == emitted(run([]))


def followed(percentile: float) -> df.WindowInto:
    return df.WindowInto(
        df.FixedWindows(microseconds(10)),
        watermark_percentile=percentile,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )


def test_while_all_splits_are_idle_no_percentile_is_ahead() -> None:
    """There may be more to come, and nobody knows of when."""
    pipeline = df.Pipeline(DirectRunner())
    script = [Batch(["a"], [1], 2), Batch([], [], 2, IDLE), Batch(["b"], [6], 7)]
    (
        pipeline
        | df.Read(ScriptedSource(script))
        | df.Map(lambda value: ("k", value))
        | followed(50)
        | df.GroupByKey()
    )

    assert [(["a", "b"], 0)] == emitted(run_logged(pipeline))


@pytest.mark.parametrize(("second", "is_followed"), [(19, True), (20, True), (21, False)])
def test_a_grouping_follows_one_that_waits_for_as_many(second: float, is_followed: bool) -> None:
    """Or for more; behind one that waits for fewer, it waits for the watermark."""
    pipeline = df.Pipeline(DirectRunner())
    early = Batch(["a", "b", "c"], [3, 35, 36], MIN_TIMESTAMP_US)
    (
        pipeline
        | df.Read(ScriptedSource([early, early]))
        | df.Map(lambda value: ("k", value))
        | "first windows" >> followed(20)
        | "first" >> df.GroupByKey()
        | df.Map(lambda pair: (pair[0], len(pair[1])))
        | "second windows" >> followed(second)
        | "second" >> df.GroupByKey()
    )
    log = run_logged(pipeline)

    assert is_followed is any(pane.transform == "second" for pane in log.panes[: log.steps[0]])


def test_processing_time_stands_still_until_the_input_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    advance = Job._advance

    def logged(job: Job) -> None:
        seen.append(job._now_us)
        advance(job)

    monkeypatch.setattr(Job, "_advance", logged)
    run([Batch(["a"], [1], 50), Batch(["b"], [2], 60)])

    assert [MIN_TIMESTAMP_US, MIN_TIMESTAMP_US, MAX_TIMESTAMP_US] == seen


def test_late_records_are_reported_with_what_they_missed() -> None:
    log = run([Batch([], [], 50), Batch(["x"], [5])])

    assert [
        {
            "transform": "GroupByKey",
            "key": "'k'",
            "window_start_us": 0,
            "window_end_us": 10,
            "watermark_us": 50,
            "count": 1,
            "sign": 1,
            "payload": ["x"],
            "element": df.TimestampedValue(("k", "x"), 5 / 1_000_000),
        }
    ] == log.late_records()


class Broken(ScriptedSource):
    """Refuses to be read."""

    def check(self) -> None:
        raise df.InputError("nothing there")


def test_sources_are_checked_before_anything_runs() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Read(Broken([]))
    with pytest.raises(df.InputError, match="nothing there"):
        pipeline.run()


@pytest.mark.parametrize("fails", [False, True])
def test_readers_are_closed(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error too."""
    closed: list[Any] = []

    def close(reader: df.SourceReader) -> None:
        closed.append(reader)

    monkeypatch.setattr(df.SourceReader, "close", close)
    pipeline = df.Pipeline(DirectRunner())
    read = pipeline | df.Read(ScriptedSource([Batch([1], [0])], []))
    read | df.Map(lambda x: 1 // (0 if fails else 1))
    if fails:
        with pytest.raises(df.TransformError):
            pipeline.run()
    else:
        pipeline.run()

    assert 2 == len(closed)


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        (["ann", "ann", "bob"], {2: "ann", 1: "bob"}),
        # For a while both have been seen once, and the table has room for one of them.
        (["ann", "bob", "ann"], None),
        (["ann", "bob"], None),
    ],
)
def test_a_table_whose_key_two_groups_emit_has_both_or_refuses(
    names: list[str], counts: dict[int, str] | None
) -> None:
    pipeline = df.Pipeline(DirectRunner(bundle_records=1))
    (
        pipeline
        | df.Create([(name, 1) for name in names])
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(df.CountCombineFn())
        | df.Map(lambda pair: {"count": pair[1], "name": pair[0]})
        | "write"
        >> df.WriteToPostgres("counts", columns={"count": int, "name": str}, key=["count"])
    )

    if counts is None:
        with pytest.raises(
            df.TableConflictError, match=r"(?s)two results.*'ann'.*'bob'|'bob'.*'ann'"
        ):
            pipeline.run()
    else:
        rows = pipeline.run().read_table("counts")
        assert {row["count"]: row["name"] for row in rows} == counts


def test_a_source_that_waits_for_the_clock_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock stands still until somebody waits, so each instant that is not there costs one pause."""
    now_us, pauses = 0, 0

    def wait(_: float) -> None:
        nonlocal now_us, pauses
        now_us, pauses = now_us + 1_000_000, pauses + 1

    monkeypatch.setattr("runners.direct.job.time.sleep", wait)
    clock = ArrivalTime(lambda: now_us)
    source = PeriodicSource(start_us=0, stop_us=3_000_000, interval_us=1_000_000, clock=clock)
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Read(source) | df.WindowInto(df.FixedWindows(1)) | df.Map(lambda at: at)
    pipeline.run()

    assert (now_us, pauses) == (2_000_000, 2)


def test_a_source_that_has_something_is_asked_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be only a watermark, or a position."""

    def wait(_: float) -> None:
        pytest.fail("it waits")

    monkeypatch.setattr("runners.direct.job.time.sleep", wait)
    log = run([Batch(["a"], [1], 5), Batch([], [], 5), Batch([], [], 6), Batch(["b"], [6], 7)])
    assert [(["a", "b"], 0)] == emitted(log)
