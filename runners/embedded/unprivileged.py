"""What it takes to run Postgres when the caller is root: Postgres refuses to, for good reason.

The server then runs as the system account `pgserver`, created on first use.
That account must be able to reach the programs and the data:

* programs that it cannot reach (a virtual environment in root's home) are copied to the state
  directory, so that the home stays closed;
* directories above the data get the permission to be passed through, never to be listed;
  a home directory does not, that is an error.
"""

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from runners.embedded.places import make_dir, state_dir
from runners.errors import EmbeddedServiceError

_ACCOUNT_NAME = "pgserver"
#: What all processes see that could make the account, whatever their home is.
_ACCOUNTS_DIR = "/etc"


@attrs.frozen(kw_only=True)
class Account:
    """The system account that the server runs as."""

    uid: int
    gid: int


def server_account() -> Account | None:
    """Return the account to run Postgres as, or None for the caller's own.

    Raises:
        EmbeddedServiceError: the caller is root and no account could be made.
    """
    if os.geteuid() != 0:
        return None
    entry = _entry() or _create_account()
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(_ACCOUNT_NAME)
    except KeyError:
        return None


def _create_account() -> pwd.struct_passwd:
    program = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    try:
        if program is None:
            raise FileNotFoundError("useradd")
        with _one_at_a_time():
            if _entry() is None:
                subprocess.run(
                    [program, "--system", "--shell", "/usr/sbin/nologin", _ACCOUNT_NAME],
                    check=True,
                    capture_output=True,
                    text=True,
                )
        return pwd.getpwnam(_ACCOUNT_NAME)
    except (OSError, KeyError, subprocess.CalledProcessError) as error:
        raise EmbeddedServiceError(
            "Postgres does not run as root, and no account could be made for it",
            detail=getattr(error, "stderr", "") or str(error),
            hint=f"run as an ordinary user, or create the account {_ACCOUNT_NAME!r}, "
            "or name a server: --store postgresql://user@host/database",
        ) from error


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keeps other processes of this machine from making the account meanwhile.

    Of several `useradd` for one name each succeeds, and the last gives the account another number: that of the others
    belongs to nobody then.
    """
    directory = os.open(_ACCOUNTS_DIR, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def reachable_programs(programs: Path, *, version: str) -> Path:
    """Return `programs`, or a copy of them where every account can run them.

    Args:
        programs: `<wheel>/<install>/bin`; the programs find their libraries beside `<wheel>`.
        version: of the wheel, so that an upgrade is not served by an old copy.
    """
    if all(_passable(parent) for parent in programs.parents) and _passable(programs / "postgres"):
        return programs
    install, wheel = programs.parent, programs.parent.parent
    home = state_dir() / f"postgres-programs-{version}"
    copy = home / wheel.name / install.name / "bin"
    if copy.is_dir():
        return copy
    make_dir(home.parent)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}.") as temporary:
        fresh = Path(temporary) / "fresh"
        shutil.copytree(install, fresh / wheel.name / install.name, symlinks=True)
        libraries = wheel.with_name(f"{wheel.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name)
        _open_for_reading(fresh)
        try:
            fresh.rename(home)
        except OSError:
            if not copy.is_dir():  # it is there when another process was quicker
                raise
    _let_through(copy)
    return copy


def hand_over(directory: Path, account: Account) -> None:
    """Make a directory the account's own, closed to everybody else, and reachable for it.

    Args:
        directory: is given to the account, with all that is in it.
        account: that the server will run as.

    Raises:
        EmbeddedServiceError: it lies in a home directory that is closed to other accounts.
    """
    os.chown(directory, account.uid, account.gid)
    directory.chmod(0o700)
    if any(_is_of_another(path, account) for path in directory.iterdir()):
        for folder, folders, files in os.walk(directory):
            for path in (Path(folder, name) for name in (*folders, *files)):
                if _is_of_another(path, account):
                    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    _let_through(directory)


def _is_of_another(path: Path, account: Account) -> bool:
    """Whether it was left by an account of the same name with another number: in a container made anew, for example."""
    return path.lstat().st_uid not in (os.geteuid(), account.uid)


def _let_through(path: Path) -> None:
    for parent in path.absolute().parents:
        if _passable(parent):
            continue
        if parent == Path.home():
            raise EmbeddedServiceError(
                f"Postgres cannot keep its data in {path}",
                detail=f"it does not run as root, and other accounts may not enter {parent}",
                hint="choose a directory outside it",
            )
        parent.chmod(parent.stat().st_mode | stat.S_IXOTH)


def _passable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXOTH)


def _open_for_reading(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            runnable = path.is_dir() or mode & stat.S_IXUSR
            path.chmod(mode | (0o555 if runnable else 0o444))
