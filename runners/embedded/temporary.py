"""Servers of one's own, for tests and benchmarks: in a temporary directory, stopped and deleted with the block.

A process that is killed leaves its server running, and nobody comes back for its data.  So whoever starts such a server
first stops those of processes that are gone, and deletes what they have left.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runners.embedded.postgres import (
    embedded_postgres,
    release_embedded_postgres,
    stop_unused_postgres,
)
from runners.temporary_dirs import abandoned_dir, make_temporary_dir, remove_temporary_dir

#: Of directories in the system's temporary directory, because the path of a socket must be short.
_PREFIX = "dataflow-temporary-pg-"
#: So that changes of tables can be followed, by many jobs.  Not for every server: a store would log a quarter more.
FOLLOWED: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
}


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A directory for the data of a server (`embedded_postgres`), which is stopped, and all of it deleted, afterwards.

    Raises:
        OSError: there is no room for it.
    """
    stop_abandoned_servers()
    directory = make_temporary_dir(_PREFIX)
    # Where root runs this, the server runs as somebody else, who must reach that user's part of it.
    directory.chmod(0o711)
    home = directory / "pg"
    try:
        yield home
    finally:
        release_embedded_postgres(home)
        remove_temporary_dir(directory)


@contextmanager
def temporary_postgres(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The DSN of a server of one's own, stopped and deleted afterwards.

    Args:
        settings: of the server, where they differ from those of every embedded one; such as `FOLLOWED`.

    Raises:
        EmbeddedServiceError: the wheel is missing, or the server does not start.
    """
    with temporary_home() as home:
        yield postgres_with(settings, home) if settings else embedded_postgres(home)


def postgres_with(settings: Mapping[str, str], home: Path) -> str:
    """Start a server of this process alone, with settings; returns its DSN.

    Args:
        settings: values by name; they stay with the data.
        home: where the data are.

    Raises:
        EmbeddedServiceError: the wheel is missing, or the server does not start.
    """
    embedded_postgres(home)
    # Some are read when the server starts.
    release_embedded_postgres(home)
    with (home / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    return embedded_postgres(home)


def stop_abandoned_servers() -> None:
    """Stop the servers of processes that were killed, and delete their data; those of live processes are left alone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with abandoned_dir(directory) as is_abandoned:
            home = directory / "pg"
            if is_abandoned and (not home.exists() or stop_unused_postgres(home)):
                shutil.rmtree(directory, ignore_errors=True)
