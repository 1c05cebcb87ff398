"""StreamingJob: a running job in the driver: the master's loop in one thread, the Spark job of its workers in another.

The master is the only one to decide that a job is over.  When Spark gives the tasks up although the job is
not, they are started again, as long as that gets the job anywhere.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark import InheritableThread, SparkContext

from runners.errors import JobFailedError
from runners.millwheel.job import range_counts
from runners.millwheel.master import Master, MasterStatistics
from runners.millwheel.zmq_transport import JobKeys, ZmqTransport, own_host
from runners.progress import Progress
from runners.registry import open_store
from runners.spark.prepared_job import PreparedJob
from runners.streaming.job_keeper import JobKeeper
from runners.streaming.signal_reader import SignalReader
from runners.streaming.worker_task import WorkerLaunch
from runners.system_clock import SystemClock
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_datetime

_MASTER_WAIT_MS = 20
#: Workers hear Stop within a step; this bounds waiting for one that hangs in user code.
_STOP_TIMEOUT_MS = 10_000
#: Spark jobs in a row that may end without having read or finished anything.
_FRUITLESS_RUNS_MAX = 3


class StreamingJob:
    """A job under way; what `Pipeline.run` returns."""

    def __init__(
        self,
        prepared: PreparedJob,
        context: SparkContext,
        keeper: JobKeeper,
        *,
        workers: int,
        records_per_second: float | None,
        tries: int | None,
        show_progress: bool,
    ) -> None:
        self._prepared, self._context, self._keeper = prepared, context, keeper
        self._workers, self._records_per_second = workers, records_per_second
        self._tries = tries
        self._show_progress = show_progress
        self._clock = SystemClock()
        self._cancelled = threading.Event()
        self._failure: BaseException | None = None
        self._statistics: MasterStatistics | None = None
        self._thread = threading.Thread(target=self._run, name="dataflow-master", daemon=True)
        self._thread.start()

    def wait_until_finish(self) -> None:
        """Block until every source has ended and everything it caused is committed.

        Raises:
            DataflowError: what made the job fail.  What was committed stays; running the job again continues it.
        """
        try:
            while self._thread.is_alive():
                self._thread.join(0.2)
        except KeyboardInterrupt:
            self.cancel()
            raise
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        """Stop now; running the job again continues it."""
        self._cancelled.set()
        self._thread.join()

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table as they are now."""
        return self._prepared.result.read_table(name)

    def send_signal(self, name: str) -> None:
        """Have every open window that listens to a signal hear it, whichever driver runs the job by then.

        Raises:
            SignalError: nobody would hear it: the job is finished or does not listen to the name.
        """
        self._prepared.result.send_signal(name)

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records dropped so far because their window was gone."""
        return self._prepared.result.late_records()

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records so far that user code could not take."""
        return self._prepared.result.dead_letters()

    def late_counts(self) -> Mapping[str, int]:
        """How many of them each transform has dropped so far."""
        return self._prepared.result.late_counts()

    def statistics(self) -> MasterStatistics | None:
        """Counts since this run started; None before the master has."""
        return self._statistics

    def _run(self) -> None:
        try:
            self._supervise()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = error
        finally:
            self._keeper.release()

    def _supervise(self) -> None:
        keys = JobKeys.generate()
        host = self._context.getConf().get("spark.driver.host") or "127.0.0.1"
        transport = ZmqTransport(keys, own_host(host))
        job = self._prepared.job
        master = Master(job, self._prepared.plan, self._workers, transport, self._clock)
        self._statistics = master.statistics()
        launch = WorkerLaunch(
            job=job.job,
            shipped=self._prepared.shipped,
            dsn=self._prepared.dsn,
            keys=keys,
            master=transport.address,
            range_counts=range_counts(job),
            records_per_second=self._records_per_second,
            tries=self._tries,
        )
        spark_job = _SparkJob(self._context, launch, self._workers)
        try:
            with (
                SignalReader(open_store(self._prepared.dsn), job.job, master) as signals,
                Progress(f"streaming {job.job}", show=self._show_progress) as progress,
            ):
                self._lead(master, spark_job, signals, progress)
        finally:
            self._stop(master, spark_job)
            transport.close()
        if master.is_done:
            self._prepared.finish()

    def _lead(
        self, master: Master, spark_job: "_SparkJob", signals: SignalReader, progress: Progress
    ) -> None:
        fruitless, records_before = 0, 0
        while not master.is_done and not self._cancelled.is_set():
            self._keeper.check()
            signals.pass_on()
            master.step(_MASTER_WAIT_MS)
            if master.failure is not None:
                raise master.failure
            statistics = self._statistics = master.statistics()
            progress.update(done=statistics.records_read, note=_note(statistics))
            if spark_job.is_alive():
                continue
            fruitless = 0 if statistics.records_read > records_before else fruitless + 1
            records_before = statistics.records_read
            if fruitless > _FRUITLESS_RUNS_MAX:
                raise JobFailedError(
                    f"the workers of job {self._prepared.job.job!r} keep dying",
                    detail=str(spark_job.error),
                    hint="the detail says why; running the job again continues it",
                )
            spark_job.start()

    def _stop(self, master: Master, spark_job: "_SparkJob") -> None:
        master.stop()
        deadline_ms = self._clock.monotonic_ms() + _STOP_TIMEOUT_MS
        while spark_job.is_alive() and self._clock.monotonic_ms() < deadline_ms:
            master.step(_MASTER_WAIT_MS)
            master.stop()
        if spark_job.is_alive():
            spark_job.cancel()


class _SparkJob:
    """The Spark job whose tasks are the workers."""

    def __init__(self, context: SparkContext, launch: WorkerLaunch, workers: int) -> None:
        self._context, self._launch, self._workers = context, launch, workers
        self._group = f"dataflow streaming {launch.job}"
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def start(self) -> None:
        """Start all workers."""
        self._thread = InheritableThread(target=self._run, name="dataflow-workers", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether Spark is still running them."""
        return self._thread is not None and self._thread.is_alive()

    def cancel(self) -> None:
        """Have Spark kill the tasks."""
        self._context.cancelJobGroup(self._group)

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "dataflow streaming")
            slots = self._context.parallelize(range(self._workers), self._workers)
            slots.mapPartitionsWithIndex(self._launch).count()
        except Exception as error:  # noqa: BLE001 - Spark's errors; the master decides what they mean
            self.error = error


def _note(statistics: MasterStatistics) -> str:
    if not statistics.workers_ready:
        note = "records, workers are starting"
    elif statistics.watermark_us <= MIN_TIMESTAMP_US:
        note = "records"
    elif statistics.watermark_us >= MAX_TIMESTAMP_US:
        note = "records, finishing"
    else:
        note = f"records, watermark {to_datetime(statistics.watermark_us):%Y-%m-%d %H:%M}"
    if statistics.records_late:
        note += f", {statistics.records_late} too late"
    if statistics.records_dead:
        note += f", {statistics.records_dead} dead letters"
    if statistics.workers_replaced:
        note += f", {statistics.workers_replaced} workers replaced"
    return note
