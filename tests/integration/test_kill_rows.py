"""Kill whatever reads a table that stands still, and the server that has it, with -9: each row is read once."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from runners.embedded.postgres import embedded_postgres
from runners.embedded.temporary import temporary_home
from tests.integration.test_kill_sinks import kill_server
from tests.killing import kill_one_after_the_other, seeded
from tests.waiting import RUN_MAX_S

ROWS = 20_000
KILLS = ("driver", "worker", "server", "everything")


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["snapshot", "key-chunks"])
def test_rows_are_read_once_whatever_is_killed(how: str, store_dsn: str, tmp_path: Path) -> None:
    """A job that ends because the server is away, as one with a snapshot does, is run again, and goes on."""
    output, log = tmp_path / "out", tmp_path / "job.log"

    def written() -> Counter[int]:
        files = [each for each in output.glob("*.txt") if not each.name.startswith(".")]
        return Counter(int(line) for each in files for line in each.read_text().splitlines())

    with temporary_home() as home:
        source = embedded_postgres(home)
        with psycopg.connect(source) as opened:
            opened.execute(
                f"CREATE TABLE numbers AS SELECT n::int8 FROM generate_series(1, {ROWS}) n"
            )
            opened.execute("ALTER TABLE numbers ADD PRIMARY KEY (n)")
        words = [sys.executable, "-m", "tests.rows_job", source, store_dsn, str(output), how]

        def progress() -> list[int]:
            found = written()
            assert max(found.values(), default=1) == 1
            return [found.total()]

        kill_one_after_the_other(
            words, log, KILLS, seeded(), progress, {"server": lambda: kill_server(home)}
        )
        for _ in range(2):
            with log.open("ab") as output_log:
                done = subprocess.run(
                    words, stdout=output_log, stderr=output_log, check=False, timeout=RUN_MAX_S
                )
            if done.returncode == 0:
                break
        assert done.returncode == 0, log.read_text()[-5_000:]
        assert written() == Counter(range(1, ROWS + 1))
