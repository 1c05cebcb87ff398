"""DirectRunner: the clock that the input brings along, and rounds of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
MODES = df.AccumulationMode
#: The paper's ten data points: value, event time, arrival.
POINTS = [
    (5, "00:30", "05:15"), (7, "02:10", "05:40"), (3, "03:40", "06:10"), (4, "03:55", "06:25"),
    (3, "04:25", "06:40"), (8, "03:00", "07:05"), (3, "06:40", "07:20"), (9, "01:20", "08:20"),
    (8, "07:20", "08:35"), (1, "07:45", "08:50"),
]  # fmt: skip


def after_noon(text: str) -> datetime:
    minutes, seconds = map(int, text.split(":"))
    return NOON + timedelta(minutes=minutes, seconds=seconds)


def figure_5(watermarks: dict[str, str] | None = None) -> TestStream:
    """The points as they arrive; ``watermarks`` by arrival of the point that they follow."""
    stream = TestStream()
    for value, event_time, arrival in POINTS:
        point = df.TimestampedValue(("k", value), after_noon(event_time))
        stream = stream.advance_processing_time_to(after_noon(arrival)).add_elements([point])
        if watermarks and arrival in watermarks:
            stream = stream.advance_watermark_to(after_noon(watermarks[arrival]))
    return stream


def sums(
    runner: DirectRunner,
    stream: TestStream,
    window_fn: df.WindowFn,
    mode: df.AccumulationMode,
    trigger: df.Trigger | None = None,
) -> list[str]:
    """What is emitted, signed, with the start of its window and the time on the clock."""
    p = df.Pipeline(runner)
    grouped = (
        p
        | stream
        | df.WindowInto(window_fn, accumulation_mode=mode, trigger=trigger, allowed_lateness=3600)
        | df.CombinePerKey(sum)
    )
    return emitted(p, grouped)


def emitted(p: df.Pipeline, grouped: df.PCollection[Any]) -> list[str]:
    (
        grouped
        | df.ToChangelog()
        | df.Map(
            lambda change: {
                "text": f"{change.sign * change.value[1]:+} for {change.window.start:%H:%M}"
                f" at {change.processing_time:%H:%M:%S}"
            }
        )
        | df.WriteToPostgres("emitted", columns={"text": str})
    )
    p.run()
    assert p.result is not None
    return [row["text"] for row in p.result.read_table("emitted")]


def test_timers_fire_in_the_order_of_their_instants() -> None:
    """Whichever grouping they belong to, and each at its own instant."""
    p = df.Pipeline(DirectRunner())
    stream = p | TestStream().add_elements([("k", 1)]).advance_processing_time(60)
    delayed = [
        stream
        | f"window {delay}"
        >> df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterProcessingTime(delay),
            accumulation_mode=MODES.DISCARDING,
        )
        | f"sum {delay}" >> df.CombinePerKey(sum)
        | f"delay {delay}" >> df.Map(lambda pair, delay=delay: (pair[0], delay))
        for delay in (30, 10, 20)
    ]
    for number, pcoll in enumerate(delayed):
        (
            pcoll
            | f"log {number}" >> df.ToChangelog()
            | f"text {number}"
            >> df.Map(
                lambda change: {"text": f"{change.value[1]} at {change.processing_time:%H:%M:%S}"}
            )
            | f"write {number}" >> df.WriteToPostgres("emitted", columns={"text": str})
        )
    p.run()

    assert p.result is not None
    assert ["10 at 00:00:10", "20 at 00:00:20", "30 at 00:00:30"] == [
        row["text"] for row in p.result.read_table("emitted")
    ]


def test_a_timer_due_when_elements_arrive_fires_before_them() -> None:
    stream = (
        TestStream()
        .add_elements([("k", 1)])
        .advance_processing_time(10)
        .add_elements([("k", 2)])
        .advance_processing_time(10)
    )
    trigger = df.Repeatedly(df.AfterProcessingTime(10))

    assert ["+1 for 00:00 at 00:00:10", "+2 for 00:00 at 00:00:20"] == sums(
        DirectRunner(), stream, df.GlobalWindows(), MODES.DISCARDING, trigger
    )


def test_the_clock_follows_the_most_advanced_input() -> None:
    p = df.Pipeline(DirectRunner())
    slow = p | "slow" >> TestStream().advance_processing_time(1).add_elements([("slow", 1)])
    fast = p | "fast" >> TestStream().advance_processing_time(90).add_elements([("fast", 1)])

    assert ["+1 for 00:00 at 00:01:30"] * 2 == emitted(p, (slow, fast) | df.Flatten())


def test_figure_7_of_the_paper() -> None:
    stream = figure_5().advance_processing_time_to(after_noon("09:00"))
    trigger = df.Repeatedly(df.AtPeriod(60))

    assert [
        f"+{total} for 00:00 at 12:0{6 + n}:00" for n, total in enumerate([12, 22, 33, 51])
    ] == sums(DirectRunner(), stream, df.GlobalWindows(), MODES.ACCUMULATING, trigger)


def test_figure_11_of_the_paper() -> None:
    """Micro-batches of one minute: the first two windows are corrected once each, as in the paper for the late 9."""
    assert [
        "+5 for 12:00 at 12:06:00",
        "+7 for 12:02 at 12:06:00",
        "+14 for 12:02 at 12:07:00",
        "+3 for 12:04 at 12:07:00",
        "+22 for 12:02 at 12:08:00",
        "+3 for 12:06 at 12:08:00",
        "+14 for 12:00 at 12:09:00",
        "+12 for 12:06 at 12:09:00",
    ] == sums(DirectRunner(micro_batch=60), figure_5(), df.FixedWindows(120), MODES.ACCUMULATING)


def test_micro_batches_do_not_look_at_the_watermark_nor_at_triggers() -> None:
    stream = figure_5({"05:15": "30:00"})
    expected = sums(
        DirectRunner(micro_batch=60), figure_5(), df.FixedWindows(120), MODES.ACCUMULATING
    )

    assert expected == sums(
        DirectRunner(micro_batch=60),
        stream,
        df.FixedWindows(120),
        MODES.ACCUMULATING,
        df.Repeatedly(df.AfterCount(1)),
    )


def test_a_round_is_a_bundle_at_every_grouping() -> None:
    """Also where a grouping is fed by two others: one pane for each round."""
    p = df.Pipeline(DirectRunner(micro_batch=60))
    points = (
        p
        | figure_5()
        | df.WindowInto(df.GlobalWindows(), accumulation_mode=MODES.DISCARDING, trigger=df.Always())
    )
    both = [
        points
        | f"{name}" >> df.Map(lambda pair, name=name: (name, pair[1]))
        | f"sum {name}" >> df.CombinePerKey(sum)
        | f"again {name}" >> df.Map(lambda pair: ("all", pair[1]))
        for name in ("left", "right")
    ]
    together = both | df.Flatten() | "sum" >> df.CombinePerKey(sum)

    assert [
        "+24 for 00:00 at 12:06:00",
        "+20 for 00:00 at 12:07:00",
        "+22 for 00:00 at 12:08:00",
        "+36 for 00:00 at 12:09:00",
    ] == emitted(p, together)


def test_what_is_not_grouped_waits_for_the_end_of_its_round() -> None:
    p = df.Pipeline(DirectRunner(micro_batch=60))
    stream = p | TestStream().advance_processing_time(60).add_elements([("k", 1)])

    assert ["+1 for 00:00 at 00:02:00"] == emitted(p, stream)


def test_an_arrival_at_the_end_of_a_round_is_in_the_next_one() -> None:
    stream = (
        TestStream()
        .advance_processing_time_to(59)
        .add_elements([("k", 1)])
        .advance_processing_time_to(60)
        .add_elements([("k", 2)])
    )

    assert ["+1 for 00:00 at 00:01:00", "+2 for 00:00 at 00:02:00"] == sums(
        DirectRunner(micro_batch=60), stream, df.GlobalWindows(), MODES.DISCARDING
    )


def test_a_source_without_a_clock_has_no_rounds() -> None:
    p = df.Pipeline(DirectRunner(micro_batch=60))
    p | "numbers" >> df.Create([1])
    with pytest.raises(df.PipelineError, match=r"'numbers/Read\(MemorySource\)' does not report"):
        p.run()


@pytest.mark.parametrize("length", [0, timedelta(seconds=-1)])
def test_rounds_have_a_length(length: Any) -> None:
    with pytest.raises(df.PipelineError, match="positive"):
        DirectRunner(micro_batch=length)
