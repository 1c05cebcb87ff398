"""Let a stream run for long while everything around it fails, and see that it is right and that nothing grows.

    make soak                         an hour
    make soak MINUTES=5 ARGS="--seed 7"
    python -m benchmarks.soak --help

Prints each fault as it is injected, and at the end what the job and its Postgres used in the second and the last third
of the time.  The exit status is 1 if an answer is wrong, if the job has ended by itself, or if something has grown.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TextIO

import attrs
import psutil
import psycopg

from benchmarks import harness, pages, tables
from benchmarks.soak.faults import FAULTS, Target, in_rounds
from benchmarks.soak.job import EVERY, HUNDREDS, TOTALS, WINDOW_S, Settings
from benchmarks.soak.load import right_counts, right_totals
from benchmarks.soak.resources import (
    Growth,
    Sample,
    growth,
    in_sessions,
    of_folder,
    of_processes,
    of_store,
)
from benchmarks.stores import Server
from runners.embedded.postgres import embedded_postgres, release_embedded_postgres
from runners.embedded.temporary import temporary_home
from windowing.timestamps import US_PER_SECOND

PAGE = harness.ROOT / "docs" / "soak.md"
_SAMPLE_INTERVAL_S = 5.0
#: From starting the job until the first record exists.
_LEAD_S = 15
#: How long the job may take from the last record to its end.
_DRAIN_MAX_S = 300
#: The disk that may be filled, and how much of it Postgres lets its log take, in MB.
_DISK_MB, _LOG_MB = 2_000, 256
_LOG_TAIL_LINES = 30


class EndedError(Exception):
    """The job has ended by itself before its time; the message has the end of its log."""


class Driver:
    """The process of the job, which is started again when `kill` has ended it, and by nothing else.

    Args:
        settings: of the job.
        folder: for its log and its temporary files.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        #: Of all drivers so far: each begins one, which has all that it starts.
        self.sessions: set[int] = set()
        self._process = self._started()
        self._is_killed = False

    def _started(self) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak.job", json.dumps(self._settings._asdict())],
                cwd=harness.ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(harness.ROOT),
                    "TMPDIR": str(self.temporary),
                    "SPARK_LOCAL_DIRS": str(self.temporary),
                },
            )
        self.sessions.add(process.pid)
        return process

    @property
    def pid(self) -> int:
        """The process that runs now."""
        return self._process.pid

    def has(self, pid: int) -> bool:
        """Whether a process lives and is one of the job."""
        return any(each.pid == pid for each in in_sessions(self.sessions))

    def kill(self) -> None:
        """Kill -9; it is started again when `is_over` is asked."""
        self._is_killed = True
        self._process.kill()

    def is_over(self) -> bool:
        """Whether the job is finished; a driver that was killed is started again.

        Raises:
            EndedError: it has ended by itself, or was ended by somebody else, with an error.
        """
        status = self._process.poll()
        if self._is_killed and status == -signal.SIGKILL:
            self._process, self._is_killed = self._started(), False
            return False
        if status:
            tail = (self._folder / "log").read_text("utf-8", "replace").splitlines()
            lines = "\n".join(tail[-_LOG_TAIL_LINES:])
            raise EndedError(f"the driver has ended with status {status}:\n{lines}")
        return status is not None

    def close(self) -> None:
        """End it, and everything that any of the drivers has left."""
        for each in in_sessions(self.sessions):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a soak.

    Attributes:
        injected: how often each fault was.
        grown: what was used, and whether more and more.
        wrong: what is wrong with the answers; empty: nothing.
        records: how many there were.
    """

    injected: Counter[str]
    grown: list[Growth]
    wrong: str
    records: int

    @property
    def is_good(self) -> bool:
        """Whether answers are right and nothing grows."""
        return not self.wrong and all(each.is_bounded for each in self.grown)

    def text(self) -> str:
        """For people."""
        rows = [
            [
                each.name,
                f"{each.before:,.0f}",
                f"{each.after:,.0f}",
                "bounded" if each.is_bounded else "NOT BOUNDED",
            ]
            for each in self.grown
        ]
        table = tables.markdown(["What", "Second third", "Last third", "So"], "l", rows, last="l")
        faults = ", ".join(f"{name}: {count}" for name, count in sorted(self.injected.items()))
        answers = self.wrong or "every total and every count is right"
        return f"{self.records:,} records; {answers}.\n\nFaults: {faults}.\n\n{table}"


class Soak:
    """Injects faults into a job, one after the other, and samples what is used.

    Args:
        settings: of the job.
        server: of Postgres.
        disk: as for `Target`.
        folder: for the job.
        seed: of the order of faults.
        pause_s: from the end of a fault to the next, in seconds.
        output: for each sample, with when it was taken in seconds from the beginning, as a line of JSON.
    """

    def __init__(
        self,
        settings: Settings,
        server: Server,
        disk: Path | None,
        folder: Path,
        seed: int,
        pause_s: float,
        output: TextIO,
    ) -> None:
        self._settings, self._pause_s = settings, pause_s
        self._driver = Driver(settings, folder)
        self._chance = Random(seed)
        self._target = Target(
            server=server,
            dsn=settings.store,
            driver=self._driver.kill,
            is_ours=self._driver.has,
            clock=Path(settings.clock),
            disk=disk,
            wait=self._wait,
        )
        self._began_s = time.monotonic()
        self._samples: list[tuple[float, Sample]] = []
        self._output = output

    def run(self) -> Outcome:
        """Inject faults until the load ends, and compare the answers when the job has.

        Raises:
            EndedError: the job has ended before, or has not ended afterwards.
        """
        injected = Counter[str]()
        try:
            self._wait(_LEAD_S + self._pause_s)
            for name in in_rounds(self._chance, has_disk=self._target.disk is not None):
                if self._is_read:
                    break
                print(f"{self._elapsed_s:7.0f} s  {name}", flush=True)
                FAULTS[name](self._target, self._chance)
                injected[name] += 1
                self._wait(self._pause_s)
            if not self._wait(_DRAIN_MAX_S):
                raise EndedError(f"the job has not ended {_DRAIN_MAX_S} s after its last record")
        finally:
            self._driver.close()
        grown = growth([each for each in self._samples if each[0] < self._settings.seconds])
        records = self._settings.source.records
        return Outcome(injected=injected, grown=grown, wrong=self._wrong(), records=records)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def _is_read(self) -> bool:
        """Whether the last record has been there."""
        end_us = self._settings.start_us + self._settings.seconds * US_PER_SECOND
        return time.time_ns() // 1_000 >= end_us

    def _wait(self, seconds: float) -> bool:
        """Sample for so long, or until the job is finished; returns whether it is."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if self._driver.is_over():
                if self._is_read:
                    return True
                raise EndedError("the job is finished before its source is")
            at_s, sample = self._elapsed_s, self._sample()
            self._samples.append((at_s, sample))
            print(json.dumps({"at_s": at_s, **sample}), file=self._output, flush=True)
            time.sleep(min(_SAMPLE_INTERVAL_S, max(0.0, until_s - time.monotonic())))
        return False

    def _sample(self) -> Sample:
        return {
            **of_processes(self._driver.pid, self._driver.sessions, self._target.server.pid),
            **of_store(self._settings.store),
            **of_folder(self._driver.temporary),
        }

    def _wrong(self) -> str:
        source = self._settings.source
        with closing(psycopg.connect(self._settings.store)) as connection:
            totals = {
                (user, start_us): (count, amount)
                for user, start_us, count, amount in connection.execute(
                    f'SELECT user_id, start_us, count, sum FROM "{TOTALS}"'.encode()
                )
            }
            counted = Counter(
                connection.execute(f'SELECT user_id, count FROM "{HUNDREDS}"'.encode())
            )
        right = right_totals(source, WINDOW_S * US_PER_SECOND)
        found = []
        if totals != right:
            differ = [key for key in totals.keys() | right if totals.get(key) != right.get(key)]
            found.append(
                f"WRONG: {len(differ)} of {len(right)} totals, such as {min(differ)}: {totals.get(min(differ))}, "
                f"not {right.get(min(differ))}"
            )
        right_of_users = right_counts(source, EVERY)
        if counted != Counter(right_of_users):
            twice = [each for each, times in counted.items() if times > 1]
            missing = right_of_users - counted.keys()
            more = counted.keys() - right_of_users
            found.append(
                f"WRONG: counts {len(twice)} twice, {len(missing)} missing, {len(more)} too many"
            )
        return "; ".join(found)


@contextmanager
def soak_server() -> Iterator[tuple[Server, Path | None]]:
    """A Postgres of one's own, and its disk, if it may have one that can be filled (a tmpfs, which root can mount)."""
    with temporary_home() as home, ExitStack() as stack:
        home.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={_DISK_MB}m,mode=700", "tmpfs", str(home)]
        mount = shutil.which("mount")
        is_mounted = (
            mount is not None
            and not subprocess.run([mount, *options], capture_output=True, check=False).returncode
        )
        if is_mounted:
            stack.callback(subprocess.run, ["umount", str(home)], check=True)
        else:
            print("no disk of its own can be mounted here, so none is filled", flush=True)
        # Before the disk goes: a server without its data would be left alone.
        stack.callback(release_embedded_postgres, home)
        server = Server(embedded_postgres(home), home)
        with closing(psycopg.connect(server.dsn, autocommit=True)) as connection:
            connection.execute(f"ALTER SYSTEM SET max_wal_size = '{_LOG_MB}MB'".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield server, home if is_mounted else None


def measure(
    minutes: float, rate: int, keys: int, seed: int, pause_s: float, samples: Path
) -> Outcome:
    """Run a soak; arguments as those of the command."""
    with (
        samples.open("w", encoding="ascii") as output,
        soak_server() as (server, disk),
        server.database("soak") as dsn,
    ):
        folder = Path(tempfile.mkdtemp(prefix="dataflow-soak-"))
        try:
            settings = Settings(
                store=dsn,
                start_us=time.time_ns() // 1_000 + _LEAD_S * US_PER_SECOND,
                rate=rate,
                keys=keys,
                seconds=int(minutes * 60),
                clock=str(folder / "clock"),
            )
            return Soak(settings, server, disk, folder, seed, pause_s, output).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the command; returns its exit status."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="how long")
    add("--rate", type=int, default=2_000, help="records a second; bursts have three times as many")
    add("--keys", type=int, default=500, help="users")
    add("--seed", type=int, default=Random().randrange(1 << 16), help="of the order of faults")
    add("--pause", type=float, default=20.0, help="seconds between two faults")
    add("--samples", type=Path, default=Path(os.devnull), help="a file for all samples, as JSON")
    add("--write-docs", action="store_true", help=f"put the outcome into {PAGE.name}")
    given = parser.parse_args()
    machine = tables.machine()
    command = harness.command(
        "benchmarks.soak",
        {
            "minutes": given.minutes,
            "rate": given.rate,
            "keys": given.keys,
            "seed": given.seed,
            "pause": given.pause,
        },
    )
    print(f"{command}\n{machine}", flush=True)
    try:
        outcome = measure(
            given.minutes, given.rate, given.keys, given.seed, given.pause, given.samples
        )
    except EndedError as error:
        print(f"FAILED: {error}")
        return 1
    print(f"\n{outcome.text()}")
    if given.write_docs:
        part = {"Soak": f"{time.strftime('%Y-%m-%d')}, `{command}`: {machine}\n\n{outcome.text()}"}
        PAGE.write_text(pages.filled_in(PAGE.read_text("utf-8"), part), "utf-8")
        pages.write_goals_of_reports()
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
