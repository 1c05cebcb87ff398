"""A pooler in front of Postgres is recognized, and refused if it shares sessions; without either of them.

`tests/integration/faults/test_failover.py` asks a real one.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import psycopg
import pytest

from runners.errors import UnsuitableStoreError
from runners.millwheel.store.postgres.poolers import refuse_shared_session


class Client:
    """A connection to which the test gives the process of the server that does each of its statements."""

    def __init__(self, reported_pid: int, pids: Iterator[int]) -> None:
        self.info, self._pids = SimpleNamespace(backend_pid=reported_pid), pids

    def execute(self, query: bytes) -> Any:
        return SimpleNamespace(fetchone=lambda: (next(self._pids),))

    def transaction(self) -> Any:
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def refuse(
    monkeypatch: pytest.MonkeyPatch, reported_pid: int, mine: list[int], theirs: int
) -> None:
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: Client(99, iter([theirs])))
    opened: Any = Client(reported_pid, iter(mine))
    refuse_shared_session(opened, "dbname=x", "host pooler")


def test_sessions_of_ones_own_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres itself, which has reported its process beforehand; and a pooler that keeps the session."""
    refuse(monkeypatch, 7, [7], theirs=0)
    refuse(monkeypatch, 1, [7, 7], theirs=8)


@pytest.mark.parametrize(("mine", "theirs"), [([7], 7), ([7, 9], 8)])
def test_a_session_that_others_are_given_is_refused(
    monkeypatch: pytest.MonkeyPatch, mine: list[int], theirs: int
) -> None:
    """Another client's transaction is done in the session that was ours, or ours in another one than before."""
    with pytest.raises(UnsuitableStoreError, match="pool_mode=session"):
        refuse(monkeypatch, 1, mine, theirs)
