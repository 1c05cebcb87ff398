"""ChangeDecoder: from the messages of a slot to signed rows, each with the position behind it; reads no socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.postgres_reads.keys import KeyOf
from dataflow.io.postgres_reads.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    LoggedChange,
    ProtocolError,
    RawRow,
    Relation,
    Truncate,
    parse,
)
from dataflow.io.postgres_reads.positions import SlotPosition

_ANEW = (
    "begin anew with another slot and a job of another name, which copies the table as it is now"
)


class ChangeDecoder:
    """Takes messages one at a time; what a message means is in `pending` until it is taken from there.

    At most one row that is replaced is held, however large a transaction is.

    Args:
        position: where to go on.
        name: of the table, for messages.
        key_of: takes the key of a row; None: none is needed.
    """

    def __init__(self, position: SlotPosition, *, name: str, key_of: KeyOf | None) -> None:
        self._position, self._shown, self._key_of = position, name, key_of
        #: Where the columns that are read are among those of the table, as it is described now.
        self._places: tuple[int, ...] = ()
        self._begin: Begin | None = None
        self._needs_keys = True
        self._skipped = self._left_to_skip = 0
        self.pending = PendingRows()

    @property
    def position(self) -> SlotPosition:
        """Behind the last row that was taken."""
        if self._begin is None:
            return self._position
        return attrs.evolve(
            self._position,
            commit_lsn=self._begin.commit_lsn,
            index=max(self._skipped, 0) + self.pending.taken,
        )

    @property
    def is_between_transactions(self) -> bool:
        """Whether no transaction is open, here or by the position, which then is sent again."""
        return self._begin is None and not self._position.commit_lsn

    def passed(self, lsn: int) -> None:
        """Note that the server has nothing before a place.

        Args:
            lsn: the place.
        """
        self._position = self._position.passed(lsn)

    def take(self, data: bytes) -> Commit | None:
        """Take a message.

        Args:
            data: of `pgoutput`.

        Returns:
            It, if a transaction ends with it.

        Raises:
            InputError: the table can no longer be followed.
        """
        assert not self.pending, "the rows before come first"
        try:
            message = parse(data)
        except ProtocolError as error:
            raise InputError(
                f"the replication of {self._shown} is malformed", detail=str(error)
            ) from error
        if isinstance(message, LoggedChange):
            self._change(message)
        elif isinstance(message, Begin):
            self._open(message)
        elif isinstance(message, Commit):
            self.passed(message.end_lsn)
            self._begin = None
            return message
        elif isinstance(message, Relation):
            self._relation(message)
        elif isinstance(message, Truncate):
            self._truncate(message)
        return None

    def _open(self, begin: Begin) -> None:
        position = self._position
        if position.commit_lsn and position.commit_lsn != begin.commit_lsn:
            raise InputError(
                f"the server does not have the transaction any more that {self._shown} was read in the middle of",
                detail=f"it was committed at {position.commit_lsn}, and the next one is of {begin.commit_lsn}",
                hint=_ANEW,
            )
        self._skipped = position.index if position.commit_lsn else 0
        self._left_to_skip = self._skipped
        self._begin = begin
        self._needs_keys = position.needs_keys(begin.commit_lsn)
        self.pending = PendingRows()

    def _change(self, change: LoggedChange) -> None:
        if change.relation != self._position.table:
            return
        assert self._begin is not None, "a change is in a transaction"
        if change.new is not None and change.old is None:
            pass
        elif change.old is None or not change.is_old_whole:
            raise self._without_old()
        for raw, sign in self._signed(change):
            if self._left_to_skip > 0:
                self._left_to_skip -= 1
                continue
            self.pending.add(None if self._is_in_copy(raw) else raw, sign)

    def _signed(self, change: LoggedChange) -> Iterator[tuple[RawRow, int]]:
        old, new = change.old, change.new
        if old is not None:
            yield tuple(old[place] for place in self._places), -1
        if new is not None:
            yield tuple(self._value(change, place) for place in self._places), +1

    def _value(self, change: LoggedChange, place: int) -> Any:
        assert change.new is not None
        value = change.new[place]
        if value is not UNCHANGED:
            return value
        if change.old is None:
            raise self._without_old()
        return change.old[place]

    def _is_in_copy(self, raw: RawRow) -> bool:
        assert self._begin is not None
        if self._key_of is None or not self._needs_keys:
            return False
        return self._position.is_in_copy(self._begin.commit_lsn, self._key_of(raw))

    def _relation(self, relation: Relation) -> None:
        if relation.oid != self._position.table:
            return
        if relation.identity != "f":
            raise self._without_old()
        types = dict(relation.columns)
        for name, type_oid in self._position.columns:
            if name not in types:
                raise InputError(
                    f"{self._shown} has lost the column {name!r}",
                    detail=f"read are {self._names(self._position.columns)}; "
                    f"the table has {self._names(relation.columns)}",
                    hint=f"add the column again, or {_ANEW}",
                )
            if types[name] != type_oid:
                raise InputError(
                    f"the column {name!r} of {self._shown} has changed its type",
                    detail=f"it was the type with the number {type_oid} in pg_type, and is {types[name]}",
                    hint=_ANEW,
                )
        names = [name for name, _ in relation.columns]
        self._places = tuple(names.index(name) for name, _ in self._position.columns)

    def _names(self, columns: tuple[tuple[str, int], ...]) -> str:
        return ", ".join(name for name, _ in columns)

    def _truncate(self, truncate: Truncate) -> None:
        if self._position.table in truncate.relations:
            raise InputError(
                f"{self._shown} was truncated, and its rows cannot be retracted, as they are not known any more",
                detail="the log says that it is empty, not what was in it",
                hint=f"use DELETE in place of TRUNCATE; now, {_ANEW}",
            )

    def _without_old(self) -> InputError:
        return InputError(
            f"an old row of {self._shown} was not logged in full, so it cannot be retracted",
            detail="the table was not REPLICA IDENTITY FULL when it was changed",
            hint=f"ALTER TABLE {self._shown} REPLICA IDENTITY FULL; then {_ANEW}",
        )


class PendingRows:
    """Signed rows of one message, in order, and how many of the transaction were taken; None: a row to pass over."""

    def __init__(self) -> None:
        self._rows: deque[tuple[RawRow | None, int]] = deque()
        #: How many were taken.
        self.taken = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, row: RawRow | None, sign: int) -> None:
        """Add a row.

        Args:
            row: its values, as texts.
            sign: +1, or -1.
        """
        self._rows.append((row, sign))

    def popleft(self) -> tuple[RawRow | None, int]:
        """Take the first one."""
        self.taken += 1
        return self._rows.popleft()
