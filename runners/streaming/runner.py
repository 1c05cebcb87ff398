"""StreamingRunner: a pipeline as a stream, exactly once, on long-lived Spark tasks (ADR 0008)."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from urllib.parse import urlsplit

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.io.extras import require
from dataflow.pipeline import Pipeline
from dataflow.runner import PipelineResult
from runners.core.stages.plan import plan
from runners.log_format import use_format
from runners.millwheel.control.housekeeping import Retention
from runners.millwheel.model.guarantees import Guarantees, check_guarantees
from runners.millwheel.store import port
from runners.millwheel.versions.job_versions import Update
from runners.millwheel.versions.update import UpdatePlan
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.spark.interrupted import stays_in_store
from runners.spark.job_keeper import JobKeeper
from runners.spark.prepared_job import planned_update, prepare
from runners.spark.stream_options import StreamOptions
from runners.streaming.job_thread import StreamingJob
from windowing.timestamps import DurationLike, to_duration_us

#: Of the bundles that begin, as long as nobody says otherwise.
_TRACE_RATIO = 0.01
#: Packages of the extra, the outer ones first, as an inner one can be looked for only where the outer one is.
_OTEL = (
    "opentelemetry",
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "opentelemetry.exporter.otlp",
)


class StreamingRunner:
    """Runs a pipeline until its sources end, or for ever.

    Kill anything with -9, the driver included: running the same job again continues it.  One driver at a time runs a
    job: a second one is refused while the first is alive.

    Args:
        job: names the run in the store.
        store: DSN of a Postgres; by default that of the environment variable DATAFLOW_STORE, else an embedded one.
        fresh: forget the job, and drop the tables it created, before running.  Refused where it has rows in a
            table that is not its own (`TableOwnedError`): they would stay, and be written once more.
        workers: how many; each is one Spark task that stays.
        tries_per_record: how often a record that makes user code fail is tried before it is left out and kept as a
            dead letter (`PipelineResult.dead_letters`); None: the first failure stops the job.
        step_timeout: how long user code may be at work on the records of one step (`timedelta`, text, or seconds), and
            on a record that is tried alone.  A worker that is longer at it is replaced; with ``tries_per_record`` the
            record that takes so long becomes a dead letter, as one does that ends its process.  None: as long as it
            likes.
        log_level: as for `BatchRunner`.
        log_format: as for `DirectRunner`.
        check_types: as for `DirectRunner`.
        lineage: as for `DirectRunner`; kept in the store for `keep_lineage`.  Entries are rows of the commits that they
            tell of, so they are there exactly if these are.
        skew_limit: how far the event time of one split of a source may be ahead of the slowest one (`timedelta`, text,
            or seconds); a split that is further waits, so that windows between them need not be kept.  A split that has
            nothing does not hold the others back.  None: as far as it likes.
        state_cache_bytes: how much state each worker keeps in memory; the rest it reads from the store when it needs it
            (docs/how-to/keep-more-state-than-memory.md).  None: all, however much that is.
        value_bytes_max: what a worker may keep of a key and window, or send for them at once, in bytes of pickles: up
            to 1,000,000,000.  More stops the job, with an error that names the transform and the key.
        guarantees: what reads and groupings do without, by the label of the transform: see `Guarantees`.  All have both
            by default.
        balance: have the job move, split and merge key ranges by itself, by what they have to do
            (docs/how-to/run-a-stream.md).
        gather: have one worker own all key ranges and splits while it can carry the job: a record waits for one commit
            then, and not for two.  The job begins on all workers, and goes back to them when
            one has too much to do (docs/how-to/run-a-stream.md).
        evidence: have the driver write once a second what it knows of the job, for people who look at it from outside:
            watermarks and what holds them, what each worker is doing, loads and times
            (docs/how-to/read-the-store-with-psql.md).
        show_keys: have keys that are frequent in that as text, where `evidence` would have their hashes alone.
        trace_to: a collector of OpenTelemetry (OTLP over HTTP), such as "http://localhost:4318", to which workers send
            traces of bundles (docs/how-to/watch-with-prometheus.md); needs the extra otel.  None: nothing is traced.
        trace_ratio: how much of the bundles is traced, from 0 to 1; None: a hundredth.
        keep_late: how long records that came too late are kept in the store (`timedelta`, text, or seconds); how many
            they were is known for ever.  None: as long as the job.
        keep_dead: the same for dead letters.
        keep_lineage: the same for lineage; of a row that is older nothing is known then.
        records_per_second: slows each split of each source down to this speed; for replays and demonstrations.
        update: have a job that runs another pipeline go over to this one, after printing what that keeps and loses
            (docs/how-to/change-a-running-pipeline.md).  None: refuse it.
        master: of Spark; by default this machine.  It must have a free core for every worker.
        spark_settings: more `spark.*` settings, e.g. ``{"spark.executor.memory": "4g"}``; one Spark runs in a process,
            so all its jobs have the same ones (docs/how-to/run-on-a-cluster.md).
        code: modules, package directories and archives to bring to executors that do not have them.
        show_progress: on stderr.
    """

    def __init__(
        self,
        *,
        job: str,
        store: str | None = None,
        fresh: bool = False,
        workers: int = 2,
        tries_per_record: int | None = None,
        step_timeout: DurationLike | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        check_types: bool = False,
        lineage: str | None = None,
        skew_limit: DurationLike | None = None,
        guarantees: Mapping[str, Guarantees] = MappingProxyType({}),
        state_cache_bytes: int | None = 256 << 20,
        value_bytes_max: int = VALUE_BYTES_MAX,
        balance: bool = False,
        gather: bool = True,
        evidence: bool = True,
        show_keys: bool = False,
        trace_to: str | None = None,
        trace_ratio: float | None = None,
        keep_late: DurationLike | None = None,
        keep_dead: DurationLike | None = None,
        keep_lineage: DurationLike | None = "7 days",
        records_per_second: float | None = None,
        update: Update | None = None,
        master: str | None = None,
        spark_settings: Mapping[str, str] = MappingProxyType({}),
        code: Sequence[str] = (),
        show_progress: bool = True,
    ) -> None:
        _check_sizes(records_per_second, state_cache_bytes, value_bytes_max)
        self._stream = StreamOptions.of(
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
        self._worker_options = WorkerOptions(
            records_per_second=records_per_second,
            tries=self._stream.tries,
            step_timeout_ms=self._stream.step_timeout_ms,
            guarantees=dict(guarantees),
            skew_limit_us=None if skew_limit is None else _limit_us(skew_limit),
            state_cache_bytes=state_cache_bytes,
            value_bytes_max=value_bytes_max,
            reports_on_itself=evidence,
            shows_keys=show_keys,
            trace_to=_checked_trace_to(trace_to),
            trace_ratio=_checked_ratio(trace_ratio),
        )
        self._update, self._balance, self._gather = update, balance, gather
        self._retention = Retention.of(
            keep_late=keep_late, keep_dead=keep_dead, keep_lineage=keep_lineage
        )

    @property
    def job(self) -> str:
        """The name of the run in the store."""
        return self._stream.job.job

    @property
    def stream(self) -> StreamOptions:
        """The options of the job, for the runner of its backfill."""
        return self._stream

    def check(self, graph: PipelineGraph) -> None:
        """Check what can be checked of a pipeline before anything is begun.

        Raises:
            PipelineError: its guarantees do not fit it.
        """
        check_guarantees(plan(graph), self._worker_options.guarantees)

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Start the job, or continue it; returns at once.

        Raises:
            InputError: a source cannot be read.
            PipelineError: something in the pipeline cannot be sent to workers, or has guarantees that do not fit it.
            JobRunningError: another driver is running the job.
            StoreError: there is no suitable store, or the job's name is taken by another pipeline.
            UpdateRefusedError: the update would lose what it may not.
            BackfillError: the job's backfill is loaded only in part.
            InterruptedRun: Ctrl-C.
        """
        use_format(self._stream.log_format)
        with stays_in_store(self.job):
            return self._run(graph)

    def _run(self, graph: PipelineGraph) -> PipelineResult:
        self.check(graph)
        keeper = JobKeeper(self.job)
        with ExitStack() as until_started:
            until_started.callback(keeper.release)
            prepared = prepare(graph, self._stream.job, keeper.claim, self._update)
            if prepared.job.is_finished:
                return prepared.result
            context = self._stream.spark.context()
            started = StreamingJob(
                prepared,
                context,
                keeper,
                workers=self._stream.workers,
                options=self._worker_options,
                balance=self._balance,
                gather=self._gather,
                retention=self._retention,
                show_progress=self._stream.show_progress,
            )
            until_started.pop_all()
            return started

    def plan_update(
        self,
        pipeline: Pipeline,
        *,
        renamed: Mapping[str, str] = MappingProxyType({}),
        retract_removed: bool = False,
        former: Pipeline | None = None,
    ) -> UpdatePlan | None:
        """What running the pipeline with an `Update` would do; nothing is changed.

        ``str`` of it is a table for people.  None if there is no such job, or it runs this pipeline already.

        Args:
            pipeline: the new version.
            renamed: new names of computations by their old ones.
            retract_removed: see `Update`; what would be retracted is part of the plan.
            former: the pipeline that the job has run so far; None: nothing is to be retracted, nor sent to sinks that
                it alone has.

        Raises:
            PipelineError: ``renamed`` has a name that is not there.
            UpdateRefusedError: the job is finished, or ``former`` is missing or is not its pipeline.
            StoreError: there is no suitable store.
        """
        update = Update(renamed=renamed, retract_removed=retract_removed, former=former)
        return planned_update(pipeline.graph(), self._stream.job, update)


def _check_sizes(
    records_per_second: float | None, state_cache_bytes: int | None, value_bytes_max: int
) -> None:
    if records_per_second is not None and records_per_second <= 0:
        raise PipelineError(f"records_per_second must be positive, not {records_per_second}")
    if state_cache_bytes is not None and state_cache_bytes < 0:
        raise PipelineError(f"state_cache_bytes must not be negative, not {state_cache_bytes}")
    if not 0 < value_bytes_max <= port.VALUE_BYTES_MAX:
        raise PipelineError(
            f"value_bytes_max must be between 1 and {port.VALUE_BYTES_MAX:,}, not {value_bytes_max:,}",
            hint="Postgres takes no larger value",
        )


def _checked_trace_to(trace_to: str | None) -> str | None:
    if trace_to is None:
        return None
    try:
        parts = urlsplit(trace_to)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_known = False
    if not is_known:
        raise PipelineError(
            "trace_to is no address of a collector",
            hint='OpenTelemetry by HTTP, such as "http://localhost:4318"',
        )
    for library in _OTEL:
        require(library, "otel", "trace_to")
    return trace_to


def _checked_ratio(ratio: float | None) -> float:
    found = _TRACE_RATIO if ratio is None else ratio
    if not 0 <= found <= 1:
        raise PipelineError(f"trace_ratio must be between 0 and 1, and is {ratio}")
    return found


def _limit_us(skew_limit: DurationLike) -> int:
    limit_us = to_duration_us(skew_limit)
    if limit_us < 0:
        raise PipelineError(f"skew_limit must not be negative, and is {skew_limit}")
    return limit_us
