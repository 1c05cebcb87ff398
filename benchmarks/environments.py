"""Virtual environments of peers, made when they are first asked for and kept in a cache."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.registry import Peer

_TAIL_LINES = 3


class UnavailableError(Exception):
    """A peer is not available here; the message has the reason in one line."""


def interpreter(peer: Peer, cache: Path) -> str:
    """The Python that runs a peer: this one, or that of its own environment.

    Raises:
        UnavailableError: its packages cannot be installed.
    """
    if not peer.requirements:
        return sys.executable
    wanted = "\n".join((sys.version, *peer.requirements))
    home = cache / f"{peer.name}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    python, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        print(f"{peer.name}: installing {' '.join(peer.requirements)} into {home}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        _run(peer, [sys.executable, "-m", "venv", str(home)])
        _run(peer, [str(python), "-m", "pip", "install", "--quiet", *peer.requirements])
        complete.touch()
    return str(python)


def _run(peer: Peer, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = " / ".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL_LINES:])
        raise UnavailableError(f"{peer.name} cannot be had here, so it is left out: {output}")
