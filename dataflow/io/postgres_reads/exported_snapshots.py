"""Snapshots that this process has exported, so that sessions elsewhere can read in them (`pg_export_snapshot`)."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Hashable, Sequence
from typing import Any

_exported: dict[Hashable, list[Any]] = {}
_lock = threading.Lock()


def export_snapshot(owner: Hashable, session: Any, settings: Sequence[str]) -> str:
    """Export a snapshot, which lives until it is released; returns its name.

    Args:
        owner: by which it is released.
        session: whose snapshot it is, and which is closed then.
        settings: statements for its transaction.
    """
    session.execute("BEGIN")
    for setting in settings:
        session.execute(setting)
    (name,) = session.execute("SELECT pg_export_snapshot()").fetchone()
    with _lock:
        _exported.setdefault(owner, []).append(session)
    return str(name)


def release_snapshots(owner: Hashable) -> None:
    """Release the snapshots of an owner; idempotent.

    Args:
        owner: as they were exported by.
    """
    with _lock:
        sessions = _exported.pop(owner, [])
    for session in sessions:
        session.close()


def _release_all() -> None:
    for owner in [*_exported]:
        release_snapshots(owner)


atexit.register(_release_all)
