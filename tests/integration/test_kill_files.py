"""Kill whatever writes Parquet files to an object store with -9: each row is in one file, and no half file is seen."""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataflow.errors import InputError
from dataflow.io.storage import Storage
from tests.integration.test_kill_sinks import expected
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.streaming_jobs import write_events
from tests.waiting import until

KILLS = ("driver", "worker", "everything", "driver")


def rows_in(folder: str) -> Counter[tuple[str, datetime, int]]:
    """The rows of all files that can be seen; one that is not whole cannot be read."""
    found, storage = Counter[tuple[str, datetime, int]](), Storage()
    try:
        paths = storage.find(folder)
    except InputError:
        return found
    for path in paths:
        with storage.open(path) as file:
            for row in pq.read_table(file).to_pylist():
                found[row["user"], row["start"].astimezone(UTC), row["total"]] += 1
    return found


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_survive_any_kill(store_dsn: str, tmp_path: Path, s3: Callable[[], str]) -> None:
    """Whoever dies and is started again, the rows are those that Python computes, each in one file."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    path, log = write_events(tmp_path / "events.csv"), tmp_path / "job.log"
    folder = f"s3://{s3()}/sums"
    words = [sys.executable, "-m", "tests.file_job", str(path), store_dsn, folder]
    right = Counter((user, start, total) for (user, start), total in expected(path).items())

    def has_more_than(count: int) -> bool:
        seen = rows_in(folder)
        assert seen <= right, "a row is seen that is none, or one is seen twice"
        return seen.total() > count

    plans = list(KILLS)
    chance.shuffle(plans)
    while plans:
        with in_a_group(words, log) as family:
            while plans:
                before = rows_in(folder).total()
                until(lambda before=before: has_more_than(before), log.read_text)  # type: ignore[misc]
                what = plans.pop()
                if what == "worker":
                    kill([chance.choice(workers_of(family))])
                else:
                    kill([*descendants(family), family] if what == "everything" else [family])
                    break
    with in_a_group(words, log) as family:
        assert family.wait(600) == 0, log.read_text()
    assert rows_in(folder) == right
