"""Jobs of the streaming runner, for tests: run one, and what the direct runner makes of the same pipeline."""

import random
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs

import dataflow as df
from runners.direct import DirectRunner
from runners.registry import open_store
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from tests.gated_sources import Gate
from tests.waiting import until

SUMS = {"user": str, "start": datetime, "total": int}
VISITS = {"user": str, "start": datetime, "end": datetime, "values": str}


@attrs.frozen
class Streaming:
    """Runs pipelines as the job "job" on this test's database."""

    store: str
    master: str

    def start(
        self, build: Callable[[df.Pipeline], object], gate: Gate | None = None, **options: Any
    ) -> df.PipelineResult:
        options = {"job": "job", "show_progress": False, **options}
        runner = StreamingRunner(store=self.store, master=self.master, **options)
        pipeline = df.Pipeline(runner if gate is None else gate.gated(runner))
        build(pipeline)
        return pipeline.run()

    def run(self, build: Callable[[df.Pipeline], object], **options: Any) -> df.PipelineResult:
        result = self.start(build, **options)
        result.wait_until_finish()
        return result


def write_events(path: Path) -> Path:
    """Twenty thousand events of fifty users over some hours, up to five minutes out of order."""
    chance = random.Random(7)
    lines = [
        f"user{chance.randrange(50)},{1e9 + number - chance.randrange(300)},{chance.randrange(9)}"
        for number in range(20_000)
    ]
    path.write_text("\n".join(["user,time,value", *lines]))
    return path


def total_row(pair: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    return {"user": pair[0], "start": window.start, "total": pair[1]}


def visit_row(pair: tuple[str, Any], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
    user, values = pair
    return {
        "user": user, "start": window.start, "end": window.end, "values": str(sorted(values))
    }  # fmt: skip


def two_branches(path: Path, trigger: df.Trigger | None = None) -> Callable[[df.Pipeline], None]:
    """Sums per ten minutes that accumulate, and sessions that retract, from one parse."""

    def build(p: df.Pipeline) -> None:
        rows = p | "read" >> df.ReadFromCsv(
            path, event_time=lambda row: float(row["time"]), max_disorder=60
        )
        pairs = rows | "pair" >> df.Map(lambda row: (row["user"], int(row["value"])))
        lateness = timedelta(hours=1)
        (
            pairs
            | df.WindowInto(
                df.FixedWindows(600),
                trigger=trigger,
                accumulation_mode=df.AccumulationMode.ACCUMULATING,
                allowed_lateness=lateness,
            )
            | "sum" >> df.CombinePerKey(sum)
            | "total" >> df.Map(total_row)
            | df.WriteToPostgres("totals", columns=SUMS, key=["user", "start"])
        )
        (
            pairs
            | df.WindowInto(
                df.Sessions(120),
                trigger=trigger,
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
                allowed_lateness=lateness,
            )
            | "group" >> df.GroupByKey()
            | "visit" >> df.Map(visit_row)
            | df.WriteToPostgres("visits", columns=VISITS, key=["user", "start", "end"])
        )

    return build


def rows_of(result: df.PipelineResult, table: str) -> list[str]:
    return sorted(str(row) for row in result.read_table(table))


def direct(build: Callable[[df.Pipeline], object]) -> df.PipelineResult:
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline)
    return pipeline.run()


def read_on(job: StreamingJob, records: int) -> None:
    """Wait until a running job has read so much; what workers that are gone have read counts as well."""

    def has_read() -> bool:
        counts = job.statistics()
        return counts is not None and counts.records_read >= records

    until(has_read)


def open_work(dsn: str) -> dict[str, int]:
    with closing(open_store(dsn)) as store:
        counts = store.statistics("job")
    return {kind: counts[kind] for kind in ("cells", "timers", "checkpoints")}
