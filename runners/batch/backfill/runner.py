"""BackfillRunner: reads the beginning of a streaming job with the batch engine, and leaves the rest to the stream.

What a task keeps of a key range in memory is bounded (key_parts.py): what is more waits in a file, and what is to be
written is committed part by part.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dataflow.graph import PipelineGraph
from runners.batch.backfill.backfill import Backfill
from runners.batch.spill.spilled_groups import SPILL_BYTES
from runners.spark.interrupted import stays_in_store
from runners.spark.result import StoreResult
from runners.spark.stream_options import StreamOptions
from windowing.timestamps import DurationLike, TimestampLike


class BackfillRunner:
    """Runs the backfill of a job: a `StreamingRunner` with the same job name goes on where this one ends.

    Windows that are still open then, timers, ids of records, positions and watermarks are carried over.
    A run that dies is continued by running it again: nothing counts twice, and nothing is left out.

    Args:
        job: names the job in the store.  It must not have gone live.
        until: an instant of event time: a split of a source is read up to its first record at or after it, and no
            further than until the source reports that its event time is there.  None: as far as there is anything now.
            If a run died, the point that it was given counts, not that of the next run.
        spill_bytes: how much of a key range a task keeps in memory, counted as pickles; the rest waits in temporary
            files, and what is to be written is committed as it comes.  All values of one key must fit, as must what is
            sent to a 256th of the range.  A run that is continued may have another one.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else an embedded one.
        fresh: forget the job, and drop the tables it created, before running.  Refused where it has rows in a
            table that is not its own (`TableOwnedError`): they would stay, and be written once more.
        workers: of the stream; decides into how many key ranges groupings are divided.
        tries_per_record: as for `StreamingRunner`.
        step_timeout: as for `BatchRunner`.
        log_level: as for `BatchRunner`.
        log_format: as for `DirectRunner`.
        check_types: as for `DirectRunner`.
        lineage: as for `StreamingRunner`.
        master: of Spark; by default this machine.
        spark_settings: as for `StreamingRunner`.
        code: as for `StreamingRunner`.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        until: TimestampLike | None = None,
        spill_bytes: int = SPILL_BYTES,
        store: str | None = None,
        fresh: bool = False,
        workers: int = 2,
        tries_per_record: int | None = None,
        step_timeout: DurationLike | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        check_types: bool = False,
        lineage: str | None = None,
        master: str | None = None,
        spark_settings: Mapping[str, str] = MappingProxyType({}),
        code: Sequence[str] = (),
        show_progress: bool = True,
    ) -> None:
        stream = StreamOptions.of(
            job=job,
            store=store,
            fresh=fresh,
            workers=workers,
            tries_per_record=tries_per_record,
            step_timeout=step_timeout,
            log_level=log_level,
            log_format=log_format,
            check_types=check_types,
            lineage=lineage,
            master=master,
            spark_settings=spark_settings,
            code=code,
            show_progress=show_progress,
        )
        self._backfill = Backfill(stream, until=until, spill_bytes=spill_bytes)

    @property
    def job(self) -> str:
        """The name of the run in the store."""
        return self._backfill.job

    def run(self, graph: PipelineGraph) -> StoreResult:
        """Load what is not loaded yet.

        Raises:
            BackfillError: the job has gone live, or what was interrupted cannot be continued.
            InputError: a source cannot be read.
            JobRunningError: another driver is running the job.
            PipelineError: something in the pipeline cannot be sent to workers.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
            DataflowError: what went wrong in the run; run again to continue.
            InterruptedRun: Ctrl-C; run again to continue.
        """
        with stays_in_store(self.job):
            return self._backfill.load(graph)
