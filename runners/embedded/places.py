"""Where the SDK keeps what must outlive a run, and how a file there appears whole or not at all.

`DATAFLOW_STATE_DIR` moves everything; otherwise the operating system's own convention decides.
"""

import os
import tempfile
from pathlib import Path

import platformdirs

from runners.errors import EmbeddedServiceError

STATE_DIR_VARIABLE = "DATAFLOW_STATE_DIR"


def state_dir() -> Path:
    """Return the directory for state that must survive the process; it may not exist yet.

    For root it is a system directory (`/var/lib/dataflow-sdk` on Linux), not root's home:
    Postgres refuses to run as root, and the account it runs as cannot enter that home.
    """
    chosen = os.environ.get(STATE_DIR_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_state_path("dataflow-sdk", appauthor=False, use_site_for_root=True)


def make_dir(path: Path) -> None:
    """Create a directory and its parents.

    Raises:
        EmbeddedServiceError: it cannot be created; the hint is how to choose another place.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedServiceError(
            f"the directory {path} cannot be created",
            detail=str(error),
            hint=f"set {STATE_DIR_VARIABLE} to a directory that you may write to",
        ) from error


def write_executable(path: Path, text: str) -> None:
    """Put a script in place at once: a concurrent reader runs the old one or the new one.

    Args:
        path: of the script.
        text: its content.

    Raises:
        EmbeddedServiceError: the file cannot be written; the hint is how to choose another place.
    """
    make_dir(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as script:
            script.write(text)
            os.fchmod(script.fileno(), 0o755)
        Path(name).replace(path)
    except OSError as error:
        raise EmbeddedServiceError(
            f"the file {path} cannot be written",
            detail=str(error),
            hint=f"set {STATE_DIR_VARIABLE} to a directory that you may write to",
        ) from error
