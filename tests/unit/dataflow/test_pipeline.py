"""Building pipelines: labels, locations, and what is refused before anything runs."""

import copy
import threading
from collections.abc import Iterator
from inspect import currentframe
from typing import Any

import pytest

import dataflow as df
from dataflow.pipeline import PCollectionTuple
from dataflow.runner import create_runner
from runners.direct import DirectRunner

HERE = "test_pipeline.py"


@pytest.fixture
def pipeline() -> df.Pipeline:
    return df.Pipeline(DirectRunner())


def line(offset: int = 0) -> int:
    """The caller's line."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + offset


def labels(pipeline: df.Pipeline) -> list[str]:
    return [node.label for node in pipeline.graph().transforms]


class Doubled(df.PTransform[df.PCollection[Any], df.PCollection[Any]]):
    """A composite of two steps."""

    def expand(self, pcoll: df.PCollection[Any]) -> df.PCollection[Any]:
        return pcoll | "twice" >> df.Map(lambda x: 2 * x) | df.Map(str)


def test_labels_are_paths(pipeline: df.Pipeline) -> None:
    """Given or made from the transform, nested, numbered from 2 when made ones repeat."""
    numbers = pipeline | df.Create([1, 2])
    numbers | df.Map(str) | df.Map(str) | "mine" >> df.Map(str)
    numbers | Doubled() | "again" >> Doubled() | Doubled()

    assert [
        "Create/Read(MemorySource)",
        "Map(str)",
        "Map(str)#2",
        "mine",
        "Doubled/twice",
        "Doubled/Map(str)",
        "again/twice",
        "again/Map(str)",
        "Doubled#2/twice",
        "Doubled#2/Map(str)",
    ] == labels(pipeline)


def test_labels_are_stable() -> None:
    """A program makes equal labels and fingerprints each time: a restarted job finds its state."""
    graphs = []
    for _ in range(2):
        pipeline = df.Pipeline(DirectRunner())
        pipeline | df.Create([1]) | Doubled() | df.Map(lambda x: (x, x)) | df.GroupByKey()
        graphs.append((labels(pipeline), pipeline.graph().fingerprint()))

    assert graphs[0] == graphs[1]


class Custom(df.WindowFn):
    """A window function without a repr of its own."""

    def assign_windows(self, timestamp_us: int, value: Any) -> list[df.Window]:
        return []


def test_fingerprint_has_the_shape_and_nothing_of_addresses() -> None:
    def fingerprint(fn: df.WindowFn, lateness: int) -> str:
        pipeline = df.Pipeline(DirectRunner())
        (
            pipeline
            | df.Create([df.TimestampedValue(1, 1)])
            | df.WindowInto(
                fn, allowed_lateness=lateness, accumulation_mode=df.AccumulationMode.DISCARDING
            )
        )
        return pipeline.graph().fingerprint()

    assert fingerprint(Custom(), 1) == fingerprint(Custom(), 1)
    assert fingerprint(Custom(), 1) != fingerprint(Custom(), 2)
    assert fingerprint(df.Sessions(1), 1) != fingerprint(df.Sessions(2), 1)


def test_applying_leaves_the_transform_unnamed() -> None:
    """``"label" >> transform`` names a copy."""
    transform = df.Map(str)
    named = "a" >> transform

    assert (None, "a") == (transform.label, named.label)
    with pytest.raises(TypeError):
        5 >> transform  # type: ignore[operator]


def test_duplicate_labels_name_both_lines(pipeline: df.Pipeline) -> None:
    numbers = pipeline | df.Create([1])
    first = line(1)
    numbers | "same" >> df.Map(str)
    with pytest.raises(df.DuplicateLabelError) as caught:
        numbers | "same" >> df.Filter(abs)

    assert "the label 'same' is used twice" == caught.value.fact
    assert f"{HERE}:{first}," in caught.value.detail
    assert f"{HERE}:{first + 2}" in caught.value.detail


def test_a_given_label_that_was_made_before_is_a_duplicate(pipeline: df.Pipeline) -> None:
    numbers = pipeline | df.Create([1])
    numbers | df.Map(str)
    with pytest.raises(df.DuplicateLabelError):
        numbers | "Map(str)" >> df.Map(str)


def test_made_labels_step_aside_for_given_ones(pipeline: df.Pipeline) -> None:
    numbers = pipeline | df.Create([1])
    numbers | "Map(str)#2" >> df.Map(str) | df.Map(str) | df.Map(str)

    assert ["Map(str)#2", "Map(str)", "Map(str)#3"] == labels(pipeline)[1:]


def test_location_is_the_users_line(pipeline: df.Pipeline) -> None:
    """Of the outermost transform: inside a composite of somebody else's it would not help."""
    numbers = pipeline | df.Create([1])
    expected = line(1)
    numbers | Doubled()
    locations = {node.location for node in pipeline.graph().transforms[1:]}

    assert 1 == len(locations)
    assert locations.pop().endswith(f"{HERE}:{expected}")


@pytest.mark.parametrize(
    "transform",
    [
        lambda lock: df.Map(lambda x: (lock, x)),
        lambda lock: df.Filter(lambda x: lock),
        lambda lock: df.FlatMap(lambda x: [lock]),
        lambda lock: df.CombinePerKey(lambda values: lock),
    ],
    ids=["map", "filter", "flat_map", "combine"],
)
def test_functions_that_cannot_travel_are_refused(pipeline: df.Pipeline, transform: Any) -> None:
    """On the line that wrote them, not an hour into the run."""
    numbers = pipeline | df.Create([1])
    with pytest.raises(df.PipelineError, match="cannot be sent to workers") as caught:
        numbers | "locked" >> transform(threading.Lock())

    assert f"transform 'locked' ({'tests'}" in caught.value.fact
    assert "lock" in caught.value.detail
    assert "DoFn.setup" in caught.value.hint


def test_values_that_cannot_travel_are_refused(pipeline: df.Pipeline) -> None:
    with pytest.raises(df.PipelineError, match="cannot be sent to workers"):
        pipeline | df.Create([threading.Lock()])


def test_unknown_runner() -> None:
    with pytest.raises(df.PipelineError, match="there is no runner 'flink'") as caught:
        df.Pipeline("flink")

    assert "installed runners: " in caught.value.detail


class _Entry:
    def load(self) -> type[DirectRunner]:
        return DirectRunner


def test_runners_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a wrong option is an error that names them."""
    monkeypatch.setattr("dataflow.runner.installed", lambda group: {"installed": _Entry()})

    assert isinstance(create_runner("installed", bundle_records=5), DirectRunner)
    with pytest.raises(df.PipelineError, match="'installed' does not have the option speed"):
        create_runner("installed", speed=5)


def test_options_beside_a_runner_object_are_refused() -> None:
    with pytest.raises(df.PipelineError, match=r"options \['job'\] were given beside"):
        df.Pipeline(DirectRunner(), job="x")
    with pytest.raises(df.PipelineError, match="bundle_records must be positive"):
        DirectRunner(bundle_records=0)


def test_leaving_the_block_runs(pipeline: df.Pipeline) -> None:
    """But not after an error inside it."""
    with pipeline as p:
        p | df.Create([1])

    assert pipeline.result is not None
    broken = df.Pipeline(DirectRunner())
    with pytest.raises(ZeroDivisionError), broken:
        raise ZeroDivisionError
    assert broken.result is None


def test_collections_of_another_pipeline_are_refused(pipeline: df.Pipeline) -> None:
    mine = pipeline | df.Create([1])
    other = df.Pipeline(DirectRunner()) | df.Create([1])
    with pytest.raises(df.PipelineError, match="reads a PCollection of another pipeline"):
        (mine, other) | df.Flatten()


def test_read_needs_a_source() -> None:
    with pytest.raises(df.PipelineError, match=r"Read needs a Source, not 'x\.csv'"):
        df.Read("x.csv")  # type: ignore[arg-type]


def test_outputs_by_tag() -> None:
    """Outputs are items and attributes; a missing one names those that there are; copying works."""
    collection: Any = object()
    outputs: Any = PCollectionTuple({"main": collection, "late": collection})

    assert outputs["late"] is outputs.late is copy.copy(outputs).main
    with pytest.raises(AttributeError, match=r"no output 'lat'; there are \['late', 'main'\]"):
        _ = outputs.lat


def test_repr_of_a_collection(pipeline: df.Pipeline) -> None:
    """Errors have it, so it names the line that made it."""
    collection = pipeline | "ones" >> df.Create([1])
    assert repr(collection).startswith("PCollection of transform 'ones/Read(MemorySource)' (tests/")
    endless = pipeline | df.PeriodicImpulse()
    assert repr(endless).startswith("unbounded PCollection of transform 'PeriodicImpulse")


def test_create_takes_any_iterable(pipeline: df.Pipeline) -> None:
    """And each value's own event time, where it has one."""

    def values() -> Iterator[Any]:
        yield 1
        yield df.TimestampedValue(2, 5)

    pipeline | df.Create(values())
    (node,) = pipeline.graph().transforms
    operation: Any = node.operation
    reader = operation.source.open(operation.source.splits(1)[0], None, fence=0)
    batch = reader.read(10)

    assert [1, 2] == list(batch.values)
    assert 5_000_000 == batch.timestamps_us[1]
    assert df.SplitStatus.FINISHED is batch.status
    assert [(0, 0)] == list(type(operation.source)([]).splits(3))
    assert [(0, 2), (2, 4), (4, 5)] == list(type(operation.source)(range(5)).splits(3))
