"""Helpers of the scale benchmarks: a job's runner, the number of its key ranges, and the owners of these."""

import re
from collections.abc import Mapping
from contextlib import closing

import dataflow as df
from benchmarks.peers.ours_session import CORES
from benchmarks.task import Task
from runners.core.stages.plan import plan
from runners.millwheel.control.asking import ranges_of
from runners.millwheel.control.job import job_spec
from runners.millwheel.store.port import Store
from runners.registry import open_store
from runners.streaming import StreamingRunner

#: Instead of a number of bytes: all state stays in memory.
ALL_IN_MEMORY = -1


def runner(job: str, task: Task) -> StreamingRunner:
    """Exactly once and strong productions; workers are threads of Spark's, more than cores if need be.

    All of them have ranges, whatever there is to do: how many there are is what is measured.
    """
    return StreamingRunner(
        job=job,
        store=task.store,
        workers=task.workers,
        gather=False,
        state_cache_bytes=None if task.cache_bytes == ALL_IN_MEMORY else task.cache_bytes,
        master=f"local[{max(CORES, task.workers)},4]",
        show_progress=False,
    )


def with_ranges(job: str, task: Task, pipeline: df.Pipeline) -> None:
    """Create the job with the key ranges of the task; a runner then finds the job, and keeps these ranges.

    A runner would make two for each worker.
    """
    spec = job_spec(
        job,
        "streaming",
        plan(pipeline.graph()),
        splits_desired=1,
        ranges_per_grouping=task.ranges,
    )
    with closing(open_store(task.store)) as store:
        store.open_job(spec)


def owners(store: Store, job: str) -> Mapping[str, int]:
    """The process that owns each range, or owned it last; ranges without an owner so far are left out."""
    row = store.read_job(job)
    return {
        each["range"]: int(found[1])
        for each in (ranges_of(row) if row else ())
        if (found := re.search(r"process (\d+)", each["worker"] or ""))
    }
