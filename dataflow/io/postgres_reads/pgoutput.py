"""Messages of `pgoutput`, the logical replication plugin that comes with Postgres: bytes to values, and nothing else.

Version 1 of the protocol: whole transactions, in the order of their commits, each between a `Begin` and a `Commit`;
values are texts.  A `Relation` describes a table before its first change on a connection, and after each change of its
definition.  Streams of open transactions and two-phase commits are not asked for, and so not known here.

Reference: the chapter "Logical Replication Message Formats" of the Postgres manual.
"""

import struct
from typing import Any, NamedTuple

import attrs

#: Microseconds from 1970 to 2000, where the times of Postgres begin.
_EPOCH_US = 946_684_800_000_000
_BEGIN = struct.Struct("!qqI")
_COMMIT = struct.Struct("!bqqq")
_INT32 = struct.Struct("!I")
_INT16 = struct.Struct("!H")
_COLUMN = struct.Struct("!Ii")


class Unchanged:
    """Stands for a large value that an update has left as it was, and that is therefore not sent."""

    def __repr__(self) -> str:
        return "<unchanged>"


UNCHANGED = Unchanged()
#: The values of a row, as texts; None is NULL.
RawRow = tuple[Any, ...]


class Begin(NamedTuple):
    """A transaction begins.

    Attributes:
        commit_lsn: where its commit is in the log.
        commit_us: when it was committed, in microseconds since 1970.
    """

    commit_lsn: int
    commit_us: int


class Commit(NamedTuple):
    """The transaction ends.

    Attributes:
        end_lsn: the place right behind its commit.
        commit_us: when it was committed, in microseconds since 1970.
    """

    commit_lsn: int
    end_lsn: int
    commit_us: int


@attrs.frozen
class Relation:
    """The columns and key of a table, as a message of the log says they are from here on.

    Attributes:
        identity: ``f`` where old rows are sent in full (REPLICA IDENTITY FULL).
        columns: names and the numbers of their types, in order.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[tuple[str, int], ...]


class LoggedChange(NamedTuple):
    """A row is inserted (no old one), replaced, or deleted (no new one).

    Attributes:
        relation: the number of its table.
        is_old_whole: whether the old row has all its columns, not only those of a key.
    """

    relation: int
    old: RawRow | None
    new: RawRow | None
    is_old_whole: bool


class Truncate(NamedTuple):
    """Tables are emptied.

    Attributes:
        relations: their numbers.
    """

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | LoggedChange | Truncate


class ProtocolError(Exception):
    """Bytes are no message of this protocol."""


def parse(data: bytes) -> Message | None:
    """The message in some bytes; None where it is one that says nothing about rows (an origin, a type, user text).

    Args:
        data: one message, whole.

    Raises:
        ProtocolError: it is none, or is cut off.
    """
    try:
        return _parse(data)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise ProtocolError(f"{data[:40]!r}: {error}") from error


def _parse(data: bytes) -> Message | None:
    kind = data[:1]
    if kind in {b"I", b"U", b"D"}:
        return _change(kind, data)
    if kind == b"B":
        lsn, at, _ = _BEGIN.unpack_from(data, 1)
        return Begin(lsn, at + _EPOCH_US)
    if kind == b"C":
        _, lsn, end, at = _COMMIT.unpack_from(data, 1)
        return Commit(lsn, end, at + _EPOCH_US)
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        (count,) = _INT32.unpack_from(data, 1)
        return Truncate(struct.unpack_from(f"!{count}I", data, 6))
    if kind in {b"O", b"Y", b"M"}:
        return None
    raise ProtocolError(f"{data[:40]!r} is no message of version 1")


def _change(kind: bytes, data: bytes) -> LoggedChange:
    (relation,) = _INT32.unpack_from(data, 1)
    old, new, is_whole, at = None, None, False, 5
    while at < len(data):
        part = data[at : at + 1]
        row, at = _row(data, at + 1)
        if part == b"N":
            new = row
        elif part in {b"O", b"K"}:
            old, is_whole = row, part == b"O"
        else:
            raise ProtocolError(f"{part!r} begins no row, in {data[:40]!r}")
    if (new is None) != (kind == b"D"):
        raise ProtocolError(f"{data[:40]!r} has no new row, or one too many")
    return LoggedChange(relation, old, new, is_whole)


def _row(data: bytes, at: int) -> tuple[RawRow, int]:
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    values: list[Any] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (size,) = _INT32.unpack_from(data, at)
            at += 4
            if at + size > len(data):
                raise ProtocolError(f"a value of {size} bytes is cut off, in {data[:40]!r}")
            values.append(data[at : at + size])
            at += size
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(UNCHANGED)
        else:
            raise ProtocolError(f"{chr(kind)!r} begins no value, in {data[:40]!r}")
    return tuple(values), at


def _relation(data: bytes) -> Relation:
    (oid,) = _INT32.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _INT16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        type_oid, _ = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append((column, type_oid))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode("utf-8"), end + 1
