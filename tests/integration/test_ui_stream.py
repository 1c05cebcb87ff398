"""The page of a real stream, while it runs and when it has been stopped."""

import re

import pytest
from starlette.testclient import TestClient

import dataflow as df
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.streaming.job_thread import StreamingJob
from runners.system_clock import SystemClock
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.ui.app import make_app
from runners.ui.guard import Access
from tests.streaming_jobs import Streaming
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def sums(p: df.Pipeline) -> None:
    """Sums of windows of five seconds, of the distant past: never up to date."""
    script = [Batch([n], [n * 1_000_000], n * 1_000_000) for n in range(50_000)]
    (
        p
        | "read" >> df.Read(ScriptedSource(script))
        | "key" >> df.Map(lambda n: (n % 7, n))
        | "seconds" >> df.WindowInto(df.FixedWindows(5))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns={"key": int, "total": int})
    )


def test_a_stream_is_seen_to_catch_up_and_to_have_been_stopped(
    store_dsn: str, spark_master: str
) -> None:
    job = Streaming(store_dsn, spark_master).start(sums, records_per_second=200)
    assert isinstance(job, StreamingJob)
    app = make_app(ReadOnlyStore(store_dsn), SystemClock(), Access())
    with TestClient(app, base_url="http://localhost") as client:

        def states() -> dict[str, str]:
            answer = client.get("/jobs/job.json")
            stages = answer.json()["stages"] if answer.status_code == 200 else ()
            return {stage["name"]: stage["state"]["word"] for stage in stages}

        try:
            until(lambda: states().get("read") == "catching up", lambda: str(states()))
            until(
                lambda: {*states().values()} <= {"catching up", "up to date", "waits for its input"}
            )
            read = client.get("/jobs/job.json").json()
            assert [stage["name"] for stage in read["stages"]] == ["read", "sum"]
            assert read["stages"][1]["senders"] == ["read"]
            assert read["explanation"]["chain"]
            workers = client.get("/jobs/job/workers.json").json()["workers"]
            assert any(each["worker"] for each in workers)
            ranges = client.get("/jobs/job/ranges.json").json()
            assert {*ranges["evidence"]} == {
                f"{each['computation']}[{each['range_index']}]" for each in ranges["ranges"]
            }
        finally:
            job.cancel()
        until(lambda: {*states().values()} == {"not running"}, lambda: str(states()))
        event_us = client.get("/jobs/job.json").json()["head"]["watermark_us"]
        assert event_us >= read["head"]["watermark_us"]
        kinds = [
            each["kind"] for each in client.get("/jobs/job/events.json").json()["tables"]["events"]
        ]
        assert {"start", "cancel"} <= {*kinds}


def long_windows(p: df.Pipeline) -> None:
    """Sums of windows that do not end while the test looks, and wait for one of two conditions."""
    script = [Batch([n], [n * 1_000_000], n * 1_000_000) for n in range(50_000)]
    trigger = df.AfterAny(df.AfterWatermark(), df.AfterCount(40_000))
    (
        p
        | "read" >> df.Read(ScriptedSource(script))
        | "key" >> df.Map(lambda n: ("red", n))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(1_000_000),
            trigger=df.Repeatedly(trigger),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns={"key": str, "total": int})
    )


def test_the_trigger_of_an_open_window_is_drawn_as_a_tree(
    store_dsn: str, spark_master: str
) -> None:
    """Each of its conditions with what there is of it, as the job stands in the store."""
    job = Streaming(store_dsn, spark_master).start(long_windows, records_per_second=200)
    assert isinstance(job, StreamingJob)
    app = make_app(ReadOnlyStore(store_dsn), SystemClock(), Access(show_keys=True))
    with TestClient(app, base_url="http://localhost") as client:

        def trees() -> list[str]:
            answer = client.get("/jobs/job/windows", params={"key": "red"})
            return re.findall(r'<div class="tree">.*?</div>', answer.text, re.DOTALL)

        try:
            until(trees)
        finally:
            job.cancel()
        (tree,) = trees()
    assert "of 40,000 records" in tree or "of 40000 records" in tree, tree
    assert tree.count("<li") >= 3, tree
