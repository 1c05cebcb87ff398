"""Runners of one job: an option given once reaches all of them, what cannot be is refused before anything starts."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.runner import create_runner
from runners.backfill_then_live import BackfillThenLiveRunner
from runners.batch import BackfillRunner
from runners.streaming import StreamingRunner

ALL = pytest.mark.parametrize("runner", [BackfillRunner, StreamingRunner, BackfillThenLiveRunner])
BOTH_RUNNERS = pytest.mark.parametrize("runner", [BackfillRunner, BackfillThenLiveRunner])


def test_a_backfill_is_loaded_with_the_options_of_the_stream(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").touch()
    runner = BackfillThenLiveRunner(
        job="job",
        until=7,
        spill_bytes=5,
        fresh=True,
        store="postgresql://somewhere",
        workers=3,
        tries_per_record=4,
        master="local[3,4]",
        spark_settings={"spark.executor.memory": "1g"},
        code=[tmp_path / "helpers.py"],
        show_progress=False,
        records_per_second=10,
    )
    backfill, live = runner._backfill._stream, runner._live.stream

    assert runner.job == "job"
    assert backfill.job.fresh
    # Or it would forget what has just been loaded.
    assert not live.job.fresh
    assert backfill.with_fresh(False) == live
    assert (live.workers, live.tries, live.show_progress) == (3, 4, False)
    assert (live.job.store, live.job.ranges_per_grouping) == ("postgresql://somewhere", 6)
    assert live.spark.settings == {"spark.executor.memory": "1g"}
    assert live.spark.code == (str(tmp_path / "helpers.py"),)
    assert runner._backfill._until_us == 7_000_000
    assert runner._backfill._spill_bytes == 5


def test_it_has_the_options_of_both_with_the_same_defaults() -> None:
    found, backfill, live = (
        inspect.signature(each).parameters
        for each in (BackfillThenLiveRunner, BackfillRunner, StreamingRunner)
    )

    assert set(found) == {*backfill, *live}
    for name in backfill.keys() & live.keys():
        assert str(backfill[name]) == str(live[name]) == str(found[name])


def test_an_option_that_it_does_not_have_is_named_beside_those_that_it_has() -> None:
    with pytest.raises(df.PipelineError, match="does not have the option untill") as caught:
        create_runner("backfill-then-live", job="job", untill=3)

    detail = str(caught.value).splitlines()[1]
    assert all(
        name in detail for name in ("until,", "spill_bytes", "workers", "skew_limit", "code")
    )


@ALL
def test_a_stream_without_workers_is_refused(runner: Any) -> None:
    with pytest.raises(df.PipelineError, match="at least one worker, not 0"):
        runner(job="job", workers=0)


@BOTH_RUNNERS
def test_less_than_no_memory_is_refused(runner: Any) -> None:
    with pytest.raises(df.PipelineError, match="spill_bytes must not be negative, not -1"):
        runner(job="job", spill_bytes=-1)
