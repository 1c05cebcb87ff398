"""A day that is there already when the job starts: every pane with its timing, as a stream and in batch."""

import dataflow as df
from benchmarks.peers.ours_export import export
from benchmarks.peers.ours_pipelines import CountAndSum, event_time, window_row
from benchmarks.peers.ours_session import MASTER, warm_context
from benchmarks.task import Task
from benchmarks.workloads import WATERMARK_BOUND_S
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner

TABLE = "panes"
JOB = "backlog"
#: A variant of the task; without it it is a stream.
BATCH = "batch"
WINDOW_MS = 600_000
#: Records that would be late are emitted in late panes, and not dropped.
_LATENESS_S = 3_600
COLUMNS = {"user_id": int, "start_ms": int, "count": int, "sum": int, "timing": str, "index": int}


def pane_row(
    total: tuple[int, tuple[int, int]],
    window: df.Window = df.DoFn.WindowParam,
    pane: df.PaneInfo = df.DoFn.PaneParam,
) -> dict[str, int | str]:
    """The result that a window has emitted, and when."""
    return {**window_row(total, window), "timing": pane.timing.value, "index": pane.index}


def build(p: df.Pipeline, folder: str) -> None:
    """Count and sum by user and ten minutes; a pane again for each record that is late."""
    (
        p
        | "read"
        >> df.ReadFromJsonLines(
            f"{folder}/*.jsonl", event_time=event_time, max_disorder=WATERMARK_BOUND_S
        )
        | "pair" >> df.Map(lambda event: (event["user_id"], event["value"]))
        | "window"
        >> df.WindowInto(
            df.FixedWindows(WINDOW_MS / 1_000),
            trigger=df.AfterWatermark(late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=_LATENESS_S,
        )
        | "sum" >> df.CombinePerKey(CountAndSum())
        | "row" >> df.Map(pane_row)
        | df.WriteToPostgres(TABLE, columns=COLUMNS)
    )


def run(task: Task) -> None:
    """Run the pipeline to its end, and leave a line for each pane."""
    warm_context()
    runner = BatchRunner if task.variant == BATCH else StreamingRunner
    pipeline = df.Pipeline(runner(job=JOB, store=task.store, master=MASTER, show_progress=False))
    build(pipeline, task.two)
    with task.measured():
        result = pipeline.run()
        result.wait_until_finish()
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    export(task, f"SELECT {columns} FROM {TABLE}")
    task.report(**task.reported(), dropped=sum(result.late_counts().values()))


if __name__ == "__main__":
    run(Task.from_command_line())
