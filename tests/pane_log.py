"""Runs a pipeline on the direct runner and writes down every pane, with its sign."""

from typing import Any

import attrs

import dataflow as df
from runners.core.open_windows.cells import Cells
from runners.core.stages.grouping import Step
from runners.core.stages.plan import plan
from runners.direct.job import Job, OpenGrouping
from runners.direct.result import DirectResult
from windowing.window import Window


@attrs.frozen
class LoggedPane:
    """One emission of a grouping: ``sign`` +1 emits it, -1 retracts it."""

    transform: str
    sign: int
    key: Any
    value: Any
    window: Window
    pane: df.PaneInfo
    timestamp_us: int


@attrs.define
class PaneLog:
    """What a run emitted, and what it left.

    ``steps``: after each batch and the watermark that followed it, the number of panes so far.
    """

    panes: list[LoggedPane] = attrs.field(factory=list)
    steps: list[int] = attrs.field(factory=list)
    cells_left: int = 0
    timers_left: int = 0
    result: DirectResult | None = None

    def late_records(self) -> list[Any]:
        assert self.result is not None
        return list(self.result.late_records())


class _LoggingJob(Job):
    def __init__(self, pipeline: df.Pipeline, log: PaneLog) -> None:
        super().__init__(plan(pipeline.graph()))
        self._log = log

    def _apply(self, name: str, grouping: OpenGrouping, step: Step) -> None:
        bundle = step.effects.bundle()
        columns = zip(
            bundle.values,
            bundle.windows or [],
            bundle.panes or [],
            bundle.signs or [1] * len(bundle),
            bundle.timestamps_us,
            strict=True,
        )
        self._log.panes.extend(
            LoggedPane(name, sign, key, value, window, pane, timestamp_us)
            for (key, value), window, pane, sign, timestamp_us in columns
        )
        super()._apply(name, grouping, step)

    def _advance(self) -> None:
        super()._advance()
        self._log.steps.append(len(self._log.panes))


def in_cells(grouping: OpenGrouping) -> Cells:
    """The open windows of a grouping, which the direct runner keeps in cells."""
    assert isinstance(grouping.windows, Cells)
    return grouping.windows


def run_logged(pipeline: df.Pipeline) -> PaneLog:
    """Run a pipeline to its end."""
    log = PaneLog()
    job = _LoggingJob(pipeline, log)
    log.result = job.run(1_000)
    log.cells_left = sum(len(grouping.windows) for grouping in job._groupings.values())
    log.timers_left = sum(len(in_cells(grouping).timers) for grouping in job._groupings.values())
    return log
