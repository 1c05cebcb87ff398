"""BackfillThenLiveRunner: the backfill of a job with the batch engine, and then the stream, as one command.

Above both runners, which know nothing of each other: what one leaves, the other finds in the store.
"""

import inspect
from typing import Any

from dataflow.graph import PipelineGraph
from dataflow.runner import PipelineResult
from runners.batch import BackfillRunner
from runners.batch.backfill.backfill import Backfill
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.spark.interrupted import stays_in_store
from runners.streaming import StreamingRunner
from windowing.timestamps import TimestampLike


def _signature() -> inspect.Signature:
    """Every option by its name, for `help`, and for the error that lists them."""
    options: dict[str, inspect.Parameter] = {}
    for runner in (BackfillRunner, StreamingRunner):
        options |= inspect.signature(runner).parameters
    return inspect.Signature(list(options.values()))


class BackfillThenLiveRunner:
    """Reads what there is up to a point in large steps, then goes on as a stream; with one set of answers.

    The same command goes on wherever it was interrupted: in the backfill, or live.

    Args:
        until: the point, an instant of event time; None: as far as there is anything now.  See `BackfillRunner`.
        spill_bytes: of the backfill; see `BackfillRunner`.
        fresh: forget the job, and drop the tables it created, before its backfill.  Refused where it has rows
            in a table that is not its own (`TableOwnedError`): they would stay, and be written once more.
        **stream: every other option of the `StreamingRunner`, ``job`` first; the backfill is run with the same ones.
    """

    __signature__ = _signature()

    def __init__(
        self,
        *,
        until: TimestampLike | None = None,
        spill_bytes: int = SPILL_BYTES,
        fresh: bool = False,
        **stream: Any,
    ) -> None:
        self._live = StreamingRunner(**stream)
        self._backfill = Backfill(
            self._live.stream.with_fresh(fresh), until=until, spill_bytes=spill_bytes
        )

    @property
    def job(self) -> str:
        """The name of the run in the store."""
        return self._live.job

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Load what is missing of the backfill, then start the stream; returns when that has started.

        Raises:
            DataflowError: as `BackfillRunner.run` and `StreamingRunner.run`.
        """
        # Not only after hours of backfill.
        self._live.check(graph)
        with stays_in_store(self.job):
            self._backfill.load_unless_live(graph)
        return self._live.run(graph)
