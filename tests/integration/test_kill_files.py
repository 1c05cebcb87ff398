"""Kill whatever writes files to an object store, and the store, with -9: each row is in one file, and all are whole."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dataflow.files.formats import ParquetFormat
from dataflow.files.places import place_of
from dataflow.io.storage import Storage
from tests.integration.test_kill_sinks import expected
from tests.killing import kill_one_after_the_other, seeded
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.stream_servers import S3TestServer
from tests.streaming_jobs import write_events
from tests.waiting import until

KILLS = ("driver", "worker", "everything", "driver", "object store", "object store")


def rows_in(folder: str) -> Counter[tuple[Any, ...]]:
    """The rows of all files that can be seen; one that is not whole cannot be read."""
    found, storage = Counter[tuple[Any, ...]](), Storage()
    for path in storage.listed(folder):
        with storage.open(path) as file:
            for row in pq.read_table(file).to_pylist():
                found[tuple(row.values())] += 1
    return found


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_survive_any_kill(store_dsn: str, tmp_path: Path, kept_s3: S3TestServer) -> None:
    """Whoever dies and is started again, the rows are those that Python computes, each in one file."""
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    folder = f"s3://{kept_s3.bucket}/sums"
    words = [sys.executable, "-m", "tests.file_job", str(path), store_dsn, folder]
    right = Counter((user, start, total) for (user, start), total in expected(path).items())

    def seen() -> list[int]:
        found = rows_in(folder)
        assert found <= right, "a row is seen that is none, or one is seen twice"
        return [found.total()]

    kill_one_after_the_other(words, log, KILLS, seeded(), seen, {"object store": kept_s3.crash})
    with in_a_group(words, log) as family:
        assert family.wait(600) == 0, log.read_text()
    assert rows_in(folder) == right


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_watched_bucket_survives_any_kill(
    store_dsn: str, tmp_path: Path, kept_s3: S3TestServer
) -> None:
    """Files appear while the stream and the bucket's server die and are run again: each row is copied once."""
    chance, log = seeded(), tmp_path / "job.log"
    bucket = f"s3://{kept_s3.bucket}"
    source, target = f"{bucket}/in", f"{bucket}/out"
    words = [sys.executable, "-m", "tests.watch_job", f"{source}/*.parquet", store_dsn, target]
    place, right = place_of(source), Counter[tuple[Any, ...]]()

    def put(number: int) -> None:
        rows = [(number * 100 + each, 1_000_000 + number) for each in range(100)]
        file = ParquetFormat(suffix="", types={"id": int, "at": int}).encode(rows, [1] * 100)
        place.put(f".dataflow/{number}", file)
        place.show(f".dataflow/{number}", f"{number:03}.parquet")
        right.update(rows)

    def is_copied() -> bool:
        seen = rows_in(target)
        assert seen <= right, "a row is seen that is none, or one is seen twice"
        return seen == right

    for run in range(2):
        with in_a_group(words, log) as family:
            for number in range(4 * run, 4 * run + 4):
                put(number)
                if number % 4 == 1:
                    kept_s3.crash()
                if number % 4 == 2:
                    kill([chance.choice(workers_of(family, log.read_text))])
                until(is_copied if number % 4 < 3 else lambda: True, log.read_text)
            kill([*descendants(family), family])
    with in_a_group(words, log):
        until(is_copied, log.read_text)
