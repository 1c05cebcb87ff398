"""`dataflow replay`: what a function of the user's writes with the batch runner happens once, wherever it is killed."""

import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from dataflow.table import TableSpec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import Production, StoredDeadLetter
from runners.millwheel.store.port import JobSpec, RangeSpec
from runners.registry import open_store
from tests.unit.runners.test_cli import dead_letter
from tests.waiting import WAIT_MAX_S

ROOT = Path(__file__).parents[2]
RANGE = RangeId("read", 0)
FUNCTION = "corrections:again"
CORRECTIONS = """
    import os
    import dataflow as df

    def again(rows, name):
        with df.Pipeline(runner="batch", job=name, partitions=2, show_progress=False) as p:
            (
                p
                | df.Create([row["element"] for row in rows])
                | df.Map(lambda value: {"value": value})
                | df.WriteToPostgres("corrected", columns={"value": int}, shared=True)
            )
        if os.environ.get("DIES") == "yes":
            os._exit(9)  # what was written is committed, and nothing is deleted yet
"""


def keep(dsn: str, *letters: StoredDeadLetter) -> None:
    (keys,) = even_ranges(1)
    spec = JobSpec(
        job="scores",
        mode="streaming",
        fingerprint="f",
        ranges=[RangeSpec(range_id=RANGE, keys=keys)],
    )
    with closing(open_store(dsn)) as store:
        store.open_job(spec)
        row = store.acquire("scores", [RANGE], "me")[RANGE].row
        fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
        store.commit(Production(job="scores", fences=[fence], dead=letters))


def replay(dsn: str, folder: Path, *, dies: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("dataflow"), "replay", "scores", FUNCTION, "--dead"],
        cwd=folder,
        env={
            **os.environ,
            "DATAFLOW_STORE": dsn,
            "PYTHONPATH": str(ROOT),
            "DIES": "yes" if dies else "no",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_MAX_S,
    )


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
def test_a_replay_that_is_killed_is_done_once(store_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "corrections.py").write_text(textwrap.dedent(CORRECTIONS))
    keep(store_dsn, dead_letter(1), dead_letter(2))
    killed = replay(store_dsn, tmp_path, dies=True)
    assert killed.returncode == 9, killed.stderr
    keep(store_dsn, dead_letter(3))
    for _ in range(2):
        done = replay(store_dsn, tmp_path, dies=False)
        assert done.returncode == 0, done.stderr

    with closing(open_store(store_dsn)) as store:
        rows = store.read_table(TableSpec(name="corrected", columns={"value": int}))
        assert sorted(rows) == [(1,), (2,), (3,)]
        assert not store.read_dead_letters("scores")
