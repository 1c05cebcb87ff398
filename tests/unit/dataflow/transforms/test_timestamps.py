"""Event times that user code sets: later at will, earlier as far as is allowed, late behind the watermark."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.do_fn import is_nondeterministic
from dataflow.graph import ParDo
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.oracle.laws import microseconds
from tests.pane_log import PaneLog, run_logged


def timed(*transforms: Any, at: float = 100) -> list[tuple[Any, float]]:
    """Value and event time of what comes out behind some transforms, for the element 5 at a second."""
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    collection: Any = pipeline | df.Create([df.TimestampedValue(5, at)])
    for transform in transforms:
        collection = collection | transform
    emitted = collection | "see" >> df.Map(lambda x, at=df.DoFn.TimestampParam: (x, at.timestamp()))
    emitted | df.Map(seen.append)
    pipeline.run()
    return seen


class Back(df.DoFn):
    """Yields at 40 seconds, to both outputs."""

    def process(self, element: Any, /) -> Iterable[Any]:
        yield df.TimestampedValue(element, 40)
        yield df.TaggedOutput("extra", df.TimestampedValue(element, 40))


class FarBack(Back):
    allowed_timestamp_skew = timedelta(minutes=1)


@pytest.mark.parametrize(
    "transform",
    [
        df.Map(lambda x: df.TimestampedValue(x, 40), allowed_timestamp_skew=60),
        df.FlatMap(
            lambda x: [df.TimestampedValue(x, 40)], allowed_timestamp_skew=timedelta(minutes=1)
        ),
        df.ParDo(FarBack()).with_outputs("extra"),
        df.ParDo(Back(), allowed_timestamp_skew=60).with_outputs("extra"),
        df.WithTimestamps(lambda x: 8 * x, allowed_timestamp_skew=60),
        "label" >> df.WithTimestamps(lambda x: 40, allowed_timestamp_skew=60),
    ],
)
def test_times_may_go_back_as_far_as_allowed(transform: Any) -> None:
    """And not a microsecond further."""
    outputs = ("main", "extra") if "MultiOutput" in type(transform).__name__ else (None,)
    for output in outputs:
        chosen = [] if output is None else [Choose(transform, output)]
        assert [(5, 40.0)] == timed(*(chosen or [transform]))
        with pytest.raises(df.TransformError, match="earlier event time than") as caught:
            timed(*(chosen or [transform]), at=100.000001)
        assert "by more than 1 minute" in caught.value.fact
        assert "allowed_timestamp_skew" in caught.value.hint


class Choose(df.PTransform[df.PCollection[Any], df.PCollection[Any]]):
    """One of several outputs."""

    def __init__(self, transform: Any, output: str) -> None:
        self.transform, self.output = transform, output

    def expand(self, pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
        outputs: Any = pcoll | self.transform
        chosen: df.PCollection[Any] = outputs[self.output]
        return chosen


def test_by_default_no_time_goes_back() -> None:
    back: list[Any] = [df.ParDo(Back()), df.WithTimestamps(lambda x: 99.999999)]
    for transform in back:
        with pytest.raises(df.TransformError, match=r"earlier event time than its element has\n"):
            timed(transform)


def test_with_timestamps() -> None:
    """Datetimes, seconds, and what else the function asks for; the elements stay as they are."""
    later = datetime(1970, 1, 1, 0, 2, tzinfo=UTC)

    assert [(5, 120.0)] == timed(df.WithTimestamps(lambda x: later))
    assert [(5, 500.0)] == timed(df.WithTimestamps(lambda x: x * 100))
    assert [(5, 160.0)] == timed(
        df.WithTimestamps(lambda x, at=df.DoFn.TimestampParam: at + timedelta(minutes=1))
    )
    assert [(5, 5.0)] == timed(df.WithTimestamps(float), at=0)


@df.nondeterministic
def marked(element: int) -> float:
    return 200


def test_a_function_that_is_marked_stays_marked() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([5]) | df.WithTimestamps(marked) | "plain" >> df.WithTimestamps(float)
    _, stamping, plain = pipeline.graph().transforms

    assert isinstance(stamping.operation, ParDo)
    assert isinstance(plain.operation, ParDo)
    assert is_nondeterministic(stamping.operation.fn)
    assert not is_nondeterministic(plain.operation.fn)


def test_with_timestamps_names_what_is_no_time() -> None:
    naive: Any = "stamp" >> df.WithTimestamps(lambda x: datetime(2024, 1, 1))  # noqa: DTZ001 - without a time zone, as the test says
    with pytest.raises(df.TransformError, match=r"^transform 'stamp' .* no time zone") as caught:
        timed(naive)
    assert "element: 5" == caught.value.detail
    with pytest.raises(df.TransformError, match=r"^transform 'WithTimestamps\(broken\)' .*ZeroDiv"):
        timed(df.WithTimestamps(broken))
    with pytest.raises(df.PipelineError, match="WithTimestamps needs a function, not 5"):
        df.WithTimestamps(5)  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="cannot be called with one element"):
        timed(df.WithTimestamps(lambda: 5))  # type: ignore[misc, arg-type]


def broken(element: int) -> float:
    return element / 0


@pytest.mark.parametrize(
    "make",
    [
        lambda skew: df.Map(abs, allowed_timestamp_skew=skew),
        lambda skew: df.FlatMap(abs, allowed_timestamp_skew=skew),
        lambda skew: df.ParDo(Back(), allowed_timestamp_skew=skew),
        lambda skew: df.WithTimestamps(abs, allowed_timestamp_skew=skew),
    ],
)
def test_wrong_skews_are_refused(make: Any) -> None:
    with pytest.raises(df.PipelineError, match="negative allowed_timestamp_skew, -1") as caught:
        make(-1)
    assert caught.value.hint
    with pytest.raises(df.TimeError, match="is not a duration"):
        make("soon")


def test_a_skew_on_the_class_is_looked_at_too() -> None:
    class Wrong(Back):
        allowed_timestamp_skew = -1

    with pytest.raises(df.PipelineError, match="negative allowed_timestamp_skew"):
        df.ParDo(Wrong())


def set_back(lateness_us: int) -> PaneLog:
    """Three records in windows of ten microseconds, the third set from 70 to 5 when the watermark is at 60."""
    script = [Batch(["a"], [4], 0), Batch(["b"], [50], 60), Batch(["c"], [70], 80)]
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | df.Read(ScriptedSource(script))
        | df.WithTimestamps(
            lambda x, at=df.DoFn.TimestampParam: (
                microseconds(5).total_seconds() if x == "c" else at
            ),
            allowed_timestamp_skew=microseconds(65),
        )
        | df.Map(lambda x: ("k", x))
        | df.WindowInto(
            df.FixedWindows(microseconds(10)),
            allowed_lateness=microseconds(lateness_us),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.GroupByKey()
    )
    return run_logged(pipeline)


def test_a_record_set_back_behind_the_watermark_is_late_not_wrong() -> None:
    """With enough lateness it corrects its window."""
    log = set_back(lateness_us=65)

    assert [(0, ["a"], "on_time"), (50, ["b"], "on_time"), (0, ["c"], "late")] == [
        (pane.window.start_us, pane.value, pane.pane.timing.value) for pane in log.panes
    ]
    assert [] == log.late_records()


@pytest.mark.filterwarnings("ignore::dataflow.errors.DataLossWarning")
def test_a_record_set_back_behind_its_window_is_kept_as_late() -> None:
    log = set_back(lateness_us=50)

    assert [(0, ["a"]), (50, ["b"])] == [(pane.window.start_us, pane.value) for pane in log.panes]
    assert [(["c"], 0, 60)] == [
        (record["payload"], record["window_start_us"], record["watermark_us"])
        for record in log.late_records()
    ]
