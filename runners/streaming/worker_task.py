"""What runs inside a Spark task: one worker, until its job is over or its master is gone.

Spark gives placement, supervision and the retry of a dead task; it is trusted with nothing else (ADR 0008).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
from pyspark import TaskContext

from runners.core.ground.clock import Clock
from runners.core.stages.plan import ExecutionPlan
from runners.errors import StoreError, WorkerStoppedError
from runners.millwheel.model.events import Actor, EventKind, JobEvent
from runners.millwheel.store.port import Store
from runners.millwheel.wire.messages import Died, encode
from runners.millwheel.wire.zmq_transport import JobKeys, ZmqTransport, own_host, send_last
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.registry import open_store
from runners.spark.driver_log import LogTarget
from runners.spark.shipped_plan import ShippedPlan
from runners.streaming.heartbeats import Heart, Pulse, worker_name
from runners.streaming.supervised import PageWatch, WorkerEndedError, run_supervised
from runners.system_clock import SystemClock
from runners.worker_log import log_as

if TYPE_CHECKING:
    from runners.streaming.otel_spans import OtelSpans

#: Longest wait for a message when there is nothing to do: a message ends it, a new record or a rate limit does not.
IDLE_WAIT_MS = 5
#: The same of a worker that has just had something to do: records come closely one after the other, or not at all.
PAUSE_WAIT_MS = 1
#: The same of a worker without ranges: nothing comes but messages, and it only reports that it lives.
ABSENT_WAIT_MS = 50
#: Between two times that a worker reports the same reason for waiting.
WAIT_INTERVAL_MS = 1_000
#: Pauses after which a worker is idle.
PAUSES_MAX = 50


@attrs.frozen(kw_only=True)
class WorkerLaunch:
    """What every worker of a run is started with; pickled into the task."""

    job: str
    workers: int
    shipped: ShippedPlan
    dsn: str = attrs.field(repr=False)
    incarnation: str
    keys: JobKeys = attrs.field(repr=False)
    master: str
    version: int
    options: WorkerOptions
    log: LogTarget

    def __call__(self, slot: int, rows: Iterable[int]) -> Iterator[int]:
        """The function that Spark runs on a partition."""
        del rows
        self.run(slot)
        return iter(())

    def _open_store(self, waits: "StoreWaits") -> Store:
        # Bound to the incarnation that the run began with: the memory of workers and their master may not outlive it.
        return open_store(self.dsn, incarnation=self.incarnation, waits=waits.note)

    def run(self, slot: int) -> None:
        """Be the worker of a slot.  Raises where the task should be tried again."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        # Before there are two processes: both have it then, and what is missing is an error of the task.
        plan = self.shipped.load()
        labels = [node.label for node in plan.graph.transforms]
        heart = Heart(self.keys, self.master, slot, attempt, labels, SystemClock())

        def work(watch: PageWatch) -> None:
            with Pulse(watch.page, labels, SystemClock()) if reports else nullcontext():
                self._work(slot, attempt, plan, watch)

        reports = self.options.reports_on_itself
        try:
            run_supervised(work, self.options.step_timeout_ms, heart.beat if reports else None)
        except WorkerEndedError as ended:
            died = Died(
                slot=slot, at=tuple(ended.at), reason=ended.reason, is_silent=ended.is_silent
            )
            send_last(self.keys, self.master, encode(died))
            raise
        finally:
            heart.stop()

    def _work(self, slot: int, attempt: int, plan: ExecutionPlan, watch: PageWatch) -> None:
        clock = SystemClock()
        transport = ZmqTransport(self.keys, own_host(urlsplit(self.master).hostname or "127.0.0.1"))
        waits = StoreWaits(clock)
        with closing(transport), closing(self._open_store(waits)) as store:
            spec = WorkerSpec(
                job=self.job,
                slot=slot,
                workers=self.workers,
                worker=worker_name(slot, os.getpid(), attempt),
                master=self.master,
                version=self.version,
                options=self.options,
            )
            log_as(
                spec.worker, self.shipped.log_level, self.job, self.log.send,
                self.shipped.log_format,
            )  # fmt: skip
            spans = self._spans(spec.worker)
            worker = Worker(spec, plan, store, transport, clock, watch, spans)
            waits.report, watch.alive = worker.report_waiting, worker.report_alive
            worker.start()
            try:
                _work(worker, partial(self._note_news, store, spec.worker, spans))
            finally:
                worker.close()
                if spans is not None:
                    spans.close()

    def _spans(self, worker: str) -> "OtelSpans | None":
        if self.options.trace_to is None:
            return None
        from runners.streaming.otel_spans import OtelSpans  # noqa: PLC0415 - an extra

        named = {"dataflow.job": self.job, "service.instance.id": worker}
        return OtelSpans(self.options.trace_to, self.options.trace_ratio, named)

    def _note_news(self, store: Store, worker: str, spans: "OtelSpans | None") -> None:
        """Keep in the store that traces cannot be sent, or can again; what cannot be kept is in the log alone."""
        for news in () if spans is None else spans.take_news():
            event = JobEvent(kind=EventKind.TRACES, actor=Actor.WORKER, who=worker, reason=news)
            with suppress(StoreError):
                store.note_event(self.job, event)


class StoreWaits:
    """Reports why a worker waits for its store, while it does; not so often that it is a nuisance."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._reported_ms = clock, -WAIT_INTERVAL_MS
        self._last = ""
        self.report: Callable[[str], None] = lambda _: None

    def note(self, reason: str) -> None:
        """Note that the store did not do what it was asked, and is asked again."""
        now_ms = self._clock.monotonic_ms()
        if reason != self._last or now_ms - self._reported_ms >= WAIT_INTERVAL_MS:
            self._last, self._reported_ms = reason, now_ms
            self.report(reason)


def _work(worker: Worker, note_news: Callable[[], None]) -> None:
    parent, pauses = os.getppid(), 0
    while not worker.is_stopped:
        worked = worker.step(round_wait_ms(pauses, has_ranges=worker.has_ranges))
        pauses = 0 if worked else pauses + 1
        note_news()
        if os.getppid() != parent:
            raise WorkerStoppedError("the task of this worker is gone, so the worker stops")


def round_wait_ms(pauses: int, *, has_ranges: bool) -> int:
    """How long a round waits for messages, at most.

    Args:
        pauses: how many rounds in a row have had nothing to do.
        has_ranges: whether the worker owns any.
    """
    if not pauses:
        return 0
    if not has_ranges:
        return ABSENT_WAIT_MS
    return IDLE_WAIT_MS if pauses > PAUSES_MAX else PAUSE_WAIT_MS
