"""Kill driver and workers with -9 while the parts of a view are on their way: it is seen once, when it is complete."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from runners.millwheel.store.postgres import PostgresStore
from tests.killing import kill_one_after_the_other, seeded
from tests.views_job import ELEMENTS, JOB, PAIRS, REVISED, pair
from tests.waiting import RUN_MAX_S

KILLS = ("driver", "worker", "worker", "worker", "everything")
#: So many cells are pages of views.
PAGES_MIN = 50


def cells(dsn: str) -> int:
    """How many cells of the job there are in the store: pages, most of them."""
    with closing(PostgresStore(dsn)) as store:
        return 0 if store.read_job(JOB) is None else store.statistics(JOB)["cells"]


def rows(dsn: str) -> list[tuple[object, ...]]:
    """What has been found, in the order of the elements."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass('found')").fetchone() == (None,):
            return []
        return connection.execute(
            "SELECT number, found, size, revised FROM found ORDER BY 1"
        ).fetchall()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_view_is_seen_when_it_is_complete_whoever_is_killed(
    store_dsn: str, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    words = [sys.executable, "-m", "tests.views_job", store_dsn]
    pages_before_any_row = [0]

    def progress() -> list[int]:
        found = cells(store_dsn)
        if not rows(store_dsn):
            pages_before_any_row.append(found)
        return [found]

    kill_one_after_the_other(words, log, KILLS, seeded(), progress)
    with log.open("ab") as output:
        done = subprocess.run(words, stdout=output, stderr=output, check=False, timeout=RUN_MAX_S)
    assert done.returncode == 0, log.read_text()[-5_000:]

    assert max(pages_before_any_row) > PAGES_MIN, "nobody was killed while parts were on their way"
    size = 2 * PAIRS + REVISED
    expected = [
        (each, pair(each)[1], size, REVISED + each % REVISED)
        for each in range(0, PAIRS, PAIRS // ELEMENTS)
    ]
    assert rows(store_dsn) == expected
    with closing(PostgresStore(store_dsn)) as store:
        left = store.statistics(JOB)
    assert (left["cells"], left["timers"], left["checkpoints"]) == (0, 0, 0)
