"""Topology: computations, the streams between them, and how they become transforms.  MillWheel, sections 4.1 to 4.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs

from dataflow.computations.checks import (
    check_computation,
    check_inputs,
    check_name,
    check_outputs,
)
from dataflow.computations.computation import Computation, KeyExtractor
from dataflow.computations.computation_do_fn import ComputationDoFn, KeyExtraction
from dataflow.computations.hook import Definition
from dataflow.errors import PipelineError
from dataflow.graph import MAIN
from dataflow.io.create import Read
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.record_ids import RecordIds
from dataflow.source import Source
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.par_do import Map, MultiOutputParDo
from dataflow.transforms.window_into import WindowInto
from triggers.windowing_strategy import WindowingStrategy
from windowing.global_windows import GlobalWindows
from windowing.location import user_location

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline


class Streams(dict[str, PCollection[Any]]):
    """The streams of a topology by their names, each as the PCollection of its records."""

    def __missing__(self, name: str) -> PCollection[Any]:
        raise PipelineError(
            f"there is no stream {name!r}", hint=f"the streams of the topology are {sorted(self)}"
        )


@attrs.frozen
class _Given:
    """A stream that comes from outside: where it was defined, and the function that makes its PCollection."""

    location: str
    build: Callable[[Pipeline], PCollection[Any]]


@attrs.frozen
class _Node:
    """A computation with its inputs, each with the key extractor."""

    definition: Definition
    computation: Computation
    inputs: Mapping[str, KeyExtractor]


class Topology(PTransform["Pipeline", Streams]):
    """A graph of computations and named streams, applied to a pipeline as a transform that starts one.

    A stream has the records of every computation that names it among the outputs, and of an injector or `stream` of
    that name; any computation may subscribe to it, each with a key extractor of its own.  The parts may be named in any
    order; an error of the whole is raised when it is applied, with the user's line.

    Its label, and the names of the computations, name the state in the store: change neither while a job goes on.

    Example::

        streams = p | "zeitgeist" >> (
            Topology()
            .injector("queries", source)
            .computation("window_counter", WindowCounter())
            .computation(
                "by_region", Count(), inputs={"queries": region_of}, outputs=["region_counts"]
            )
        )
        streams["window_counts"] | df.Map(print)

    Raises:
        PipelineError: a name or an argument is wrong; when applied, a computation subscribes to a stream that nobody
            produces, or computations wait for each other in a cycle.
    """

    def __init__(self) -> None:
        self._given: dict[str, _Given] = {}
        self._nodes: dict[str, _Node] = {}
        self._sinks: list[tuple[str, str, PTransform[PCollection[Any], Any]]] = []

    def computation(
        self,
        name: str,
        computation: Computation,
        *,
        inputs: Mapping[str, KeyExtractor] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Self:
        """Add a computation.

        Args:
            name: unique among the computations.
            computation: the user code.
            inputs: the streams that it subscribes to, each with its key extractor, instead of `Computation.inputs`.
            outputs: the streams that it produces to, instead of `Computation.outputs`.

        Raises:
            PipelineError: an argument is wrong, or there is a computation of this name already.
        """
        here = user_location()
        what = f"computation {check_name(name, 'a computation', here)!r} ({here})"
        if name in self._nodes:
            raise PipelineError(
                f"{what} is defined twice",
                detail=f"first at {self._nodes[name].definition.location}",
                hint="names name the state in the store, so each must be unique",
            )
        check_computation(computation, what)
        inputs = computation.inputs if inputs is None else inputs
        outputs = computation.outputs if outputs is None else outputs
        check_inputs(inputs, what, here)
        check_outputs(outputs, what, here)
        definition = Definition(name, here, tuple(outputs))
        self._nodes[name] = _Node(definition, computation, dict(inputs))
        return self

    def injector(
        self,
        stream: str,
        source: Source | PTransform[Pipeline, PCollection[Any]],
        *,
        record_ids: RecordIds | None = None,
    ) -> Self:
        """Let a stream come from outside: a `Source`, or a transform that reads, such as `ReadFromCsv`.

        Args:
            stream: the name of the stream.
            source: a `Source`, or a transform that reads.
            record_ids: how copies are recognized, where a source is given; a transform has its own.

        Raises:
            PipelineError: it is neither, the stream has its records from elsewhere already, or a transform was given
                ``record_ids``.
        """
        if isinstance(source, Source):
            source = f"injector {stream}" >> Read(source, record_ids=record_ids)
        elif record_ids is not None:
            raise PipelineError(
                f"the injector of stream {stream!r} ({user_location()}) was given record_ids beside a transform",
                hint="give them to the transform that reads, or give the source itself",
            )
        if not isinstance(source, PTransform):
            raise PipelineError(
                f"the injector of stream {stream!r} ({user_location()}) is not a Source: {source!r}",
                hint="give a Source, or a transform that reads, such as df.ReadFromCsv(path)",
            )
        read = source
        return self._give(stream, lambda pipeline: pipeline | read)

    def stream(self, name: str, pcollection: PCollection[Any]) -> Self:
        """Let a stream be a PCollection of the same pipeline; in the topology its records are in no window.

        Args:
            name: of the stream.
            pcollection: of the same pipeline; nothing in it may be retracted.

        Raises:
            PipelineError: it is no PCollection, or may be retracted, or the stream has its records from elsewhere
                already.
        """
        if not isinstance(pcollection, PCollection):
            raise PipelineError(
                f"stream {name!r} ({user_location()}) is not a PCollection: {pcollection!r}",
                hint="apply transforms first: topology.stream(name, pipeline | ...)",
            )
        if pcollection.node.retracted_by:
            raise PipelineError(
                f"stream {name!r} ({user_location()}) may be retracted by {pcollection.node.retracted_by}",
                detail="the state that a computation has made of a record would stay when the record is retracted",
                hint="put df.ToChangelog() before it; or set that grouping's accumulation_mode to "
                "ACCUMULATING or DISCARDING",
            )
        return self._give(name, lambda _: pcollection)

    def sink(self, stream: str, transform: PTransform[PCollection[Any], Any]) -> Self:
        """Apply a transform, such as `WriteToPostgres`, to a stream.

        Args:
            stream: the name of the stream.
            transform: applied to its records as a PCollection.

        Raises:
            PipelineError: it is no transform.
        """
        if not isinstance(transform, PTransform):
            raise PipelineError(
                f"the sink of stream {stream!r} ({user_location()}) is not a transform: {transform!r}"
            )
        self._sinks.append((stream, user_location(), transform))
        return self

    def expand(self, pcoll: Pipeline) -> Streams:
        """Compile the topology: senders before receivers."""
        producers = {name: list[str]() for name in self._given}
        for node in self._nodes.values():
            for stream in node.definition.outputs:
                producers.setdefault(stream, []).append(node.definition.name)
        self._check_streams(producers)
        parts: dict[str, list[PCollection[Any]]] = {name: [] for name in producers}
        streams = Streams()
        for name, given in self._given.items():
            with pcoll.written_at(given.location):
                parts[name].append(_in_no_window(name, given.build(pcoll)))
        subscriptions = {name: list(node.inputs) for name, node in self._nodes.items()}
        for name in _in_order(subscriptions, producers):
            node = self._nodes[name]
            with pcoll.written_at(node.definition.location):
                inputs = {each: _merged(each, parts, streams) for each in node.inputs}
                for stream, output in _compiled(pcoll, node, inputs).items():
                    parts[stream].append(output)
        for name in producers:
            _merged(name, parts, streams)
        for stream, location, transform in self._sinks:
            with pcoll.written_at(location):
                pcoll.apply(transform, streams[stream])
        return streams

    def _give(self, name: str, build: Callable[[Pipeline], PCollection[Any]]) -> Self:
        here = user_location()
        check_name(name, "a stream", here)
        if name in self._given:
            raise PipelineError(
                f"stream {name!r} ({here}) is defined twice",
                detail=f"first at {self._given[name].location}",
                hint="a stream has one name and comes from outside once; df.Flatten() unites PCollections, and any "
                "number of computations may produce to it",
            )
        self._given[name] = _Given(here, build)
        return self

    def _check_streams(self, known: Mapping[str, object]) -> None:
        used = [
            (f"{node.definition} subscribes to", stream)
            for node in self._nodes.values()
            for stream in node.inputs
        ]
        used += [(f"a sink ({location}) is for", stream) for stream, location, _ in self._sinks]
        for what, stream in used:
            if stream not in known:
                raise PipelineError(
                    f"{what} the stream {stream!r}, which has no producer",
                    detail=f"the streams are {sorted(known)}",
                    hint="name it among the outputs of a computation, or give it with injector(...) or stream(...)",
                )


def _in_order(
    subscriptions: Mapping[str, Sequence[str]], producers: Mapping[str, Sequence[str]]
) -> list[str]:
    """The computations in an order in which the producer of a stream precedes its subscribers.

    Args:
        subscriptions: the input streams of each computation.
        producers: the computations that produce each stream.

    Raises:
        PipelineError: there is a cycle; it is named.
    """
    done: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path[::2]:
            cycle = [*path[2 * path[::2].index(name) :], name]
            arrows = " -> ".join(reversed(cycle))
            raise PipelineError(
                f"the topology has a cycle: {arrows}",
                detail="computations and the streams between them, in turns",
                hint="let one computation do the work of the cycle, with its state and timers",
            )
        path.append(name)
        for each in subscriptions[name]:
            path.append(each)
            for producer in producers[each]:
                visit(producer)
            path.pop()
        path.pop()
        done.append(name)

    for name in subscriptions:
        visit(name)
    return done


def _in_no_window(name: str, pcollection: PCollection[Any]) -> PCollection[Any]:
    if pcollection.node.strategy == WindowingStrategy():
        return pcollection
    return pcollection | f"all time {name}" >> WindowInto(GlobalWindows())


def _merged(
    name: str, parts: Mapping[str, list[PCollection[Any]]], streams: Streams
) -> PCollection[Any]:
    """The stream, merged from its producers, all of which have been compiled."""
    if name not in streams:
        merged = parts[name]
        streams[name] = merged[0] if len(merged) == 1 else merged | f"stream {name}" >> Flatten()
    return streams[name]


def _compiled(
    pipeline: Pipeline, node: _Node, inputs: Mapping[str, PCollection[Any]]
) -> Mapping[str, PCollection[Any]]:
    return pipeline.apply(node.definition.name >> _Compiled(node), inputs)


class _Compiled(PTransform[Mapping[str, PCollection[Any]], Mapping[str, PCollection[Any]]]):
    """One computation; the label of its stateful DoFn is the computation's own."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    def expand(self, pcoll: Mapping[str, PCollection[Any]]) -> Mapping[str, PCollection[Any]]:
        """A key extraction for each stream, their union, and the stateful DoFn."""
        definition = self._node.definition
        keyed = [
            pcollection
            | f"key of {stream}"
            >> Map(KeyExtraction(str(definition), stream, self._node.inputs[stream]))
            for stream, pcollection in pcoll.items()
        ]
        union = keyed[0] if len(keyed) == 1 else keyed | "inputs" >> Flatten()
        main, *others = definition.outputs or (MAIN,)
        fn = ComputationDoFn(self._node.computation, definition)
        outputs = MultiOutputParDo(fn, main, tuple(others)).expand(union)
        return {stream: outputs[stream] for stream in definition.outputs}
