"""Sources that come to no end before a test lets them, so that a job runs for as long as the test needs it.

A rate alone does not ensure that: on a busy machine the job may be done before the test has asked anything of it.
"""

import time
from pathlib import Path
from typing import Any

import attrs

import dataflow as df
from dataflow.graph import PipelineGraph
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.testing.simulator.sources import with_sources
from windowing.timestamps import MIN_TIMESTAMP_US

#: Of the twenty thousand events that most of these tests read; what is opened anew hands over as many again.
GATE_RECORDS = 8_000


@attrs.frozen(kw_only=True)
class Gate:
    """Keeps the sources of jobs from handing over more, in whatever process they are read, until it is opened.

    ``path``: of a file that is there when it is open.  ``records``: each reader hands over so many before that, and
    ``records_per_second`` of them.
    """

    path: Path
    records: int = GATE_RECORDS
    records_per_second: float = 1_000.0

    def open(self) -> None:
        """Let everybody read on, as fast as they can."""
        self.path.touch()

    def gated(self, runner: Any) -> "GatedRunner":
        """The runner, with every source behind the gate."""
        return GatedRunner(runner, self)

    def read(
        self, label: str, source: Source, split: Any, position: Any | None, fence: int
    ) -> SourceReader:
        """A reader behind the gate."""
        return _GatedReader(self, source.open(split, position, fence=fence), position)


@attrs.frozen
class GatedRunner:
    """See `Gate.gated`."""

    inner: Any
    gate: Gate

    def run(self, graph: PipelineGraph) -> df.PipelineResult:
        """Run it."""
        result: df.PipelineResult = self.inner.run(with_sources(graph, self.gate.read))
        return result


class _GatedReader(SourceReader):
    def __init__(self, gate: Gate, inner: SourceReader, position: Any | None) -> None:
        self._gate, self._inner = gate, inner
        self._position, self._watermark_us = position, MIN_TIMESTAMP_US
        self._began_s, self._count = time.monotonic(), 0

    def read(self, max_records: int) -> SourceBatch:
        gate = self._gate
        if not gate.path.exists():
            earned = int((time.monotonic() - self._began_s) * gate.records_per_second)
            max_records = min(max_records, min(earned, gate.records) - self._count)
        if max_records <= 0:
            return SourceBatch(
                values=[],
                timestamps_us=[],
                position=self._position,
                watermark_us=self._watermark_us,
                status=SplitStatus.ACTIVE,
            )
        batch = self._inner.read(max_records)
        self._count += len(batch.values)
        self._position, self._watermark_us = batch.position, batch.watermark_us
        return batch

    def close(self) -> None:
        self._inner.close()
