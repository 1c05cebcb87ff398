"""Postgres arrays packed in binary, so that ten thousand rows travel as a few parameters.

Packing here, instead of letting psycopg adapt lists, cuts the client's share of a large commit to
a third: the element type is known, so no value is inspected.  None is SQL's NULL everywhere.

Values are taken on trust: `runners.core.changelog.check_write` and `store.guards` have seen them.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

from dataflow.columns import column_values
from windowing.timestamps import to_timestamp_us

#: Dimensions, has-null flag, element type; then length and lower bound of the only dimension.
_HEADER = struct.Struct("!iiIii").pack
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
#: Postgres counts microseconds from here.
_POSTGRES_EPOCH_US = to_timestamp_us(datetime(2000, 1, 1, tzinfo=UTC))


class PackedArray(bytes):
    """The binary form of a one-dimensional array; subclasses say of what."""

    array_oid: ClassVar[int]
    element_oid: ClassVar[int]

    @classmethod
    def of(cls, values: Sequence[Any]) -> "PackedArray":
        """Pack ``values``; each None becomes NULL."""
        has_null = None in values
        if has_null:
            elements = b"".join(
                [_NULL if value is None else cls.pack((value,)) for value in values]
            )
        else:
            elements = cls.pack(values)
        return cls(_HEADER(1, has_null, cls.element_oid, len(values), 1) + elements)

    @classmethod
    def of_column(cls, column: pa.Array) -> "PackedArray":
        """Pack an Arrow array of the same type; each null becomes NULL."""
        return cls.of(column_values(column))

    @classmethod
    def pack(cls, values: Sequence[Any]) -> bytes:
        """The elements, none of them None: each its length in four bytes, then its value."""
        raise NotImplementedError


class _NumberArray(PackedArray):
    """Elements of one size."""

    typecode: ClassVar[str]
    #: What is taken away from every number.
    origin: ClassVar[int] = 0

    @classmethod
    def of_column(cls, column: pa.Array) -> PackedArray:
        """Without a Python value for each."""
        if column.null_count:
            return super().of_column(column)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        numbers = column.to_numpy(zero_copy_only=False) - cls.origin if cls.origin else column
        kind = np.dtype(cls.typecode).newbyteorder(">")
        elements = np.empty(len(column), [("length", ">i4"), ("value", kind)])
        elements["length"], elements["value"] = kind.itemsize, numbers
        return cls(_HEADER(1, 0, cls.element_oid, len(column), 1) + elements.tobytes())

    @classmethod
    def pack(cls, values: Sequence[Any]) -> bytes:
        """Put lengths and values in place by stride: a few copies, whatever the number of values.

        Raises:
            OverflowError: a value is out of range.
        """
        numbers = array(cls.typecode, values)
        if sys.byteorder == "little":
            numbers.byteswap()
        raw, size = numbers.tobytes(), numbers.itemsize
        stride = size + 4
        packed = bytearray(stride * len(values))
        packed[3::stride] = bytes([size]) * len(values)
        for offset in range(size):
            packed[4 + offset :: stride] = raw[offset::size]
        return bytes(packed)


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
    def pack(cls, values: Sequence[datetime]) -> bytes:
        """As microseconds since Postgres' epoch."""
        return super().pack([to_timestamp_us(value) - _POSTGRES_EPOCH_US for value in values])


class ByteaArray(PackedArray):
    """``bytea[]``."""

    array_oid, element_oid = 1001, 17

    @classmethod
    def pack(cls, values: Sequence[bytes]) -> bytes:
        """As they are."""
        return b"".join([part for value in values for part in (_LENGTH(len(value)), value)])


class TextArray(PackedArray):
    """``text[]``."""

    array_oid, element_oid = 1009, 25

    @classmethod
    def pack(cls, values: Sequence[str]) -> bytes:
        """In UTF-8, which is what every connection of ours speaks."""
        return ByteaArray.pack([value.encode() for value in values])


#: Every array that can be sent.
ARRAYS: Sequence[type[PackedArray]] = (
    BoolArray,
    ByteaArray,
    Float8Array,
    Int4Array,
    Int8Array,
    TextArray,
    TimestamptzArray,
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
