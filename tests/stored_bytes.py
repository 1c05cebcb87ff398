"""What stored bytes name: the modules and classes in pickles, wherever they are in frames."""

import pickletools
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from runners.stored.framing import kind_of, number_of, opened

#: Packages whose layout must not be the format of a store.
OURS = ("windowing", "triggers", "dataflow", "runners")
_STRINGS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_PICKLE = b"\x80\x05"
#: Of each column of a store that is looked through: so many values, and none that is larger.
_VALUES_MAX, _BYTES_MAX = 1_000, 1 << 20
_COLUMNS = """
SELECT c.relname, a.attname, a.atttypid = 'bytea[]'::regtype
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'dataflow' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT a.attisdropped
  AND a.atttypid IN ('bytea'::regtype, 'bytea[]'::regtype)
ORDER BY c.relname, a.attname
"""


def named_in(blob: bytes) -> Iterator[tuple[str, str]]:
    """Module and name of every class or function that the bytes name, in any depth of frames."""
    if number_of(blob) is not None:
        for field in opened(blob)[1]:
            yield from _named_in_field(field)
    elif blob.startswith(_PICKLE):
        yield from named_in_pickle(blob)


def named_in_pickle(blob: bytes) -> Iterator[tuple[str, str]]:
    """Module and name of every class or function that a pickle names."""
    memo: list[str | None] = []
    texts: list[str] = []
    last: str | None = None
    for opcode, argument, _ in pickletools.genops(blob):
        name = opcode.name
        if name == "MEMOIZE":
            memo.append(last)
            continue
        last = None
        if name in _STRINGS:
            last = str(argument)
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            last = memo[int(argument or 0)]
        elif name == "STACK_GLOBAL":
            yield texts[-2], texts[-1]
        elif name in ("GLOBAL", "INST"):
            module, _, attribute = str(argument).partition(" ")
            yield module, attribute
        elif name in ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"):
            assert isinstance(argument, bytes)
            yield from named_in(argument)
        if last is not None:
            texts.append(last)


def ours_in(blob: bytes) -> list[str]:
    """What the bytes name of this package, but for its test kits, which play the users."""
    return [
        f"{module}.{name}"
        for module, name in named_in(blob)
        if module.partition(".")[0] in OURS and ".testing" not in module
    ]


def complaints_of(store: "psycopg.Connection[Any]") -> list[str]:
    """Bytes in a store in Postgres that are not of the stored format: a bare pickle, or a name of this package.

    Args:
        store: an open connection to its database; the tables may be missing.
    """
    found = []
    for table, column, is_array in store.execute(_COLUMNS).fetchall():
        for blob in _values_of(store, table, column, is_array=is_array):
            if blob.startswith(_PICKLE):
                found.append(f"{table}.{column}: a pickle that is in no field of a frame")
            elif kind_of(blob) is not None:
                found += [f"{table}.{column}, {kind_of(blob)}: {each}" for each in ours_in(blob)]
    return found


def _values_of(
    store: "psycopg.Connection[Any]", table: str, column: str, *, is_array: bool
) -> list[bytes]:
    value = sql.SQL("unnest({})" if is_array else "{}").format(sql.Identifier(column))
    query = sql.SQL(
        "SELECT v FROM (SELECT {} AS v FROM dataflow.{}) AS t WHERE octet_length(v) <= {} LIMIT {}"
    ).format(value, sql.Identifier(table), _BYTES_MAX, _VALUES_MAX)
    return [blob for (blob,) in store.execute(query).fetchall()]


def _named_in_field(field: Any) -> Iterator[tuple[str, str]]:
    if isinstance(field, bytes):
        yield from named_in(field)
    elif isinstance(field, list):
        for each in field:
            yield from _named_in_field(each)
