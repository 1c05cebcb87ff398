"""What a user declares for state and timers, and what it does on the direct runner."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.ids import shown

VALUE = df.ReadModifyWriteStateSpec("value")
BAG = df.BagStateSpec("bag")
NO_BAG = df.ReadModifyWriteStateSpec("bag")
TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
MEAN = df.CombiningValueStateSpec("mean", df.MeanCombineFn())
END = df.TimerSpec("end", df.TimeDomain.EVENT)
CLOCK = df.TimerSpec("clock", df.TimeDomain.PROCESSING)
US = 1_000_000
#: Makes the types of elements unknown.
UNTYPED = df.Map(lambda element: element)


def run(*transforms: Any, values: Iterable[Any], bundle_records: int = 2) -> list[Any]:
    """What comes out behind some transforms."""
    return run_all(*transforms, source=df.Create(values), bundle_records=bundle_records)[0]


def run_all(
    *transforms: Any, source: Any, bundle_records: int = 2
) -> tuple[list[Any], list[dict[str, Any]]]:
    """What comes out, and the late records."""
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle_records))
    collection: Any = pipeline | source
    for transform in transforms:
        collection = collection | transform
    collection | "see" >> df.Map(seen.append)
    result = pipeline.run()
    return seen, [dict(each) for each in result.late_records()]


class Remember(df.DoFn):
    """Every handle's every verb; in the order in which a test gives elements."""

    requires_time_sorted_input = False

    def process(
        self,
        element: tuple[str, Any],
        /,
        value: Any = df.DoFn.StateParam(VALUE),
        bag: Any = df.DoFn.StateParam(BAG),
        mean: Any = df.DoFn.StateParam(MEAN),
    ) -> Iterator[Any]:
        if element[1] == "clear":
            value.clear()
            bag.clear()
            mean.clear()
        else:
            value.write(element[1])
            bag.add(element[1])
            mean.add(element[1])
        yield element[0], value.read(), bag.read(), mean.read()


def test_state_is_of_a_key() -> None:
    """Written, read, added to, cleared; across bundles; each key by itself."""
    pairs = [("a", 1), ("b", 7), ("a", 3), ("a", "clear"), ("a", 5)]
    seen = run(df.ParDo(Remember()), values=pairs)

    assert [each for each in seen if each[0] == "a"][:2] == [
        ("a", 1, [1], 1.0),
        ("a", 3, [1, 3], 2.0),
    ]
    assert repr(("a", None, [], float("nan"))) == repr([each for each in seen if each[0] == "a"][2])
    assert seen[-1] == ("a", 5, [5], 5.0)
    assert ("b", 7, [7], 7.0) in seen


def test_state_is_of_a_window() -> None:
    values = [df.TimestampedValue(("a", at), at) for at in (1, 12, 3, 15)]
    seen = run(df.WindowInto(df.FixedWindows(10)), df.ParDo(Remember()), values=values)

    assert [[1], [12], [1, 3], [12, 15]] == sorted([each[2] for each in seen], key=len)


def test_a_bag_that_was_read_is_the_readers() -> None:
    class Spoil(df.DoFn):
        def process(self, element: Any, /, bag: Any = df.DoFn.StateParam(BAG)) -> Iterator[Any]:
            bag.read().append("spoiled")
            bag.add(element[1])
            yield bag.read()

    assert [[1], [1, 2]] == run(df.ParDo(Spoil()), values=[("a", 1), ("a", 2)])


class Everything(df.DoFn):
    """Asks for all there is, in both kinds of methods."""

    def process(
        self,
        element: tuple[str, int],
        /,
        key: Any = df.DoFn.KeyParam,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        pane: Any = df.DoFn.PaneParam,
        value: Any = df.DoFn.StateParam(VALUE),
        end: Any = df.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        value.write(element[1])
        end.set(window.end - timedelta(seconds=1))
        yield "process", key, element, at.timestamp(), window.start_us, pane.index

    @df.on_timer(END)
    def ended(
        self,
        key: Any = df.DoFn.KeyParam,
        at: Any = df.DoFn.TimestampParam,
        window: Any = df.DoFn.WindowParam,
        value: Any = df.DoFn.StateParam(VALUE),
        end: Any = df.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        yield df.TaggedOutput("timers", (key, at.timestamp(), window.end_us, value.read()))


def test_what_can_be_asked_for_and_where_outputs_go() -> None:
    """Also: tags, and the event time of a timer's output, which is the timer's."""
    timed: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    outputs = (
        pipeline
        | df.Create([df.TimestampedValue(("a", 5), 12)])
        | df.WindowInto(df.FixedWindows(10))
        | df.ParDo(Everything()).with_outputs("timers", main="rest")
    )
    seen: list[Any] = []
    outputs.rest | "see" >> df.Map(seen.append)
    (
        outputs.timers
        | df.Map(lambda x, at=df.DoFn.TimestampParam: timed.append((x, at.timestamp())))
    )  # fmt: skip
    pipeline.run()

    assert [("process", "a", ("a", 5), 12.0, 10 * US, 0)] == seen
    assert [(("a", 19.0, 20 * US, 5), 19.0)] == timed


def test_outputs_of_timers_are_grouped_in_the_window_of_their_state() -> None:
    class Twice(df.DoFn):
        def process(
            self, element: Any, /, end: Any = df.DoFn.TimerParam(END), w: Any = df.DoFn.WindowParam
        ) -> Iterator[Any]:
            end.set(w.end + timedelta(seconds=5))  # beyond the expiry: then
            yield element

        @df.on_timer(END)
        def ended(self, key: Any = df.DoFn.KeyParam) -> Iterator[Any]:
            yield key, 100

    values = [df.TimestampedValue(("a", at), at) for at in (1, 3, 15)]
    windows = df.WindowInto(df.FixedWindows(10))

    assert [("a", 104), ("a", 115)] == run(
        windows, df.ParDo(Twice()), df.CombinePerKey(sum), values=values
    )


def test_late_records_are_kept() -> None:
    """An element whose window has expired is dropped, counted and a row, as in a grouping."""
    script = [
        Batch([("a", 1)], [5 * US], 0),
        Batch([("a", 2)], [20 * US], 15 * US),
        Batch([("a", 3), ("a", 4)], [6 * US, 7 * US], 16 * US),
    ]
    seen, late = run_all(
        df.WindowInto(df.FixedWindows(10)),
        "remember" >> df.ParDo(Remember()),
        source=df.Read(ScriptedSource(script)),
    )

    assert [[1], [2]] == [each[2] for each in seen]
    assert [
        {
            "transform": "remember",
            "key": "'a'",
            "window_start_us": 0,
            "window_end_us": 10 * US,
            "watermark_us": 15 * US,
            "count": 1,
            "sign": 1,
            "payload": [value],
            "element": df.TimestampedValue(("a", value), value + 3),
        }
        for value in (3, 4)
    ] == late


def test_the_life_of_a_stateful_do_fn() -> None:
    log: list[str] = []

    class Life(df.DoFn):
        requires_time_sorted_input = False

        def setup(self) -> None:
            log.append("setup")

        def start_bundle(self) -> None:
            log.append("start")

        def process(
            self, element: Any, /, end: Any = df.DoFn.TimerParam(END), w: Any = df.DoFn.WindowParam
        ) -> None:
            log.append(f"process {element[1]}")
            end.set(w.end)

        @df.on_timer(END)
        def ended(self) -> None:
            log.append("timer")

        def finish_bundle(self) -> None:
            log.append("finish")

        def teardown(self) -> None:
            log.append("teardown")

    run(df.ParDo(Life()), values=[("a", 1), ("a", 2), ("a", 3)])

    assert (
        "setup, start, process 1, process 2, finish, start, process 3, finish, "
        "start, timer, finish, teardown"
    ) == ", ".join(log)


@pytest.mark.parametrize("hook", ["setup", "start_bundle", "finish_bundle", "teardown"])
def test_errors_in_its_life_are_located(hook: str) -> None:
    class Broken(Remember):
        pass

    def fail(self: Any) -> None:
        raise ValueError("no")

    setattr(Broken, hook, fail)
    with pytest.raises(df.TransformError, match=r"'bad' \(.*:\d+\) raised ValueError") as caught:
        run("bad" >> df.ParDo(Broken()), values=[("a", 1)])
    assert f"in Broken.{hook}" == caught.value.detail


class Failing(df.DoFn):
    requires_time_sorted_input = False

    def process(self, element: Any, /, end: Any = df.DoFn.TimerParam(END)) -> Iterator[Any]:
        if element[1] == "now":
            raise ValueError("no")
        if element[1] == "naive":
            end.set(datetime(2013, 1, 1))  # noqa: DTZ001 - that is the error
        if element[1] == "earlier":
            yield df.TimestampedValue(1, -5)
        if element[1] == "tag":
            yield df.TaggedOutput("unknown", 1)
        end.set(5)

    @df.on_timer(END)
    def ended(self) -> Iterator[Any]:
        yield 1 // 0


@pytest.mark.parametrize(
    ("value", "fact", "detail"),
    [
        ("now", "raised ValueError: no", "element: ('a', 'now')"),
        ("naive", "raised TimeError", "element: ('a', 'naive')"),
        ("earlier", "an earlier event time", "1969-12-31T23:59:55"),
        ("tag", "yielded to the output 'unknown'", "outputs: ['main']"),
        ("timer", "raised ZeroDivisionError", "in Failing.ended, timer 'end' of key 'a'"),
    ],
)
def test_errors_name_transform_line_and_element(value: str, fact: str, detail: str) -> None:
    with pytest.raises(df.TransformError) as caught:
        run("bad" >> df.ParDo(Failing()), values=[df.TimestampedValue(("a", value), 0)])

    assert caught.value.fact.startswith("transform 'bad' (tests")
    assert fact in caught.value.fact
    assert detail in str(caught.value.detail)


@pytest.mark.parametrize("element", ["ab", ["a", 1], (1, 2, 3), ([], 1)], ids=shown)
def test_other_than_pairs_are_refused(element: Any) -> None:
    """When the pipeline is built, if their types are known then."""
    with pytest.raises(df.TransformError, match=r"needs \(key, value\) pairs|cannot be hashed"):
        run(UNTYPED, df.ParDo(Remember()), values=[element])
    with pytest.raises(df.PipelineError, match=r"needs \(key, value\) pairs|cannot be hashed"):
        run(df.ParDo(Remember()), values=[element])


def test_keys_are_as_for_a_grouping() -> None:
    with pytest.raises(df.KeyEncodingError, match="cannot be a key"):
        run(UNTYPED, df.ParDo(Remember()), values=[(frozenset("a"), 1)])


def test_processing_time_can_be_counted_from_now() -> None:
    class Later(df.DoFn):
        def process(self, element: Any, /, clock: Any = df.DoFn.TimerParam(CLOCK)) -> None:
            clock.set_after(timedelta(seconds=element[1]))

        @df.on_timer(CLOCK)
        def rings(self, key: Any = df.DoFn.KeyParam) -> Iterator[Any]:
            yield key

    script = TestStream().add_elements([("a", 5), ("b", 1)]).advance_processing_time(10)
    assert ["b", "a"] == run_all(df.ParDo(Later()), source=script)[0]
    with pytest.raises(df.TransformError, match="cannot be set after datetime"):
        run(df.ParDo(Later()), values=[("a", -1)])


def test_only_processing_time_can_be_counted_from_now() -> None:
    class Wrong(Failing):
        def process(self, element: Any, /, end: Any = df.DoFn.TimerParam(END)) -> None:  # type: ignore[override]
            end.set_after(1)

    with pytest.raises(df.TransformError, match=r"timer 'end' \(EVENT\) cannot be set after 1"):
        run(df.ParDo(Wrong()), values=[("a", 1)])


def retracting() -> tuple[Any, ...]:
    mode = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    every = df.Repeatedly(df.AfterCount(1))
    return (
        df.WindowInto(df.GlobalWindows(), trigger=every, accumulation_mode=mode),
        "sum" >> df.CombinePerKey(sum),
    )


def test_a_do_fn_that_handles_retractions_sees_them() -> None:
    """What it emits is emitted for good: nothing after it is retracted."""

    class Changes(df.DoFn):
        handles_retractions = True

        def process(
            self,
            element: Any,
            /,
            sign: Any = df.DoFn.SignParam,
            total: Any = df.DoFn.StateParam(TOTAL),
        ) -> Iterator[Any]:
            total.add(sign * element[1])
            yield element[0], (sign, element[1], total.read())

    pipeline = df.Pipeline(DirectRunner(bundle_records=1))
    seen: list[Any] = []
    collection: Any = pipeline | df.Create([("a", 1), ("a", 2)])
    for transform in (*retracting(), df.ParDo(Changes())):
        collection = collection | transform
    assert collection.node.retracted_by is None
    collection | df.Map(seen.append)
    pipeline.run()

    assert [("a", (1, 1, 1)), ("a", (-1, 1, 0)), ("a", (1, 3, 3))] == seen


def test_order_can_be_asked_for() -> None:
    class InOrder(df.DoFn):
        requires_time_sorted_input = True

        def process(self, element: Any, /) -> Iterator[Any]:
            yield element[1]

    values = [df.TimestampedValue(("a", at), at) for at in (5, 1, 4, 2)]

    assert [1, 2, 4, 5] == run(df.ParDo(InOrder()), values=values)


def test_lateness_of_timers_is_looked_at() -> None:
    """They may emit until the window has expired, so a WindowInto after them must allow as much."""
    pipeline = df.Pipeline(DirectRunner())
    discarding = df.AccumulationMode.DISCARDING
    collection: Any = (
        pipeline
        | df.Create([df.TimestampedValue(("a", 1), 1)])
        | df.WindowInto(df.FixedWindows(60), allowed_lateness=300, accumulation_mode=discarding)
        | "stateful" >> df.ParDo(Remember())
        | df.Map(lambda each: (each[0], each[1]))
        | "again" >> df.WindowInto(df.FixedWindows(600))
    )
    with pytest.warns(df.DataLossWarning, match="may drop what comes late to it by design"):
        collection | df.GroupByKey()


def test_times_are_what_they_are_everywhere() -> None:
    class At(df.DoFn):
        def process(self, element: Any, /, end: Any = df.DoFn.TimerParam(END)) -> None:
            end.set(element[1])

        @df.on_timer(END)
        def ended(self, at: Any = df.DoFn.TimestampParam) -> Iterator[Any]:
            yield at.timestamp()

    seconds = 1_000.5
    same = datetime.fromtimestamp(seconds, UTC)

    values = [df.TimestampedValue((key, at), 0) for key, at in (("a", seconds), ("b", same))]
    assert [seconds, seconds] == run(df.ParDo(At()), values=values)
