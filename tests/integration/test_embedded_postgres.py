"""The embedded Postgres lives as long as somebody uses it, and survives whatever is killed.

Users of the server are real processes here; each runs a script that reports with `print`.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from runners.embedded.postgres import embedded_postgres, release_embedded_postgres
from runners.embedded.temporary import stop_abandoned_servers
from tests.waiting import WAIT_MAX_S

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]

HOLD = """
print("ready", flush=True)
sys.stdin.readline()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    # Not tmp_path: its name is too long for a socket, and that is a test of its own.
    directory = Path(tempfile.mkdtemp(prefix="dataflow-pg-"))
    yield directory
    release_embedded_postgres(directory)
    left = servers(directory)
    kill(*left)
    shutil.rmtree(directory)
    assert not left


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a user of the server, with a script that finds the address in `dsn`."""
    started: list[subprocess.Popen[str]] = []

    def start(data_dir: Path, script: str = "", **how: Any) -> subprocess.Popen[str]:
        program = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from runners.embedded.postgres import embedded_postgres\n"
            "dsn = embedded_postgres(Path(sys.argv[1]))\n"
        ) + textwrap.dedent(script)
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(data_dir)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **how,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def holder(start: Start, data_dir: Path) -> subprocess.Popen[str]:
    """Start a user that stays until it is asked to finish."""
    process = start(data_dir, HOLD)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def finished(process: subprocess.Popen[str]) -> str:
    """Let a user finish in good order; return what it reported."""
    output, errors = process.communicate("\n", timeout=WAIT_MAX_S)
    assert (process.returncode, errors) == (0, "")
    return output.strip()


def servers(data_dir: Path) -> list[psutil.Process]:
    """The main processes of servers on this directory; a zombie has no command line.

    A process that one of them has just started has its command line for a moment.
    """
    found = [
        process
        for process in psutil.process_iter(["name", "cmdline", "ppid"])
        if process.info["name"] == "postgres"
        and str(data_dir / "data") in (process.info["cmdline"] or [])
    ]
    numbers = {process.pid for process in found}
    return [process for process in found if process.info["ppid"] not in numbers]


def kill(*processes: psutil.Process) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def setting(dsn: str, name: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return row[0]


def remember(dsn: str, word: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        connection.execute("INSERT INTO words VALUES (%s)", [word])


def remembered(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]


def test_settings_are_durable_and_nothing_listens_on_the_network(data_dir: Path) -> None:
    dsn = embedded_postgres(data_dir)

    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        assert setting(dsn, name) == "on"
    assert setting(dsn, "listen_addresses") == ""
    assert str(setting(dsn, "server_version")).startswith("18")
    assert setting(dsn, "timezone") == "UTC"
    (server,) = servers(data_dir)
    assert not server.net_connections("inet")


def test_address_is_not_moved_by_the_environment(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PGPORT", "1"), ("PGHOST", "nowhere"), ("PGDATA", "/"), ("PGUSER", "x")):
        monkeypatch.setenv(name, value)

    assert setting(embedded_postgres(data_dir), "port") == "5432"


def test_only_user_stops_the_server_and_the_data_stay(start: Start, data_dir: Path) -> None:
    script = """
        import psycopg
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
            connection.execute("INSERT INTO words VALUES ('once')")
    """
    for _ in range(2):
        assert finished(start(data_dir, script)) == ""
        assert not servers(data_dir)

    assert remembered(embedded_postgres(data_dir)) == ["once", "once"]


def test_users_that_start_at_once_share_one_server(start: Start, data_dir: Path) -> None:
    users = [start(data_dir, f"print(dsn){HOLD}") for _ in range(4)]
    for user in users:
        assert user.stdout is not None
        assert str(data_dir) in user.stdout.readline()
        assert user.stdout.readline() == "ready\n"

    assert len(servers(data_dir)) == 1
    for user in users:
        assert len(servers(data_dir)) == 1
        finished(user)
    assert not servers(data_dir)


@pytest.mark.nightly
def test_coming_and_going_never_leaves_a_user_without_server(start: Start, data_dir: Path) -> None:
    script = """
        import psycopg
        with psycopg.connect(dsn) as connection:
            print(connection.execute("SELECT 1").fetchone()[0])
    """
    for _ in range(2):
        users = [start(data_dir, script) for _ in range(4)]
        assert [finished(user) for user in users] == ["1"] * 4
    assert not servers(data_dir)


def test_server_of_a_killed_user_is_reused_and_then_stopped(start: Start, data_dir: Path) -> None:
    user = holder(start, data_dir)
    user.kill()
    user.wait()
    (left,) = servers(data_dir)

    next_user = holder(start, data_dir)

    assert servers(data_dir) == [left]
    finished(next_user)
    assert not servers(data_dir)


def test_killed_user_does_not_count_as_a_user(start: Start, data_dir: Path) -> None:
    killed, other = holder(start, data_dir), holder(start, data_dir)
    killed.kill()
    killed.wait()

    finished(other)

    assert not servers(data_dir)


def test_killed_server_is_recovered_with_its_data(data_dir: Path) -> None:
    dsn = embedded_postgres(data_dir)
    remember(dsn, "before")
    (server,) = servers(data_dir)
    kill(server)

    assert embedded_postgres(data_dir) == dsn

    assert remembered(dsn) == ["before"]
    release_embedded_postgres(data_dir)
    assert not servers(data_dir)


def test_everything_killed_is_recovered_by_the_next_user(start: Start, data_dir: Path) -> None:
    user = holder(start, data_dir)
    (server,) = servers(data_dir)
    kill(psutil.Process(user.pid), server, *server.children())
    user.wait()
    assert (data_dir / "data" / "postmaster.pid").exists()

    finished(start(data_dir))

    assert not servers(data_dir)


def test_pid_file_with_the_pid_of_another_program_is_ignored(data_dir: Path) -> None:
    embedded_postgres(data_dir)
    (server,) = servers(data_dir)
    pid_file = data_dir / "data" / "postmaster.pid"
    stale = pid_file.read_text().replace(str(server.pid), str(os.getppid()), 1)
    release_embedded_postgres(data_dir)
    pid_file.write_text(stale)

    assert setting(embedded_postgres(data_dir), "port") == "5432"


def test_half_made_data_are_thrown_away(data_dir: Path) -> None:
    half = data_dir / "data.new-killed"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")

    embedded_postgres(data_dir)

    assert not half.exists()


@pytest.mark.parametrize("way_out", ["sys.exit()", "os._exit(0)", "raise SystemExit"])
def test_forked_child_stops_nothing(start: Start, data_dir: Path, way_out: str) -> None:
    user = start(
        data_dir,
        f"""
        pid = os.fork()
        if pid == 0:
            {way_out}
        os.waitpid(pid, 0)
        {HOLD.strip()}
        """.replace("sys.stdin", "        sys.stdin"),
    )
    assert user.stdout is not None
    assert user.stdout.readline() == "ready\n"

    assert len(servers(data_dir)) == 1
    finished(user)
    assert not servers(data_dir)


def test_surviving_child_does_not_keep_the_server(start: Start, data_dir: Path) -> None:
    user = start(
        data_dir,
        """
        pid = os.fork()
        if pid == 0:
            import time
            for handle in (0, 1, 2):
                os.close(handle)
            time.sleep(60)
        print(pid)
        """,
    )

    child = psutil.Process(int(finished(user)))

    assert not servers(data_dir)
    kill(child)


def test_child_may_become_a_user_itself(start: Start, data_dir: Path) -> None:
    user = start(
        data_dir,
        """
        pid = os.fork()
        if pid == 0:
            assert embedded_postgres(Path(sys.argv[1])) == dsn
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        print("ready", flush=True)
        sys.stdin.readline()
        """,
    )
    assert user.stdout is not None
    assert user.stdout.readline() == "ready\n"

    assert len(servers(data_dir)) == 1
    finished(user)
    assert not servers(data_dir)


def test_directory_with_a_long_and_odd_name_works(start: Start, data_dir: Path) -> None:
    odd = data_dir / "a b, 'c' %d" / ("x" * 100)
    odd.mkdir(parents=True)
    script = """
        import psycopg
        with psycopg.connect(dsn) as connection:
            print(connection.execute("SELECT 1").fetchone()[0])
        print(dsn.split("host=")[1].split("&")[0])
    """

    answer, socket_dir = finished(start(odd, script)).splitlines()

    assert answer == "1"
    assert not servers(odd)
    shutil.rmtree(socket_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_works_as_an_ordinary_user(start: Start, data_dir: Path) -> None:
    nobody: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    shutil.chown(data_dir, "nobody", "nogroup")
    try:
        user = start(data_dir, HOLD, **nobody)
    except PermissionError:
        pytest.skip("this Python is closed to other users")
    assert user.stdout is not None
    assert user.stdout.readline() == "ready\n", user.communicate()[1]

    (server,) = servers(data_dir)
    assert server.username() == "nobody"
    finished(user)
    assert not servers(data_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="about what root may not do")
def test_home_of_root_stays_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Start
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))

    user = start(tmp_path / "data")

    _, errors = user.communicate(timeout=WAIT_MAX_S)
    assert "choose a directory outside it" in errors
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("module", "server"),
    [
        ("runners.embedded.temporary", "temporary_postgres()"),
        pytest.param("benchmarks.stores", "server_at(None)", marks=pytest.mark.nightly),
        pytest.param("benchmarks.stores", "commit_stamping_server()", marks=pytest.mark.nightly),
    ],
)
def test_the_server_of_a_run_that_was_terminated_is_stopped_by_the_next_one(
    module: str, server: str
) -> None:
    """And its data are removed; that of a run which is alive is left alone."""
    program = (
        f"import time; from {module} import *; kept = {server}; found = kept.__enter__();"
        "print(getattr(found, 'dsn', found), flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as run:
        assert run.stdout is not None
        dsn = run.stdout.readline().strip()
        stop_abandoned_servers()
        with psycopg.connect(dsn) as connection:
            connection.execute("SELECT 1")
        run.terminate()
        run.wait()
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT 1")
    directory = Path(str(conninfo_to_dict(dsn)["host"]))
    stop_abandoned_servers()

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    assert not directory.exists() or not list(directory.glob(".s.PGSQL.*"))
