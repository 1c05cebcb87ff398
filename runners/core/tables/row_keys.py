"""The keys of rows as text, by which people ask for a row."""

import json
from datetime import date, datetime, time
from typing import Any, NamedTuple

from dataflow.coders import hash_key
from dataflow.errors import TimeError
from dataflow.table import Row, TableSpec
from windowing.timestamps import format_timestamp, to_timestamp_us


class RowKey(NamedTuple):
    """What identifies a row of a table.

    Attributes:
        text: a JSON array with a text for each column of the key; all columns where the table has no key.
        hash: of the text.
    """

    text: str
    hash: int


def row_key(table: TableSpec, row: Row) -> RowKey:
    """The key of a row.

    Args:
        table: that the row is of.
        row: as stored, in the order of the table's columns.
    """
    indexes = table.key_indexes or range(len(row))
    return key_of_texts([_text(row[index]) for index in indexes])


def sink_key(key: Any) -> RowKey:
    """The key of what is written to a sink.

    Args:
        key: what its `Sink.lane_key` is; of a tuple each part is one of the key.
    """
    return key_of_texts([_text(each) for each in (key if isinstance(key, tuple) else (key,))])


def key_of_texts(texts: list[str]) -> RowKey:
    """The key of the row with these texts in the columns of its key.

    Args:
        texts: one for each column.
    """
    text = json.dumps(texts, ensure_ascii=False)
    return RowKey(text, hash_key(text.encode("utf-8", "surrogatepass")))


def asked_keys(given: str) -> list[RowKey]:
    """The keys that somebody may mean, the likeliest first.

    Args:
        given: a JSON array, or the values of the key's columns with commas between them; an instant in any form that
            `dataflow.times` reads with its zone.
    """
    texts = _texts_of(given)
    as_instants = [_instant(text) or text for text in texts]
    candidates = [texts, as_instants, [given]]
    return list(dict.fromkeys(key_of_texts(each) for each in candidates))


def _texts_of(given: str) -> list[str]:
    if given.lstrip().startswith("["):
        try:
            values = json.loads(given)
        except ValueError:
            values = None
        if isinstance(values, list):
            return [each if isinstance(each, str) else _text(each) for each in values]
    return [part.strip() for part in given.split(",")]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return format_timestamp(to_timestamp_us(value))
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        # Keys of messages are mostly text.
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _instant(text: str) -> str | None:
    try:
        return format_timestamp(to_timestamp_us(text))
    except (TimeError, ValueError):
        return None
