"""Lineage of a real stream whose worker is killed: each record once, by result and by command."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch.backfill.runner import BackfillRunner
from runners.batch.runner import BatchRunner
from runners.cli.command_line import main
from runners.streaming import StreamingRunner

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS = 400
KEYS = 4


class Keyed(df.DoFn):
    """Gives a value its key, and kills its process once, in the midst of a bundle."""

    def __init__(self, died: Path) -> None:
        self.died = died

    def process(self, value: int) -> Iterator[tuple[str, int]]:
        if value == RECORDS // 2 and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield f"key {value % KEYS}", value


def test_a_row_of_a_stream_is_explained(
    store_dsn: str, spark_master: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a killed worker had not committed is not in it; the rows of a job without lineage are not found."""
    died = tmp_path / "died"
    runner = StreamingRunner(
        job="lineage",
        store=store_dsn,
        master=spark_master,
        show_progress=False,
        records_per_second=400,
        lineage="records",
    )
    p = df.Pipeline(runner)
    (
        p
        | "read" >> df.Create(range(RECORDS))
        | df.ParDo(Keyed(died))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.AfterWatermark(early=df.AfterCount(10)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | df.WriteToPostgres("totals", columns={"key": str, "total": int}, key=["key"])
    )
    p.run().wait_until_finish()
    assert died.exists()

    capsys.readouterr()
    for key in range(KEYS):
        arguments = ["explain-row", "totals", f"key {key}", "--store", store_dsn]
        assert main([*arguments, "--json"]) == 0
        pane = json.loads(capsys.readouterr().out)["pane"]
        values = [
            int(text.split(" ", 1)[1]) for given in pane["inputs"] for text in given["elements"]
        ]
        assert sorted(values) == list(range(key, RECORDS, KEYS))
        assert pane["reason"] == "the watermark has reached the end of the window"
        assert pane["replaced"]["reason"].endswith(" of 10 records")
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith('totals ["key 3"] is pane ')
    assert "replaced pane" in text
    assert main(["explain-row", "totals", "key 9", "--store", store_dsn]) == 2
    assert "nothing is recorded of a row of table 'totals'" in capsys.readouterr().err


def test_only_what_is_asked_for_is_recorded(store_dsn: str, spark_master: str) -> None:
    """And the error says how to ask."""
    runner: Any = StreamingRunner(
        job="no lineage", store=store_dsn, master=spark_master, show_progress=False
    )
    p = df.Pipeline(runner)
    (
        p
        | df.Create([("a", 1)])
        | df.CombinePerKey(sum)
        | df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | df.WriteToPostgres("sums", columns={"key": str, "total": int}, key=["key"])
    )
    result = p.run()
    result.wait_until_finish()
    with pytest.raises(df.PipelineError, match="lineage='panes' or lineage='records'"):
        result.explain_row("sums", "a")


@pytest.mark.parametrize("kind", ["batch", "backfill"])
def test_a_row_of_a_batch_is_explained(
    kind: str, store_dsn: str, spark_master: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And its panes drawn, by command, as those of a stream; what a backfill has read is in the panes of the stream."""
    given: Any = {
        "job": kind,
        "store": store_dsn,
        "master": spark_master,
        "show_progress": False,
        "lineage": "records",
    }
    if kind == "backfill":
        totals_of(BackfillRunner(**given)).run()
        result: Any = totals_of(StreamingRunner(**given)).run()
        result.wait_until_finish()
    else:
        result = totals_of(BatchRunner(**given)).run()
    for start in (0, 100, 200):
        explained = result.explain_row("totals", f"key 1,{start}")
        values = [
            int(text.split(" ", 1)[1]) for each in explained.pane.inputs for text in each.elements
        ]
        assert sorted(values) == list(range(start + 1, start + 100, KEYS))
    drawn = tmp_path / "panes.svg"
    arguments = ["plot", kind, "--key", "'key 1'", "-o", str(drawn), "--store", store_dsn]
    capsys.readouterr()
    assert main(arguments) == 0
    assert "</svg>" in drawn.read_text()
    plot = result.plot("key 1")
    assert len(plot.points) == RECORDS // KEYS
    assert len(plot.panes) == RECORDS // 100


def totals_of(runner: Any) -> df.Pipeline:
    """Sums of keys by hundred seconds."""
    p = df.Pipeline(runner)
    stamped = [df.TimestampedValue((f"key {n % KEYS}", n), n) for n in range(RECORDS)]
    (
        p
        | "read" >> df.Create(stamped)
        | df.WindowInto(df.FixedWindows(100))
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "key": pair[0],
                "start": window.start_us // 1_000_000,
                "total": pair[1],
            }
        )
        | df.WriteToPostgres(
            "totals", columns={"key": str, "start": int, "total": int}, key=["key", "start"]
        )
    )
    return p
