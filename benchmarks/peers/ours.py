"""This project: the cases in batch on `BatchRunner`, S1 on `StreamingRunner`, the latency of both modes, and the lag.

Two Spark cores and the Postgres that the command started; exactly once and strong productions, unless a variant
switches them off.
"""

from collections.abc import Callable, Mapping

import dataflow as df
from benchmarks.cases import THROUGHPUT
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.nexmark import NexmarkCase
from benchmarks.peers import ours_lag, ours_latency, ours_nexmark, ours_nexmark_latency
from benchmarks.peers.ours_export import export
from benchmarks.peers.ours_pipelines import TABLE, build
from benchmarks.peers.ours_session import MASTER, prepare_store, warm_context
from benchmarks.task import Task
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner

#: Puts the pipeline of a case together.
Build = Callable[[df.Pipeline, Task], None]


def throughput(task: Task, build: Build, selected: Mapping[str, str]) -> None:
    """B1 to B5, S1, Nexmark; ``selected``: what some columns of the answer are in SQL, if not columns of the table."""
    prepare_store(task.store)
    runner = (StreamingRunner if task.case == "S1" else BatchRunner)(
        job="benchmark", store=task.store, master=MASTER, show_progress=False
    )
    with task.measured():
        pipeline = df.Pipeline(runner)
        build(pipeline, task)
        pipeline.run().wait_until_finish()
    case = THROUGHPUT[task.case]
    if isinstance(case, NexmarkCase) and case.is_in_folders:
        return
    columns = ", ".join(selected.get(name, name) for name in case.columns)
    export(task, f"SELECT {columns} FROM {TABLE}")


def run(task: Task, build: Build, selected: Mapping[str, str]) -> None:
    """Run a task; arguments as for `throughput`."""
    warm_context()
    if task.case == "S2":
        ours_latency.run(task)
    elif task.case == "LAG":
        ours_lag.run(task)
    elif task.case in NEXMARK_LATENCY:
        ours_nexmark_latency.run(task)
    else:
        throughput(task, build, selected)


def main() -> None:
    """Run the task of the command line."""
    task = Task.from_command_line()
    if task.case in NEXMARK:
        run(task, ours_nexmark.build, ours_nexmark.selected(task.case))
    else:
        run(task, build, {})


if __name__ == "__main__":
    main()
