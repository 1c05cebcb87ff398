"""Messages of `pgoutput` as bytes: an encoder for tests, written from the manual and not from the decoder."""

from collections.abc import Sequence
from typing import Literal

#: From 1970 to 2000, in microseconds.
EPOCH_US = 946_684_800_000_000
#: None is NULL, "unchanged" a value that is not sent.
Value = bytes | None | Literal["unchanged"]


def integer(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=value < 0)


def begin(commit_lsn: int, commit_us: int) -> bytes:
    return b"B" + integer(commit_lsn, 8) + integer(commit_us - EPOCH_US, 8) + integer(7, 4)


def commit(commit_lsn: int, end_lsn: int, commit_us: int) -> bytes:
    places = integer(commit_lsn, 8) + integer(end_lsn, 8)
    return b"C\0" + places + integer(commit_us - EPOCH_US, 8)


def relation(
    oid: int, schema: str, name: str, columns: Sequence[tuple[str, int]], identity: str = "f"
) -> bytes:
    described = b"".join(
        b"\1" + column.encode() + b"\0" + integer(type_oid, 4) + integer(-1, 4)
        for column, type_oid in columns
    )
    names = schema.encode() + b"\0" + name.encode() + b"\0"
    return b"R" + integer(oid, 4) + names + identity.encode() + integer(len(columns), 2) + described


def row(values: Sequence[Value]) -> bytes:
    parts = [integer(len(values), 2)]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts.append(b"t" + integer(len(value), 4) + value)
        else:
            parts.append(b"u")
    return b"".join(parts)


def insert(oid: int, new: Sequence[Value]) -> bytes:
    return b"I" + integer(oid, 4) + b"N" + row(new)


def update(oid: int, old: Sequence[Value] | None, new: Sequence[Value], kind: str = "O") -> bytes:
    before = b"" if old is None else kind.encode() + row(old)
    return b"U" + integer(oid, 4) + before + b"N" + row(new)


def delete(oid: int, old: Sequence[Value], kind: str = "O") -> bytes:
    return b"D" + integer(oid, 4) + kind.encode() + row(old)


def truncate(*oids: int) -> bytes:
    return b"T" + integer(len(oids), 4) + b"\0" + b"".join(integer(oid, 4) for oid in oids)
