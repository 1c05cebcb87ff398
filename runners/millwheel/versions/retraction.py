"""What an update retracts of what the former pipeline has emitted, and what it cannot (ADR 0066).

The ways from a read or grouping to the next grouping or table are compared by the labels of the transforms on them.  A
way that the new pipeline does not have has to be retracted where it ends in something that stays.  That takes panes
that can be retracted; a table of which every writer is gone, and which is the job's own, goes as a whole instead.

Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from hashlib import sha256

import attrs

from dataflow.do_fn import DoFn
from dataflow.graph import (
    AssignWindows,
    KeyedOperation,
    PipelineGraph,
    Read,
    SideInputs,
    StatefulParDo,
    TransformNode,
    WriteTable,
)
from dataflow.table import TableSpec
from runners.core.side_inputs.side_inputs_machine import keeps_what_it_emits
from runners.core.stages.plan import Edge, ExecutionPlan, Retirement, Stage
from runners.core.stages.retirement import divided, edges_of
from runners.millwheel.store.port import JobRow, StateCounts
from runners.millwheel.versions.state_shape import described, window_fns_of
from runners.stored.places import decode_retraction_mark
from windowing.global_windows import GlobalWindows
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_datetime


class Between(Enum):
    """The versions of a job between two pipelines; the value is in the fingerprint of the version."""

    #: Everything that can be retracted is.
    RETRACTING = "retracting"
    #: The state of groupings whose input will not be retracted any more is converted.
    CONVERTING = "converting"


@attrs.frozen(kw_only=True)
class StandingPanes:
    """What one computation has emitted to something that stays, over a way that does not.

    Attributes:
        computation: its name in the former pipeline.
        ends: the labels of groupings, and of writers of tables, that have it.
        places: the same for people: groupings, and tables by their own names.
        gone: the first transforms on the ways there that are gone, by their labels.
        cells: how many windows of keys may have emitted something that stands.
        remains: why not all of it can be retracted; None: it can.
        is_retracted: whether any of it can.
    """

    computation: str
    ends: Sequence[str]
    places: Sequence[str]
    gone: Sequence[str]
    cells: int = 0
    remains: str | None = None
    is_retracted: bool = True

    def __str__(self) -> str:
        places = ", ".join(self.places)
        if not self.is_retracted:
            return f"{self.computation}: what it has emitted to {places} stays: {self.remains}"
        text = f"{self.computation}: its panes are retracted from {places}, of up to {self.cells:,} cells"
        return text if self.remains is None else f"{text}; {self.remains}"


@attrs.frozen(kw_only=True)
class EmptiedTable:
    """An own table of a job that has only rows of what is gone.

    Attributes:
        table: the table.
        rows: how many it has.
        is_dropped: whether it goes with its rows, as the new pipeline does not write to it.
    """

    table: TableSpec
    rows: int
    is_dropped: bool

    def __str__(self) -> str:
        what = "dropped" if self.is_dropped else "emptied"
        return f"table {self.table.name} is {what}, with {self.rows:,} rows"


@attrs.frozen(kw_only=True)
class Retraction:
    """What an update retracts.

    Attributes:
        edges: the edges of the former pipeline that the new one does not have.
        standing: what has been emitted over them to something that stays.
        emptied: the tables all of whose rows go.
        converted: the groupings that stay, and whose input may not be retracted any more, by their former names.
        left: which version is to do what is left to do before the job may go over; None: nothing is.
        notes: effects of ways that are new.
    """

    edges: frozenset[Edge] = frozenset()
    standing: Sequence[StandingPanes] = ()
    emptied: Sequence[EmptiedTable] = ()
    converted: frozenset[str] = frozenset()
    left: Between | None = None
    notes: Sequence[str] = ()

    @property
    def remaining(self) -> list[StandingPanes]:
        """What cannot be retracted, or not all of it."""
        return [each for each in self.standing if each.remains is not None]

    @property
    def ends(self) -> frozenset[str]:
        """The labels of the groupings and writers of tables to which panes are retracted."""
        retracted = (each.ends for each in self.standing if each.is_retracted)
        return frozenset(label for ends in retracted for label in ends)

    def fingerprint(self, former: str, between: Between) -> str:
        """The fingerprint of a version between two pipelines.

        Args:
            former: that of the former pipeline.
            between: what the version does.
        """
        parts = sorted(self.edges), sorted(self.ends), sorted(self.converted)
        digest = sha256(repr(parts).encode()).hexdigest()[:16]
        return f"{former}{_marker(between)}{digest}"

    def retirement(self, version: int, between: Between) -> Retirement:
        """What a version between two pipelines retires.

        Args:
            version: its number.
            between: what it does.
        """
        return Retirement(
            edges=self.edges,
            ends=self.ends,
            version=version,
            converted=self.converted,
            is_converting=between is Between.CONVERTING,
        )

    def lines(self) -> list[str]:
        """A line for each thing that is retracted, or cannot be."""
        return [
            *(f"  {each}" for each in (*self.standing, *self.emptied)),
            *(
                f"  {name}: its input cannot be retracted any more, so its state is converted when all of that is done"
                for name in sorted(self.converted)
            ),
            *(f"  note: {note}" for note in self.notes),
        ]


@attrs.frozen(kw_only=True)
class Former:
    """The pipeline that a job has run so far, with its tables.

    Attributes:
        plan: of the pipeline.
        own: how many rows those of its tables have that are the job's own (`Store.own_tables`).
    """

    plan: ExecutionPlan
    own: Mapping[str, int]


def is_retracting(fingerprint: str) -> bool:
    """Whether a job with this fingerprint is at a version between two pipelines."""
    return any(_marker(each) in fingerprint for each in Between)


def _marker(between: Between) -> str:
    """Stands in the fingerprint of a version, between that of its pipeline and a digest of what it retracts."""
    return f" {between.value} "


def plan_retraction(
    stored: JobRow,
    counts: StateCounts,
    past: Former,
    new: ExecutionPlan,
    kept: Mapping[str, str],
    converted: frozenset[str],
) -> Retraction:
    """Plan what an update retracts.

    Args:
        stored: the job as it is.
        counts: how much state it has.
        past: the pipeline that it has run so far, with its tables.
        new: the one that it is to run.
        kept: computations that keep their state: by the old name, the new one.
        converted: those of them that keep it in the form for input that is never retracted, by the old name.
    """
    former, own = past.plan, past.own
    names = _names(former.graph, new.graph, kept)
    edges = _retired_edges(former.graph, new.graph, names)
    parts = {name: divided(former.graph, stage, edges) for name, stage in former.stages.items()}
    going_on = {spec.name for each in parts.values() for spec in _tables(each.going_on)}
    specs = {
        spec.name: spec
        for each in parts.values()
        if each.retired is not None
        for spec in _tables(each.retired)
        if spec.name in own and spec.name not in going_on
    }  # fmt: skip
    standing = [
        _standing_of(stored, counts, former, retired, names)
        for name, each in parts.items()
        if each.retired is not None
        for ends in _by_retractability(former.graph, [*_ends(each.retired, kept, specs)])
        if (retired := divided(former.graph, former.stages[name], edges, ends).retired)
    ]
    written = {spec.name for spec in new.graph.tables()}
    emptied = [
        EmptiedTable(table=spec, rows=own[name], is_dropped=name not in written)
        for name, spec in specs.items()
    ]
    notes = [
        *_notes_on_new_ways(former.graph, new, kept),
        *_notes_on_stateful_do_fns(former, converted),
    ]
    retraction = Retraction(
        edges=edges, standing=standing, emptied=emptied, converted=converted, notes=notes
    )
    return attrs.evolve(retraction, left=_left(stored, counts, retraction))


def _names(former: PipelineGraph, new: PipelineGraph, kept: Mapping[str, str]) -> Mapping[str, str]:
    """The transforms that the new pipeline has too: by the old label, the new one."""
    nodes = {node.label: node for node in new.transforms}
    return {
        node.label: name
        for node in former.transforms
        if (name := _name_of(node, nodes, kept)) is not None
    }


def _retired_edges(
    former: PipelineGraph, new: PipelineGraph, names: Mapping[str, str]
) -> frozenset[Edge]:
    there = {edge for node in new.transforms for edge, _ in edges_of(new, node)}
    return frozenset(
        edge
        for node in former.transforms
        for edge, _ in edges_of(former, node)
        if edge.sender not in names
        or edge.receiver not in names
        or Edge(names[edge.sender], edge.tag, names[edge.receiver]) not in there
    )


def _notes_on_new_ways(
    former: PipelineGraph, new: ExecutionPlan, kept: Mapping[str, str]
) -> Iterator[str]:
    """Yield a note for each grouping that stays and comes to have what another one that stays may retract."""
    before = {after: name for name, after in kept.items()}
    edges = _retired_edges(new.graph, former, _names(new.graph, former, before))
    for name, stage in new.stages.items():
        if name not in before or not _has_standing(new.graph, stage.root):
            continue
        added = divided(new.graph, stage, edges).retired
        is_stateful = isinstance(stage.root.operation, StatefulParDo)
        for each in () if added is None else added.groups:
            if each.label in before:
                when = "removed" if is_stateful else "corrected"
                yield (
                    f"{each.label} has from here on what {name} emits over another way, and not the panes of before; "
                    f"when one of these is {when}, it is retracted there all the same"
                )


def _notes_on_stateful_do_fns(former: ExecutionPlan, converted: Collection[str]) -> Iterator[str]:
    """Yield a note for each stateful DoFn that keeps its state, and has to undo what it can itself."""
    for name in sorted(converted):
        if isinstance(former.stages[name].root.operation, StatefulParDo):
            yield (
                f"{name}: a stateful DoFn has seen what is retracted, and is given the retractions; "
                "what its process does not undo stays in its state, and what it has emitted is final"
            )


def _has_standing(graph: PipelineGraph, root: TransformNode) -> bool:
    """Whether a read or grouping knows what it has emitted."""
    return _why_unknown(graph, root) is None


def _name_of(
    node: TransformNode, nodes: Mapping[str, TransformNode], kept: Mapping[str, str]
) -> str | None:
    """The label of the transform in the new pipeline; None: it has none."""
    operation = node.operation
    if isinstance(operation, Read | KeyedOperation):
        return kept.get(node.label)
    same = nodes.get(node.label)
    if same is None or type(same.operation) is not type(operation):
        return None
    if isinstance(operation, WriteTable) and isinstance(same.operation, WriteTable):
        return node.label if operation.table.name == same.operation.table.name else None
    if isinstance(operation, AssignWindows) and isinstance(same.operation, AssignWindows):
        is_same = described(operation.window_fn) == described(same.operation.window_fn)
        return node.label if is_same else None
    return node.label


def _tables(stage: Stage) -> Iterator[TableSpec]:
    for node in stage.tables:
        if isinstance(node.operation, WriteTable):
            yield node.operation.table


def _ends(retired: Stage, kept: Mapping[str, str], emptied: Collection[str]) -> Iterator[str]:
    """The labels of what stays, and has had something over a way that does not."""
    yield from (each.label for each in retired.groups if each.label in kept)
    for node in retired.tables:
        if isinstance(node.operation, WriteTable) and node.operation.table.name not in emptied:
            yield node.label


def _by_retractability(graph: PipelineGraph, ends: Collection[str]) -> Iterator[Sequence[str]]:
    """The ends to which elements come that can be retracted; and the others, behind a changelog or any other part."""
    found = [
        (label, graph.pcollections[_end_of(graph, label)].retracted_by is not None)
        for label in dict.fromkeys(ends)
    ]
    for wanted in (True, False):
        yield [label for label, can_be in found if can_be is wanted]


def _standing_of(
    stored: JobRow,
    counts: StateCounts,
    former: ExecutionPlan,
    retired: Stage,
    names: Mapping[str, str],
) -> StandingPanes:
    """What a stage has emitted over the ways that are retired.

    Args:
        stored: the job as it is.
        counts: how much state it has.
        former: the pipeline that it has run so far.
        retired: the retired part of a stage.
        names: the transforms that the new pipeline has too.
    """
    root, name = retired.root, retired.name
    ends = [node.label for node in (*retired.groups, *retired.tables)]
    tables = dict.fromkeys(f"table {table.name}" for table in _tables(retired))
    found = StandingPanes(
        computation=name,
        ends=ends,
        places=[*dict.fromkeys(node.label for node in retired.groups), *tables],
        gone=[*_first_gone(former.graph, retired, names)] or [name],
        cells=counts.cells.get(name, 0),
    )
    remains = _why_unknown(former.graph, root)
    if remains is not None:
        return attrs.evolve(found, is_retracted=False, remains=remains)
    strategy = former.graph.pcollections[root.inputs[0]].strategy
    if former.graph.pcollections[_end_of(former.graph, ends[0])].retracted_by is None:
        return attrs.evolve(
            found, is_retracted=False, remains="what is written down as a change is not retracted"
        )
    reached_us = _reached_us(stored, former, name)
    expired_us = reached_us - strategy.allowed_lateness_us
    if reached_us >= MAX_TIMESTAMP_US:
        return attrs.evolve(found, remains="its input has ended, and its windows have expired")
    if expired_us > MIN_TIMESTAMP_US and not _is_endless(former.graph, root):
        remains = f"windows that ended before {to_datetime(expired_us):%Y-%m-%d %H:%M:%S} have expired, and stay"
        return attrs.evolve(found, remains=remains)
    return found


def _why_unknown(graph: PipelineGraph, root: TransformNode) -> str | None:
    """Why it is not known what a read or grouping has emitted; None: it is."""
    operation = root.operation
    if isinstance(operation, Read):
        return "nothing is kept of what a read has emitted"
    if isinstance(operation, StatefulParDo):
        return None if operation.fn.has_retractable_outputs else _why_final(operation.fn)
    if isinstance(operation, SideInputs):
        if keeps_what_it_emits(graph, root):
            return None
        return "elements beside side inputs whose panes do not retract each other are not kept"
    strategy = graph.pcollections[root.inputs[0]].strategy
    if strategy.is_retracting:
        return None
    return f"panes that are {strategy.accumulation_mode.value} are not retracted"


def _why_final(fn: DoFn) -> str:
    """Why what a stateful DoFn has emitted cannot be retracted, and what its class would have to say."""
    final = "what a stateful DoFn has emitted is final, and its state does not say what that was"
    kind = type(fn)
    if kind.__module__.startswith("dataflow."):
        return final  # a transform of the SDK is not its user's to change
    return f"{final}: has_retractable_outputs is not set in class {kind.__name__}"


def _end_of(graph: PipelineGraph, label: str) -> int:
    """The collection that comes to a transform with one input."""
    return next(node.inputs[0] for node in graph.transforms if node.label == label)


def _first_gone(graph: PipelineGraph, retired: Stage, names: Mapping[str, str]) -> Iterator[str]:
    """The transforms of a stage that the new pipeline does not have, and that follow on one that it has."""
    if retired.name not in names:
        yield retired.name
        return
    gone = dict.fromkeys(node.label for node in retired.nodes if node.label not in names)
    for node in graph.transforms:
        before = {edge.sender for edge, _ in edges_of(graph, node)}
        if node.label in gone and before.isdisjoint(gone):
            yield node.label


def _reached_us(stored: JobRow, former: ExecutionPlan, name: str) -> int:
    """A bound on the watermark by which windows of a computation have fired, for all of its ranges.

    A range can have fired some of what is due before it has come so far, which rows of former versions of this package
    do not show; but no further than its senders.  A split that has nothing holds no watermark back, so the one that is
    furthest counts.
    """
    reached = [
        MIN_TIMESTAMP_US if row.input_watermark_us is None else row.input_watermark_us
        for range_id, row in stored.ranges.items()
        if range_id.computation == name and not row.is_retired
    ]
    before = [_reached_us(stored, former, sender) for sender in former.senders(name)]
    return max([*reached, *([min(before)] if before else [])], default=MIN_TIMESTAMP_US)


def _is_endless(graph: PipelineGraph, node: TransformNode) -> bool:
    """Whether the windows of a grouping never expire."""
    return all(isinstance(each, GlobalWindows) for each in window_fns_of(graph, node))


def _left(stored: JobRow, counts: StateCounts, found: Retraction) -> Between | None:
    """Which version has something left to do; None: none has."""
    if _marker(Between.CONVERTING) in stored.fingerprint:
        return None if _are_gone_over(stored, found.converted) else Between.CONVERTING
    retracted = {each.computation for each in found.standing if each.is_retracted}
    retracted |= found.converted
    is_gone_over = not retracted or (
        is_retracting(stored.fingerprint) and _are_gone_over(stored, retracted)
    )
    if counts.in_flight or not is_gone_over:
        return Between.RETRACTING
    return Between.CONVERTING if found.converted else None


def _are_gone_over(stored: JobRow, names: Collection[str]) -> bool:
    """Whether all ranges of some computations have come to their end in the version that the job is at."""
    return all(
        row.keys is None or decode_retraction_mark(row.position, stored.version).is_end
        for range_id, row in stored.ranges.items()
        if range_id.computation in names
    )
