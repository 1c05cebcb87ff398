"""Faults for a running job: kills, a full disk, a snapshot that is held, checkpoints, jumps of its clock."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from random import Random

import attrs
import psycopg

from benchmarks.scale.jobs import owners
from benchmarks.soak.job import JOB
from benchmarks.stores import Server, open_snapshot
from runners.embedded.postgres import embedded_postgres
from runners.registry import open_store

_WORKER_WAIT_S = 60.0
_FULL_S = 8.0
_SNAPSHOT_S = 30.0
#: Seconds that a clock is ahead, or behind, until it jumps again.
_JUMPS_S = (0, 2, -2, 60, -60, 3_600)


@attrs.frozen(kw_only=True)
class Target:
    """The parts of a running job into which faults are injected.

    Attributes:
        server: of Postgres.
        dsn: of the job's database.
        driver: kills the driver that runs now.
        is_ours: whether a process, by its id, is one of the job: ids in the store can be those of others by now.
        clock: the file with the offset of the job's clocks.
        disk: the folder of the server's data where it is a disk of its own that may be filled; None: it is not.
        wait: waits for so many seconds while a fault lasts.
    """

    server: Server
    dsn: str
    driver: Callable[[], None]
    is_ours: Callable[[int], bool]
    clock: Path
    disk: Path | None
    wait: Callable[[float], object]


def kill_worker(target: Target, chance: Random) -> None:
    """Kill -9 of a worker; waits until there is one.

    Raises:
        TimeoutError: there is none for a minute.
    """
    until_s = time.monotonic() + _WORKER_WAIT_S
    while time.monotonic() < until_s:
        with closing(open_store(target.dsn)) as store:
            found = sorted(filter(target.is_ours, set(owners(store, JOB).values())))
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
            return
        time.sleep(1)
    raise TimeoutError(f"the job has had no worker for {_WORKER_WAIT_S:.0f} s")


def kill_driver(target: Target, _: Random) -> None:
    """Kill -9 of the driver, whose Java and workers have to notice."""
    target.driver()


def kill_postgres(target: Target, _: Random) -> None:
    """Kill -9 of Postgres, which is started again."""
    target.server.restart(signal.SIGKILL)


def restart_postgres(target: Target, _: Random) -> None:
    """Restart Postgres as an administrator does."""
    target.server.restart(signal.SIGINT)


def hold_snapshot(target: Target, _: Random) -> None:
    """Hold a snapshot for half a minute."""
    with contextlib.suppress(psycopg.Error), open_snapshot(target.dsn):
        target.wait(_SNAPSHOT_S)


def checkpoint(target: Target, _: Random) -> None:
    """Have Postgres write everything out at once."""
    with closing(psycopg.connect(target.dsn, autocommit=True)) as connection:
        connection.execute("CHECKPOINT")


def jump(target: Target, chance: Random) -> None:
    """Set the job's clocks on the wall forward or back."""
    target.clock.write_text(str(chance.choice(_JUMPS_S) * 1_000_000), "ascii")


def fill_disk(target: Target, _: Random) -> None:
    """Leave no space to Postgres for some seconds; it may end by that, and is started again."""
    assert target.disk is not None
    with _full(target.disk):
        target.wait(_FULL_S)
    with contextlib.suppress(psycopg.Error), psycopg.connect(target.dsn, connect_timeout=5):
        return
    embedded_postgres(target.server.home)


FAULTS: Mapping[str, Callable[[Target, Random], None]] = {
    "kill -9 of a worker": kill_worker,
    "kill -9 of the driver": kill_driver,
    "kill -9 of Postgres": kill_postgres,
    "restart of Postgres": restart_postgres,
    "snapshot held": hold_snapshot,
    "checkpoint": checkpoint,
    "clock jumps": jump,
    "disk full": fill_disk,
}


def in_rounds(chance: Random, *, has_disk: bool) -> Iterator[str]:
    """Names of faults without end: each once in a round, in an order of its own."""
    names = [name for name in FAULTS if has_disk or FAULTS[name] is not fill_disk]
    while True:
        chance.shuffle(names)
        yield from names


@contextlib.contextmanager
def _full(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as output:
            while True:
                output.write(bytes(1 << 16))
        yield
    finally:
        filler.unlink(missing_ok=True)
