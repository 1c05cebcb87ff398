"""Backfill: the beginning of a streaming job, read in batch, for the runners that offer one."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import attrs

from dataflow.graph import PipelineGraph
from runners.batch.backfill.settings import backfill_settings
from runners.batch.repeating import nondeterministic
from runners.batch.runner import checked_spill_bytes
from runners.batch.waves import run_waves
from runners.core.stages.source_stage import release_sources
from runners.errors import BackfillError, StoreRestartedError
from runners.millwheel.control.backfill_progress import (
    BackfillState,
    backfill_state,
    begun,
    check_may_be_loaded,
    go_live,
)
from runners.millwheel.store.port import JobRow
from runners.progress import ProgressDisplay, print_line
from runners.registry import open_store
from runners.spark.job_keeper import JobKeeper
from runners.spark.prepared_job import PreparedJob, prepare
from runners.spark.result import StoreResult
from runners.spark.stream_options import StreamOptions
from runners.stored.places import SplitMark
from runners.system_clock import SystemClock
from windowing.timestamps import TimestampLike, to_timestamp_us

_LOG = logging.getLogger(__name__)


class Backfill:
    """The backfill of one job.

    Args:
        stream: the options of the job.
        until: the point; see `BackfillRunner`.
        spill_bytes: see `BackfillRunner`.

    Raises:
        PipelineError: an argument is not valid.
    """

    def __init__(
        self, stream: StreamOptions, *, until: TimestampLike | None, spill_bytes: int
    ) -> None:
        self._stream = stream
        self._until_us = None if until is None else to_timestamp_us(until)
        self._spill_bytes = checked_spill_bytes(spill_bytes)

    @property
    def job(self) -> str:
        """The name of the run in the store."""
        return self._stream.job.job

    def load(self, graph: PipelineGraph) -> StoreResult:
        """Load what is not loaded yet; errors as those of `BackfillRunner.run`."""
        return self._load(graph, check_may_be_loaded)

    def load_unless_live(self, graph: PipelineGraph) -> None:
        """Load what is not loaded yet, but leave a job that has gone live alone, even if its pipeline has changed."""

        def leave_live(job: JobRow) -> None:
            if backfill_state(job) is BackfillState.LIVE:
                raise _LiveError

        with suppress(_LiveError):
            self._load(graph, leave_live)

    def _load(self, graph: PipelineGraph, check: Callable[[JobRow], None]) -> StoreResult:
        def look(job: JobRow) -> None:
            if not job.is_finished:
                check(job)
            if backfill_state(job) is BackfillState.HALF:
                check_continuable(graph, job)

        keeper = JobKeeper(self.job)
        with ExitStack() as until_loaded:
            until_loaded.callback(keeper.release)
            until_loaded.callback(release_sources, graph)
            options = attrs.evolve(self._stream.job, runs_stages_alone=True)
            prepared = prepare(graph, options, keeper.claim, look=look)
            while True:
                if prepared.job.is_finished:
                    return prepared.result
                if backfill_state(prepared.job) is BackfillState.LOADED:
                    print_line(
                        f"the backfill of job {self.job!r} is loaded already; nothing was done"
                    )
                    return prepared.result
                try:
                    self._run_waves(prepared)
                    keeper.check()
                    with closing(
                        open_store(prepared.dsn, incarnation=prepared.incarnation)
                    ) as store:
                        go_live(store, self.job)
                except StoreRestartedError as error:
                    # The positions of splits may be lost, and partials made of them be on their way: neither counts.
                    _LOG.warning("the backfill of job %s begins again: %s", self.job, error)
                    options = attrs.evolve(options, fresh=False)
                    prepared = prepare(graph, options, look=look)
                else:
                    return prepared.result

    def _run_waves(self, prepared: PreparedJob) -> None:
        began = begun(prepared.job) or SplitMark(
            until_us=self._until_us, now_us=SystemClock().now_us()
        )
        settings = backfill_settings(
            prepared.plan,
            prepared.job,
            until_us=began.until_us,
            now_us=began.now_us,
            tries=self._stream.tries,
            spill_bytes=self._spill_bytes,
        )
        if not any(settings.layout.wanted.values()):
            return
        context = self._stream.spark.context()
        with ProgressDisplay(
            f"backfill {self.job}", unit="tasks", show=self._stream.show_progress
        ) as progress:
            run_waves(
                context,
                prepared,
                settings,
                progress,
                step_timeout_ms=self._stream.step_timeout_ms,
                incarnation=prepared.incarnation,
            )


class _LiveError(Exception):
    """There is nothing left to load."""


def check_continuable(graph: PipelineGraph, job: JobRow) -> None:
    """Refuse to continue a backfill that was interrupted, if its code would emit something else.

    Args:
        graph: of the pipeline.
        job: as the store has it.

    Raises:
        BackfillError: it would.
    """
    rolling = nondeterministic(graph)
    if rolling is not None:
        raise BackfillError(
            f"the backfill of job {job.job!r} was interrupted, and cannot be continued",
            detail=f"{rolling} is marked as nondeterministic: run again, it could return other outputs",
            hint="start over with fresh=True",
        )
