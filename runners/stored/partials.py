"""Partials as bytes, as one range sends them to another, and as the journal stores them."""

from collections.abc import Sequence
from typing import Any

from dataflow.columns import packed, unpacked
from dataflow.serialization import dumps, loads
from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import LateElement
from runners.core.partials.lifting import LatePartial, Partial
from runners.core.partials.parts import PartialParts, parts_of
from runners.stored.columns import Own, keys_column, keys_of, windows_column, windows_from
from runners.stored.framing import frame, unframed

PARTIALS = "partials"
#: The kinds of a part: a row for each partial, and columns.
_ROWS, _COLUMNS = 0, 1


def encode_partials(partials: Sequence[Partial]) -> bytes:
    """Partials of one grouping as bytes.

    Raises:
        PipelineError: a value in them is not plain data.
    """
    try:
        return _encoded(partials, is_plain=True)
    except (OverflowError, UnicodeEncodeError):
        # Keys that MessagePack cannot represent.
        return _encoded(partials, is_plain=False)


def _encoded(partials: Sequence[Partial], *, is_plain: bool) -> bytes:
    own: list[Any] = []
    parts = [
        columns_fields(part)
        if isinstance(part, PartialColumns)
        else _rows_fields(part, own, is_plain=is_plain)
        for part in parts_of(partials)
    ]
    return frame(PARTIALS, parts, dumps(own) if own else b"")


def decode_partials(blob: bytes) -> Sequence[Partial]:
    """The inverse of `encode_partials`.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    return partials_of(unframed(PARTIALS, blob))


def partials_of(fields: list[Any]) -> Sequence[Partial]:
    """Partials from the fields of their frame."""
    parts, own_blob = fields
    own = Own(loads(own_blob) if own_blob else ())
    found = [columns_of(part) if part[0] == _COLUMNS else _rows_of(part, own) for part in parts]
    return found[0] if len(found) == 1 else PartialParts(found)


def _rows_fields(part: Sequence[Partial], own: list[Any], *, is_plain: bool) -> list[Any]:
    rows = part if type(part) is list else list(part)
    if not rows:
        return [_ROWS]
    keys, windows, accumulators, counts = zip(*rows, strict=True)
    own.append(accumulators)
    fields = [
        _ROWS,
        keys_column(keys, own, is_plain=is_plain),
        windows_column(windows, own),
        counts,
    ]
    if LatePartial in set(map(type, rows)):
        late = [(at, each.record) for at, each in enumerate(rows) if type(each) is LatePartial]
        own.append([record.value for _, record in late])
        fields.append([(at, record.timestamp_us, record.sign) for at, record in late])
    return fields


def _rows_of(fields: list[Any], own: Own) -> list[Partial]:
    if len(fields) == 1:
        return []
    _, key_column, window_column, counts, *late = fields
    accumulators = own.next()
    keys, windows = keys_of(key_column, own), windows_from(window_column, own)
    rows: list[Partial] = list(zip(keys, windows, accumulators, counts, strict=True))
    for marks in late:
        values = own.next()
        for (at, timestamp_us, sign), value in zip(marks, values, strict=True):
            rows[at] = LatePartial.of(rows[at], LateElement(value, timestamp_us, sign))
    return rows


def columns_fields(part: PartialColumns) -> list[Any]:
    """Columns as fields: a record batch as an Arrow IPC stream, and what its columns are."""
    batch, shape = part.as_batch()
    return [_COLUMNS, packed(batch), *shape]


def columns_of(fields: list[Any]) -> PartialColumns:
    """The inverse of `columns_fields`."""
    _, blob, *shape = fields
    return PartialColumns.of_batch(unpacked(blob), shape)
