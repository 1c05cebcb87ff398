"""The pipeline as a value: operations, their inputs and outputs, and how each PCollection is windowed.

This is what a runner gets.  It knows no engine; an operation describes *what* is computed, never *how*.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.do_fn import CallableDoFn, ConcurrentCalls, DoFn, is_nondeterministic
from dataflow.drawing import Arrow, Box, BoxShape, Drawing
from dataflow.exception_handling import ExceptionHandling
from dataflow.extra_arguments import NO_ARGUMENTS, ExtraArguments
from dataflow.record_ids import RecordIds
from dataflow.sink import Sink
from dataflow.source import Source
from dataflow.table import TableSpec
from dataflow.views import ViewForm
from triggers.windowing_strategy import WindowingStrategy
from windowing.window_fn import WindowFn

#: The output of an operation that has only one.
MAIN = "main"


@attrs.frozen
class Read:
    """Elements of a source.

    Attributes:
        record_ids: how records are recognised that come again.
        max_ahead_us: how far its watermark may be ahead of the clock (`dataflow.io.trusted_watermark`); None: as far as
            it likes.
        handling: what becomes of records that are set aside; they have the output `FAILURES`.  None: the runner
            decides.
    """

    source: Source
    record_ids: RecordIds | None = None
    max_ahead_us: int | None = None
    handling: ExceptionHandling | None = None


@attrs.frozen
class ParDo:
    """User code on each element; outputs are tagged.

    Attributes:
        allowed_timestamp_skew_us: how much earlier than its element an output may be.
        arguments: given to the function, or to ``process``, behind the element.
        concurrent: awaits the calls of asynchronous code; None of other code.
        handling: what becomes of elements that it fails on; they have the output `FAILURES`, beside ``tags``.  None:
            the runner decides.
    """

    fn: DoFn | CallableDoFn
    tags: tuple[str, ...] = (MAIN,)
    allowed_timestamp_skew_us: int = 0
    arguments: ExtraArguments = NO_ARGUMENTS
    concurrent: ConcurrentCalls | None = attrs.field(default=None, eq=False)
    handling: ExceptionHandling | None = None

    @property
    def is_remembered(self) -> bool:
        """Whether its outputs are kept while they may be retracted: run again, it may return others.

        What is tried again fails because of the moment, and may not fail for the retraction.
        """
        is_tried_again = self.handling is not None and self.handling.retries > 0
        return is_tried_again or is_nondeterministic(self.fn)


@attrs.frozen
class AssignWindows:
    """The paper's AssignWindows: a copy of the element for each window it is in."""

    window_fn: WindowFn


@attrs.frozen
class Group:
    """GroupByKeyAndWindow, combining each group with ``combine_fn``."""

    combine_fn: CombineFn


@attrs.frozen
class StatefulParDo:
    """User code on each ``(key, value)`` pair, with state and timers of the key and window.

    Attributes:
        tags, allowed_timestamp_skew_us, arguments: as for `ParDo`.
        is_time_sorted: whether the pairs of a key and window are seen in the order of event times on every runner, and
            not of arrival where there is one.
        handling: what becomes of elements and timers that it fails on; they have the output `FAILURES`, beside
            ``tags``, and change no state.  None: the runner decides.
    """

    fn: DoFn
    tags: tuple[str, ...] = (MAIN,)
    allowed_timestamp_skew_us: int = 0
    is_time_sorted: bool = False
    arguments: ExtraArguments = NO_ARGUMENTS
    handling: ExceptionHandling | None = None


@attrs.frozen
class SideWindows:
    """How the windows of a side input relate to those of the elements that see it.

    Attributes:
        window_fn: its windows, which do not merge.
        allowed_lateness_us: how long after the end of a window something of it may come.
        fires_once: whether a window has one pane at most.
        is_retracted: whether a pane retracts what depended on the former one; else elements that were emitted stay
            as they are.
        is_cumulative: whether each pane has all of the window; else an empty pane says nothing about it.
    """

    window_fn: WindowFn
    allowed_lateness_us: int
    fires_once: bool
    is_retracted: bool
    is_cumulative: bool


@attrs.frozen
class SideInputs:
    """Elements, the first input, with the views of side inputs, the other inputs, that belong to them.

    Elements come as ``(shard, (None, element))``, and are emitted as `WithViews`; the panes of side input ``n`` come as
    ``(shard, (n, elements))`` to every shard.

    Attributes:
        sides: as many as there are side inputs.
        shards: how many shards there are; an element of a shard that has had no pane would wait.
        waits_for_end: whether elements wait for the last pane that is on time, and not for the first.
        forms: of each side input, how it is seen; None: its views are in memory as a whole.  What is stored can be
            read whatever it was.
    """

    sides: tuple[SideWindows, ...]
    shards: int
    waits_for_end: bool = False
    forms: tuple[ViewForm | None, ...] = ()


@attrs.frozen
class Flatten:
    """The union of the inputs."""


@attrs.frozen
class Changelog:
    """Each element, also each retraction, as an ordinary element that describes it."""


@attrs.frozen
class WriteTable:
    """Rows (mappings with the columns' names) into a table of the store; or, for a sink, elements into its outbox.

    Attributes:
        table: of the rows; the outbox, if there is a sink.
        sink: takes what is in the outbox; None: the table is the result.
    """

    table: TableSpec
    sink: Sink[Any] | None = None


#: Operations that need the elements of a key in one place; each begins a stage.
KeyedOperation = Group | StatefulParDo | SideInputs
Operation = Read | ParDo | AssignWindows | KeyedOperation | Flatten | Changelog | WriteTable


@attrs.frozen(kw_only=True)
class PCollectionNode:
    """One collection of the graph.

    Attributes:
        retracted_by: the user-facing name of the grouping or read that may retract elements after they were emitted.
        is_bounded: whether all its sources end by themselves.
        has_arrival_order: whether one of its sources has such an order (`Source.has_arrival_order`).
    """

    id: int
    strategy: WindowingStrategy
    retracted_by: str | None = None
    is_bounded: bool = True
    has_arrival_order: bool = False


@attrs.frozen(kw_only=True)
class TransformNode:
    """One operation of the graph.

    Attributes:
        label: the unique path of labels; it names the computation in the store, so it must not change when unrelated
            code does.
        location: the user's file and line.
    """

    label: str
    location: str
    operation: Operation
    inputs: tuple[int, ...]
    outputs: Mapping[str, int]

    def __str__(self) -> str:
        return f"transform {self.label!r} ({self.location})"


@attrs.frozen
class TypeCheck:
    """A type that elements are checked against while the pipeline runs, where that is asked for.

    Attributes:
        pcollection: the id of the collection that they are in.
        hint: the type.
        transform: names the transform that takes or emits them, in an error.
        is_taken: whether it takes them.
    """

    pcollection: int
    hint: Any
    transform: str
    is_taken: bool


@attrs.frozen
class FreshnessDeclared:
    """How far behind the clock a collection may be (`dataflow.transforms.fresh_within`).

    Attributes:
        label: of the transform that declares it.
        pcollection: the id of the collection.
        within_us: how far its event time may be behind the clock, in microseconds.
    """

    label: str
    pcollection: int
    within_us: int


@attrs.frozen(kw_only=True)
class PipelineGraph:
    """Transforms in topological order, and their collections by id.

    ``str(graph)`` has a line for each transform; a notebook shows a picture.

    Attributes:
        type_checks: the types that are known of elements; for runners that are asked to check them.
        freshness: what is declared of collections; no runner does anything else because of it.
    """

    transforms: tuple[TransformNode, ...]
    pcollections: Mapping[int, PCollectionNode]
    type_checks: tuple[TypeCheck, ...] = attrs.field(default=(), repr=False)
    freshness: tuple[FreshnessDeclared, ...] = attrs.field(default=(), repr=False)

    @cached_property
    def producers(self) -> Mapping[int, TransformNode]:
        """By the id of each collection, the transform that makes it."""
        return {each: node for node in self.transforms for each in node.outputs.values()}

    def consumers(self, pcollection_id: int) -> list[TransformNode]:
        """The transforms that read a collection, in order."""
        return [node for node in self.transforms if pcollection_id in node.inputs]

    def of_transforms(self, transforms: tuple[TransformNode, ...]) -> "PipelineGraph":
        """Make a graph of some transforms, with their collections, and the types and freshness declared of these.

        Args:
            transforms: of this graph, in its order.
        """
        ids = {each for node in transforms for each in (*node.inputs, *node.outputs.values())}
        return PipelineGraph(
            transforms=transforms,
            pcollections={each: self.pcollections[each] for each in sorted(ids)},
            type_checks=tuple(each for each in self.type_checks if each.pcollection in ids),
            freshness=tuple(each for each in self.freshness if each.pcollection in ids),
        )

    def before(self, pcollection_id: int) -> tuple[TransformNode, ...]:
        """The transforms that lead to a collection, in order."""
        wanted, found = {pcollection_id}, []
        for node in reversed(self.transforms):
            if not wanted.isdisjoint(node.outputs.values()):
                wanted.update(node.inputs)
                found.append(node)
        return tuple(reversed(found))

    def sources(self) -> list[Source[Any]]:
        """The sources of the pipeline, one for each read."""
        return [
            node.operation.source for node in self.transforms if isinstance(node.operation, Read)
        ]

    def tables(self) -> tuple[TableSpec, ...]:
        """The result tables that the pipeline writes."""
        return tuple(
            node.operation.table
            for node in self.transforms
            if isinstance(node.operation, WriteTable)
        )

    def sinks(self) -> Mapping[str, tuple[TableSpec, Sink[Any]]]:
        """Sinks with their outboxes, by the label of the transform that writes to them."""
        return {
            node.label: (node.operation.table, node.operation.sink)
            for node in self.transforms
            if isinstance(node.operation, WriteTable) and node.operation.sink is not None
        }

    def __str__(self) -> str:
        return self.drawing().to_text()

    def _repr_html_(self) -> str:
        return self.to_svg()

    def to_mermaid(self) -> str:
        """A Mermaid flowchart, for pages of Markdown."""
        return self.drawing().to_mermaid()

    def to_svg(self) -> str:
        """A picture, as the text of an SVG file."""
        return self.drawing().to_svg(f"a pipeline of {len(self.transforms)} transforms")

    def drawing(self) -> Drawing:
        """The transforms as boxes, and the collections as arrows with the tags of outputs that are not the main one."""
        producers = {
            output: (place, "" if tag == MAIN else tag)
            for place, node in enumerate(self.transforms)
            for tag, output in node.outputs.items()
        }
        arrows = [
            Arrow(producers[each][0], place, producers[each][1])
            for place, node in enumerate(self.transforms)
            for each in node.inputs
        ]
        return Drawing([self._box(node) for node in self.transforms], arrows)

    def _box(self, node: TransformNode) -> Box:
        operation = node.operation
        note = type(operation).__name__
        if isinstance(operation, Read):
            note += "" if operation.source.is_bounded else ", without an end"
        elif isinstance(operation, AssignWindows):
            (output,) = node.outputs.values()
            mode = self.pcollections[output].strategy.accumulation_mode
            note = f"{operation.window_fn!r}, {mode.value.replace('_', ' ')}"
        elif isinstance(operation, WriteTable):
            note = repr(operation.sink) if operation.sink else f"table {operation.table.name}"
        return Box(node.label, note, _SHAPES.get(type(operation), BoxShape.STEP))

    def fingerprint(self) -> str:
        """A digest of the pipeline's shape: labels, operations, edges, windowing; not of the code inside functions."""
        shape = [
            (
                node.label,
                type(node.operation).__name__,
                node.inputs,
                sorted(node.outputs.items()),
                [repr(self.pcollections[output].strategy) for output in node.outputs.values()],
                *_remembered(node.operation),
            )
            for node in self.transforms
        ]
        # A user's WindowFn or Trigger without a repr of its own shows its address, new in every run.
        stable = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(shape))
        return sha256(stable.encode()).hexdigest()[:32]


_SHAPES: Mapping[type, BoxShape] = {
    Read: BoxShape.START,
    Group: BoxShape.MEETING,
    StatefulParDo: BoxShape.MEETING,
    SideInputs: BoxShape.MEETING,
    WriteTable: BoxShape.TABLE,
}


def _remembered(operation: Operation) -> list[str]:
    """Describe, for the fingerprint, how long a read keeps the ids of its records; empty for any other operation."""
    if isinstance(operation, Read) and operation.record_ids is not None:
        # With more slack, a record would be in time whose id is no longer kept.
        return [f"record ids for {operation.record_ids.slack_us} us"]
    return []
