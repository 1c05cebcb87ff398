"""A Postgres server that starts when the first process needs it and stops when the last one leaves.

Any number of processes share one server per data directory.
Each has a shared lock for as long as it lives; the process that leaves last stops the server.
The operating system drops the lock of a process however it dies, so there is no list of pids that
could be out of date: a server left running by a killed process is found and reused by the next one,
and stopped by it.

The lock is a POSIX record lock, which a forked child does not inherit: the child of a user of the
server is not a user, and its end stops nothing.
A process that is ended by a signal it does not handle (such as SIGTERM) leaves the server running;
`stop_unused_postgres` stops it, where no process comes back for its data.

Invariant: a server is started or stopped only by a process that holds the gate.
"""

import atexit
import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from runners.embedded.locate import wheel_dir
from runners.embedded.places import state_dir
from runners.errors import EmbeddedServiceError

if TYPE_CHECKING:
    from runners.embedded.cluster import Cluster

_GATE, _USERS = 0, 1  # one byte each of the lock file

_leases: dict[Path, "_Lease"] = {}
_threads = threading.RLock()  # record locks do not exclude the threads of one process


@attrs.define(kw_only=True)
class _Lease:
    """This process's share in a server; owned by `_threads`."""

    cluster: "Cluster"
    lock_file: int
    pid: int


def embedded_postgres(data_dir: Path | None = None) -> str:
    """Return the address of a running server, making its data and starting it where needed.

    The same data directory always has the same address.
    To be called by the driver alone, never by its workers, and again whenever the server is found
    dead: a running server is left as it is, a killed one is recovered.
    The first call takes one to three seconds, later ones some ten milliseconds.

    Args:
        data_dir: where the data are; by default below the user's state directory, so that a job
            that is run again finds its state.

    Returns:
        A libpq connection string with the socket's directory; valid on this machine only.

    Raises:
        EmbeddedServiceError: the wheel is missing, or the server does not start.
    """
    home = _home(data_dir)
    with _threads:
        lease = _leases.get(home)
        if lease is None or lease.pid != os.getpid():
            lease = _new_lease(home)
        with _gate(lease.lock_file):
            lease.cluster.ensure_running()
            fcntl.lockf(lease.lock_file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _USERS)
            _leases[home] = lease
        return lease.cluster.dsn


def release_embedded_postgres(data_dir: Path | None = None) -> None:
    """Give up this process's share; the last one stops the server.

    Happens by itself when the process exits.
    Without a share of this process's own it does nothing.
    """
    home = _home(data_dir)
    with _threads:
        lease = _leases.get(home)
        if lease is None or lease.pid != os.getpid():
            return
        del _leases[home]
        try:
            with _gate(lease.lock_file):
                server = lease.cluster.server()
                if server is not None and _is_last_user(lease.lock_file):
                    lease.cluster.stop(server)
        finally:
            os.close(lease.lock_file)  # gives up this process's share of the server


def stop_unused_postgres(data_dir: Path) -> bool:
    """Stop the server of a data directory that no process uses, as one leaves it that was ended by a signal.

    Returns:
        Whether it is not running now, so that the directory may go.
    """
    home = _home(data_dir)
    with _threads:
        if home in _leases:
            return False
        # Only now: it needs psutil, which comes with the wheel.
        from runners.embedded.cluster import open_cluster  # noqa: PLC0415 - the servers are an extra, and take long to import

        lock_file = _open_lock(home)
        try:
            with _gate(lock_file):
                if not _is_last_user(lock_file):
                    return False
                cluster = open_cluster(home)
                server = cluster.server()
                if server is not None:
                    cluster.stop(server)
        finally:
            os.close(lock_file)
    return True


def _home(data_dir: Path | None) -> Path:
    return (state_dir() / "postgres" if data_dir is None else data_dir.expanduser()).resolve()


def _new_lease(home: Path) -> _Lease:
    wheel_dir()
    # Only now: it needs psutil, which comes with the wheel.
    from runners.embedded.cluster import open_cluster  # noqa: PLC0415 - the servers are an extra, and take long to import

    lease = _Lease(cluster=open_cluster(home), lock_file=_open_lock(home), pid=os.getpid())
    atexit.register(release_embedded_postgres, home)
    return lease


def _open_lock(home: Path) -> int:
    try:
        return os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedServiceError(
            f"the directory {home} cannot be used for Postgres",
            detail=str(error),
            hint="choose a directory of your own",
        ) from error


@contextlib.contextmanager
def _gate(lock_file: int) -> Iterator[None]:
    fcntl.lockf(lock_file, fcntl.LOCK_EX, 1, _GATE)
    try:
        yield
    finally:
        fcntl.lockf(lock_file, fcntl.LOCK_UN, 1, _GATE)


def _is_last_user(lock_file: int) -> bool:
    try:
        fcntl.lockf(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _USERS)
    except BlockingIOError:
        return False
    return True
