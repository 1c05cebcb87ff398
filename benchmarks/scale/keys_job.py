"""State far larger than memory: buffers of many keys behind a small cache, and how much a worker and the store keep."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Event, Thread
from typing import Any, Self

import psutil
import psycopg

import dataflow as df
from benchmarks.scale.jobs import owners, runner, with_ranges
from benchmarks.scale.load import Rounds
from benchmarks.task import Task
from runners.registry import open_store
from runners.streaming.job_thread import StreamingJob

JOB = "keys"
TABLE = "sizes"
#: Every key is visited so often: the first visit makes its state, the next one has to find it.
ROUNDS = 2
#: The default trigger fires then too; but its windows are buffered in the journal until they do, and have no cells.
IN_CELLS = df.WindowInto(
    df.GlobalWindows(),
    trigger=df.AfterWatermark(),
    accumulation_mode=df.AccumulationMode.DISCARDING,
)
_LOOK_INTERVAL_S = 0.25
#: Of everything that the job keeps: state, journal, productions; not of the rows that are its answer.
_STORE_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'dataflow'::regnamespace AND relkind = 'r'
"""
_ANSWER = f"""
SELECT count(*), count(DISTINCT key), min(count), max(count), min(bytes), max(bytes) FROM {TABLE}
"""


class Watch:
    """Looks at a job from a thread of its own while it is entered; keeps the most of what it has seen.

    ``progress``: how many records had been read, by the clock of the machine.
    """

    def __init__(self, job: StreamingJob, dsn: str) -> None:
        self._job, self._dsn = job, dsn
        self.progress: list[tuple[float, int]] = []
        self.worker_bytes = self.cache_bytes = self.store_bytes = 0
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def reached_s(self, records: int) -> float:
        """When so many had been read."""
        return next(at_s for at_s, read in self.progress if read >= records)

    def _run(self) -> None:
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self._dsn)))
            connection = stack.enter_context(psycopg.connect(self._dsn, autocommit=True))
            is_last = False
            while not is_last:
                # Once more at the end, when all has been read.
                is_last = self._over.wait(_LOOK_INTERVAL_S)
                statistics = self._job.statistics()
                if statistics is not None:
                    self.progress.append((time.time(), statistics.records_read))
                    self._note("cache_bytes", statistics.cell_cache.bytes_buffered)
                for pid in set(owners(store, JOB).values()):
                    self._note("worker_bytes", _rss_bytes(pid))
                found = connection.execute(_STORE_BYTES).fetchone()
                self._note("store_bytes", found[0] if found else 0)

    def _note(self, name: str, value: int) -> None:
        vars(self)[name] = max(vars(self)[name], value)


def _rss_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def size_row(pair: tuple[int, Sequence[str]]) -> Mapping[str, int]:
    """How many values a key has, and how long they are together."""
    return {"key": pair[0], "count": len(pair[1]), "bytes": sum(map(len, pair[1]))}


def run(task: Task) -> None:
    """Run the pipeline to its end, and report what it took and what it emitted."""
    source = Rounds(keys=task.keys, rounds=ROUNDS, value_bytes=task.value_bytes, parts=task.workers)
    pipeline = df.Pipeline(runner(JOB, task))
    (
        pipeline
        | "read" >> df.Read(source)
        | "in cells" >> IN_CELLS
        | "buffer" >> df.GroupByKey()
        | "size" >> df.Map(size_row)
        | df.WriteToPostgres(TABLE, columns={"key": int, "count": int, "bytes": int})
    )
    with_ranges(JOB, task, pipeline)
    job = pipeline.run()
    assert isinstance(job, StreamingJob)
    with Watch(job, task.store) as watch:
        job.wait_until_finish()
        ended_s = time.time()
    task.report(**figures(job, watch, task.keys, ended_s), answer=answer(task.store))


def figures(job: StreamingJob, watch: Watch, keys: int, ended_s: float) -> dict[str, Any]:
    """What it took."""
    statistics = job.statistics()
    assert statistics is not None
    began_s, first_s, read_s = map(watch.reached_s, (1, keys, ROUNDS * keys))
    return {
        "first_s": first_s - began_s,
        "again_s": read_s - first_s,
        "end_s": max(0.0, ended_s - read_s),
        "worker_bytes": watch.worker_bytes,
        "cache_bytes": watch.cache_bytes,
        "store_bytes": watch.store_bytes,
        "replaced": statistics.workers_replaced,
        "misses": statistics.cell_cache.misses,
        "loads": statistics.cell_cache.loads,
        "evictions": statistics.cell_cache.evictions,
    }


def answer(dsn: str) -> Sequence[int]:
    """Rows, different keys, and the least and the most of counts and of bytes."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(_ANSWER).fetchone()
    assert found is not None
    return list(found)


if __name__ == "__main__":
    run(Task.from_command_line())
