"""StageExecutor: runs the fused transforms of one stage over a bundle.

Push-based and depth-first: a transform passes each bundle to its consumers as soon as it is made, so only one bundle
per level is in memory.  What reaches a grouping is lifted into partials, what reaches a table is folded into its net
effect.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
import numpy as np

from dataflow.columns import IntColumn, WindowColumn, picked
from dataflow.errors import DataflowError
from dataflow.exception_handling import FAILURES
from dataflow.graph import (
    MAIN,
    AssignWindows,
    Changelog,
    Flatten,
    KeyedOperation,
    ParDo,
    SideInputs,
    StatefulParDo,
    TransformNode,
    WriteTable,
)
from dataflow.table import TableWrite
from dataflow.transforms.changelog import Change
from runners.core.columns.partials import PartialColumns
from runners.core.columns.windows import assigned as assigned_columns
from runners.core.ground.bundle import Bundle
from runners.core.ground.dead_letters import DeadLetter
from runners.core.ground.key_codec import KeyCodec
from runners.core.ground.lineage import LineageEntry
from runners.core.partials.lifting import Lifter
from runners.core.partials.partial import Partial
from runners.core.partials.parts import parts_of, together
from runners.core.partials.stateful_inputs import StatefulInputs, lifter_of
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.tracing import Tracing
from runners.core.tables.outbox_rows import outbox_write
from runners.core.tables.rows import table_write
from runners.core.user_code.do_fn_invoker import DoFnInvoker
from runners.core.user_code.do_fn_outputs import DoFnOutputs
from runners.core.user_code.event_times import check_event_times
from runners.core.user_code.poison import Trial, on_trial, run_isolated
from runners.core.user_code.type_checks import TypeChecker
from windowing.checks import checked_assignment
from windowing.merging import merges_what_overlaps
from windowing.pane import NO_FIRING
from windowing.timestamps import MIN_TIMESTAMP_US, clamp_timestamp_us
from windowing.window import GLOBAL_WINDOW
from windowing.window_columns import Int64s
from windowing.window_fn import WindowFn

#: The records for groupings that a single element may cause before they are passed to `StageExecutor.overflow`.
OVERFLOW_RECORDS = 10_000
#: From so many elements on, windows that merge where they overlap are assigned as arrays, whatever the elements are.
COLUMN_WINDOWS_MIN = 512

_Consumer = Callable[[Bundle], None]


@attrs.define
class StageOutputs:
    """The outputs of one bundle: partials per grouping label, table writes, and records that user code fails on.

    Attributes:
        lineage: where what is in the others comes from, if that is recorded.
    """

    groups: dict[str, Sequence[Partial]] = attrs.field(factory=dict)
    tables: list[TableWrite] = attrs.field(factory=list)
    dead: list[DeadLetter] = attrs.field(factory=list)
    lineage: list[LineageEntry] = attrs.field(factory=list)

    def add(self, other: "StageOutputs") -> None:
        """Add the outputs of a later bundle."""
        for label, partials in other.groups.items():
            self.add_partials(label, partials)
        self.tables += other.tables
        self.lineage += other.lineage

    def add_partials(self, label: str, partials: Sequence[Partial]) -> None:
        """Add partials for a grouping; columns stay columns, and unfolded partials stay unfolded.

        Args:
            label: of the grouping.
            partials: of later elements.
        """
        kept = self.groups.get(label)
        if kept is None:
            self.groups[label] = partials
        elif isinstance(kept, list) and isinstance(partials, list):
            kept.extend(partials)
        else:
            self.groups[label] = together([kept, partials])


class StageExecutor:
    """One stage, ready to run; not shared between threads.

    Args:
        plan: of the whole pipeline.
        stage: the stage of the plan to run.
        tries: how often a record on which user code fails is tried before it becomes a dead letter; None: the first
            failure is raised.
    """

    def __init__(self, plan: ExecutionPlan, stage: Stage, *, tries: int | None = None) -> None:
        self._plan, self._stage, self._tries = plan, stage, tries
        self._consumers: dict[int, list[_Consumer]] = defaultdict(list)
        self._invokers: list[DoFnInvoker] = []
        self._outputs = StageOutputs()
        self._clocks = StageClocks.of_source(watermark_us=MIN_TIMESTAMP_US, now_us=MIN_TIMESTAMP_US)
        self._tracing = None if plan.lineage is None else Tracing(plan.lineage)
        #: Takes partials for groupings, by label, out of the outputs of an element that causes very many.
        #: Not called if failing records are left out, as the outputs of such a record must not count.
        self.overflow: Callable[[Mapping[str, Sequence[Partial]]], None] | None = None
        self._overflow_in = math.inf
        #: Runs user code on trial before it is run here; None: it is run here at once.
        self.trial: Trial | None = None
        self._codecs = {node.label: KeyCodec(str(node)) for node in stage.groups}
        for checker in TypeChecker.all_of(plan.graph.type_checks):
            self._consumers[checker.check.pcollection].append(checker)
        for node in (*stage.nodes, *stage.groups):
            consumer = self._consumer(node)
            for pcollection in node.inputs:
                self._consumers[pcollection].append(consumer)
        self._begin = self._root_output(stage.root)
        failures = stage.root.outputs.get(FAILURES)
        #: The consumers of the outputs of a read, by their tags.
        self._begins = {MAIN: self._begin}
        if failures is not None:
            self._begins[FAILURES] = partial(self._push, failures)

    def setup(self) -> None:
        """Run `DoFn.setup` of every transform."""
        for invoker in self._invokers:
            invoker.setup()

    def teardown(self) -> None:
        """Run `DoFn.teardown` of every transform."""
        for invoker in self._invokers:
            invoker.teardown()

    def process(self, bundle: Bundle, clocks: StageClocks, tag: str = MAIN) -> StageOutputs:
        """Run one bundle of the root's output.

        Args:
            bundle: the output of the root.
            clocks: the clocks; what reaches a grouping behind the output watermark is late for it.
            tag: which output of the root it is; only a read can have a second one.
        """
        self._outputs, self._clocks = StageOutputs(), clocks
        if not bundle.values:
            return self._outputs
        begin = self._begins[tag]
        if self._tries is None:
            # The size of a bundle of several elements was chosen by the code that made it.
            self._overflow_in = OVERFLOW_RECORDS if len(bundle) == 1 else math.inf
            on_trial(begin, self.trial)(bundle)
            return self._outputs
        outputs = StageOutputs()

        def run(part: Bundle) -> None:
            self._outputs = StageOutputs()
            begin(part)
            outputs.add(self._outputs)

        outputs.dead = run_isolated(
            run, bundle, stage=self._stage.name, tries=self._tries, trial=self.trial
        )
        return outputs

    def _push(self, pcollection: int, bundle: Bundle) -> None:
        for consume in self._consumers[pcollection]:
            consume(bundle)

    def _root_output(self, root: TransformNode) -> _Consumer:
        """The consumer of the root's bundles."""
        if isinstance(root.operation, StatefulParDo):
            # The machine emits the outputs of user code as they are, with their tags and timestamps still around them.
            outputs = DoFnOutputs(
                root, root.operation, lambda tag, bundle: self._push(root.outputs[tag], bundle)
            )
            return lambda bundle: outputs.emit_outputs(bundle, None, bundle.values)
        return partial(self._push, root.outputs[MAIN])

    def _consumer(self, node: TransformNode) -> _Consumer:
        operation = node.operation
        if isinstance(operation, ParDo):
            outputs = node.outputs
            invoker = DoFnInvoker(
                node, operation, lambda tag, bundle: self._push(outputs[tag], bundle)
            )
            self._invokers.append(invoker)
            return invoker.process
        if isinstance(operation, AssignWindows):
            (output,) = node.outputs.values()
            window_fn = self._plan.slices.assigned.get(node.label, operation.window_fn)
            return partial(self._assign, node, window_fn, output)
        if isinstance(operation, Flatten):
            (output,) = node.outputs.values()
            return partial(self._push, output)
        if isinstance(operation, Changelog):
            (output,) = node.outputs.values()
            return partial(self._log, output)
        if isinstance(operation, WriteTable):
            return partial(self._write, node, operation)
        assert isinstance(operation, KeyedOperation)
        keeps_elements = isinstance(operation, StatefulParDo | SideInputs)
        lift = self._lift_whole if keeps_elements and self._tracing is not None else self._lift
        return partial(lift, node.label, lifter_of(self._plan.graph, node))

    def _assign(
        self, node: TransformNode, window_fn: WindowFn, output: int, bundle: Bundle
    ) -> None:
        check_event_times(window_fn, bundle, node, self._stage.root)
        times_us, columns = bundle.timestamps_us, None
        try:
            if len(bundle) >= COLUMN_WINDOWS_MIN and merges_what_overlaps(window_fn):
                # Each of them is another one: an object for each would be made, sorted, and dropped.
                times_us = IntColumn(np.asarray(times_us, np.int64))
            if isinstance(times_us, IntColumn):
                columns = assigned_columns(window_fn, times_us, bundle.values)
            if columns is None:
                assigned = checked_assignment(window_fn, bundle.timestamps_us, bundle.values)
        except DataflowError as error:
            raise error.located(str(node)) from error
        if columns is not None:
            self._push_windows(output, bundle, *columns)
            return
        if set(map(len, assigned)) == {1}:
            single = [window for (window,) in assigned]
            self._push(output, attrs.evolve(bundle, windows=single))
            return
        indexes = [index for index, windows in enumerate(assigned) for _ in windows]
        if indexes:
            windows = [window for windows in assigned for window in windows]
            values = [bundle.values[index] for index in indexes]
            self._push(output, bundle.take(indexes, values, windows=windows))

    def _push_windows(
        self,
        output: int,
        bundle: Bundle,
        indexes: Sequence[int] | Int64s | None,
        windows: WindowColumn,
    ) -> None:
        if indexes is None:
            self._push(output, attrs.evolve(bundle, windows=windows))
        elif len(indexes):
            values = picked(bundle.values, indexes)
            self._push(output, bundle.take(indexes, values, windows=windows))

    def _log(self, output: int, bundle: Bundle) -> None:
        size = len(bundle)
        windows = bundle.windows or [GLOBAL_WINDOW] * size
        panes = bundle.panes or [NO_FIRING] * size
        signs = bundle.signs or [+1] * size
        columns = zip(bundle.values, signs, bundle.timestamps_us, windows, panes, strict=True)
        now_us = clamp_timestamp_us(self._clocks.now_us)
        changes = [Change(*column, now_us) for column in columns]
        self._push(output, Bundle(changes, bundle.timestamps_us, bundle.windows, bundle.panes))

    def _lift_whole(self, label: str, lifter: Lifter | StatefulInputs, bundle: Bundle) -> None:
        """Lift elements that are kept as they are, with their origins; who handles them records them."""
        assert self._tracing is not None
        self._lift(label, lifter, self._tracing.carried(bundle), is_recorded=False)

    def _lift(
        self,
        label: str,
        lifter: Lifter | StatefulInputs,
        bundle: Bundle,
        *,
        is_recorded: bool = True,
    ) -> None:
        partials = lifter.lift(bundle, watermark_us=self._clocks.output_watermark_us)
        for part in () if self._tries is None else parts_of(partials):
            # The code that routes the partials would find out too late which record had a key that cannot be encoded.
            for each in () if isinstance(part, PartialColumns) else part:
                self._codecs[label].encode(each[0])
        self._outputs.add_partials(label, partials)
        if self._tracing is not None and is_recorded:
            codec = self._codecs[label]
            self._outputs.lineage += self._tracing.sent(label, codec, bundle, self._clocks)
        self._overflow_in -= len(bundle)
        if self._overflow_in <= 0 and self.overflow is not None:
            self.overflow(self._outputs.groups)
            self._outputs.groups, self._overflow_in = {}, OVERFLOW_RECORDS

    def _write(self, node: TransformNode, operation: WriteTable, bundle: Bundle) -> None:
        if operation.sink is not None:
            sent = outbox_write(node, operation.table, operation.sink, bundle)
            self._outputs.tables.append(sent)
            if self._tracing is not None:
                lanes = (lane for lane, *_ in sent.inserts)
                self._outputs.lineage += self._tracing.left(
                    node, operation.sink, lanes, bundle, self._clocks
                )
            return
        is_retracted = self._plan.graph.pcollections[node.inputs[0]].retracted_by is not None
        write = table_write(node, operation.table, bundle, is_retracted=is_retracted)
        self._outputs.tables.append(write)
        if self._tracing is not None:
            self._outputs.lineage += self._tracing.written(
                node, operation.table, bundle, self._clocks
            )
