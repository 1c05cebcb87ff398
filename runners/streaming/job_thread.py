"""StreamingJob: a running job in the driver: the master's loop in one thread, the Spark job of its workers in another.

The master is the only one to decide that a job is over.  When Spark gives the tasks up although the job is
not, they are started again, as long as that gets the job anywhere.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from math import ceil, inf
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any

import attrs
from pyspark import InheritableThread, SparkContext

from dataflow.drawing import html_table
from dataflow.errors import DataflowError
from dataflow.metrics import MetricResults
from dataflow.pipeline import Pipeline
from dataflow.runner import PipelineState, WindowLike
from dataflow.times import behind
from runners.core.stages.plan import plan
from runners.core.stages.source_stage import release_sources
from runners.errors import (
    CodeMissingError,
    JobFailedError,
    LostCommitsError,
    StoreRestartedError,
)
from runners.millwheel.control.discovery import SplitDiscovery
from runners.millwheel.control.housekeeping import Housekeeper, Retention
from runners.millwheel.master.balancer import Balancer
from runners.millwheel.master.load_policy import PolicyOptions
from runners.millwheel.master.master import Master, has_begun
from runners.millwheel.master.placement_policy import PlacementOptions
from runners.millwheel.master.request_desk import RequestDesk
from runners.millwheel.master.slots import MasterStatistics
from runners.millwheel.master.witness import Witness
from runners.millwheel.model.events import EventKind
from runners.millwheel.model.guarantees import check_guarantees
from runners.millwheel.model.troubles import Trouble
from runners.millwheel.store.port import Store
from runners.millwheel.versions.job_versions import Update
from runners.millwheel.wire.zmq_transport import JobKeys, ZmqTransport, own_host
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.observability.drawing.pane_plot import PanePlot
from runners.observability.evidence.snapshot_taker import SnapshotTaker
from runners.observability.lineage.explained_rows import RowExplanation
from runners.observability.why.explanation import WhyExplanation
from runners.process_name import process_name
from runners.progress import ProgressDisplay
from runners.registry import open_store
from runners.spark.driver_log import driver_log
from runners.spark.interrupted import stays_in_store
from runners.spark.job_keeper import JobKeeper
from runners.spark.prepared_job import PreparedJob
from runners.spark.session import driver_host
from runners.spark.shipped_code import spark_gave_up
from runners.spark.sink_relay import SinkRelay
from runners.streaming.evidence_writer import STATEMENT_TIMEOUT_MS, EvidenceWriter
from runners.streaming.split_watcher import SplitWatcher
from runners.streaming.store_reader import StoreReader
from runners.streaming.switch import Switch
from runners.streaming.worker_task import WorkerLaunch
from runners.system_clock import SystemClock
from windowing.errors import in_brief
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    to_datetime,
    to_duration_us,
)

_LOG = logging.getLogger(__name__)

_MASTER_WAIT_MS = 20
#: Between two looks at whether sinks have everything, when the job is done otherwise.
_FLUSH_LOOK_S = 0.02
#: How often the work of all workers is counted: often enough for people, and for tests that wait for it.
COUNT_INTERVAL_MS = 50
#: Workers receive Stop within a step; this bounds waiting for one that hangs in user code.
_STOP_TIMEOUT_MS = 10_000
#: Length of a reason in the line of progress; the whole of it is in the log and in the store.
_REASON_CHARS_MAX = 100
#: Of a gathered job whose workers keep all state in memory: what is more than this needs the memory of all of them.
_STATE_BYTES_MAX = 256 << 20
#: Spark jobs in a row that may end without having read or finished anything.
_FRUITLESS_RUNS_MAX = 3


class StreamingJob:
    """A job under way; what `Pipeline.run` returns.

    Args:
        prepared: the job.
        context: of the Spark session.
        keeper: ends the session with its last job.
        workers: the number of slots.
        options: of each worker.
        balance: whether ranges are moved and split to balance the load.
        gather: whether one worker is given all ranges while it can carry the job.
        retention: how long late records and dead letters are kept.
        show_progress: whether a bar is shown.
    """

    def __init__(
        self,
        prepared: PreparedJob,
        context: SparkContext,
        keeper: JobKeeper,
        *,
        workers: int,
        options: WorkerOptions,
        balance: bool,
        gather: bool,
        retention: Retention,
        show_progress: bool,
    ) -> None:
        self._prepared, self._context, self._keeper = prepared, context, keeper
        self._workers, self._options = workers, options
        self._show_progress, self._balance, self._gather = show_progress, balance, gather
        self._retention = retention
        self._clock = SystemClock()
        self._cancelled, self._pausing = threading.Event(), threading.Event()
        self._switches: SimpleQueue[Switch] = SimpleQueue()
        #: The one that is being carried out, and how often the job has come to rest before the end of it.
        self._switch: Switch | None = None
        self._retractions = 0
        self._is_over = False
        #: The restart of the store after which it begins again.
        self._restarted_by: str | None = None
        self._state = PipelineState.CANCELLED
        self._failure: BaseException | None = None
        self._statistics: MasterStatistics | None = None
        self._witness: Witness | None = None
        self._thread = threading.Thread(target=self._run, name="dataflow-master", daemon=True)
        self._thread.start()

    @property
    def state(self) -> PipelineState:
        """How far the job is, as this driver knows it."""
        if self._thread.is_alive():
            return PipelineState.RUNNING
        return self._state if self._failure is None else PipelineState.FAILED

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Block until every source has ended and all its effects are committed, or until the job is stopped.

        Args:
            timeout: how long to wait (`timedelta`, text, or seconds); None: until then.

        Returns:
            Which of the two it was; `PipelineState.RUNNING` if it was neither in time.

        Raises:
            DataflowError: what made the job fail.  What was committed stays; running the job again continues it.
            InterruptedRun: Ctrl-C; the job is stopped.
        """
        left_s = inf if timeout is None else to_duration_us(timeout) / 1_000_000
        until_s = self._clock.monotonic_ms() / 1_000 + left_s
        try:
            while self._thread.is_alive():
                if left_s <= 0:
                    return PipelineState.RUNNING
                self._thread.join(min(0.2, left_s))
                left_s = until_s - self._clock.monotonic_ms() / 1_000
        except KeyboardInterrupt:
            with stays_in_store(self._prepared.job.job):
                self.cancel()
                raise
        if self._failure is not None:
            raise in_brief(self._failure)
        return self._state

    def cancel(self) -> None:
        """Stop now; running the job again continues it."""
        self._cancelled.set()
        self._thread.join()

    def pause(self) -> None:
        """Stop cleanly: sources are read no further, all deliveries on their way arrive, then the workers stop.

        Positions and state stay; running the job again continues it.

        Raises:
            DataflowError: what made the job fail.
        """
        self._pausing.set()
        self.wait_until_finish()

    def update(
        self,
        pipeline: Pipeline,
        *,
        renamed: Mapping[str, str] = MappingProxyType({}),
        allow_loss: Collection[str] = (),
        retract_removed: bool = False,
    ) -> None:
        """Go over to a new version of the pipeline, after printing what that keeps and loses; pauses for it.

        Returns when the new version is about to run, in this driver.  If the update is refused the old one goes on.
        If the driver dies while something is retracted, run the new pipeline with
        ``update=Update(retract_removed=True, former=...)``, which goes on from there.

        Args:
            pipeline: the new version.
            renamed: transforms that are called otherwise now: old label to new label.
            allow_loss: labels of transforms whose state, positions and records on their way may be lost; see `Update`.
            retract_removed: whether what removed and changed transforms have emitted is retracted.

        Raises:
            PipelineError: the pipeline cannot be run, or a name is not there.
            UpdateRefusedError: something else would be lost, or cannot be retracted, or the job is over.
            StoreError: the store refuses.
        """
        graph = pipeline.graph()
        check_guarantees(plan(graph), self._options.guarantees)
        update = Update(renamed=renamed, allow_loss=allow_loss, retract_removed=retract_removed)
        switch = Switch(graph, update)
        self._switches.put(switch)
        while not switch.is_decided.wait(0.2):
            if not self._thread.is_alive():
                self._refuse_switches()
        if switch.error is not None:
            raise switch.error

    def _repr_html_(self) -> str:
        return html_table(f"job {self._prepared.job.job}", [("state", self.state.value)])

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table as they are now."""
        return self._prepared.result.read_table(name)

    def send_signal(self, name: str) -> None:
        """Send a signal to every open window that listens to it, whichever driver runs the job by then.

        Raises:
            SignalError: no window would receive it: the job is finished or does not listen to the name.
        """
        self._prepared.result.send_signal(name)

    def ranges(self) -> Sequence[Mapping[str, Any]]:
        """The ranges of the job as they are in the store now, and the last polls of its splits.

        See `runners.millwheel.control.asking.ranges_of` for the fields.
        """
        statistics = self._statistics
        return self._prepared.result.ranges({} if statistics is None else statistics.splits)

    def move(self, range_id: str, slot: int) -> str:
        """Have a range go to the worker of a slot, and wait until it has; see `StoreResult.move`."""
        return self._prepared.result.move(range_id, slot)

    def split(self, range_id: str, at: int | None = None) -> str:
        """Have a key range divided, and wait until it is; see `StoreResult.split`."""
        return self._prepared.result.split(range_id, at)

    def merge(self, range_id: str, gone: str) -> str:
        """Have a key range take in its neighbour, and wait until it has; see `StoreResult.merge`."""
        return self._prepared.result.merge(range_id, gone)

    def drain(self) -> None:
        """Have the sources end where they are, and the job with them; see `StoreResult.drain`."""
        self._prepared.result.drain()

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records dropped so far because their window was gone."""
        return self._prepared.result.late_records()

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records so far that made user code fail."""
        return self._prepared.result.dead_letters()

    def why(
        self,
        *,
        key: Any = None,
        window: WindowLike | None = None,
        transform: str | None = None,
    ) -> WhyExplanation:
        """Why nothing has come out so far, or not of a key; see `StoreResult.why`."""
        return self._prepared.result.why(key=key, window=window, transform=transform)

    def metrics(self) -> MetricResults:
        """What user code has counted so far."""
        return self._prepared.result.metrics()

    def explain_row(self, table: str, key: str) -> RowExplanation:
        """Explain where a row comes from; see `StoreResult.explain_row`."""
        return self._prepared.result.explain_row(table, key)

    def plot(self, key: Any, *, transform: str | None = None) -> PanePlot:
        """Draw the panes of a key; see `StoreResult.plot`."""
        return self._prepared.result.plot(key, transform=transform)

    def late_counts(self) -> Mapping[str, int]:
        """How many of them each transform has dropped so far."""
        return self._prepared.result.late_counts()

    def statistics(self) -> MasterStatistics | None:
        """Counts since this run, or the version that it is at, started; None before the master has."""
        return self._statistics

    def _run(self) -> None:
        try:
            self._supervise_again_and_again()
            while not self._is_over and self._goes_over():
                self._statistics = None
                self._supervise_again_and_again()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = error
            if self._switch is not None:
                self._switch.fail(error)
                self._switch = None
        finally:
            self._keeper.release()
            self._refuse_switches()
            release_sources(self._prepared.plan.graph)

    def _goes_over(self) -> bool:
        """Go over to the next version, if there is one; returns whether there is."""
        if self._prepared.next is not None:
            if self._pausing.is_set():
                return False
            self._go_on()
        elif self._switches.empty():
            return False
        else:
            self._switch = self._switches.get()
            self._prepared = self._switch.carried_out(self._prepared)
        if self._prepared.next is None:
            self._switch = None
        return True

    def _go_on(self) -> None:
        """Go over from a version that has come to rest to the one that it is on its way to."""
        assert self._prepared.next is not None
        for_the_last = self._retractions >= _FRUITLESS_RUNS_MAX
        self._prepared = self._prepared.updated(*self._prepared.next)
        if self._prepared.next is None:
            self._retractions = 0
            if self._switch is not None:
                self._switch.is_decided.set()
        elif for_the_last:
            raise JobFailedError(
                f"job {self._prepared.job.job!r} does not come to the end of what it is to retract",
                hint="run the new pipeline again with the same update, which goes on from there",
            )
        else:
            self._retractions += 1

    def _refuse_switches(self) -> None:
        if self._switch is not None:
            self._switch.refuse(self._prepared.job.job)
        with suppress(Empty):
            while True:
                self._switches.get_nowait().refuse(self._prepared.job.job)

    def _supervise_again_and_again(self) -> None:
        """Begin again from the store each time that it was restarted: memory may be ahead of it.

        Raises:
            LostCommitsError: the store has lost commits that workers have reported, or relied on.
        """
        while True:
            try:
                self._supervise()
            except LostCommitsError as error:
                _LOG.error("%s", error)
                raise
            except StoreRestartedError as error:
                _LOG.warning(
                    "job %s begins again from its store: %s", self._prepared.job.job, error
                )
                self._restarted_by = str(error)
            else:
                return
            assert self._witness is not None
            try:
                self._prepared = self._prepared.looked_at_again(self._witness.check)
            except LostCommitsError as error:
                _LOG.error("%s", error)
                raise

    def _supervise(self) -> None:
        """Run the job once, from its store: until it is done, or to stop, or fails.

        Raises:
            StoreRestartedError: the store is not the one that it was begun with.
            DataflowError: what has made the job fail.
        """
        keys = JobKeys.generate()
        host = driver_host(self._context)
        transport, log = ZmqTransport(keys, own_host(host)), driver_log(host)
        job = self._prepared.job
        master = Master(job, self._prepared.plan, self._workers, transport, self._clock)
        desk = RequestDesk(master, self._clock)
        self._witness = master.witness
        if self._statistics is not None:
            master.go_on_counting(self._statistics)
        self._statistics = master.statistics()
        launch = WorkerLaunch(
            job=job.job,
            workers=self._workers,
            shipped=self._prepared.shipped,
            dsn=self._prepared.dsn,
            incarnation=self._prepared.incarnation,
            keys=keys,
            master=transport.address,
            version=job.version,
            options=self._options,
            log=log.target(job.job),
        )
        spark_job = _SparkJob(self._context, launch, self._workers)
        with self._evidence_writer(master) as evidence:
            evidence.note(*self._beginning())
            try:
                is_done = self._lead_to_the_end(master, desk, spark_job, evidence)
            except StoreRestartedError:
                # Its workers can do nothing any more, and Spark need not try them again.
                spark_job.cancel()
                raise
            finally:
                self._stop(master, spark_job)
                self._statistics = master.statistics()
                transport.close()
                log.await_rest()
            if not is_done:
                evidence.note(*self._stopping(desk))
        if is_done:
            self._prepared.finish(master.witness.check, is_drained=desk.is_draining)
        self._is_over = is_done or desk.is_cancelled or self._cancelled.is_set()
        if is_done:
            self._state = PipelineState.DRAINED if desk.is_draining else PipelineState.FINISHED
        elif not self._is_over:
            self._state = PipelineState.PAUSED

    def _lead_to_the_end(
        self,
        master: Master,
        desk: RequestDesk,
        spark_job: "_SparkJob",
        evidence: EvidenceWriter,
    ) -> bool:
        """Lead the job, with all helpers; returns whether it is done, and its sinks have everything."""
        job = self._prepared.job
        with (
            StoreReader(
                open_store(self._prepared.dsn, incarnation=self._prepared.incarnation),
                job.job,
                master,
                desk,
                self._housekeeper(master),
            ) as reader,
            SplitWatcher(
                lambda: open_store(self._prepared.dsn, incarnation=self._prepared.incarnation),
                job.job,
                master,
                SplitDiscovery(job, self._prepared.plan, self._clock),
            ) as watcher,
            ProgressDisplay(
                f"streaming {job.job}", unit="records", show=self._show_progress
            ) as progress,
            SinkRelay(self._prepared) as relay,
        ):
            helpers = _Helpers(reader, watcher, relay, evidence)
            is_done = self._lead(master, desk, spark_job, helpers, progress)
            while is_done and not (relay.is_flushed() or self._cancelled.wait(_FLUSH_LOOK_S)):
                evidence.pass_on()
            return is_done and not self._cancelled.is_set()

    def _evidence_writer(self, master: Master) -> EvidenceWriter:
        job, dsn = self._prepared.job, self._prepared.dsn
        taker = None
        if self._options.reports_on_itself:
            gathers = placement_options(self._options) if self._gather else None
            taker = SnapshotTaker(
                job.job,
                job.version,
                process_name(),
                self._clock.now_us(),
                freshness=self._prepared.plan.freshness(),
                balance=self._balance,
                gather_bytes_max=None if gathers is None else gathers.state_bytes_max,
            )

        def open_own() -> Store:
            # Of whichever incarnation: what was written to another one is written anew.
            return open_store(
                dsn,
                connect_timeout_s=STATEMENT_TIMEOUT_MS / 1_000,
                statement_timeout_ms=STATEMENT_TIMEOUT_MS,
            )

        return EvidenceWriter(open_own, job.job, master.view, taker, self._clock)

    def _beginning(self) -> tuple[EventKind, str]:
        """Why this run begins."""
        if self._restarted_by is not None:
            why = f"the job begins again from its store: {self._restarted_by}"
            self._restarted_by = None
            return EventKind.RESTART, why
        if has_begun(self._prepared.job.ranges.values()):
            return EventKind.RESTART, "the job goes on from its store, under this driver"
        return EventKind.START, "the job begins"

    def _stopping(self, desk: RequestDesk) -> tuple[EventKind, str]:
        """Why this run ends, of a job that is not done."""
        if desk.is_cancelled:
            return EventKind.CANCEL, "somebody has asked for it, by a request"
        if self._cancelled.is_set():
            return EventKind.CANCEL, "the program that runs the job has cancelled it"
        if self._pausing.is_set():
            return EventKind.PAUSE, "the program that runs the job has paused it"
        return EventKind.PAUSE, "the job goes over to another pipeline"

    def _housekeeper(self, master: Master) -> Housekeeper:
        # Only what was processed before this run began: the next driver may not know what ranges have processed since.
        processed = master.latest_signal
        return Housekeeper(self._prepared.job.job, self._retention, self._clock, lambda: processed)

    def _lead(
        self,
        master: Master,
        desk: RequestDesk,
        spark_job: "_SparkJob",
        helpers: "_Helpers",
        progress: ProgressDisplay,
    ) -> bool:
        """Do rounds of the master until the job is done, or is to stop before; returns whether it is done.

        It stays done: while its workers are stopped another may register, to which the master gives ranges once more.
        """
        fruitless, records_before, counted_ms = 0, 0, 0
        is_retracting = self._prepared.next is not None
        balancer = None if is_retracting else self._balancer(master)
        while not (
            (master.is_done and not is_retracting)
            or desk.is_cancelled
            or self._cancelled.is_set()
            or master.is_paused
        ):
            master.is_pausing = self._pausing.is_set() or not self._switches.empty()
            self._keeper.check()
            helpers.pass_on()
            master.step(_MASTER_WAIT_MS)
            if balancer is not None:
                balancer.step(may_gather=not desk.has_moved)
            if master.failure is not None:
                raise master.failure
            is_alive = spark_job.is_alive()
            if is_alive and self._clock.monotonic_ms() - counted_ms < COUNT_INTERVAL_MS:
                continue
            counted_ms = self._clock.monotonic_ms()
            statistics = self._statistics = master.statistics()
            progress.update(
                done=statistics.records_read,
                note=_note(
                    statistics, self._workers, master.troubles.latest, now_us=self._clock.now_us()
                ),
            )
            if is_alive:
                continue
            gave_up = spark_job.gave_up()
            if isinstance(gave_up, CodeMissingError):
                raise gave_up
            fruitless = 0 if statistics.records_read > records_before else fruitless + 1
            records_before = statistics.records_read
            if fruitless > _FRUITLESS_RUNS_MAX:
                raise JobFailedError(
                    f"the workers of job {self._prepared.job.job!r} keep dying",
                    detail=_why(master.troubles.latest, gave_up),
                    hint="the detail says why; running the job again continues it",
                )
            spark_job.start()
        return master.is_done and not is_retracting

    def _balancer(self, master: Master) -> Balancer:
        job = self._prepared.job.job
        return Balancer(
            master,
            self._workers,
            self._clock,
            load=PolicyOptions() if self._balance else None,
            placement=placement_options(self._options) if self._gather else None,
            note=lambda reason: _LOG.info("job %s: %s", job, reason),
        )

    def _stop(self, master: Master, spark_job: "_SparkJob") -> None:
        master.stop()
        deadline_ms = self._clock.monotonic_ms() + _STOP_TIMEOUT_MS
        while spark_job.is_alive() and self._clock.monotonic_ms() < deadline_ms:
            master.step(_MASTER_WAIT_MS)
            master.stop()
        if spark_job.is_alive():
            spark_job.cancel()


@attrs.frozen
class _Helpers:
    """The threads beside that of the master."""

    reader: StoreReader
    watcher: SplitWatcher
    relay: SinkRelay
    evidence: EvidenceWriter

    def pass_on(self) -> None:
        """Pass on to the master what they have, and raise what has ended one of them; never waits."""
        self.reader.pass_on()
        self.watcher.pass_on()
        self.relay.check()
        self.evidence.pass_on()


class _SparkJob:
    """The Spark job whose tasks are the workers."""

    def __init__(self, context: SparkContext, launch: WorkerLaunch, workers: int) -> None:
        self._context, self._launch, self._workers = context, launch, workers
        self._group = f"dataflow streaming {launch.job}"
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Start all workers."""
        self._thread = InheritableThread(target=self._run, name="dataflow-workers", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether Spark is still running them."""
        return self._thread is not None and self._thread.is_alive()

    def gave_up(self) -> DataflowError | None:
        """Why Spark ended it, if that was Spark's doing."""
        return None if self._error is None else spark_gave_up(self._error)

    def cancel(self) -> None:
        """Have Spark kill the tasks."""
        self._context.cancelJobGroup(self._group)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "dataflow streaming")
            slots = self._context.parallelize(range(self._workers), self._workers)
            slots.mapPartitionsWithIndex(self._launch).count()
        except Exception as error:  # noqa: BLE001 - Spark's errors; the master decides what they mean
            self._error = error


def placement_options(options: WorkerOptions) -> PlacementOptions | None:
    """When a job is gathered whose workers have these options; None: never.

    What one worker keeps in memory bounds the state with which it can have everything.  Where a computation does not
    store what it has received, records may count twice when its ranges move, so they move only when somebody asks.
    """
    if not all(each.exactly_once for each in options.guarantees.values()):
        return None
    cache_bytes = options.state_cache_bytes
    return PlacementOptions(
        state_bytes_max=_STATE_BYTES_MAX if cache_bytes is None else cache_bytes
    )


def _why(trouble: Trouble | None, gave_up: DataflowError | None) -> str:
    """What is known of the ends of workers: the last reason in full, and the message of Spark."""
    return "\n".join(str(each) for each in (trouble, gave_up) if each is not None)


def _note(
    statistics: MasterStatistics, workers: int, trouble: Trouble | None = None, *, now_us: int
) -> str:
    parts = []
    if not statistics.workers_ready:
        parts.append("workers are starting")
    elif statistics.watermark_us >= MAX_TIMESTAMP_US:
        parts.append("finishing")
    elif statistics.watermark_us > MIN_TIMESTAMP_US:
        reached_us = statistics.watermark_us
        parts.append(
            f"watermark {to_datetime(reached_us):%Y-%m-%d %H:%M}, {behind(reached_us, now_us)}"
        )
    if 0 < statistics.workers_ready < workers:
        # It lasts for ever where workers are more than cores, and nothing else shows it.
        parts.append(f"{statistics.workers_ready} of {workers} workers")
    counted = (
        (statistics.records_late, "too late"),
        (statistics.records_dead, "dead letters"),
        (statistics.record_ids.duplicates, "duplicates"),
        (statistics.workers_replaced, "workers replaced"),
    )
    parts += [f"{count} {what}" for count, what in counted if count]
    backlog = statistics.backlog()
    still = [
        *([f"{backlog.records:,} records"] if backlog.records else []),
        *([f"{ceil(backlog.size_bytes / 1_000):,} kB"] if backlog.size_bytes else []),
    ]
    if still:
        parts.append(f"{' and '.join(still)} still to read")
    if trouble is not None:
        times = f" ({trouble.count} times)" if trouble.count > 1 else ""
        parts.append(f"last {trouble.kind} at {trouble.place}: {_short(trouble.headline)}{times}")
    return ", ".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= _REASON_CHARS_MAX else f"{text[:_REASON_CHARS_MAX]}..."
