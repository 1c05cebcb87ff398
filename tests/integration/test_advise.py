"""Advice for a real stream with a hot range, followed by its commands: then the busiest worker has less to do."""

import shlex
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

import dataflow as df
from benchmarks.peers.ours_load import RateSource
from dataflow.errors import DataflowError
from runners.cli.advise import advice_of
from runners.cli.command_line import main
from runners.core.ground.key_codec import KeyCodec
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.store.port import Store
from runners.observability.advice.advise import AdviceKind, JobAdvice
from runners.registry import open_store
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

JOB, WORKERS, RANGES, PER_SECOND, PAIRS = "hot", 2, 4, 800, 8
#: All of the first range of the grouping.
KEYS = tuple(
    key for key in range(4_000) if KeyCodec("sum").encode(key).hash < KEY_SPACE_END // RANGES
)


def pairs(element: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Some keys for each record, so that the split of the source is not what has most to do."""
    _, created_us = element
    for number in range(PAIRS):
        yield KEYS[(created_us // 1_000 * PAIRS + number) % len(KEYS)], 1


def build(p: df.Pipeline) -> None:
    source = RateSource(
        start_us=time.time_ns() // 1_000,
        per_second=PER_SECOND,
        records=PER_SECOND * 3_600,
        distinct=100_000,
    )
    (
        p
        | "read" >> df.Read(source)
        | "pairs" >> df.FlatMap(pairs)
        | "seconds" >> df.WindowInto(df.FixedWindows(1))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
        | "rows" >> df.WriteToPostgres("rows", columns={"key": int, "sum": int}, fresh_within="1h")
    )


def of_ranges(found: JobAdvice) -> list[str]:
    """The commands that spread the load."""
    kinds = (AdviceKind.SPLIT, AdviceKind.MOVE)
    return [each.command for each in found.steps if each.kind in kinds and each.command]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_hot_range_of_a_real_job(
    store_dsn: str,
    spark_master: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATAFLOW_STORE", store_dsn)
    runner = StreamingRunner(
        job=JOB,
        store=store_dsn,
        master=spark_master,
        workers=WORKERS,
        gather=False,
        show_progress=False,
    )
    p = df.Pipeline(runner)
    build(p)
    job = p.run()
    assert isinstance(job, StreamingJob)
    seen: list[JobAdvice] = []

    def looked(store: Store) -> JobAdvice | None:
        """What is advised; None: the last document is too old, or nothing can be said while ranges move."""
        try:
            found = advice_of(store, JOB)
        except DataflowError:
            return None
        seen.append(found)
        is_known = sum(found.loads) > PER_SECOND * PAIRS / 2
        return found if is_known and (of_ranges(found) or found.reason or found.steps) else None

    def has_advice(store: Store) -> bool:
        found = looked(store)
        return found is not None and bool(of_ranges(found))

    def is_spread(store: Store) -> bool:
        """Follow what is advised, until nothing is that would spread the load."""
        found = looked(store)
        if found is None or (found.reason is not None and "spread" not in found.reason):
            return False
        commands = of_ranges(found)
        if commands:
            assert main(shlex.split(commands[0])[1:]) in (0, 2), (
                "it is refused while ranges are on their way"
            )
        return not commands

    try:
        with closing(open_store(store_dsn)) as store:
            until(lambda: has_advice(store), lambda: str(seen[-1:]))
            first = seen[-1]
            assert main(["advise", JOB]) == 0
            assert "records/s of the workers" in capsys.readouterr().out
            until(lambda: is_spread(store), lambda: str(seen[-3:]))
            last = seen[-1]
            assert main(["check", JOB]) == 0
            assert "fresh: 'rows' of job hot is" in capsys.readouterr().out
    finally:
        job.cancel()
    assert max(last.loads) / sum(last.loads) < 0.85 * max(first.loads) / sum(first.loads), (
        first,
        last,
    )
