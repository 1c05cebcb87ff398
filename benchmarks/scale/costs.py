"""What the steps of a job that counts visits cost, measured with one worker in this process and its Postgres.

Each run does the same with steps of another size and another number of key ranges, so that it has other numbers of
commits and of productions; the costs of one of each are those that explain the runs best.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import numpy as np

import dataflow as df
from benchmarks import stream_costs
from benchmarks.commit_writer import Writer
from benchmarks.peers.ours_latency import COLUMNS, TABLE, CountVisits
from benchmarks.peers.ours_load import visitors
from benchmarks.processes import server_cpu_s
from benchmarks.stores import database, server_of
from runners.core.stages.plan import plan
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.master import Master
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.wire.zmq_transport import JobKeys, ZmqTransport
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.worker import Worker, WorkerSpec
from runners.system_clock import SystemClock
from runners.testing.local_network import LocalNetwork
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import US_PER_SECOND

RECORDS, KEYS = 40_000, 5_000
#: Records in a step, and key ranges.
_RUNS = ((20, 2), (200, 2), (200, 32), (5_000, 2), (5_000, 128))
_COMMITS, _MESSAGES, _LOOKS = 500, 5_000, 2_000
#: Of a production of a few records.
_MESSAGE = bytes(300)


@attrs.frozen(kw_only=True)
class Costs:
    """Costs in microseconds of a processor, except those that are waiting time only.

    Attributes:
        read_us: of a worker, for each record: to read it and send it on.
        count_us: for each record that arrives: to process it, and to emit a row.
        step_us: for each commit, whatever is in it.
        production_us: for each production, half with its sender and half with its receiver.
        message_us: for each message to another process, half with either.
        idle_us: for a look around that finds nothing.
        commit_us, row_us, stored_us: of Postgres, for each commit, row, and production.
        flush_us: waiting for the disk, and for the way there and back.
        hop_us: waiting for a message.
        driver_us: for each round of the driver, instead of the time that its code takes here; None: that time.
    """

    read_us: float = 10.0
    count_us: float = 40.0
    step_us: float = 330.0
    production_us: float = 60.0
    message_us: float = 30.0
    idle_us: float = 60.0
    commit_us: float = 400.0
    row_us: float = 5.0
    stored_us: float = 25.0
    flush_us: float = 500.0
    hop_us: float = 200.0
    driver_us: float | None = None


def measured(dsn: str) -> Costs:
    """Measure the costs of this machine; the server, in which databases are made, is on it and otherwise idle."""
    runs, read_s = [], []
    for step, ranges in _RUNS:
        with database(dsn) as fresh, _timed_reads() as spent_s:
            costs = stream_costs.run(fresh, _visits(step), records=step, ranges=ranges)
            runs.append(costs)
            read_s.append(sum(spent_s))
    counts = np.array([[RECORDS, each.commits, each.productions] for each in runs], dtype=float)
    record_us, step_us, production_us = explained(counts, [each.worker_s for each in runs])
    row_us, commit_us, stored_us = explained(counts, [each.postgres_s for each in runs])
    # Of large steps, where a record costs most of it.
    read_share = min(0.9, read_s[-2] / runs[-2].worker_s)
    return Costs(
        read_us=record_us * read_share,
        count_us=record_us * (1 - read_share),
        step_us=step_us,
        production_us=production_us,
        message_us=message_us(),
        idle_us=idle_us(),
        commit_us=commit_us,
        row_us=row_us,
        stored_us=stored_us,
        flush_us=flush_us(dsn),
    )


def flush_us(dsn: str) -> float:
    """The elapsed time of a commit without its processor time."""
    with database(dsn) as fresh, closing(PostgresStore(fresh)) as store:
        writer = Writer(store)
        server = server_of(fresh)
        began_s, busy_s = time.perf_counter(), time.process_time() + server_cpu_s(server)
        for _ in range(_COMMITS):
            writer.small()
        took_s = time.perf_counter() - began_s
        busy_s = time.process_time() + server_cpu_s(server) - busy_s
    return max(0.0, took_s - busy_s) / _COMMITS * US_PER_SECOND


def message_us() -> float:
    """The cost of a message for both ends of the real transport together, with encryption."""
    keys = JobKeys.generate()
    with closing(ZmqTransport(keys)) as sender, closing(ZmqTransport(keys)) as receiver:
        started_s = time.process_time()
        for _ in range(_MESSAGES):
            # One after the other, as single records cause them; many at once cost less.
            sender.send(receiver.address, _MESSAGE)
            while not receiver.receive(1_000):
                pass
        return (time.process_time() - started_s) / _MESSAGES * US_PER_SECOND


def idle_us() -> float:
    """The cost of a worker's step that finds nothing to do."""
    pipeline = df.Pipeline()
    source = ScriptedSource([Batch([], [])] * (2 * _LOOKS))
    pipeline | "read" >> df.Read(source) | "count" >> df.ParDo(CountVisits())
    execution, store, clock = plan(pipeline.graph()), MemoryStore(), SystemClock()
    network = LocalNetwork()
    spec = job_spec("idle", "streaming", execution, splits_desired=1, ranges_per_grouping=2)
    master = Master(store.open_job(spec), execution, 1, network.endpoint("master"), clock)
    worker_spec = WorkerSpec(job="idle", slot=0, worker="w", master="master")
    worker = Worker(worker_spec, execution, store, network.endpoint("w"), clock)
    worker.start()
    while not master.statistics().workers_ready:
        master.step()
        worker.step()
    started_s = time.process_time()
    for _ in range(_LOOKS):
        worker.step()
    return (time.process_time() - started_s) / _LOOKS * US_PER_SECOND


def _visits(step: int) -> df.Pipeline:
    whose = visitors(RECORDS, KEYS)
    batches = [
        Batch(
            [(key, first) for key in whose[first : first + step]],
            [0] * len(whose[first : first + step]),
        )
        for first in range(0, RECORDS, step)
    ]
    pipeline = df.Pipeline()
    (
        pipeline
        | "read" >> df.Read(ScriptedSource(batches))
        | "count" >> df.ParDo(CountVisits())
        | df.WriteToPostgres(TABLE, columns=COLUMNS)
    )
    return pipeline


def explained(
    counts: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", took_s: Sequence[float]
) -> list[float]:
    """Microseconds of one of each, none below nothing, so that no run is far off as a part of itself."""
    took_us = np.array(took_s) * US_PER_SECOND
    relative = counts / took_us[:, None]
    used = list(range(counts.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(relative[:, used], np.ones(len(took_us)), rcond=None)
        if min(found) >= 0:
            costs = dict(zip(used, map(float, found), strict=True))
            return [costs.get(each, 0.0) for each in range(counts.shape[1])]
        used.pop(int(np.argmin(found)))


@contextmanager
def _timed_reads() -> Iterator[list[float]]:
    """Processor seconds of each read of a source, until what it sends is ready."""
    spent_s: list[float] = []
    read = SourceComputation.read

    def timed(*arguments: Any, **named: Any) -> Any:
        started_s = time.process_time()
        try:
            return read(*arguments, **named)
        finally:
            spent_s.append(time.process_time() - started_s)

    with patch.object(SourceComputation, "read", timed):
        yield spent_s
