"""Spool: requests that were answered, in a file of SQLite, until what was made of them is durable.

A request is answered when the transaction that has it is on the disk; of requests that come at the same time, one
transaction takes all.  Numbers begin with 1, have no gap and are never given twice, so whoever reads knows whether
something is missing.  The key that a client gave a request is kept longer than the request, with a digest of its body.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import attrs

_FILE = "spool.db"
_TABLES = """
CREATE TABLE IF NOT EXISTS spool (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, received_us INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, number INTEGER NOT NULL, received_us INTEGER NOT NULL, digest BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_by_time ON keys (received_us);
"""
_BUSY_S = 10.0
#: Keys that are forgotten in one transaction, at most.
_FORGOTTEN_MAX = 10_000


class SpooledRequest(NamedTuple):
    """A request that is on the disk."""

    number: int
    received_us: int
    body: bytes


class SpoolAnswer(NamedTuple):
    """What became of a request.

    Attributes:
        number: of the request; of one with a key that was there already, that of the first.
        is_new: whether it was not there yet.
        is_same: False where another request had its key.
    """

    number: int
    is_new: bool = True
    is_same: bool = True


class SpoolFullError(Exception):
    """There is no room for more requests."""


@attrs.define(eq=False)
class _Waiting:
    body: bytes
    key: str | None
    answer: SpoolAnswer | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None


class Spool:
    """The requests in a folder.  For all threads, and for several processes of one machine.

    Args:
        folder: made if it is not there.
        now_us: the clock, in microseconds since 1970.
        max_bytes: how large what waits may be.
        keep_keys_us: for how long the key of a request is known.

    Raises:
        sqlite3.Error, OSError: the folder or the file cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        now_us: Callable[[], int],
        *,
        max_bytes: int = 1 << 30,
        keep_keys_us: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._now_us, self._max_bytes, self._keep_keys_us = now_us, max_bytes, keep_keys_us
        self._database = sqlite3.connect(
            folder / _FILE, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._database.execute("PRAGMA journal_mode = WAL")
        # Without it, a transaction that is answered for may be gone after a loss of power.
        self._database.execute("PRAGMA synchronous = FULL")
        self._lock, self._mutex = threading.Lock(), threading.Lock()
        self._pending: list[_Waiting] = []
        self._floor_us = 0
        with self._lock, self._transaction():
            for statement in filter(str.strip, _TABLES.split(";")):
                self._database.execute(statement)
            found = self._database.execute("SELECT id FROM spool").fetchone()
            if found is None:
                found = (secrets.token_hex(16),)
                self._database.execute("INSERT INTO spool VALUES (?)", found)
            self.id = str(found[0])

    def add(self, body: bytes, key: str | None = None) -> SpoolAnswer:
        """Keep a request; returns when it is on the disk.

        Args:
            body: of the request.
            key: of its client's; a second one with it is not kept.

        Raises:
            SpoolFullError: there is no room; or none on the disk, as the database says.
        """
        waiting = _Waiting(body, key)
        with self._mutex:
            self._pending.append(waiting)
        with self._lock:
            # Whoever comes first takes all that wait, and most find that theirs is done.
            if not waiting.is_done:
                with self._mutex:
                    taken, self._pending = self._pending, []
                self._add_all(taken)
        if waiting.error is not None:
            raise SpoolFullError(str(waiting.error)) from waiting.error
        assert waiting.answer is not None
        return waiting.answer

    def read(self, behind: int, most: int) -> Sequence[SpooledRequest]:
        """Requests, in the order of their numbers.

        Args:
            behind: this number.
            most: how many, at most.
        """
        with self._lock:
            rows = self._database.execute(
                "SELECT number, received_us, body FROM requests WHERE number > ? ORDER BY number LIMIT ?",
                (behind, most),
            )
            return [SpooledRequest(*row) for row in rows]

    def quiet_since_us(self, behind: int) -> int | None:
        """The time now, if there is nothing behind a number: what comes later is stamped later.  None: there is.

        Args:
            behind: the number.
        """
        # While it lasts nobody is in the middle of keeping a request.
        with self._lock, self._transaction():
            if self._last() > behind:
                return None
            self._floor_us = max(self._floor_us, self._now_us())
            return self._floor_us

    def last(self) -> int:
        """The highest number that was ever given; 0: none was."""
        with self._lock:
            return self._last()

    def forget(self, up_to: int) -> None:
        """Delete requests, and keys that are old.  Idempotent.

        Args:
            up_to: this number.
        """
        with self._lock, self._transaction():
            self._database.execute("DELETE FROM requests WHERE number <= ?", (up_to,))
            self._database.execute(
                "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE received_us < ? AND number <= ? LIMIT ?)",
                (self._now_us() - self._keep_keys_us, up_to, _FORGOTTEN_MAX),
            )

    def close(self) -> None:
        """Close the file.  Idempotent."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _add_all(self, taken: Sequence[_Waiting]) -> None:
        answers: list[SpoolAnswer] = []
        try:
            with self._transaction():
                self._check_room()
                received_us = self._stamp_us()
                answers.extend(self._keep(each, received_us) for each in taken)
        except Exception as error:  # noqa: BLE001 - each of those who wait has to be told
            for each in taken:
                each.error = error
            return
        for each, answer in zip(taken, answers, strict=True):
            each.answer = answer

    def _keep(self, waiting: _Waiting, received_us: int) -> SpoolAnswer:
        digest = hashlib.sha256(waiting.body).digest()
        if waiting.key is not None:
            known = self._database.execute(
                "SELECT number, digest FROM keys WHERE key = ?", (waiting.key,)
            ).fetchone()
            if known is not None:
                return SpoolAnswer(known[0], is_new=False, is_same=known[1] == digest)
        number = self._database.execute(
            "INSERT INTO requests (received_us, body) VALUES (?, ?)", (received_us, waiting.body)
        ).lastrowid
        assert number is not None
        if waiting.key is not None:
            self._database.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?)", (waiting.key, number, received_us, digest)
            )
        return SpoolAnswer(number)

    def _stamp_us(self) -> int:
        """The time now, and never less than what was said before, also where a clock was set back."""
        newest = self._database.execute(
            "SELECT received_us FROM requests ORDER BY number DESC LIMIT 1"
        ).fetchone()
        self._floor_us = max(self._floor_us, self._now_us(), newest[0] if newest else 0)
        return self._floor_us

    def _check_room(self) -> None:
        (pages,) = self._database.execute("PRAGMA page_count").fetchone()
        (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
        (size,) = self._database.execute("PRAGMA page_size").fetchone()
        if (pages - free) * size > self._max_bytes:
            raise SpoolFullError(f"what waits is more than {self._max_bytes} bytes")

    def _last(self) -> int:
        found = self._database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'requests'"
        ).fetchone()
        return 0 if found is None else int(found[0])
