"""Formats of files that are written: what waits in the outbox for them, and how a file is made of it.

Lines are made where elements are emitted, so what cannot be a line fails there, as an element; columns wait as columns,
which the outbox checks.  The first column of every outbox is the name of the file.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.errors import InputError, PipelineError, SinkRefusedError
from dataflow.sink import SinkChange
from dataflow.table import ColumnType, element_type, type_name

#: Columns of the outbox: the beginning of the file's name, and a line.
NAME, LINE = "dataflow_file", "dataflow_line"
#: Digits of a decimal number, in all and behind the point.
DECIMAL_DIGITS, DECIMAL_SCALE = 38, 9
#: The ends of names of packed files.
_ENDS = {"none": "", "gzip": ".gz", "zstd": ".zst"}


@attrs.frozen(kw_only=True)
class FileFormat:
    """A format.

    Attributes:
        suffix: what names end with.
        sign: the column for signs of changes; None: there are no retractions.
    """

    suffix: str
    sign: str | None = None

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns of the outbox, without that of the file's name."""

    @abstractmethod
    def row_of(self, element: Any) -> Mapping[str, Any]:
        """The columns of an element, and perhaps more.

        Raises:
            InputError: it cannot be written in this format.
        """

    @abstractmethod
    def encode(self, rows: Sequence[Sequence[Any]], signs: Sequence[int]) -> bytes:
        """A file.

        Args:
            rows: values of `columns`.
            signs: of the rows.

        Raises:
            SinkRefusedError: it cannot have these values.
        """

    def files_of(self, changes: Sequence[SinkChange]) -> Iterator[tuple[str, int, bytes]]:
        """The files of a batch: the beginning of the name, how many rows, and the file.

        Args:
            changes: their values begin with the name.

        Raises:
            SinkRefusedError: a file cannot have these values.
        """
        groups = dict[str, list[SinkChange]]()
        for change in changes:
            groups.setdefault(change.value[0], []).append(change)
        encoded = [
            (
                stem,
                len(group),
                self.encode([each.value[1:] for each in group], [each.sign for each in group]),
            )
            for stem, group in groups.items()
        ]
        return iter(encoded)


@attrs.frozen(kw_only=True)
class LineFormat(FileFormat):
    """Files of lines.

    Attributes:
        line_of: an element as a line, without its end.
        header: a first line of each file, without its end.
        with_sign: a line, and the sign of its change, as a line.
        compression: ``none``, ``gzip`` or ``zstd``.
    """

    line_of: Callable[[Any], bytes]
    header: bytes | None = None
    with_sign: Callable[[bytes, int], bytes] | None = None
    compression: str = "none"

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The line."""
        return {LINE: bytes}

    def row_of(self, element: Any) -> Mapping[str, Any]:
        """The line of an element."""
        return {LINE: self.line_of(element)}

    def encode(self, rows: Sequence[Sequence[Any]], signs: Sequence[int]) -> bytes:
        """All lines, packed."""
        lines = [line for (line,) in rows]
        if self.with_sign is not None:
            lines = list(map(self.with_sign, lines, signs))
        if self.header is not None:
            lines.insert(0, self.header)
        content = b"\n".join([*lines, b""])
        if self.compression == "none":
            return content
        return bytes(pa.Codec(self.compression).compress(content, asbytes=True))


@attrs.frozen(kw_only=True)
class ColumnFormat(FileFormat):
    """Files with typed columns.

    Attributes:
        types: of the columns, by name.
    """

    types: Mapping[str, ColumnType]

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns."""
        return self.types

    def row_of(self, element: Any) -> Mapping[str, Any]:
        """The element: a mapping, or a named tuple."""
        return mapping_of(tuple(self.types), element)

    @property
    def written(self) -> dict[str, ColumnType]:
        """The columns of a file."""
        return dict(self.types) if self.sign is None else {**self.types, self.sign: int}

    def values(
        self, rows: Sequence[Sequence[Any]], signs: Sequence[int]
    ) -> Iterator[tuple[str, ColumnType, Sequence[Any]]]:
        """The columns of a file, with their values.

        Args:
            rows: values of `types`.
            signs: of the rows.
        """
        for at, (name, kind) in enumerate(self.types.items()):
            values = [row[at] for row in rows]
            if kind in _AS_TEXT:
                values = [None if each is None else _AS_TEXT[kind](each) for each in values]
            yield name, kind, values
        if self.sign is not None:
            yield self.sign, int, signs

    def table(self, rows: Sequence[Sequence[Any]], signs: Sequence[int]) -> pa.Table:
        """Rows as columns of Arrow.

        Args:
            rows: values of `types`.
            signs: of the rows.

        Raises:
            SinkRefusedError: a value does not fit its column.
        """
        names, arrays = list[str](), list[Any]()
        for name, kind, values in self.values(rows, signs):
            try:
                array = pa.array(values, arrow_type(kind))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise _refused(name, kind, error) from error
            names.append(name)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, names=names)


@attrs.frozen(kw_only=True)
class ParquetFormat(ColumnFormat):
    """Parquet.

    Attributes:
        compression: of the pages, as Arrow names it.
    """

    compression: str = "zstd"

    def encode(self, rows: Sequence[Sequence[Any]], signs: Sequence[int]) -> bytes:
        """A file with one or more row groups.

        Raises:
            SinkRefusedError: a value does not fit its column.
        """
        out = pa.BufferOutputStream()
        pq.write_table(self.table(rows, signs), out, compression=self.compression)
        return bytes(out.getvalue())


@attrs.frozen(kw_only=True)
class AvroFormat(ColumnFormat):
    """Avro object container files.

    Attributes:
        compression: of the blocks: ``null`` or ``deflate``.
    """

    compression: str = "deflate"

    def encode(self, rows: Sequence[Sequence[Any]], signs: Sequence[int]) -> bytes:
        """A file with its schema.

        Raises:
            SinkRefusedError: Avro does not take a row.
        """
        import fastavro  # noqa: PLC0415 - an extra

        names = list(self.written)
        columns = [values for _, _, values in self.values(rows, signs)]
        records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        out = io.BytesIO()
        try:
            fastavro.writer(out, avro_schema(self.written), records, codec=self.compression)
        except (ValueError, TypeError, OverflowError) as error:
            raise SinkRefusedError(
                f"Avro does not take a row: {error}",
                hint="change the values or the columns; the rows stay in the outbox",
            ) from error
        return out.getvalue()


#: Types that are texts in a file: JSON, and what formats have no type for.
_AS_TEXT: Mapping[Any, Callable[[Any], str]] = {
    dict: lambda value: msgspec.json.encode(value).decode(),
    list: lambda value: msgspec.json.encode(value).decode(),
    UUID: str,
}
_ARROW: Mapping[Any, Any] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    Decimal: pa.decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
}
_AVRO: Mapping[Any, Any] = {
    int: "long",
    float: "double",
    str: "string",
    bool: "boolean",
    bytes: "bytes",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    Decimal: {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": DECIMAL_DIGITS,
        "scale": DECIMAL_SCALE,
    },
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
}


def arrow_type(kind: ColumnType) -> Any:
    """The Arrow type of a column.

    Args:
        kind: its Python type.
    """
    element = element_type(kind)
    if element is not None:
        return pa.list_(arrow_type(element))
    return _ARROW.get(kind, pa.string())


def avro_schema(columns: Mapping[str, ColumnType]) -> Any:
    """The Avro schema of rows; every column may be null.

    Args:
        columns: with their Python types.

    Raises:
        PipelineError: Avro has no such type, or no such name.
    """
    fields = list[Any]()
    for name, kind in columns.items():
        if not (name.isascii() and name.isidentifier()):
            raise PipelineError(
                f"WriteToAvro was given the column {name!r}",
                hint="names in Avro have letters, digits and underscores only",
            )
        fields.append({"name": name, "type": ["null", _avro_type(kind)], "default": None})
    return {"type": "record", "name": "Row", "fields": fields}


def _avro_type(kind: ColumnType) -> Any:
    element = element_type(kind)
    if element is not None:
        return {"type": "array", "items": ["null", _avro_type(element)]}
    if kind is timedelta:
        raise PipelineError(
            "WriteToAvro was given a column of timedelta, which Avro has no type for",
            hint="write seconds, as float, or microseconds, as int",
        )
    return _AVRO.get(kind, "string")


def _refused(name: str, kind: ColumnType, error: Exception) -> SinkRefusedError:
    return SinkRefusedError(
        f"a file cannot have a value of the column {name!r} of {type_name(kind)}",
        detail=str(error),
        hint="change the values or the type of the column; the rows stay in the outbox",
    )


def end_of(compression: str) -> str:
    """The end of the names of files that are packed in this way.

    Args:
        compression: ``none``, ``gzip`` or ``zstd``.

    Raises:
        PipelineError: it is another one.
    """
    if compression not in _ENDS:
        raise PipelineError(
            f"files are not written with compression={compression!r}",
            hint=f"give one of {', '.join(map(repr, _ENDS))}",
        )
    return _ENDS[compression]


def mapping_of(columns: Sequence[str], element: Any) -> Mapping[str, Any]:
    """A mapping, or a named tuple, as a mapping.

    Args:
        columns: for the message.
        element: the mapping.

    Raises:
        InputError: it is neither.
    """
    if isinstance(element, Mapping):
        return element
    if isinstance(element, tuple) and hasattr(element, "_asdict"):
        found: Mapping[str, Any] = element._asdict()
        return found
    raise InputError(
        f"a {type(element).__name__} has no columns",
        detail=f"the element: {element!r}",
        hint=f"give mappings, or named tuples, with {', '.join(columns)}",
    )


def text_line(element: Any) -> bytes:
    """A text as a line.

    Raises:
        InputError: it is no text, or has an end of a line in it.
    """
    if not isinstance(element, str):
        raise InputError(
            f"a {type(element).__name__} is no line of text",
            detail=f"the element: {element!r}",
            hint="make it one before: df.Map(str)",
        )
    if "\n" in element or "\r" in element:
        raise InputError(
            "a line of text has the end of a line in it",
            detail=f"the element: {element!r}",
            hint="it would be read as several; write JSON lines, which say what is in them",
        )
    return element.encode()


def json_line(element: Any, *, is_object: bool = False) -> bytes:
    """A value as a line of JSON; named tuples are objects.

    Args:
        element: the value.
        is_object: whether it has to be an object.

    Raises:
        InputError: JSON has no such value, or it has to be an object and is none.
    """
    try:
        line = msgspec.json.encode(element._asdict() if hasattr(element, "_asdict") else element)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a {type(element).__name__} cannot be written as JSON: {error}",
            detail=f"the element: {element!r}",
        ) from None
    if is_object and not line.startswith(b"{"):
        raise InputError(
            f"a {type(element).__name__} has no room for the sign of a change",
            detail=f"the element: {element!r}",
            hint="a changelog has objects: give mappings or named tuples",
        )
    return line


def signed_json(sign: str) -> Callable[[bytes, int], bytes]:
    """A function that puts a member with the sign of a change first into a JSON object.

    Args:
        sign: the name of the member.
    """
    return partial(_with_member, msgspec.json.encode(sign))


def _with_member(name: bytes, line: bytes, sign: int) -> bytes:
    rest = line[1:]
    return b"{%s:%d%s%s" % (name, sign, b"" if rest == b"}" else b",", rest)


def csv_line(columns: Sequence[str], element: Any) -> bytes:
    """A mapping, or a named tuple, as a record of CSV, without its end.

    Args:
        columns: in order.
        element: with at least these.

    Raises:
        InputError: it has not all columns, or a value has no text that says what it is.
    """
    names = getattr(element, "_fields", ()) if isinstance(element, tuple) else ()
    places = _places(tuple(columns), names)
    if places:
        fields = [element[each] for each in places]
    else:
        values = mapping_of(columns, element)
        if missing := [each for each in columns if each not in values]:
            raise InputError(
                f"an element has no {', '.join(map(repr, missing))}",
                detail=f"the element: {element!r}",
            )
        fields = [values[each] for each in columns]
    if not _PLAIN.issuperset(map(type, fields)):
        fields = list(map(_csv_text, fields))
    out = io.StringIO()
    # The characters of the end of a line are those that are quoted in texts.
    csv.writer(out, lineterminator=_END).writerow(fields)
    return out.getvalue().removesuffix(_END).encode()


def signed_csv(line: bytes, sign: int) -> bytes:
    """A record of CSV with the sign of its change as the last field.

    Args:
        line: the record.
        sign: +1 or -1.
    """
    return b"%s,%d" % (line, sign)


@lru_cache(maxsize=1_024)
def _places(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """Where a named tuple whose fields have these names has the columns; empty: not all are there."""
    return tuple(map(names.index, columns)) if set(columns) <= set(names) else ()


#: Of a record, while it is made.
_END = "\r\n"
#: Types whose text is what the csv module writes of them.
_PLAIN = frozenset({str, int, float, type(None)})


def _csv_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return _csv_text(value.value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, str | int | float | Decimal | UUID):
        return str(value)
    raise InputError(
        f"a {type(value).__name__} cannot be a field of CSV",
        detail=f"the value: {value!r}",
        hint="write texts, numbers, booleans or times; for others JSON lines or Parquet",
    )
