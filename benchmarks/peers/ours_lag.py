"""How far the watermark of each stage of a chain is behind the clock (MillWheel, figure 15).

Every stage counts by another key and passes the record on, so each has a shuffle, state and a commit of its own.  A
stage's watermark is the least of its ranges as they are committed in the store, which is read ten times a second; so
between two commits the lag grows with the clock, and the measured lag includes that.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dataflow as df
from benchmarks.peers.ours_latency import LEAD_S
from benchmarks.peers.ours_load import Created, RateSource
from benchmarks.peers.ours_session import MASTER
from benchmarks.task import Task
from runners.millwheel.control.asking import ranges_of
from runners.millwheel.store.port import Store
from runners.registry import open_store
from runners.streaming import StreamingRunner

STAGES = 3
JOB = "lag"
_SAMPLE_INTERVAL_S = 0.1
#: Some users to a key of the next stage, so that records cross to other ranges.
_USERS_PER_KEY = 7

SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


class CountAndPass(df.DoFn):
    """A record for each record, under the key of the next stage."""

    #: The load ends, but stands for a stream that does not.
    requires_time_sorted_input = False

    def process(self, element: Created, seen: Any = df.DoFn.StateParam(SEEN)) -> Iterator[Created]:
        """Count and pass on."""
        key, created_us = element
        seen.add(1)
        yield key * _USERS_PER_KEY + 1, created_us


def run(task: Task) -> None:
    """Run the chain, and leave a line for each look and stage: name, and lag in microseconds."""
    start_us = time.time_ns() // 1_000 + LEAD_S * 1_000_000
    source = RateSource(start_us=start_us, per_second=task.rate, records=task.records)
    pipeline = df.Pipeline(
        StreamingRunner(job=JOB, store=task.store, master=MASTER, show_progress=False)
    )
    passed = pipeline | "read" >> df.Read(source)
    for number in range(1, STAGES + 1):
        passed = passed | f"stage {number}" >> df.ParDo(CountAndPass())
    counts = passed | "row" >> df.Map(lambda pair: {"user_id": pair[0], "created_us": pair[1]})
    counts | df.WriteToPostgres("passed", columns={"user_id": int, "created_us": int})
    job = pipeline.run()
    first_s = start_us / 1_000_000 + task.warm_up_s
    seen: list[tuple[str, int]] = []
    with closing(open_store(task.store)) as store:
        while time.time() < first_s + task.seconds:
            time.sleep(_SAMPLE_INTERVAL_S)
            if time.time() >= first_s:
                seen.extend(lags(store))
    job.wait_until_finish()
    task.rows.mkdir()
    with Path(task.rows, "lag.csv").open("w") as file:
        file.writelines(f"{name},{lag_us}\n" for name, lag_us in seen)
    task.report(samples=len(seen))


def lags(store: Store) -> Iterator[tuple[str, int]]:
    """Of each stage as it is now, in microseconds."""
    found = store.read_job(JOB)
    now_us = time.time_ns() // 1_000
    watermarks_us: dict[str, int] = {}
    for each in ranges_of(found) if found else ():
        if each["watermark_us"] is not None:
            name = each["range"].partition("[")[0]
            watermarks_us[name] = min(each["watermark_us"], watermarks_us.get(name, now_us))
    for name, watermark_us in watermarks_us.items():
        yield name, now_us - watermark_us
