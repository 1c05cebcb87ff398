"""GroupingStage: a grouping and everything that follows it, as every engine runs it.

Puts the machine (`GroupAlsoByWindow`), its cells and timers, and the fused transforms after it into one step:
partials or a watermark in, effects and stage outputs out.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager

import attrs

from dataflow.errors import TransformError, WindowError
from dataflow.graph import Group
from runners.core.cells import Cell, CellId, Effects, TimerId
from runners.core.group_also_by_window import GroupAlsoByWindow
from runners.core.key_codec import KeyCodec
from runners.core.partials import Partial
from runners.core.plan import ExecutionPlan, Stage
from runners.core.stage_executor import StageExecutor, StageOutputs


@attrs.frozen(kw_only=True)
class StageClock:
    """What time it is for a step.

    ``watermark_us``: the input watermark.  ``output_watermark_us``: what the stages downstream
        have been told so far, so
    what this step emits ahead of it cannot be late for them.  ``now_us``: processing time.
    """

    watermark_us: int
    output_watermark_us: int
    now_us: int


@attrs.frozen
class Step:
    """What one step did to the cells, and what it caused downstream."""

    effects: Effects
    outputs: StageOutputs


class GroupingStage:
    """One grouping stage, ready to run; the caller owns the cells."""

    def __init__(self, plan: ExecutionPlan, stage: Stage) -> None:
        operation = stage.root.operation
        assert isinstance(operation, Group)
        strategy = plan.graph.pcollections[stage.root.inputs[0]].strategy
        self.machine = GroupAlsoByWindow(operation.combine_fn, strategy)
        self.executor = StageExecutor(plan, stage)
        self._where = str(stage.root)
        self.codec = KeyCodec(self._where)

    def add(
        self,
        cells: MutableMapping[CellId, Cell],
        partials: Iterable[Partial],
        clock: StageClock,
    ) -> Step:
        """Take partials in.  Raises `KeyEncodingError` for a key that could not be routed on a cluster."""
        partials = list(partials)
        for partial in partials:
            self.codec.encode(partial[0])
        with self._naming_failures():
            effects = self.machine.add(
                cells, partials, watermark_us=clock.watermark_us, now_us=clock.now_us
            )
        return self._followed(effects, clock)

    def fire_timers(
        self,
        cells: MutableMapping[CellId, Cell],
        due: Iterable[TimerId],
        clock: StageClock,
    ) -> Step:
        """Let due timers act."""
        with self._naming_failures():
            effects = self.machine.fire_timers(
                cells, due, watermark_us=clock.watermark_us, now_us=clock.now_us
            )
        return self._followed(effects, clock)

    @contextmanager
    def _naming_failures(self) -> Iterator[None]:
        try:
            yield
        except WindowError as error:
            raise error.located(self._where) from error
        except Exception as error:
            raise TransformError(
                f"{self._where} raised {type(error).__name__}: {error}",
                detail="while combining what had come so far",
                hint="correct the CombineFn",
            ) from error

    def _followed(self, effects: Effects, clock: StageClock) -> Step:
        outputs = self.executor.process(effects.bundle(), watermark_us=clock.output_watermark_us)
        return Step(effects, outputs)
