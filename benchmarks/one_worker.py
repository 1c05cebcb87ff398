"""A stream with one worker in this thread, to its end: the processor time of the worker, and of Postgres."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import attrs

import dataflow as df
from benchmarks.processes import server_cpu_s
from benchmarks.stores import server_of
from runners.core.ground.lineage import Lineage
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.store.port import Store
from runners.millwheel.worker.tracing import SpanMaker
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.system_clock import SystemClock
from runners.testing.local_network import LocalNetwork

_JOB = "benchmark"


@attrs.frozen(kw_only=True)
class ProcessorTime:
    """Processor seconds of one run, of the worker with its master and of the server."""

    worker_s: float
    postgres_s: float


def run_to_end(
    store: Store,
    dsn: str | None,
    pipeline: df.Pipeline,
    options: WorkerOptions,
    *,
    ranges: int = 2,
    watched: Callable[[Master], None] = lambda _: None,
    profile: AbstractContextManager[object] | None = None,
    lineage: Lineage | None = None,
    spans: SpanMaker | None = None,
) -> ProcessorTime:
    """Run a pipeline to its end.

    Args:
        store: for a new job; a result table belongs to one job, so each run needs a database of its own.
        dsn: of the Postgres whose processor time counts; None: none does.
        pipeline: what is computed.
        options: of the worker.
        ranges: key ranges of each grouping.
        watched: is called with the master after each round.
        profile: is entered for the run.
        lineage: how much is recorded of where rows come from; None: nothing.
        spans: makes spans of what the worker does; None: nothing is traced.
    """
    execution = plan(pipeline.graph(), lineage=lineage)
    clock, network = SystemClock(), LocalNetwork()
    spec = job_spec(_JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=ranges)
    master = Master(store.open_job(spec), execution, 1, network.endpoint("master"), clock)
    worker_spec = WorkerSpec(job=_JOB, slot=0, worker="w", master="master", options=options)
    worker = Worker(worker_spec, execution, store, network.endpoint("w"), clock, spans=spans)
    postgres = None if dsn is None else server_of(dsn)
    with profile or nullcontext():
        started_s, postgres_s = time.process_time(), _cpu_s(postgres)
        worker.start()
        while not master.is_done:
            master.step()
            worker.step()
            watched(master)
        took = ProcessorTime(
            worker_s=time.process_time() - started_s, postgres_s=_cpu_s(postgres) - postgres_s
        )
    worker.close()
    return took


def _cpu_s(server: int | None) -> float:
    return 0.0 if server is None else server_cpu_s(server)
