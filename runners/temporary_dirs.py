"""Directories for as long as a process lives, however it ends: what a killed one leaves, the next one clears away.

Each has a file that its process keeps locked.  The operating system drops the lock of a process however it dies, and
no child inherits it, so an unlocked one belongs to nobody; there is no pid that could be somebody else's by now.
A directory without such a file was made by something else, and is left alone.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = "owner.lock"
#: Of this process: to look at the lock of one of them would drop it.
_ours: dict[Path, int] = {}


def make_temporary_dir(prefix: str) -> Path:
    """A new directory that is removed when this process ends.

    Args:
        prefix: of its name.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    # Locked before it has its name: a process that sees the file sees the lock.
    unnamed = directory / f"{_LOCK}.new"
    _ours[directory] = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(_ours[directory], fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(directory / _LOCK)
    atexit.register(remove_temporary_dir, directory, os.getpid())
    return directory


def remove_temporary_dir(directory: Path, pid: int | None = None) -> None:
    """Remove a directory of this process, whose id is ``pid``; does nothing in a forked child.  Idempotent.

    Args:
        directory: to remove, with all that is in it.
        pid: of the process that made it.
    """
    if pid in (None, os.getpid()) and directory in _ours:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(_ours.pop(directory))


@contextlib.contextmanager
def abandoned_dir(directory: Path) -> Iterator[bool]:
    """Whether a directory belongs to nobody any more; within the block nobody else clears it away."""
    if directory in _ours:
        yield False
        return
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def clear_abandoned_dirs(prefix: str) -> None:
    """Remove what processes with `make_temporary_dir` have left that are gone; what cannot be removed stays."""
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with abandoned_dir(directory) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(directory, ignore_errors=True)
