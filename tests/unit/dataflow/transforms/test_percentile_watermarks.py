"""WindowInto(watermark_percentile=...): who is quick, who is late, and what is refused."""

from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from tests.pane_log import PaneLog, run_logged

ACCUMULATING = df.AccumulationMode.ACCUMULATING


def ticks(*stragglers: tuple[int, int]) -> TestStream:
    """A record a second for five minutes; before some seconds one of an earlier one.  No watermark until the end."""
    script, late = TestStream(), dict(stragglers)
    for second in range(300):
        times = [late[second], second] if second in late else [second]
        script = script.add_elements([df.TimestampedValue(("all", 1), at) for at in times])
    return script


def logged(script: TestStream, percentile: float, **windowing: Any) -> PaneLog:
    """Sums by the minute."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | script
        | df.WindowInto(
            df.FixedWindows(60),
            watermark_percentile=percentile,
            accumulation_mode=ACCUMULATING,
            **windowing,
        )
        | df.CombinePerKey(sum)
    )
    return run_logged(pipeline)


def panes(script: TestStream, percentile: float, **windowing: Any) -> list[tuple[int, int, str]]:
    """(minute, sum, timing) of each pane, in order; nothing is dropped."""
    log = logged(script, percentile, **windowing)
    assert log.late_records() == []
    return [
        (each.window.start_us // 60_000_000, each.value, each.pane.timing.name)
        for each in log.panes
    ]


def test_windows_fire_while_the_watermark_stands() -> None:
    """All but the last one, and what straggled is added."""
    emitted = panes(ticks((150, 7), (200, 8)), 90)

    assert emitted[0] == (0, 60, "ON_TIME")
    assert [each for each in emitted if each[0] == 0] == [
        (0, 60, "ON_TIME"),
        (0, 61, "LATE"),
        (0, 62, "LATE"),
    ]
    assert [(minute, total) for minute, total, timing in emitted if timing == "ON_TIME"] == [
        (minute, 60) for minute in range(5)
    ]


def test_all_of_it_is_the_watermark() -> None:
    assert [(0, 61, "ON_TIME"), *((minute, 60, "ON_TIME") for minute in range(1, 5))] == panes(
        ticks((150, 7)), 100
    )


def test_expiry_goes_by_the_watermark() -> None:
    """With no allowance at all a straggler counts as long as the watermark has not passed its window."""
    script = ticks((150, 7)).advance_watermark_to(60)
    script = script.add_elements([df.TimestampedValue(("all", 1), 30)])
    assert len(logged(script, 90).late_records()) == 1
    assert (0, 61, "LATE") in panes(ticks((150, 7)), 90, allowed_lateness=0)


def test_closing_panes_come_at_the_expiry() -> None:
    """Not when the percentile watermark has passed it."""
    always = df.FiringBehavior.FIRE_ALWAYS
    emitted = panes(ticks((150, 7)), 90, closing_behavior=always)

    assert [timing for minute, _, timing in emitted if minute == 0] == ["ON_TIME", "LATE", "LATE"]


def test_a_grouping_behind_follows_the_input_watermark_of_the_first() -> None:
    """Behind one that is quick, one that follows the same percentile is quick too, and one that waits waits."""
    for percentile, timings in ((90, ["ON_TIME", "LATE"]), (95, ["ON_TIME"]), (100, ["ON_TIME"])):
        pipeline = df.Pipeline(DirectRunner())
        first: Any = (
            pipeline
            | ticks((150, 7))
            | "quick"
            >> df.WindowInto(
                df.FixedWindows(60),
                watermark_percentile=90,
                accumulation_mode=df.AccumulationMode.DISCARDING,
            )
            | "first" >> df.CombinePerKey(sum)
        )
        (
            first
            | "again"
            >> df.WindowInto(
                df.FixedWindows(60),
                watermark_percentile=percentile,
                accumulation_mode=ACCUMULATING,
            )
            | "second" >> df.CombinePerKey(sum)
        )
        log = run_logged(pipeline)
        second = [each for each in log.panes if each.transform == "second"]
        minute = [each for each in second if each.window.start_us == 0]

        assert timings == [each.pane.timing.name for each in minute]
        assert minute[-1].value == 61


@pytest.mark.parametrize("percentile", [0, -1, 100.5, float("nan"), "99", None])
def test_what_is_no_percentage_is_refused(percentile: Any) -> None:
    with pytest.raises(df.PipelineError, match="watermark_percentile") as caught:
        df.WindowInto(
            df.FixedWindows(60), accumulation_mode=ACCUMULATING, watermark_percentile=percentile
        )
    assert "99" in str(caught.value.hint)


def test_how_panes_relate_must_be_stated() -> None:
    with pytest.raises(df.PipelineError, match="has no accumulation mode"):
        df.WindowInto(df.FixedWindows(60), watermark_percentile=99)
