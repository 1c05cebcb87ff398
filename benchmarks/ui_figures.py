"""Pictures of the page for the documentation: jobs that are up to date, stuck, dead and catching up, and a key of one.

Run:  python -m benchmarks.ui_figures [--into docs/figures]

Each job is a streaming job of its own driver on this machine, seen by `dataflow ui` in a headless Chromium.  The
pictures show what was there; their numbers are none of a benchmark.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

import dataflow as df
from benchmarks import harness
from runners.embedded.temporary import temporary_postgres
from runners.streaming import StreamingRunner
from tools.browser import chromium, missing

SCENES = ("healthy", "stuck", "dead", "catching-up", "key")
#: The chart is to show something, and the worker of a stuck job to be seen as that.
WATCHED_S = 30
COLUMNS = {"product": str, "start": datetime, "total": int}
_WIDTH = 1280


def build(p: df.Pipeline, scene: str, gate: str) -> None:
    """Orders and payments per product in windows of ten seconds, and visits as sessions.

    Args:
        p: the pipeline.
        scene: one of `SCENES`.
        gate: a file; while it is there, code of the job that is to be stuck does not come back.
    """
    if scene == "key":
        build_changing(p)
        return
    start = datetime.now(UTC) - timedelta(hours=6) if scene == "catching-up" else None

    def priced(at: datetime) -> tuple[str, int]:
        return ("tea", "coffee", "cake")[int(at.timestamp() * 20) % 3], at.microsecond % 97

    def checked(pair: tuple[str, int]) -> tuple[str, int]:
        while scene == "stuck" and Path(gate).exists():
            time.sleep(0.1)
        return pair

    def row(pair: tuple[str, int], window: df.Window = df.DoFn.WindowParam) -> dict[str, Any]:
        return {"product": pair[0], "start": window.start, "total": pair[1]}

    orders = p | "orders" >> df.PeriodicImpulse(start_timestamp=start, fire_interval=0.05)
    payments = p | "payments" >> df.PeriodicImpulse(start_timestamp=start, fire_interval=0.1)
    sums = {}
    for name, instants in (("revenue", orders), ("paid", payments)):
        pairs = instants | f"{name} price" >> df.Map(priced)
        if name == "paid":
            pairs = pairs | "check" >> df.Map(checked)
        windowed = pairs | f"{name} windows" >> df.WindowInto(df.FixedWindows(10))
        sums[name] = windowed | name >> df.CombinePerKey(sum)
        (
            sums[name]
            | f"{name} rows" >> df.Map(row)
            | df.WriteToPostgres(f"{name} of {scene}", columns=COLUMNS, key=["product", "start"])
        )
    (
        (sums["revenue"], sums["paid"])
        | df.Flatten()
        | "balance" >> df.CombinePerKey(sum)
        | "balance rows" >> df.Map(row)
        | df.WriteToPostgres(f"balance of {scene}", columns=COLUMNS, key=["product", "start"])
    )


def build_changing(p: df.Pipeline) -> None:
    """Scores per team in windows of twenty seconds, with early panes that are retracted.

    Args:
        p: the pipeline.
    """
    early = df.AfterWatermark(early=df.Repeatedly(df.AfterCount(6)))
    (
        p
        | "scores" >> df.PeriodicImpulse(fire_interval=1.0)
        | "team" >> df.Map(lambda at: ("red", int(at.timestamp()) % 9 + 1))
        | df.WindowInto(
            df.FixedWindows(20),
            trigger=early,
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | "total" >> df.CombinePerKey(sum)
        | df.Map(
            lambda pair, window=df.DoFn.WindowParam: {
                "product": pair[0],
                "start": window.start,
                "total": pair[1],
            }
        )
        | df.WriteToPostgres("totals", columns=COLUMNS, key=["product", "start"])
    )


def drive(store: str, scene: str, gate: str) -> None:
    """Run the job of a scene, until somebody ends this process."""
    runner = StreamingRunner(
        store=store, master="local[2]", job=scene, show_progress=False,
        records_per_second=400 if scene == "catching-up" else None,
        lineage="records" if scene == "key" else None,
    )  # fmt: skip
    pipeline = df.Pipeline(runner)
    build(pipeline, scene, gate)
    pipeline.run().wait_until_finish()


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program of Python, killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, start_new_session=False
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def take(
    address: str,
    scene: str,
    into: Path,
    folder: Path,
    *flags: str,
    ending: str = "",
    path: str = "",
    width: int = _WIDTH,
) -> None:
    """A picture of a job's page."""
    with chromium(folder / f"profile-{scene}{ending}", *flags) as browser:
        browser.set_window_size(width, 300)
        page = "jobs" if scene == "overview" else f"jobs/{scene}{path}"
        browser.get(f"{address}{page}{'&' if '?' in page else '?'}refresh=off")
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(width, min(2400, int(height) + 150))
        browser.save_screenshot(str(into / f"ui-{scene}{ending}.png"))


def watch(address: str, store: str, scene: str, into: Path, folder: Path) -> None:
    """Run the job of a scene for a while, and take its picture."""
    gate = folder / "gate"
    gate.unlink(missing_ok=True)
    with started(
        "-m", "benchmarks.ui_figures", "--drive", scene, "--store", store, "--gate", str(gate)
    ) as job:
        wait_until_shown(address, scene)
        time.sleep(WATCHED_S / 2)
        gate.touch()
        if scene == "dead":
            job.kill()
        time.sleep(WATCHED_S)
        if scene == "key":
            take_key(address, into, folder)
            return
        take(address, scene, into, folder)
        if scene == "healthy":
            take(
                address,
                scene,
                into,
                folder,
                "--force-dark-mode",
                "--blink-settings=preferredColorScheme=0",
                ending="-dark",
            )
        gate.unlink()


def take_key(address: str, into: Path, folder: Path) -> None:
    """Pictures of a key and of a row of the job ``key``; a row of the last window that has fired for its end."""
    take(address, "key", into, folder, path="/windows?key=red")
    read = urllib3.PoolManager().request("GET", f"{address}jobs/key/windows.json?key=red")
    panes = msgspec.json.decode(read.data)["panes"]
    start = next(each["window_start_us"] for each in panes if each["timing"] == "on_time")
    row = f"red,{datetime.fromtimestamp(start // 1_000_000, UTC).isoformat()}"
    asked = urlencode({"table": "totals", "key": row})
    take(address, "key", into, folder, path=f"/rows?{asked}", ending="-row")


def wait_until_shown(address: str, scene: str) -> None:
    """Wait until a job has evidence of its stages, at most two minutes."""
    pool = urllib3.PoolManager()
    for _ in range(240):
        answer = pool.request("GET", f"{address}jobs/{scene}.json")
        if answer.status == 200 and any(
            stage["records"] for stage in msgspec.json.decode(answer.data)["stages"]
        ):
            return
        time.sleep(0.5)
    raise TimeoutError(f"job {scene} has not begun")


def main() -> None:
    """Take all pictures."""
    parser = harness.parser(__doc__)
    parser.add_argument("--into", type=Path, default=Path("docs/figures"))
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--drive", choices=SCENES, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--gate", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drive:
        drive(asked.store, asked.drive, asked.gate)
        return
    if missing():
        sys.exit(missing())
    asked.into.mkdir(parents=True, exist_ok=True)
    serve = "from runners.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder, temporary_postgres() as store:
        # The tables are made by the first who may.
        subprocess.run([sys.executable, "-c", serve, "jobs", "--store", store], check=True)
        with started("-c", serve, "ui", "--port", "0", "--store", store, "--show-keys") as page:
            assert page.stdout is not None
            address = page.stdout.readline().split()[-1]
            for scene in asked.scene or SCENES:
                watch(address, store, scene, asked.into, Path(folder))
                print(f"ui-{scene}.png", flush=True)
            take(address, "overview", asked.into, Path(folder))


if __name__ == "__main__":
    main()
