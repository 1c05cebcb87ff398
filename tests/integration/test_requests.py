"""Real jobs are asked for something while they run: by Python, by the command line, and while nobody runs them.

And one that does something by itself.
"""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import dataflow as df
from runners.core.ground.key_codec import KeyCodec
from runners.errors import RequestError
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.postgres import PostgresStore
from runners.streaming import StreamingRunner
from runners.streaming.job_thread import StreamingJob
from tests.gated_sources import Gate
from tests.integration.test_signals import dataflow
from tests.streaming_jobs import direct, open_work, read_on, rows_of, two_branches
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

EVENTS, MANY_EVENTS = 20_000, 400_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty thousand events of fifty users over some hours, in order of time."""
    path = tmp_path_factory.mktemp("events") / "events.csv"
    lines = [f"user{number % 50},{1e9 + number},{number % 7}" for number in range(EVENTS)]
    path.write_text("\n".join(["user,time,value", *lines]))
    return path


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """What is read behind it comes to no end before it is opened."""
    return Gate(path=tmp_path / "gate")


def start(
    build: Callable[[df.Pipeline], object],
    dsn: str,
    master: str,
    gate: Gate,
    *,
    balance: bool = False,
) -> StreamingJob:
    runner = StreamingRunner(
        job="job", store=dsn, master=master, balance=balance, gather=False, show_progress=False
    )
    pipeline = df.Pipeline(gate.gated(runner))
    build(pipeline)
    job = pipeline.run()
    assert isinstance(job, StreamingJob)
    return job


def ask_until_done(ask: Callable[[], str]) -> str:
    """What is being split cannot move yet: that is reported, and passes."""
    answers: list[str] = []

    def is_done() -> bool:
        try:
            answers.append(ask())
        except RequestError as error:
            if not any(each in str(error) for each in ("split or merged", "being moved")):
                raise
        return bool(answers)

    until(is_done)
    return answers[0]


@pytest.mark.nightly
def test_ranges_are_split_moved_and_merged_while_the_job_runs(
    store_dsn: str, spark_master: str, events: Path, gate: Gate
) -> None:
    """By Python and by the command line; the rows are those of a run in memory, and nothing is left open."""
    build = two_branches(events)
    job = start(build, store_dsn, spark_master, gate)
    try:
        read_on(job, 2_000)
        polled = [each for each in job.ranges() if each["record_us"] is not None]
        assert polled
        assert all(each["polled_us"] >= each["record_us"] for each in polled)
        assert all(each["first_hash"] is None for each in polled)
        assert job.split("sum[0]", 1 << 60) == "sum[0] is split, the new one is sum[4]"
        assert ask_until_done(lambda: job.move("sum[4]", 0)) == "sum[4] is in slot 0"
        assert ask_until_done(lambda: job.move("group[1]", 0)) == "group[1] is in slot 0"
        owners = {each["range"]: each["worker"] for each in job.ranges()}
        assert owners["sum[4]"].startswith("slot 0")
        assert owners["sum[0]"].startswith("slot 1")
        assert "has the keys of sum[4]" in ask_until_done(lambda: job.merge("sum[0]", "sum[4]"))
        refused = dataflow(store_dsn, "merge", "job", "sum[1]", "sum[3]", "--wait")
        assert (refused.returncode, "no neighbours" in refused.stderr) == (2, True), refused
        divided = dataflow(store_dsn, "split", "job", "group[0]", "--wait")
        assert (divided.returncode, divided.stderr) == (0, "")
        assert "the new one is group[4]" in divided.stdout
        listed = dataflow(store_dsn, "ranges", "job").stdout
        assert re.search(r"^group\[4\] +0x\w+ +0x\w+ +slot 0", listed, re.MULTILINE), listed
        gate.open()
        job.wait_until_finish()
    finally:
        job.cancel()
    expected = direct(build)

    for table in ("totals", "visits"):
        assert rows_of(expected, table) == rows_of(job, table)
    assert job.late_records() == []
    assert {"cells": 0, "timers": 0, "checkpoints": 0} == open_work(store_dsn)
    with pytest.raises(RequestError, match="finished"):
        job.move("sum[0]", 1)


def test_a_job_is_cancelled_and_then_drained(
    store_dsn: str, spark_master: str, events: Path, gate: Gate
) -> None:
    """Cancelled by the command line it can go on; drained while nobody runs it, it ends when somebody does."""
    build = two_branches(events)
    job = start(build, store_dsn, spark_master, gate)
    read_on(job, 1_000)
    cancelled = dataflow(store_dsn, "cancel", "job", "--wait")
    assert (cancelled.returncode, cancelled.stderr) == (0, "")
    assert job.wait_until_finish() is df.PipelineState.CANCELLED
    assert re.search(
        r"^job +streaming +unfinished", dataflow(store_dsn, "jobs").stdout, re.MULTILINE
    )

    assert dataflow(store_dsn, "drain", "job").stdout == "request 2 of job job: drain\n"
    drained = start(build, store_dsn, spark_master, gate)
    assert drained.wait_until_finish() is df.PipelineState.DRAINED

    assert re.search(r"^job +streaming +drained", dataflow(store_dsn, "jobs").stdout, re.MULTILINE)
    assert {"cells": 0, "timers": 0, "checkpoints": 0} == open_work(store_dsn)
    with closing(PostgresStore(store_dsn)) as store:
        answers = [each.answer for each in store.read_requests("job", 0)]
    assert [each and each.is_done for each in answers] == [True, True]
    totals = {(str(row["user"]), row["start"]): row["total"] for row in job.read_table("totals")}
    whole = {
        (str(row["user"]), row["start"]): row["total"] for row in direct(build).read_table("totals")
    }
    assert 0 < len(totals) < len(whole)
    # Of the windows that were read whole, the totals are whole.
    last = max(start for _, start in totals)
    assert {each: total for each, total in totals.items() if each[1] < last} == {
        each: total for each, total in whole.items() if each[1] < last
    }


@pytest.mark.nightly
def test_a_job_that_balances_itself_has_the_same_rows(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """All the work is with one worker at first; some of it goes to the other while the job runs."""
    second = even_ranges(4)[1]
    keys = [each for each in range(2_000) if KeyCodec("sum").encode(each).hash in second]
    path = tmp_path / "records.csv"
    lines = [f"{keys[number % len(keys)]},{1e9 + number}" for number in range(MANY_EVENTS)]
    path.write_text("\n".join(["key,time", *lines]))

    def build(p: df.Pipeline) -> None:
        (
            p
            | "read" >> df.ReadFromCsv(path, event_time=lambda row: float(row["time"]))
            | df.Map(lambda row: (int(row["key"]), 1))
            | df.WindowInto(df.FixedWindows(600))
            | "sum" >> df.CombinePerKey(sum)
            | df.Map(lambda pair: {"key": pair[0], "records": pair[1]})
            | df.WriteToPostgres("counts", columns={"key": int, "records": int})
        )

    def workers(job: df.PipelineResult) -> dict[str, str]:
        assert isinstance(job, StreamingJob)
        return {each["range"]: (each["worker"] or "")[:6] for each in job.ranges()}

    # There is much to do for as long as it takes: what is balanced is some thousand records a second.
    gate = Gate(path=tmp_path / "gate", records=MANY_EVENTS // 4 * 3, records_per_second=3_000)
    job = start(build, store_dsn, spark_master, gate, balance=True)
    try:
        read_on(job, 1_000)
        busy = [each for each in workers(job) if each.startswith("read") or each == "sum[1]"]
        assert [workers(job)[each] for each in busy] == ["slot 0", "slot 0"]
        until(lambda: {"slot 0", "slot 1"} == {workers(job)[each] for each in busy})
        gate.open()
        job.wait_until_finish()
    finally:
        job.cancel()

    assert rows_of(direct(build), "counts") == rows_of(job, "counts")
    assert {"cells": 0, "timers": 0, "checkpoints": 0} == open_work(store_dsn)
