"""ToChangelog: retractions become ordinary elements that show what they were."""

import pickle
from typing import Any

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from windowing.pane import NO_FIRING
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
STREAM = (
    TestStream()
    .advance_processing_time_to(100)
    .add_elements([df.TimestampedValue(("k", 5), 1)])
    .advance_watermark_to(10)
    .advance_processing_time(20)
    .add_elements([df.TimestampedValue(("k", 7), 2)])
)


def changes(pcoll: df.PCollection[Any], p: df.Pipeline) -> list[Any]:
    (
        pcoll
        | df.Map(lambda value: {"it": pickle.dumps(value)})
        | df.WriteToPostgres("changes", columns={"it": bytes})
    )
    p.run()
    assert p.result is not None
    return [pickle.loads(row["it"]) for row in p.result.read_table("changes")]


def summed(p: df.Pipeline) -> df.PCollection[Any]:
    return (
        p
        | STREAM
        | df.WindowInto(df.FixedWindows(10), accumulation_mode=RETRACTING, allowed_lateness=10)
        | df.CombinePerKey(sum)
    )


def test_what_was_retracted_can_be_added_to_a_table() -> None:
    """Without it, a table without a key is refused for what retracts."""
    p = df.Pipeline(DirectRunner())
    found = changes(summed(p) | df.ToChangelog(), p)

    window = df.Window(0, 10_000_000)
    assert [
        (("k", 5), +1, 0, window, 100_000_000),
        (("k", 5), -1, 0, window, 120_000_000),
        (("k", 12), +1, 1, window, 120_000_000),
    ] == [
        (each.value, each.sign, each.pane.index, each.window, each.processing_time_us)
        for each in found
    ]
    assert [9.999999] * 3 == [each.timestamp.timestamp() for each in found]
    assert [100, 120, 120] == [each.processing_time.timestamp() for each in found]


def test_windows_panes_and_times_of_the_elements_stay() -> None:
    def seen(
        change: df.Change[Any],
        window: df.Window = df.DoFn.WindowParam,
        pane: df.PaneInfo = df.DoFn.PaneParam,
        timestamp: Any = df.DoFn.TimestampParam,
    ) -> bool:
        return (change.window, change.pane, change.timestamp) == (window, pane, timestamp)

    p = df.Pipeline(DirectRunner())

    assert [True] * 3 == changes(summed(p) | df.ToChangelog() | df.Map(seen), p)


def test_changes_can_be_grouped() -> None:
    p = df.Pipeline(DirectRunner())
    signs = summed(p) | df.ToChangelog() | df.Map(lambda change: (change.value, change.sign))
    found = changes(signs | df.WindowInto(df.GlobalWindows()) | df.CombinePerKey(sum), p)

    assert [(("k", 5), 0), (("k", 12), 1)] == found


def test_what_no_grouping_has_emitted() -> None:
    p = df.Pipeline(DirectRunner())
    (change,) = changes(p | df.Create(["a"]) | df.ToChangelog(), p)

    assert (
        df.Change("a", +1, MIN_TIMESTAMP_US, GLOBAL_WINDOW, NO_FIRING, MIN_TIMESTAMP_US) == change
    )


def test_processing_time_without_a_clock_is_an_end_of_time() -> None:
    p = df.Pipeline(DirectRunner())
    grouped = p | df.Create([("a", 1)]) | df.GroupByKey()
    (change,) = changes(grouped | df.ToChangelog(), p)

    assert (change.processing_time_us, change.processing_time.year) == (MAX_TIMESTAMP_US, 9999)
