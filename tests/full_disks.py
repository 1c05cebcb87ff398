"""A small disk of a test's own, which can be full for a while."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK = "160m"


@contextlib.contextmanager
def mounted_disk() -> Iterator[Path]:
    """A tmpfs of its own; a skip where the machine mounts none for us."""
    directory = Path(tempfile.mkdtemp(prefix="dataflow-disk-"))
    options = ["-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(directory)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        directory.rmdir()
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        # Whoever has left a file open there, as Spark does of what it could not write, keeps it until it ends.
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        directory.rmdir()


def fill(disk: Path) -> None:
    """Leave no space."""
    with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as output:
        while True:
            output.write(bytes(4096))


def free(disk: Path) -> None:
    """Give it back."""
    (disk / "filler").unlink(missing_ok=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """A disk that is full meanwhile."""
    fill(disk)
    yield
    free(disk)
