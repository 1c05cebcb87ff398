"""Values for Postgres in binary: as arrays, so that ten thousand rows travel as a few parameters, and as rows of COPY.

Packing here, instead of letting psycopg adapt lists, cuts the client's share of a large commit to
a third: the element type is known, so no value is inspected.  None is SQL's NULL everywhere.

Values are not checked here: `runners.core.tables.changelog.check_write` and `store.guards` have done that.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain, repeat
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import DecimalBinaryDumper

from dataflow.arrow_numbers import numbers_of
from dataflow.columns import column_values
from dataflow.typed_keys import time_us
from runners.core.tables.kinds import json_text
from windowing.timestamps import to_timestamp_us

#: Dimensions, has-null flag, element type; then length and lower bound of the only dimension.
_HEADER_FIELDS = "iiIii"
_HEADER = struct.Struct(f"!{_HEADER_FIELDS}").pack
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
#: Up to so many numbers are packed by a layout for their number: what puts many in place takes a few microseconds.
_FEW = 16
_SIZES = {typecode: struct.calcsize(f"!{typecode}") for typecode in "bdiq"}
#: The bytes before and after the rows of a binary COPY; before each row comes the number of its values.
_COPY_BEGIN, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_VALUES = struct.Struct("!h").pack
#: One column of records of numbers: the type of its numbers, and a value for each record or one for all.
Member = tuple[Any, NDArray[Any] | int]
#: Postgres counts microseconds from here.
_POSTGRES_EPOCH_US = to_timestamp_us(datetime(2000, 1, 1, tzinfo=UTC))
_POSTGRES_EPOCH_DAY = date(2000, 1, 1).toordinal()
#: A length, microseconds, days, months.
_INTERVAL = struct.Struct("!iqii").pack


class PackedArray(bytes):
    """The binary form of a one-dimensional array; subclasses define the type of its elements."""

    array_oid: ClassVar[int]
    element_oid: ClassVar[int]

    @classmethod
    def of(cls, values: Sequence[Any]) -> "PackedArray":
        """Pack ``values``; each None becomes NULL."""
        has_null = None in values
        elements = b"".join(cls.elements(values)) if has_null else cls.pack(values)
        return cls(_HEADER(1, has_null, cls.element_oid, len(values), 1) + elements)

    @classmethod
    def of_column(cls, column: pa.Array) -> "PackedArray":
        """Pack an Arrow array of the same type; each null becomes NULL."""
        return cls.of(column_values(column))

    @classmethod
    def elements(cls, values: Sequence[Any]) -> Sequence[bytes]:
        """Each of ``values`` packed by itself; None becomes NULL."""
        return [_NULL if value is None else cls.pack((value,)) for value in values]

    @classmethod
    def members(cls, column: pa.Array | Sequence[Any]) -> Sequence[Member] | None:  # noqa: ARG003 - the interface of the others
        """A column as members of records, lengths and values; None where it has nulls, or they are of several sizes."""
        return None

    @classmethod
    def pack(cls, values: Sequence[Any]) -> bytes:
        """The elements, none of them None: each its length in four bytes, then its value."""
        raise NotImplementedError


class _NumberArray(PackedArray):
    """Elements of one size.

    Attributes:
        origin: what is subtracted from every number.
    """

    typecode: ClassVar[str]
    origin: ClassVar[int] = 0

    @classmethod
    def of(cls, values: Sequence[Any]) -> PackedArray:
        """Pack ``values``; a few of them, as most commits of a stream have, at once with what is in front of them."""
        count = len(values)
        if count > _FEW or None in values:
            return super().of(values)
        begin = (1, 0, cls.element_oid, count, 1)
        return cls(_few(cls.typecode, cls.counted(values), _HEADER_FIELDS, begin))

    @classmethod
    def of_column(cls, column: pa.Array) -> PackedArray:
        """Pack an Arrow array without making a Python value for each element."""
        members = cls.members(column)
        if members is None:
            return super().of_column(column)
        elements = _records(len(column), members)
        return cls(_HEADER(1, 0, cls.element_oid, len(column), 1) + elements)

    @classmethod
    def elements(cls, values: Sequence[Any]) -> Sequence[bytes]:
        if None in values:
            return super().elements(values)
        packed, size = cls.pack(values), 4 + np.dtype(cls.typecode).itemsize
        return [packed[start : start + size] for start in range(0, len(packed), size)]

    @classmethod
    def members(cls, column: pa.Array | Sequence[Any]) -> Sequence[Member] | None:
        if isinstance(column, pa.Array):
            if column.null_count:
                return None
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            found = numbers_of(column)
            numbers = found - cls.origin if cls.origin else found
        elif None in column:
            return None
        else:
            numbers = np.frombuffer(array(cls.typecode, cls.counted(column)), cls.typecode)
        kind = np.dtype(cls.typecode).newbyteorder(">")
        return [(">i4", kind.itemsize), (kind, numbers)]

    @classmethod
    def counted(cls, values: Sequence[Any]) -> Sequence[Any]:
        """Values as the numbers that Postgres keeps for them."""
        return values

    @classmethod
    def pack(cls, values: Sequence[Any]) -> bytes:
        """Put lengths and values in place by stride: a few copies, whatever the number of values.

        Raises:
            OverflowError: a value is out of range.
        """
        if len(values) <= _FEW:
            return _few(cls.typecode, cls.counted(values))
        numbers = array(cls.typecode, cls.counted(values))
        if sys.byteorder == "little":
            numbers.byteswap()
        raw, size = numbers.tobytes(), numbers.itemsize
        stride = size + 4
        packed = bytearray(stride * len(values))
        packed[3::stride] = bytes([size]) * len(values)
        for offset in range(size):
            packed[4 + offset :: stride] = raw[offset::size]
        return bytes(packed)


@cache
def _layout(begin: str, typecode: str, count: int) -> struct.Struct:
    return struct.Struct("!" + begin + count * f"i{typecode}")


def _few(
    typecode: str, numbers: Sequence[Any], begin: str = "", fields_of_begin: Sequence[int] = ()
) -> bytes:
    """The elements of an array of a few numbers, as most commits of a stream have them.

    Args:
        typecode: of the numbers.
        numbers: the elements.
        begin: the layout of what is in front of them.
        fields_of_begin: what is in front of them.
    """
    fields = 2 * len(numbers) * [_SIZES[typecode]]
    fields[1::2] = numbers
    try:
        return _layout(begin, typecode, len(numbers)).pack(*fields_of_begin, *fields)
    except struct.error as error:
        raise OverflowError(f"a number is out of range: {error}") from error


class Int4Array(_NumberArray):
    """``integer[]``."""

    array_oid, element_oid, typecode = 1007, 23, "i"


class Int8Array(_NumberArray):
    """``bigint[]``."""

    array_oid, element_oid, typecode = 1016, 20, "q"


class Float8Array(_NumberArray):
    """``double precision[]``; ints are converted."""

    array_oid, element_oid, typecode = 1022, 701, "d"


class BoolArray(_NumberArray):
    """``boolean[]``."""

    array_oid, element_oid, typecode = 1000, 16, "b"


class TimestamptzArray(_NumberArray):
    """``timestamptz[]`` of aware datetimes."""

    array_oid, element_oid, typecode = 1185, 1184, "q"
    origin = _POSTGRES_EPOCH_US

    @classmethod
    def counted(cls, values: Sequence[datetime]) -> Sequence[int]:
        """Microseconds since Postgres' epoch."""
        return [to_timestamp_us(value) - _POSTGRES_EPOCH_US for value in values]


class ByteaArray(PackedArray):
    """``bytea[]``."""

    array_oid, element_oid = 1001, 17

    @classmethod
    def elements(cls, values: Sequence[bytes | None]) -> Sequence[bytes]:
        """Each by itself."""
        return [_NULL if value is None else _LENGTH(len(value)) + value for value in values]

    @classmethod
    def pack(cls, values: Sequence[bytes]) -> bytes:
        """Join the values, unchanged, each behind its length."""
        return b"".join([part for value in values for part in (_LENGTH(len(value)), value)])


class TextArray(PackedArray):
    """``text[]``."""

    array_oid, element_oid = 1009, 25

    @classmethod
    def elements(cls, values: Sequence[str | None]) -> Sequence[bytes]:
        """Each by itself, in UTF-8."""
        return ByteaArray.elements([None if each is None else each.encode() for each in values])

    @classmethod
    def pack(cls, values: Sequence[str]) -> bytes:
        """In UTF-8, the client encoding of every connection of this package."""
        return ByteaArray.pack([value.encode() for value in values])


class DateArray(_NumberArray):
    """``date[]``."""

    array_oid, element_oid, typecode = 1182, 1082, "i"

    @classmethod
    def counted(cls, values: Sequence[date]) -> Sequence[int]:
        """Days since Postgres' epoch."""
        return [value.toordinal() - _POSTGRES_EPOCH_DAY for value in values]


class TimeArray(_NumberArray):
    """``time[]`` of times of day without a zone."""

    array_oid, element_oid, typecode = 1183, 1083, "q"

    @classmethod
    def counted(cls, values: Sequence[time]) -> Sequence[int]:
        """Microseconds since midnight."""
        return [time_us(value) for value in values]


class IntervalArray(PackedArray):
    """``interval[]`` of durations: days and microseconds, as Python has them, and no months."""

    array_oid, element_oid = 1187, 1186

    @classmethod
    def pack(cls, values: Sequence[timedelta]) -> bytes:
        """Microseconds, days, months."""
        return b"".join(
            [
                _INTERVAL(16, each.seconds * 1_000_000 + each.microseconds, each.days, 0)
                for each in values
            ]
        )


class UuidArray(PackedArray):
    """``uuid[]``."""

    array_oid, element_oid = 2951, 2950

    @classmethod
    def pack(cls, values: Sequence[UUID]) -> bytes:
        """Their bytes."""
        return ByteaArray.pack([value.bytes for value in values])


class NumericArray(PackedArray):
    """``numeric[]`` of decimals and integers, with every digit."""

    array_oid, element_oid = 1231, 1700

    @classmethod
    def pack(cls, values: Sequence[Decimal | int]) -> bytes:
        """Groups of four digits, as psycopg makes them."""
        return ByteaArray.pack([bytes(_numeric(Decimal(value)) or b"") for value in values])


_numeric = DecimalBinaryDumper(Decimal).dump


class JsonbArray(PackedArray):
    """``jsonb[]``."""

    array_oid, element_oid = 3807, 3802

    @classmethod
    def pack(cls, values: Sequence[Any]) -> bytes:
        """JSON in UTF-8, behind the version of the format."""
        return ByteaArray.pack([b"\x01" + json_text(value).encode() for value in values])


class ListArray(PackedArray):
    """Arrays of one type, one for each row.

    An array of arrays has several dimensions, and `unnest` would take all of them apart.  So as a parameter each is a
    text, which the statement casts; in COPY it is an array.

    Attributes:
        inner: arrays of the elements.
    """

    inner: ClassVar[type[PackedArray]]

    @classmethod
    def of(cls, values: Sequence[Any]) -> PackedArray:
        """A text for each array."""
        return TextArray.of([None if value is None else _array_text(value) for value in values])

    @classmethod
    def elements(cls, values: Sequence[Any]) -> Sequence[bytes]:
        """Each an array."""
        return [_NULL if value is None else cls.pack((value,)) for value in values]

    @classmethod
    def pack(cls, values: Sequence[Sequence[Any]]) -> bytes:
        """Each an array."""
        return ByteaArray.pack([cls.inner.of(value) for value in values])


def _array_text(values: Sequence[Any]) -> str:
    return f"{{{','.join([_element_text(each) for each in values])}}}"


def _element_text(value: Any) -> str:
    """An element as Postgres reads it, whatever the settings of the session are."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"\\x{value.hex()}"
    elif isinstance(value, timedelta):
        text = f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"
    elif isinstance(value, date | time):
        text = value.isoformat()
    else:
        text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def lists_of(inner: type[PackedArray]) -> type[ListArray]:
    """The class that packs arrays of these.

    Args:
        inner: packs their elements.
    """
    return type(f"ListOf{inner.__name__}", (ListArray,), {"inner": inner})


def packed_rows(
    kinds: Sequence[type[PackedArray]], columns: Sequence[pa.Array | Sequence[Any]]
) -> bytes:
    """Columns of the same length as rows in the binary format of COPY.

    Args:
        kinds: the array types of the columns, in the order of the table's columns.
        columns: values for each of these; None is NULL.

    Returns:
        Header, rows and trailer: all that one COPY sends.

    Raises:
        OverflowError: a value is out of range.
    """
    members = [kind.members(each) for kind, each in zip(kinds, columns, strict=True)]
    numbers = [each for each in members if each is not None]
    if len(numbers) == len(members):
        rows = _records(len(columns[0]), [(">i2", len(kinds)), *chain(*numbers)])
    else:
        values = [each if isinstance(each, Sequence) else column_values(each) for each in columns]
        elements = [kind.elements(each) for kind, each in zip(kinds, values, strict=True)]
        rows = b"".join(chain(*zip(repeat(_VALUES(len(kinds))), *elements, strict=False)))
    return _COPY_BEGIN + rows + _COPY_END


def _records(count: int, members: Sequence[Member]) -> bytes:
    """So many records of these members, one after the other."""
    records = np.empty(count, [(str(index), kind) for index, (kind, _) in enumerate(members)])
    for index, (_, value) in enumerate(members):
        records[str(index)] = value
    return records.tobytes()


#: Every array that can be sent.
ARRAYS: Sequence[type[PackedArray]] = (
    BoolArray,
    ByteaArray,
    DateArray,
    Float8Array,
    Int4Array,
    Int8Array,
    IntervalArray,
    JsonbArray,
    NumericArray,
    TextArray,
    TimeArray,
    TimestamptzArray,
    UuidArray,
)


class _PackedDumper(Dumper):
    """Hands a packed array to psycopg as it is."""

    format = Format.BINARY

    def dump(self, obj: PackedArray) -> bytes:
        return obj


def register_arrays(connection: Connection[Any]) -> None:
    """Let ``connection`` send packed arrays."""
    for kind in ARRAYS:
        dumper = type(f"{kind.__name__}Dumper", (_PackedDumper,), {"oid": kind.array_oid})
        connection.adapters.register_dumper(kind, dumper)
