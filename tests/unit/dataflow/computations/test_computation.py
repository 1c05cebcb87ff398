"""The hooks of a computation and what they can reach, one rule at a time; on the direct runner."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import (
    LOW_WATERMARK,
    WALL_TIME,
    Computation,
    Record,
    Timer,
    Topology,
)
from dataflow.testing import TestStream
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.direct.job import Job


class Scripted(Computation):
    """Does what a function of the test does."""

    def __init__(
        self,
        on_record: Callable[[Computation, Record], Any],
        on_timer: Callable[[Computation, Timer], Any] = lambda self, timer: None,
    ) -> None:
        self._on_record, self._on_timer = on_record, on_timer

    def process_record(self, record: Record) -> None:
        return self._on_record(self, record)  # type: ignore[no-any-return]

    def process_timer(self, timer: Timer) -> None:
        return self._on_timer(self, timer)  # type: ignore[no-any-return]


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def events(*pairs: tuple[float, Any]) -> df.PTransform[Any, Any]:
    return df.Create([df.TimestampedValue(value, second) for second, value in pairs])


def run(computation: Computation, source: Any, *, key: Any = lambda value: value[0]) -> list[Any]:
    """What a computation emits to its stream "out", with event times."""
    pipeline = df.Pipeline(DirectRunner(bundle_records=2))
    streams = pipeline | Topology().injector("in", source).computation(
        "computation", computation, inputs={"in": key}, outputs=["out", "other"]
    )
    seen: list[Any] = []
    for name in ("out", "other"):
        streams[name] | name >> df.Map(
            lambda value, time=df.DoFn.TimestampParam: seen.append((value, time.timestamp()))
        )
    pipeline.run()
    return seen


def failing(computation: Computation, source: Any) -> df.TransformError:
    with pytest.raises(df.TransformError) as caught:
        run(computation, source)
    assert "computation 'computation' (" in caught.value.fact
    assert "test_computation.py:" in caught.value.fact
    assert caught.value.hint
    return caught.value


class Gather(Computation):
    """Keeps what comes, until there are two."""

    initial_state = list

    def process_record(self, record: Record) -> None:
        self.state.append(record.value)
        self.produce(list(self.state), "out")
        if len(self.state) == 2:
            self.state.clear()


def test_the_first_state_is_made_for_each_key() -> None:
    """It may be changed in place, and comes again when the state equals it, or is None."""
    values = [value for value, _ in run(Gather(), events(*enumerate(["a1", "b1", "a2", "a3"])))]

    assert values == [["a1"], ["b1"], ["a1", "a2"], ["a3"]]


def nothing() -> list[Any]:
    return []


@pytest.mark.parametrize("first", [list, nothing, staticmethod(nothing)])
def test_the_first_state_comes_again_after_none(first: Any) -> None:
    seen: list[Any] = []

    def forget(self: Computation, record: Record) -> None:
        self.state = [record.value]
        self.state = None
        seen.append(self.state)
        self.state.append("kept" if record.value == "a1" else "other")
        seen.append(self.state)
        if record.value == "a2":
            self.state = None

    kind = type("Forget", (Scripted,), {"initial_state": first})
    run(kind(forget), events((1, "a1"), (2, "a2"), (3, "a3")))

    assert seen == [["kept"], ["kept"], ["other"], ["other"], ["other"], ["other"]]


def test_a_state_that_equals_the_first_one_takes_no_room() -> None:
    """Nothing is left in the job when it ends; a state that differs is."""
    pipeline = df.Pipeline(DirectRunner())
    two = TestStream().add_elements(["a1", "a2", "b1"])
    pipeline | Topology().injector("in", two).computation(
        "gather", Gather(), inputs={"in": lambda value: value[0]}, outputs=["out"]
    )
    job = Job(plan(pipeline.graph()))
    (split,) = job._inputs
    batch = split.reader.read(10)
    job._process(split, split.stage.admit(batch, watermark_us=split.watermark_us, ids=None))
    (gather,) = job._groupings.values()

    assert ["b"] == list(gather.windows.keys())


def test_a_record_comes_with_key_time_and_stream() -> None:
    seen: list[Record] = []
    run(Scripted(lambda self, record: seen.append(record)), events((3, "apple")))

    assert [Record("apple", "a", at(3), "in")] == seen


def test_state_is_of_a_key_and_none_at_first() -> None:
    def count(self: Computation, record: Record) -> None:
        self.produce((record.key, self.state), "out")
        self.state = (self.state or 0) + 1

    seen = run(Scripted(count), events((0, "a"), (0, "b"), (0, "a"), (0, "a")))

    assert [("a", None), ("b", None), ("a", 1), ("a", 2)] == [value for value, _ in seen]


def test_state_may_be_changed_in_place_and_freed() -> None:
    """It is the paper's MutablePersistentState."""

    def collect(self: Computation, record: Record) -> None:
        if record.value.endswith("!"):
            self.state = None
        elif self.state is None:
            self.state = [record.value]
        else:
            self.state.append(record.value)
        self.produce(None if self.state is None else list(self.state), "out")

    seen = run(Scripted(collect), TestStream().add_elements(["a", "ab", "a!", "ac"]))

    assert [["a"], ["a", "ab"], None, ["ac"]] == [value for value, _ in seen]


class Json:
    """Bytes that a person can read."""

    def encode(self, state: Any, /) -> bytes:
        return json.dumps(state).encode()

    def decode(self, encoded: bytes, /) -> Any:
        return json.loads(encoded)


def test_state_may_be_bytes_of_ones_own() -> None:
    """What it was made of comes back as the coder makes it: here tuples as lists; also what was changed in place."""

    def collect(self: Computation, record: Record) -> None:
        if self.state is None:
            self.state = [(1, 2)]
        else:
            self.state.append(3)
        self.produce(repr(self.state), "out")

    computation = Scripted(collect)
    computation.state_coder = Json()
    seen = run(computation, events((0, "a"), (0, "a"), (0, "a")))

    assert ["[(1, 2)]", "[[1, 2], 3]", "[[1, 2], 3, 3]"] == [value for value, _ in seen]


def test_a_coder_makes_bytes() -> None:
    class Text(Json):
        def encode(self, state: Any, /) -> Any:
            return "text"

    computation = Scripted(lambda self, record: setattr(self, "state", 1))
    computation.state_coder = Text()
    error = failing(computation, events((0, "a")))

    assert "does not make bytes" in error.fact


def test_timers_of_many_tags_fire_in_time_order() -> None:
    """Each with its tag, the time it was set for, and that as the event time of what it emits."""

    def process(self: Computation, record: Record) -> None:
        for second in (40, 10, 30, 20):
            self.set_timer(f"after {second}", record.timestamp + timedelta(seconds=second))

    seen = run(
        Scripted(process, lambda self, timer: self.produce((timer.tag, timer.time), "out")),
        events((100, "a")),
    )

    expected = [(f"after {each}", at(100 + each)) for each in (10, 20, 30, 40)]
    assert [(value, value[1].timestamp()) for value in expected] == seen


def test_a_timer_is_moved_and_deleted_by_its_tag() -> None:
    def process(self: Computation, record: Record) -> None:
        self.set_timer("moved", 10)
        self.set_timer("moved", 30)
        self.set_timer("gone", 20)
        self.delete_timer("gone")
        self.delete_timer("never set")
        self.set_timer("gone", 5, WALL_TIME)  # another one, of the other domain
        self.delete_timer("gone", WALL_TIME)

    seen = run(
        Scripted(process, lambda self, timer: self.produce(timer.tag, "out")), events((0, "a"))
    )

    assert [("moved", 30)] == seen


def test_a_timer_for_the_past_fires_at_the_record_that_set_it() -> None:
    """Its time is what it was set for, its timestamp from when on it may produce."""
    timers: list[Timer] = []

    def fired(self: Computation, timer: Timer) -> None:
        timers.append(timer)
        self.produce("late bucket", "out")

    source = TestStream().advance_watermark_to(50).add_elements([df.TimestampedValue("a", 60)])
    seen = run(Scripted(lambda self, _: self.set_timer("t", 40), fired), source)

    assert [Timer("t", at(40), LOW_WATERMARK, "a", at(60))] == timers
    assert [("late bucket", 60)] == seen


def test_wall_time_timers_follow_the_clock() -> None:
    timers: list[tuple[str, float, str]] = []

    def process(self: Computation, record: Record) -> None:
        if record.value == "a":
            self.set_timer_after("later", 5)
        self.produce("record", "out")

    def fired(self: Computation, timer: Timer) -> None:
        assert timer.domain is WALL_TIME
        timers.append((timer.tag, (timer.time - at(0)).total_seconds(), timer.key))
        self.produce("timer", "out")

    source = (
        TestStream()
        .advance_processing_time(100)
        .add_elements([df.TimestampedValue("a", 1)])
        .advance_processing_time(4)
        .add_elements(["b"])
        .advance_processing_time(4)
        .add_elements(["c"])
    )
    seen = run(Scripted(process, fired), source)

    assert ["record", "record", "timer", "record"] == [value for value, _ in seen]
    assert ["later"] == [tag for tag, *_ in timers]


def test_a_late_record_is_handed_over_like_others() -> None:
    """The user decides: it is the low watermark that decides."""
    source = (
        TestStream()
        .add_elements([df.TimestampedValue("a1", 10)])
        .advance_watermark_to(100)
        .add_elements([df.TimestampedValue("a2", 20), df.TimestampedValue("a3", 100)])
    )
    seen = run(
        Scripted(
            lambda self, record: self.produce(
                (record.value, record.timestamp < self.low_watermark), "out"
            )
        ),
        source,
    )

    assert [(("a1", False), 10), (("a2", True), 20), (("a3", False), 100)] == seen


def test_a_production_may_be_later_but_not_earlier_than_its_source() -> None:
    seen = run(Scripted(lambda self, record: self.produce("x", "other", at(50))), events((10, "a")))
    assert [("x", 50)] == seen

    error = failing(Scripted(lambda self, record: self.produce("x", "other", 9)), events((10, "a")))
    assert "'other'" in error.fact
    assert "test_computation.py:" in str(error.detail)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda self, record: self.produce("x", "elsewhere"), "stream 'elsewhere', which is none"),
        (lambda self, record: self.produce(df.TaggedOutput("out", 1), "out"), "TaggedOutput"),
        (lambda self, record: 1 / 0, "ZeroDivisionError"),
        (lambda self, record: [self.produce("x", "out")], "returned list"),
        (lambda self, record: (yield 1), "returned generator"),
        (lambda self, record: self.set_timer(5, 5), "not text"),
        (lambda self, record: self.set_timer("t", 5, "wall"), "sets a timer of 'wall'"),
        (lambda self, record: self.set_timer("t", datetime(2024, 1, 1)), "no time zone"),  # noqa: DTZ001 - without a time zone, as the test says
        (lambda self, record: self.set_timer_after("t", -5), "cannot be set after"),
    ],
)
def test_what_goes_wrong_names_the_computation(wrong: Any, message: str) -> None:
    assert message in str(failing(Scripted(wrong), events((0, "a"))))


def test_a_timer_without_a_method_is_an_error() -> None:
    class NoTimer(Computation):
        def process_record(self, record: Record) -> None:
            self.set_timer("t", 5)

    assert "must define process_timer" in str(failing(NoTimer(), events((0, "a"))))


@pytest.mark.parametrize(
    "use",
    [
        lambda computation: computation.state,
        lambda computation: setattr(computation, "state", 1),
        lambda computation: computation.low_watermark,
        lambda computation: computation.set_timer("t", 5),
        lambda computation: computation.delete_timer("t"),
        lambda computation: computation.set_timer_after("t", 5),
        lambda computation: computation.produce("x", "out"),
    ],
)
def test_accessors_work_in_hooks_only(use: Any) -> None:
    """Before a run, and after it as well."""
    computation = Scripted(lambda self, record: None)
    for _ in range(2):
        with pytest.raises(df.PipelineError, match=r"Scripted\..* outside of a hook") as caught:
            use(computation)
        assert caught.value.hint
        run(computation, events((0, "a")))


def test_a_computation_lives_as_a_do_fn_does() -> None:
    log: list[str] = []

    class Living(Computation):
        def setup(self) -> None:
            log.append("setup")

        def process_record(self, record: Record) -> None:
            log.append("record")

        def teardown(self) -> None:
            log.append("teardown")

    run(Living(), events((0, "a"), (0, "b")))

    assert ["setup", "record", "record", "teardown"] == log


def words(values: Iterable[str]) -> Any:
    return df.Create(list(values))


def test_a_key_extractor_that_raises_names_consumer_and_stream() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | Topology().injector("in", words(["a"])).computation(
        "counter", Scripted(lambda self, record: None), inputs={"in": lambda value: value["key"]}
    )
    with pytest.raises(df.TransformError, match=r"computation 'counter' .* stream 'in'") as caught:
        pipeline.run()
    assert "TypeError" in str(caught.value.detail)


def test_a_key_that_cannot_be_one_names_the_consumer() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | Topology().injector("in", words(["a"])).computation(
        "counter", Scripted(lambda self, record: None), inputs={"in": lambda value: [value]}
    )
    with pytest.raises(df.DataflowError, match="counter"):
        pipeline.run()
