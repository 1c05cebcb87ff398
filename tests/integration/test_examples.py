"""Examples on real Spark and Postgres, and copied into a folder of a user's own."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from examples.backfill_then_live import __main__ as backfill_then_live
from examples.billing import __main__ as billing
from examples.pictures import FOLDER
from runners.cli import main as dataflow
from tests.unit.examples.test_pages import PROGRAMS, pattern, shown

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def test_backfill_and_live_come_to_what_one_batch_comes_to(
    store_dsn: str, spark_master: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--store", store_dsn, "--master", spark_master, "--no-show-progress", "--pause", "0"]
    assert backfill_then_live.main(asked) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(pattern(shown("backfill_then_live")), printed), printed


def test_a_bill_that_was_corrected_in_a_stream_is_explained(
    store_dsn: str, spark_master: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = ["--runner", "streaming", "--job", "bills", "--records-per-second", "10"]
    billing.main([*stream, "--store", store_dsn, "--master", spark_master, "--no-show-progress"])
    printed = capsys.readouterr().out
    assert "acme 2026-03 0 credit note -72.75\n  acme 2026-03 1 bill 83.25" in printed

    assert dataflow(["explain-row", "bills", billing.EXPLAINED, "--store", store_dsn]) == 0
    explained = capsys.readouterr().out
    assert "is pane 1 (late) of bill" in explained
    assert explained in printed
    assert "u14: 10.50" in explained


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_folder_that_is_copied_runs_where_the_sdk_is_installed(
    name: str, installed: Path, tmp_path: Path
) -> None:
    shutil.copytree(FOLDER / name, tmp_path / f"my_{name}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [installed / "python", "-m", f"my_{name}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(pattern(shown(name)), done.stdout), done.stdout
