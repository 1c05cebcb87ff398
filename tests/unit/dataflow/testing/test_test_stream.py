"""TestStream: what a script hands over, step by step, and what it refuses."""

import importlib
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
DISCARDING = df.AccumulationMode.DISCARDING


def emitted(stream: TestStream, *transforms: Any) -> list[tuple[Any, str, float]]:
    """What a pipeline over the stream emits: value, timing of the pane, seconds on the clock."""
    with df.Pipeline(DirectRunner()) as p:
        pcoll = p | stream
        for transform in transforms:
            pcoll = pcoll | transform
        (
            pcoll
            | df.ToChangelog()
            | df.Map(
                lambda change: {
                    "value": repr(change.value),
                    "timing": change.pane.timing.value,
                    "second": change.processing_time.timestamp(),
                }
            )
            | df.WriteToPostgres("emitted", columns={"value": str, "timing": str, "second": float})
        )
    assert p.result is not None
    rows = p.result.read_table("emitted")
    return [(eval(row["value"]), row["timing"], row["second"]) for row in rows]


def counted(trigger: df.Trigger) -> list[Any]:
    """Count in minutes."""
    return [
        df.WindowInto(df.FixedWindows(60), trigger=trigger, accumulation_mode=DISCARDING),
        df.Map(lambda value: ("k", 1)),
        df.CombinePerKey(sum),
        df.Map(lambda pair: pair[1]),
    ]


def test_the_watermark_makes_windows_fire() -> None:
    stream = (
        TestStream()
        .advance_watermark_to(0)
        .add_elements(["a", "b"])
        .advance_processing_time(5)
        .advance_watermark_to(60)
        .advance_processing_time(5)
        .add_elements(["c"])
    )

    assert [(2, "on_time", 5), (1, "on_time", 10)] == emitted(stream, *counted(df.DefaultTrigger()))


def test_an_element_is_as_old_as_the_watermark_unless_it_has_a_time() -> None:
    stream = TestStream().advance_watermark_to(60).add_elements(["a", df.TimestampedValue("b", 90)])
    asked = df.Map(lambda value, at=df.DoFn.TimestampParam: (value, at.timestamp()))

    assert [("a", 60.0), ("b", 90.0)] == [value for value, _, _ in emitted(stream, asked)]


def test_elements_behind_the_watermark_are_late() -> None:
    stream = TestStream().advance_watermark_to(60).add_elements([df.TimestampedValue("a", 59)])
    with df.Pipeline(DirectRunner()) as p:
        p | stream | df.WindowInto(df.FixedWindows(60)) | df.Map(lambda v: (v, v)) | df.GroupByKey()

    assert p.result is not None
    assert [["a"]] == [late["payload"] for late in p.result.late_records()]


def test_elements_added_together_are_one_bundle_and_no_others() -> None:
    stream = TestStream().advance_watermark_to(0).add_elements(range(2_000)).add_elements([0])
    trigger = df.Repeatedly(df.AfterCount(1))

    assert [(2_000, "early", 0), (1, "early", 0)] == emitted(stream, *counted(trigger))


def test_a_delay_ends_at_its_very_instant() -> None:
    stream = (
        TestStream()
        .advance_watermark_to(0)
        .advance_processing_time_to(NOON)
        .add_elements(["a"])
        .advance_processing_time_to(NOON + timedelta(seconds=60))
        .add_elements(["b"])
    )
    trigger = df.AfterWatermark(early=df.AfterProcessingTime(10))

    noon = NOON.timestamp()
    assert [(1, "early", noon + 10), (1, "on_time", noon + 60)] == emitted(
        stream, *counted(trigger)
    )


def test_infinity_lets_every_window_fire_while_the_clock_stands() -> None:
    stream = (
        TestStream()
        .add_elements([df.TimestampedValue("a", 5)])
        .advance_watermark_to_infinity()
        .advance_processing_time(9)
        .add_elements([df.TimestampedValue("b", 5)])
    )

    assert [(1, "on_time", 0)] == emitted(stream, *counted(df.DefaultTrigger()))


def test_a_script_is_not_changed_by_going_on_with_it() -> None:
    start = TestStream().add_elements(["a"])
    one, other = start.add_elements(["b"]), start.add_elements(["c"])

    assert ["a"] == [value for value, _, _ in emitted(start)]
    assert ["a", "b"] == [value for value, _, _ in emitted(one)]
    assert ["a", "c"] == [value for value, _, _ in emitted(other)]


def test_a_script_is_a_value() -> None:
    script = TestStream().add_elements([df.TimestampedValue("a", 1.5), 2]).advance_watermark_to(3)

    assert script == pickle.loads(pickle.dumps(script))
    assert hash(script) == hash(pickle.loads(pickle.dumps(script)))
    assert script != script.advance_processing_time(0)
    assert script != "a script"


def test_a_script_is_shown_as_it_is_written() -> None:
    script = (
        TestStream()
        .add_elements([df.TimestampedValue("a", 1.000001), 2])
        .advance_watermark_to(NOON)
        .advance_watermark_to_infinity()
        .advance_processing_time_to(60)
        .advance_processing_time(timedelta(days=200_000, microseconds=1))
    )

    names = {"TestStream": TestStream, "TimestampedValue": df.TimestampedValue}
    assert script == eval(repr(script), {**names, "datetime": importlib.import_module("datetime")})
    assert "TestStream().add_elements([TimestampedValue('a', 1.000001), 2])" in repr(script)


def test_a_named_script() -> None:
    with df.Pipeline(DirectRunner()) as p:
        p | "input" >> TestStream().add_elements([1]) | df.Map(print)

    assert ["input/Read(_ScriptSource)", "Map(print)"] == [
        node.label for node in p.graph().transforms
    ]


def test_a_script_goes_on_where_a_run_ended() -> None:
    (node,) = _graph(TestStream().add_elements([1]).add_elements([2])).transforms
    source: Any = node.operation
    source = source.source
    (split,) = source.splits(8)
    first = source.open(split, None, fence=0).read(1)

    assert [2] == list(source.open(split, first.position, fence=0).read(1).values)


def _graph(stream: TestStream) -> Any:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | stream
    return pipeline.graph()


@pytest.mark.parametrize(
    ("go_back", "what"),
    [
        (lambda script: script.advance_watermark_to(59), "watermark"),
        (lambda script: script.advance_processing_time_to(59), "clock"),
        (lambda script: script.advance_processing_time(-1), "clock"),
    ],
)
def test_nothing_goes_back(go_back: Any, what: str) -> None:
    script = TestStream().advance_watermark_to(60).advance_processing_time_to(60)
    with pytest.raises(df.PipelineError, match=f"the {what} of a TestStream cannot go back"):
        go_back(script)


def test_the_clock_starts_in_1970() -> None:
    with pytest.raises(df.PipelineError, match=r"(?s)cannot go back.*1970"):
        TestStream().advance_processing_time_to(-1)


def test_nothing_is_at_the_end_of_time() -> None:
    with pytest.raises(df.PipelineError, match=r"(?s)at the end of time.*'a'"):
        TestStream().advance_watermark_to_infinity().add_elements(["a"])
