"""One Postgres data directory: make it, start it, find it running, stop it.

All files are in one directory, `home`: `data` (the cluster), `log` and the socket.
The server listens on that Unix socket only, which the directory's owner alone can reach.
Settings are the durable defaults: fsync, full page writes and synchronous commit stay on.

Not here: who uses the server and when it may stop (see `postgres`); callers hold that lock.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import psutil

from runners.embedded.locate import find_programs, find_socket_dir
from runners.embedded.places import make_dir
from runners.embedded.unprivileged import Account, hand_over, server_account
from runners.errors import EmbeddedServiceError

_PORT = 5432
"""Only part of the socket's file name; nothing listens on a network port."""
#: Postgres has 1,024 bytes for the path of each of its files.
_HOME_BYTES_MAX = 900

_START_TIMEOUT_S = 300  # recovery after a crash replays the log, which may be long
_STOP_TIMEOUT_S = 60
_ORPHANS_TIMEOUT_S = 30
_PAUSE_S = 0.05

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(_PORT),
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # A stream's tables are small and turn over quickly: in a minute, by default, they grow to many times their size.
    "autovacuum_naptime": "10s",
    # What backends and vacuums write goes to disk bit by bit: commits do not wait for all of it every half minute.
    "backend_flush_after": "1MB",
    "jit": "off",  # compiling costs more than the short statements of a bundle
}


@attrs.frozen(kw_only=True)
class Cluster:
    """A data directory and the programs that serve it; the methods are not safe to run twice."""

    home: Path
    socket_dir: Path
    programs: Path
    account: Account | None

    @property
    def data(self) -> Path:
        """The directory that Postgres calls PGDATA."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The file that the server writes its messages to."""
        return self.home / "log"

    @property
    def dsn(self) -> str:
        """The address, complete: no PG* variable of the environment can change it."""
        return f"postgresql://postgres@/postgres?host={self.socket_dir}&port={_PORT}"

    def ensure_running(self) -> None:
        """Make the data if there are none, and start the server if none answers.

        Raises:
            EmbeddedServiceError: with the end of the server's log.
        """
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        for _ in _pauses(_START_TIMEOUT_S):
            if self._accepts():
                return
            if self.server() is None:
                self._clear_away_the_dead()
                self._start()
        raise self._failure("The embedded Postgres is running but accepts no connection.")

    def server(self) -> psutil.Process | None:
        """Return the main process of the running server, or None if there is none to be seen."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            ours = process.name() == "postgres" and str(self.data) in process.cmdline()
        except (FileNotFoundError, ValueError, psutil.Error):
            return None
        return process if ours else None

    def _initialise(self) -> None:
        for leftover in self.home.glob("data.new-*"):
            shutil.rmtree(leftover)
        # Made aside and renamed: a process killed half way must not leave half a cluster.
        fresh = Path(tempfile.mkdtemp(dir=self.home, prefix="data.new-"))
        if self.account:
            os.chown(fresh, self.account.uid, self.account.gid)
        # The C locale exists everywhere, and sorts by bytes whatever the user's language is.
        done = self._run(
            "initdb",
            f"--pgdata={fresh}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-instructions",
        )
        if done.returncode:
            raise self._failure("Postgres could not make its data directory.", done.stdout)
        fresh.rename(self.data)
        _sync_directory(self.home)

    def _clear_away_the_dead(self) -> None:
        # Postgres looks only whether the pids in these files exist.  A pid may be anybody's by now,
        # and in a container that collects no zombies a killed server's own pid stays for ever.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for name in (f".s.PGSQL.{_PORT}", f".s.PGSQL.{_PORT}.lock"):
            (self.socket_dir / name).unlink(missing_ok=True)

    def _start(self) -> None:
        settings = {**_SETTINGS, "unix_socket_directories": str(self.socket_dir)}
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log_size_before = self.log.stat().st_size if self.log.exists() else 0
        for _ in _pauses(_ORPHANS_TIMEOUT_S):
            done = self._run(
                "pg_ctl",
                "start",
                "--silent",
                "--wait",
                f"--timeout={_START_TIMEOUT_S}",
                f"--pgdata={self.data}",
                f"--log={self.log}",
                f"--options={options}",
            )
            if done.returncode == 0:
                return
            output = self.log.read_bytes()[log_size_before:] if self.log.exists() else b""
            # The children of a killed server need a moment to notice and to let go of its memory.
            if b"pre-existing shared memory block" not in output:
                break
        raise self._failure("The embedded Postgres did not start.", done.stdout)

    def stop(self, server: psutil.Process) -> None:
        """Stop the server: connections are cut, what was committed is on disk."""
        for how in (signal.SIGINT, signal.SIGQUIT):  # fast; and if it hangs, immediate
            with contextlib.suppress(psutil.NoSuchProcess):
                server.send_signal(how)
            for _ in _pauses(_STOP_TIMEOUT_S):
                if _is_gone(server):
                    return

    def _accepts(self) -> bool:
        where = f"--host={self.socket_dir}", f"--port={_PORT}", "--username=postgres"
        return self._run("pg_isready", *where).returncode == 0

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        account = self.account
        # A file, not a pipe: the server inherits it, and a pipe would not end before the server.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [self.programs / program, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The user's PG* and LC_* variables are for other servers.
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                cwd=self.home,
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the pipeline, not for its database
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read())

    def _failure(self, fact: str, output: str = "") -> EmbeddedServiceError:
        log = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        tail = "\n".join((output.strip().splitlines() + log.strip().splitlines())[-12:])
        return EmbeddedServiceError(
            fact,
            detail=f"{tail}\n(data: {self.data}, log: {self.log})",
            hint="name another server: --store postgresql://user@host/database",
        )


def open_cluster(home: Path) -> Cluster:
    """Make a data directory usable and find what serves it; start nothing.

    Raises:
        EmbeddedServiceError: the programs are missing, or the directory cannot be used.
    """
    if len(os.fsencode(home)) > _HOME_BYTES_MAX:
        raise EmbeddedServiceError(
            f"the name of the data directory is too long for Postgres: {len(os.fsencode(home))} bytes",
            detail=f"it begins with {str(home)[:80]}; at most {_HOME_BYTES_MAX}",
            hint="choose a shorter one, e.g. with the variable DATAFLOW_STATE_DIR",
        )
    account = server_account()
    programs = find_programs(home / "data", account)
    make_dir(home)
    socket_dir = find_socket_dir(home, account)
    if account:
        hand_over(home, account)
        hand_over(socket_dir, account)
    return Cluster(home=home, socket_dir=socket_dir, programs=programs, account=account)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_gone(process: psutil.Process) -> bool:
    # A zombie is gone too: in a container often nobody collects it.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _pauses(timeout_s: float) -> Iterator[None]:
    """Yield at once, then after each pause, until the time is over."""
    for _ in range(round(timeout_s / _PAUSE_S)):
        yield
        time.sleep(_PAUSE_S)
