"""Snapshots that this process holds, so that sessions elsewhere can read in them (`pg_export_snapshot`)."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Any

_held: dict[Hashable, list[Any]] = {}
_lock = threading.Lock()


def hold_snapshot(owner: Hashable, session: Any, settings: Sequence[str]) -> str:
    """Export a snapshot, and hold it until it is let go; returns its name.

    Args:
        owner: by which it is let go.
        session: that holds it, and is closed then.
        settings: statements for its transaction.
    """
    session.execute("BEGIN")
    for setting in settings:
        session.execute(setting)
    (name,) = session.execute("SELECT pg_export_snapshot()").fetchone()
    with _lock:
        _held.setdefault(owner, []).append(session)
    return str(name)


def let_go(owner: Hashable) -> None:
    """Let go of the snapshots of an owner; idempotent.

    Args:
        owner: as they are held by.
    """
    with _lock:
        sessions = _held.pop(owner, [])
    for session in sessions:
        session.close()
