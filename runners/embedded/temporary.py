"""Servers of one's own, for tests and benchmarks: in a temporary directory, stopped and deleted with the block.

A process that is killed leaves its server running, and nobody comes back for its data.  So whoever starts such a server
first stops those of processes that are gone, and deletes what they have left.
"""

import shutil
import tempfile
from collections.abc import Iterator
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
def temporary_postgres() -> Iterator[str]:
    """The DSN of a server of one's own, stopped and deleted afterwards.

    Raises:
        EmbeddedServiceError: the wheel is missing, or the server does not start.
    """
    with temporary_home() as home:
        yield embedded_postgres(home)


def stop_abandoned_servers() -> None:
    """Stop the servers of processes that were killed, and delete their data; those of live processes are left alone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with abandoned_dir(directory) as is_abandoned:
            home = directory / "pg"
            if is_abandoned and (not home.exists() or stop_unused_postgres(home)):
                shutil.rmtree(directory, ignore_errors=True)
