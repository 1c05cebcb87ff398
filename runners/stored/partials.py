"""Partials as bytes, as one range sends them to another, and as the journal stores them."""

from collections.abc import Callable, Sequence
from operator import countOf
from typing import Any

from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.columns import packed, unpacked
from dataflow.combiner_columns import (
    CountColumns,
    ExtremeColumns,
    ListedColumns,
    MeanColumns,
    SumColumns,
)
from runners.core.columns.partials import PartialColumns
from runners.core.ground.cells import LateElement
from runners.core.partials.partial import LatePartial, Partial
from runners.core.partials.parts import PartialParts, parts_of
from runners.errors import StoredFormatError
from runners.stored.columns import (
    HIDDEN,
    Own,
    keys_column,
    keys_of,
    own_blob,
    own_of,
    windows_column,
    windows_from,
)
from runners.stored.framing import frame, unframed
from runners.stored.narrow import narrowed, widened

PARTIALS = "partials"
#: The kinds of a part: a row for each partial, and columns.
_ROWS, _COLUMNS = 0, 1
#: What accumulators in columns are, by name.
_NAMES: dict[str, ColumnCombineFn] = {
    "sum": SumColumns(),
    "count": CountColumns(),
    "mean": MeanColumns(),
    "min": ExtremeColumns(is_greatest=False),
    "max": ExtremeColumns(is_greatest=True),
}
_NAME_OF = {each: name for name, each in _NAMES.items()}
#: The name of those of a user's function: the reader takes the function of its grouping.
_OF_USER = "own"

#: The functions of a grouping that fold columns, one for each; None if it has none.
Combiners = tuple[ColumnCombineFn, ...] | None


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
    return frame(PARTIALS, parts, own_blob(own))


def decode_partials(blob: bytes, combiners: Combiners) -> Sequence[Partial]:
    """The inverse of `encode_partials`.

    Args:
        blob: the bytes.
        combiners: of the grouping.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read; or columns of a function of the user's
            that the grouping does not have.
    """
    return partials_of(unframed(PARTIALS, blob), combiners)


def partials_of(
    fields: list[Any], combiners: Combiners, read_own: Callable[[bytes], Own] = own_of
) -> Sequence[Partial]:
    """Partials from the fields of their frame.

    Args:
        fields: of the frame.
        combiners: of the grouping.
        read_own: reads users' values.
    """
    parts, blob_of_own = fields
    own = read_own(blob_of_own)
    found = [
        columns_of(part, combiners) if part[0] == _COLUMNS else _rows_of(part, own)
        for part in parts
    ]
    return found[0] if len(found) == 1 else PartialParts(found)


def _rows_fields(part: Sequence[Partial], own: list[Any], *, is_plain: bool) -> list[Any]:
    rows = part if type(part) is list else list(part)
    if not rows:
        return [_ROWS]
    # Each has four fields; to check that would be a thirtieth of all.
    keys, windows, accumulators, counts = zip(*rows, strict=False)
    own.append(accumulators)
    fields = [
        _ROWS,
        keys_column(keys, own, is_plain=is_plain),
        windows_column(windows, own),
        counts,
    ]
    if countOf(map(type, rows), tuple) != len(rows) and (
        late := [(at, each.record) for at, each in enumerate(rows) if type(each) is LatePartial]
    ):
        own.append([record.value for _, record in late])
        fields.append([(at, record.timestamp_us, record.sign) for at, record in late])
    return fields


def _rows_of(fields: list[Any], own: Own) -> list[Partial]:
    if len(fields) == 1:
        return []
    _, key_column, window_column, counts, *late = fields
    accumulators = own()
    if accumulators is HIDDEN:
        accumulators, late = [HIDDEN] * len(counts), []
    keys, windows = keys_of(key_column, own), windows_from(window_column, own)
    rows: list[Partial] = list(zip(keys, windows, accumulators, counts, strict=True))
    for marks in late:
        values = own()
        for (at, timestamp_us, sign), value in zip(marks, values, strict=True):
            rows[at] = LatePartial.of(rows[at], LateElement(value, timestamp_us, sign))
    return rows


def columns_fields(part: PartialColumns) -> list[Any]:
    """Columns as fields: a record batch as an Arrow IPC stream, and what its columns are."""
    batch, (keys, is_single, size_us, sizes) = part.as_batch()
    names = list(map(_named, part.combiners))
    narrow, scales = narrowed(batch)
    return [_COLUMNS, packed(narrow), keys, is_single, size_us, names, sizes, scales]


def columns_of(fields: list[Any], combiners: Combiners) -> PartialColumns:
    """The inverse of `columns_fields`.

    Args:
        fields: of the columns.
        combiners: of the grouping.

    Raises:
        StoredFormatError: they are columns of a function of the user's that the grouping does not have.
    """
    # Of format 2 the last field is not there: all integers have 64 bits.
    _, blob, keys, is_single, size_us, names, sizes, *more = fields
    found = tuple(_combiner(names, place, combiners) for place in range(len(names)))
    batch = widened(unpacked(blob), *more)
    return PartialColumns.of_batch(batch, (keys, is_single, size_us, sizes), found)


def _named(combiner: ColumnCombineFn) -> tuple[str, bool]:
    is_listed = type(combiner) is ListedColumns
    single = combiner.single if isinstance(combiner, ListedColumns) and is_listed else combiner
    known = type(single).__module__ == SumColumns.__module__ and _NAME_OF.get(single)
    return (known, is_listed) if known else (_OF_USER, False)


def _combiner(names: list[Any], place: int, combiners: Combiners) -> ColumnCombineFn:
    name, is_listed = names[place]
    if name != _OF_USER:
        return ListedColumns(_NAMES[name]) if is_listed else _NAMES[name]
    if combiners is None or len(combiners) != len(names):
        raise StoredFormatError(
            "there are columns of a CombineFn of your own which does not fold columns any more",
            detail=f"{len(names)} columns of accumulators, of which number {place} is of your own",
            hint="bring back its method columns until the job has been drained",
        )
    return combiners[place]
