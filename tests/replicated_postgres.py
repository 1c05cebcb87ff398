"""A Postgres of Debian's with a standby, for tests that have one take over from the other.

The embedded server has no programs for standbys.  `tools/fault_setup.sh` installs one that has, for `make faults`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg

from runners.embedded.unprivileged import Account, server_account

_START_TIMEOUT_S = 120
_POLL_S = 0.05
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0777",
    "max_connections": "100",
    "jit": "off",
    # Nothing but the tests may end a wait.
    "wal_sender_timeout": "0",
    "wal_receiver_timeout": "0",
}


def programs() -> Path:
    """Where the programs of a Postgres are that can have a standby.

    Raises:
        RuntimeError: there are none.
    """
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if given := os.environ.get("DATAFLOW_POSTGRES_PROGRAMS"):
        places.insert(0, Path(given))
    for place in places:
        if (place / "pg_basebackup").exists() and (place / "postgres").exists():
            return place
    raise RuntimeError("no Postgres that can have a standby; tools/fault_setup.sh installs one")


class ReplicatedServer:
    """One server: a data directory and the socket beside it; used by one thread.

    Args:
        home: where; it must exist, and the path of a socket in it must be short.
        programs_dir: of the server; None: Debian's.
        settings: in which it differs from others.
    """

    def __init__(
        self,
        home: Path,
        *,
        programs_dir: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.home, self._settings = home, settings
        self._programs, self._account = programs_dir or programs(), server_account()
        self._process: subprocess.Popen[bytes] | None = None
        _give(home, self._account)

    @property
    def data(self) -> Path:
        """What Postgres calls PGDATA."""
        return self.home / "data"

    @property
    def dsn(self) -> str:
        """Leads to this server, whether it is a primary or not."""
        return f"host={self.home} port=5432 user=postgres dbname=postgres"

    def initialise(self) -> None:
        """Make an empty cluster."""
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "-E", "UTF8")

    def back_up(
        self, primary: "ReplicatedServer", *, as_standby: bool, slot: str | None = None
    ) -> None:
        """Take a base backup of a running server as the data; of a standby, one that follows it, by a slot if named."""
        options = ["--checkpoint=fast", "--wal-method=stream"]
        options += ["--write-recovery-conf"] if as_standby else []
        options += [] if slot is None else ["--create-slot", f"--slot={slot}"]
        self._run("pg_basebackup", "-D", str(self.data), "-d", primary.dsn, *options)

    def take_data_of(self, other: "ReplicatedServer") -> None:
        """Take over a copy of the data of another server, which is not running."""
        assert self._process is None
        shutil.rmtree(self.data)
        shutil.copytree(other.data, self.data)
        for path in (self.data, *self.data.rglob("*")):
            _give(path, self._account)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {**_SETTINGS, **self._settings, "unix_socket_directories": str(self.home)}
        options = [word for item in settings.items() for word in ("-c", "=".join(item))]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                **self._as_account(),
            )
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn).close()
                return
            assert time.monotonic() < deadline_s, (self.home / "log").read_text()
            time.sleep(_POLL_S)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the server, by default at once; nothing happens if it does not run."""
        if self._process is None:
            return
        children = self.ask("SELECT pid FROM pg_stat_activity") if self.is_alive else []
        self._process.send_signal(how)
        self._process.wait(_START_TIMEOUT_S)
        self._process = None
        # Those of a killed server find out by themselves; the next one waits for its shared memory.
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while any(Path(f"/proc/{pid}").exists() for (pid,) in children):
            assert time.monotonic() < deadline_s, "the server's processes do not end"
            time.sleep(_POLL_S)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query, asked as a superuser in a connection of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def configure(self, setting: str, value: str) -> None:
        """Change a setting while it runs."""
        self.ask(f"ALTER SYSTEM SET {setting} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def wait_for(self, query: str, what: str) -> None:
        """Wait until a query returns TRUE."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while self.ask(query) != [(True,)]:
            assert time.monotonic() < deadline_s, what
            time.sleep(_POLL_S)

    def promote(self) -> None:
        """Make a primary of a standby."""
        self.ask("SELECT pg_promote()")
        self.wait_for("SELECT NOT pg_is_in_recovery()", "the standby is not promoted")

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *words],
            capture_output=True,
            text=True,
            check=False,
            **self._as_account(),
        )
        assert done.returncode == 0, done.stderr

    def _as_account(self) -> dict[str, Any]:
        account = self._account
        if account is None:
            return {}
        return {"user": account.uid, "group": account.gid, "extra_groups": [], "cwd": "/"}


@contextlib.contextmanager
def pooler(server: ReplicatedServer, pool_mode: str) -> Iterator[str]:
    """A pgbouncer in front of a server, and the DSN that leads through it.

    Raises:
        RuntimeError: there is none.
    """
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise RuntimeError("no pgbouncer; tools/fault_setup.sh installs one")
    home = server.home / f"pooler-{pool_mode}"
    home.mkdir()
    settings = home / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={server.home} port=5432 user=postgres\n[pgbouncer]\npool_mode = {pool_mode}\n"
        f"unix_socket_dir = {home}\nlisten_port = 6432\nauth_type = any\n"
        # What psycopg asks for at the beginning of a session.
        "ignore_startup_parameters = extra_float_digits\n"
        # Of a server that is away: the answer is an error soon.
        "query_wait_timeout = 5\nserver_login_retry = 1\n"
    )
    (home / "pgbouncer.ini").chmod(0o644)
    account = server_account()
    _give(home, account)
    options: dict[str, Any] = {}
    if account is not None:
        options = {"user": account.uid, "group": account.gid, "extra_groups": []}
    process = subprocess.Popen([program, "-q", str(settings)], cwd="/", **options)
    try:
        dsn = f"host={home} port=6432 user=postgres dbname=postgres"
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not (home / ".s.PGSQL.6432").exists():
            assert time.monotonic() < deadline_s, "pgbouncer does not start"
            time.sleep(_POLL_S)
        yield dsn
    finally:
        process.terminate()
        process.wait(_START_TIMEOUT_S)


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)
