"""A real job gets splits and loses them while it runs, and while it is dead; nothing is lost, or there twice."""

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from runners.cli import main
from runners.millwheel.model.requests import Request, Verb
from runners.registry import open_store
from tests.processes import descendants, in_a_group, kill
from tests.waiting import until

PART = 500


def put(folder: Path, part: int) -> None:
    """A file under its name is whole."""
    lines = [f"{part * PART + n} {n // 10}" for n in range(PART)]
    hidden = folder / f".{part}"
    hidden.write_text("\n".join(lines), encoding="utf-8")
    hidden.rename(folder / f"{part}.part")


def seen(store: str) -> list[int]:
    try:
        with psycopg.connect(store) as connection:
            return [each for (each,) in connection.execute("SELECT number FROM seen")]
    except psycopg.errors.UndefinedTable:
        return []


def has_parts(store: str, *parts: int) -> bool:
    return {part * PART + n for part in parts for n in range(PART)} <= set(seen(store))


def ranges(store: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["ranges", "growing", "--store", store]) == 0
    return [
        line for line in capsys.readouterr().out.splitlines()[1:] if line.startswith("Read(Parts)")
    ]


def end(family: psutil.Process) -> None:
    kill([*descendants(family), family])


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_a_job_follows_splits_that_come_and_go(
    store_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They come while it runs, and while it is dead; one goes while it is dead, another while it runs."""
    folder, log = tmp_path / "parts", tmp_path / "job.log"
    folder.mkdir()
    put(folder, 0)
    command = [sys.executable, "-m", "tests.growing_job", str(folder), store_dsn, "growing"]
    complaint: Any = log.read_text
    with in_a_group(command, log) as family:
        until(lambda: has_parts(store_dsn, 0), complaint)
        put(folder, 1)
        put(folder, 2)
        until(lambda: has_parts(store_dsn, 1, 2), complaint)
        end(family)
    put(folder, 3)
    (folder / "1.part").unlink()
    with in_a_group(command, log) as family:
        until(lambda: has_parts(store_dsn, 3), complaint)
        (folder / "2.part").unlink()
        until(lambda: len(removed(ranges(store_dsn, capsys))) == 2, complaint)
        quiet = r"  a few seconds ago  +(-|\S.* ago)  +0 records  +open$"
        until(
            lambda: quiets(quiet, ranges(store_dsn, capsys)) == 2,
            lambda: "\n".join(ranges(store_dsn, capsys)),
        )
        with closing(open_store(store_dsn)) as store:
            store.send_request("growing", Request(Verb.DRAIN))
        until(lambda: not family.is_running() or family.status() == psutil.STATUS_ZOMBIE, complaint)
    assert sorted(seen(store_dsn)) == list(range(4 * PART)), log.read_text()
    assert "was removed from its input, and has ended at 500" in log.read_text()


def removed(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith("  removed")]


def quiets(pattern: str, lines: list[str]) -> int:
    """How many splits were asked a moment ago, and had nothing."""
    return sum(re.search(pattern, line) is not None for line in lines)
