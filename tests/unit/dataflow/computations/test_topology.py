"""Streams between computations, and what is refused when a topology is built."""

from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import Computation, Record, Topology
from runners.direct import DirectRunner


class Count(Computation):
    """Passes each record on, with what it was called for."""

    def __init__(self, *streams: str) -> None:
        self._streams = streams

    def process_record(self, record: Record) -> None:
        for stream in self._streams:
            self.produce((record.stream, record.key, record.value), stream)


def same(value: Any) -> Any:
    return value


def collected(pcollection: Any, label: str = "see") -> list[Any]:
    seen: list[Any] = []
    pcollection | label >> df.Map(seen.append)
    return seen


def build(topology: Topology) -> df.Pipeline:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | "top" >> topology
    return pipeline


def test_each_consumer_of_a_stream_has_its_own_keys() -> None:
    """Figure 5 of the paper."""
    pipeline = df.Pipeline(DirectRunner())
    streams = pipeline | (
        Topology()
        .injector("queries", df.Create([("tea", "UK"), ("tea", "FR"), ("vin", "FR")]))
        .computation("by term", Count("a"), inputs={"queries": lambda q: q[0]}, outputs=["a"])
        .computation("by region", Count("b"), inputs={"queries": lambda q: q[1]}, outputs=["b"])
    )
    terms, regions = collected(streams["a"], "a"), collected(streams["b"], "b")
    pipeline.run()

    assert ["tea", "tea", "vin"] == sorted(key for _, key, _ in terms)
    assert ["FR", "FR", "UK"] == sorted(key for _, key, _ in regions)


class Repeat(Computation):
    """Declares itself, as in figure 3 of the paper."""

    inputs = {"words": len, "numbers": lambda number: number % 2}
    outputs = ["answers"]

    def process_record(self, record: Record) -> None:
        self.produce((record.stream, record.key, record.value), self.outputs[0])


def declared(*computations: Computation, **arguments: Any) -> set[Any]:
    """What is emitted in a topology of words and numbers."""
    pipeline = df.Pipeline(DirectRunner())
    topology = Topology().injector("words", df.Create(["tea"])).injector("numbers", df.Create([7]))
    for number, each in enumerate(computations):
        topology.computation(f"computation {number}", each, **arguments)
    answers = collected((pipeline | topology)["answers"])
    pipeline.run()
    return set(answers)


def test_a_computation_may_declare_its_streams() -> None:
    """On the class, or on the object where it is made."""
    numbers = Repeat()
    numbers.inputs = {"numbers": str}

    assert declared(Repeat()) == {("words", 3, "tea"), ("numbers", 1, 7)}
    assert declared(numbers) == {("numbers", "7", 7)}


def test_what_the_topology_declares_goes_first() -> None:
    """So that one class may be used more than once, by other keys."""
    assert declared(Repeat(), inputs={"words": str.upper}) == {("words", "TEA", "tea")}


@pytest.mark.parametrize(
    ("attribute", "value", "refusal"),
    [
        ("inputs", ["words"], "needs its inputs with their key extractors"),
        ("inputs", {}, "subscribes to no stream"),
        ("inputs", {"words": 3}, "cannot be called"),
        ("outputs", "answers", "needs a list of output streams"),
        ("outputs", ["answers", "answers"], "names an output stream twice"),
        ("initial_state", {}, "has an initial_state that cannot be called"),
    ],
)
def test_what_is_declared_is_checked_when_it_is_built(
    attribute: str, value: Any, refusal: str
) -> None:
    computation = type("Wrong", (Repeat,), {attribute: value})()
    with pytest.raises(df.PipelineError, match=refusal) as caught:
        Topology().computation("wrong", computation)
    assert "test_topology.py:" in caught.value.fact


def test_a_stream_may_have_several_producers_and_parts_come_in_any_order() -> None:
    """Of all kinds; and a computation may subscribe to several streams, with a key of each."""
    pipeline = df.Pipeline(DirectRunner())
    three = pipeline | df.Create([3])
    streams = pipeline | (
        Topology()
        .computation("last", Count("end"), inputs={"all": str, "one": repr}, outputs=["end"])
        .computation("first", Count("all"), inputs={"one": same}, outputs=["all"])
        .computation("second", Count("all"), inputs={"one": same}, outputs=["all"])
        .stream("all", three)
        .injector("one", df.Create([1]))
    )
    seen = collected(streams["end"])
    pipeline.run()

    passed = ("one", 1, 1)
    expected = [("all", "3", 3), ("all", str(passed), passed), ("all", str(passed), passed)]
    assert sorted([*expected, ("one", "1", 1)], key=repr) == sorted(seen, key=repr)


def test_what_follows_a_stream_is_the_sdk() -> None:
    """Windows behind a computation; a windowed collection before it, whose windows are forgotten."""
    pipeline = df.Pipeline(DirectRunner())
    sums = (
        pipeline
        | df.Create([df.TimestampedValue(("k", value), value) for value in (1, 2, 13)])
        | df.WindowInto(df.FixedWindows(10))
        | df.CombinePerKey(sum)
    )
    topology = (
        Topology()
        .stream("sums", sums)
        .computation(
            "count", Count("answers"), inputs={"sums": lambda s: s[0]}, outputs=["answers"]
        )
    )
    rows: list[Any] = []
    topology.sink("answers", "minutes" >> Windowed(rows))
    pipeline | topology
    pipeline.run()

    assert [("k", 2)] == rows


class Windowed(df.PTransform[Any, None]):
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def expand(self, pcoll: Any) -> None:
        (
            pcoll
            | df.Map(lambda answer: (answer[1], 1))
            | df.WindowInto(df.FixedWindows(60))
            | df.CombinePerKey(sum)
            | df.Map(self._rows.append)
        )


def test_a_computation_has_its_name_in_the_store_and_its_line_in_errors() -> None:
    pipeline = build(
        Topology().injector("in", df.Create([1])).computation("count", Count(), inputs={"in": same})
    )
    (node,) = [each for each in pipeline.graph().transforms if each.label == "top/count"]

    assert "test_topology.py:" in node.location


def with_in() -> Topology:
    return Topology().injector("in", df.Create([1]))


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Topology().computation("", Count(), inputs={"in": same}),
        "a computation .* needs a name",
    ),
    (lambda: with_in().computation("c", Count, inputs={"in": same}), "needs a Computation"),  # type: ignore[arg-type]
    (
        lambda: with_in().computation("c", Computation(), inputs={"in": same}),
        "what to do with a rec",
    ),
    (lambda: with_in().computation("c", Count(), inputs={}), "subscribes to no stream"),
    (lambda: with_in().computation("c", Count(), inputs=["in"]), "with their key extractors"),  # type: ignore[arg-type]
    (
        lambda: with_in().computation("c", Count(), inputs={"in": "key"}),  # type: ignore[dict-item]
        "'in' that cannot be called",
    ),
    (lambda: with_in().computation("c", Count(), inputs={"": same}), "a stream .* needs a name"),
    (
        lambda: with_in().computation("c", Count(), inputs={"in": same}, outputs="x"),
        "a list of output",
    ),
    (lambda: with_in().computation("c", Count(), inputs={"in": same}, outputs=["x", "x"]), "twice"),
    (
        lambda: (
            with_in()
            .computation("c", Count(), inputs={"in": same})
            .computation("c", Count(), inputs={"in": same})
        ),
        "computation 'c' .* is defined twice",
    ),
    (lambda: with_in().injector("in", df.Create([2])), "stream 'in' .* is defined twice"),
    (lambda: Topology().injector("in", [1]), "is not a Source"),  # type: ignore[arg-type]
    (lambda: Topology().stream("in", [1]), "is not a PCollection"),  # type: ignore[arg-type]
    (lambda: with_in().sink("in", print), "is not a transform"),  # type: ignore[arg-type]
    (
        lambda: build(with_in().computation("c", Count(), inputs={"on": same})),
        "computation 'c' .* subscribes to the stream 'on', which has no producer",
    ),
    (lambda: build(with_in().sink("on", df.Map(print))), "a sink .* stream 'on'"),
    (lambda: (df.Pipeline(DirectRunner()) | with_in())["on"], "there is no stream 'on'"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_wrong_is_refused_when_it_is_built(make: Any, message: str) -> None:
    with pytest.raises(df.PipelineError, match=message):
        make()


def test_errors_name_the_users_line() -> None:
    with pytest.raises(df.PipelineError, match=r"test_topology\.py:\d+"):
        build(with_in().computation("c", Count(), inputs={"on": same}))


def test_a_cycle_is_named() -> None:
    """Without what only leads to it."""
    topology = (
        with_in()
        .computation("d", Count(), inputs={"x": same})
        .computation("a", Count(), inputs={"in": same, "z": same}, outputs=["x"])
        .computation("b", Count(), inputs={"x": same}, outputs=["y"])
        .computation("c", Count(), inputs={"y": same}, outputs=["z"])
    )
    with pytest.raises(df.PipelineError) as caught:
        build(topology)

    assert caught.value.fact.endswith("a -> x -> b -> y -> c -> z -> a")


def test_a_computation_that_feeds_itself_is_a_cycle() -> None:
    topology = with_in().computation("a", Count(), inputs={"in": same, "x": same}, outputs=["x"])
    with pytest.raises(df.PipelineError, match="a -> x -> a"):
        build(topology)


def test_what_may_be_retracted_is_no_stream() -> None:
    pipeline = df.Pipeline(DirectRunner())
    sums = (
        pipeline
        | df.Create([df.TimestampedValue(("k", 1), 1)])
        | df.WindowInto(
            df.FixedWindows(10),
            allowed_lateness=10,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "sums" >> df.CombinePerKey(sum)
    )
    with pytest.raises(df.PipelineError, match=r"stream 'sums' .* retracted by .*'sums'"):
        Topology().stream("sums", sums)
    Topology().stream("sums", sums | df.ToChangelog())


def test_what_cannot_travel_is_refused_on_its_line() -> None:
    computation = Count()
    computation.lock = Lock()  # type: ignore[attr-defined]
    with pytest.raises(df.PipelineError, match=r"test_topology\.py:\d+.* cannot be sent to work"):
        build(with_in().computation("c", computation, inputs={"in": same}))
