"""Files that appear while a stream runs are read once, though its workers and its driver's run are ended."""

import json
import random
import time
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

import dataflow as df
from dataflow.computations import JsonLinesWatcher
from runners.batch import BatchRunner
from runners.streaming import StreamingRunner
from tests.processes import kill, workers_of
from tests.streaming_jobs import read_on

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

FILES, RECORDS, KILLS = 40, 50, 3


def time_of(record: dict[str, float]) -> float:
    return record["at"]


def begins(path: Path) -> float:
    return 60.0 * int(path.stem.rpartition("-")[2])


def write(folder: Path, number: int) -> None:
    """A file of one minute, complete when it appears."""
    chance = random.Random(number)
    records = [
        {"id": number * RECORDS + each, "at": 60 * number + chance.random() * 59}
        for each in range(RECORDS)
    ]
    hidden = folder / f".minute-{number}"
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    hidden.rename(folder / f"minute-{number}.jsonl")


def build(pipeline: df.Pipeline, folder: Path) -> None:
    source = JsonLinesWatcher(
        folder / "minute-*.jsonl",
        event_time=time_of,
        created=begins,
        until="end",
        poll=0.05,
        shares=2,
    )
    records = pipeline | "files" >> df.Read(source)
    (
        records
        | "row" >> df.Map(lambda record: {"id": record["id"]})
        | "ids" >> df.WriteToPostgres("ids", columns={"id": int})
    )
    (
        records
        | "pair" >> df.Map(lambda record: (record["id"] % 3, 1))
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
            allowed_lateness=3600,
        )
        | "count" >> df.CombinePerKey(sum)
        | "counted"
        >> df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "key": pair[0],
                "start": int(window.start.timestamp()),
                "count": pair[1],
            }
        )
        | "counts"
        >> df.WriteToPostgres(
            "counts", columns={"key": int, "start": int, "count": int}, key=["key", "start"]
        )
    )


def check(result: df.PipelineResult) -> None:
    """Every record is in both tables once, and none was late."""
    assert list(range(FILES * RECORDS)) == sorted(row["id"] for row in result.read_table("ids"))
    expected: dict[tuple[int, int], int] = {}
    for each in range(FILES * RECORDS):
        place = each % 3, each // RECORDS * 60
        expected[place] = expected.get(place, 0) + 1
    counts = {(row["key"], row["start"]): row["count"] for row in result.read_table("counts")}
    assert expected == counts


def test_files_are_read_once_though_workers_are_killed(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    """They appear every now and then; a worker is killed between them, and the job cancelled and started again."""

    def start() -> Any:
        pipeline = df.Pipeline(
            StreamingRunner(job="job", store=store_dsn, master=spark_master, show_progress=False)
        )
        build(pipeline, tmp_path)
        return pipeline.run()

    first = start()

    def appear(numbers: range) -> None:
        for number in numbers:
            write(tmp_path, number)
            time.sleep(0.1)

    writer = Thread(target=appear, args=(range(FILES // 2),))
    writer.start()
    for number in range(KILLS):
        read_on(first, 4 * RECORDS * (number + 1))
        kill([random.choice(workers_of(psutil.Process()))])
    writer.join()
    first.cancel()
    appear(range(FILES // 2, FILES // 2 + 3))
    second = start()
    appear(range(FILES // 2 + 3, FILES))
    (tmp_path / "end").touch()
    second.wait_until_finish()

    check(second)


def test_a_batch_reads_them_when_all_are_there(
    store_dsn: str, spark_master: str, tmp_path: Path
) -> None:
    options: Any = {
        "job": "job",
        "store": store_dsn,
        "master": spark_master,
        "show_progress": False,
    }
    for number in range(FILES):
        write(tmp_path, number)

    def run() -> df.PipelineResult:
        pipeline = df.Pipeline(BatchRunner(**options))
        build(pipeline, tmp_path)
        return pipeline.run()

    with pytest.raises(df.InputError, match="still to come"):
        run()
    (tmp_path / "end").touch()
    check(run())
