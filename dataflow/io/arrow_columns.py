"""Columns of Arrow as columns of rows: which types fit which fields, and how their values become ours.

Integers and floats of any width fit ours, instants of any unit are microseconds (digits below are dropped), and what
does not fit is found when what has them is opened, but for single values, which are found when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import numbers_of
from dataflow.columns import ARROW_TYPES, TIMESTAMP_TYPE, IntColumn, column_values
from dataflow.errors import InputError, PipelineError
from dataflow.rows import is_row_type
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    US_PER_SECOND,
    to_timestamps_us,
)

_types = pa.types


def _compute() -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415 - 30 ms of the start of each process, and only these columns need it

    return pc


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        _types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (
            _types.is_list,
            _types.is_large_list,
            _types.is_fixed_size_list,
            _types.is_map,
        )
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (_types.is_binary, _types.is_large_binary, _types.is_fixed_size_binary)
    )


#: Which Arrow types fit a type of Python.
_FITS: dict[Any, Callable[[pa.DataType], bool]] = {
    int: _types.is_integer,
    float: lambda kind: _types.is_floating(kind) or _types.is_integer(kind),
    str: _is_text,
    bool: _types.is_boolean,
    datetime: _types.is_timestamp,
    Decimal: _types.is_decimal,
    date: _types.is_date,
    time: _types.is_time,
    timedelta: _types.is_duration,
    bytes: _is_bytes,
    list: _is_list,
    dict: _types.is_struct,
    Any: lambda _: True,
}


@attrs.frozen
class ArrowField:
    """A field of a row type, and what is taken for it: ``kind`` is a class, such as list of ``list[int]``."""

    name: str
    kind: Any
    is_optional: bool

    @property
    def is_columnar(self) -> bool:
        """Whether it travels as a column."""
        return self.kind in ARROW_TYPES


def arrow_fields(row_type: Any, name: str) -> tuple[ArrowField, ...]:
    """The fields of a row type.

    Args:
        row_type: a `typing.NamedTuple` class.
        name: of the read, for messages.

    Raises:
        PipelineError: it is something else, or a field has a type that no column has.
    """
    if not isinstance(row_type, type) or not is_row_type(row_type):
        raise PipelineError(
            f"{name} needs a row type, not {row_type!r}",
            hint="class Event(typing.NamedTuple): with a field and its type on each line",
        )
    hints = get_type_hints(row_type)
    fields: tuple[str, ...] = row_type._fields  # type: ignore[attr-defined]
    if not fields:
        raise PipelineError(f"{name} needs a row type with fields, not {row_type.__name__}")
    return tuple(_field(row_type, each, hints.get(each, Any), name) for each in fields)


def _field(row_type: type, field: str, hint: Any, name: str) -> ArrowField:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = [get_origin(kind) or kind for kind in kinds if kind is not NoneType]
    if len(found) != 1 or found[0] not in _FITS:
        raise PipelineError(
            f"{name} cannot take the field {field!r} of {row_type.__name__}",
            detail=f"its type is {hint!r}",
            hint=f"use one of {', '.join(each.__name__ for each in _FITS if each is not Any)}, or one of them | None",
        )
    return ArrowField(field, found[0], is_optional=len(kinds) > 1 or found[0] is Any)


@attrs.frozen
class Columns:
    """Makes values of the columns of a file, or of a table.

    Attributes:
        path: of the file or table, for messages.
        time_zone: of instants that are there without one; None: these are no instants.
    """

    path: str
    time_zone: str | None

    def check(self, schema: pa.Schema, fields: Sequence[ArrowField]) -> None:
        """Check that columns fit fields, which are all there.

        Args:
            schema: of what has the columns.
            fields: of the row type.

        Raises:
            InputError: one does not.
        """
        for field in fields:
            kind = schema.field(field.name).type
            if _types.is_dictionary(kind):
                kind = kind.value_type
            is_null = _types.is_null(kind) and field.is_optional
            if not is_null and not _FITS[field.kind](kind):
                raise InputError(
                    f"{self.path} has a column {field.name!r} that is no {field.kind.__name__}",
                    detail=f"its type in the file is {schema.field(field.name).type}",
                    hint="correct the type of the field, or write the file with another type",
                )
            if (
                field.kind is datetime
                and not is_null
                and self.time_zone is None
                and kind.tz is None
            ):
                raise self.without_zone(field.name, kind)

    def without_zone(self, name: str, kind: pa.DataType) -> InputError:
        """The error about times that are no instants.

        Args:
            name: of the column.
            kind: its type.
        """
        return InputError(
            f"{self.path} has a column {name!r} of times without a time zone",
            detail=f"its type in the file is {kind}",
            hint="say with time_zone= which one they are in, e.g. time_zone='UTC'",
        )

    def column(self, field: ArrowField, array: pa.Array) -> pa.Array:
        """The column of a field that travels as one.

        Args:
            field: of the row type.
            array: as it was read.

        Raises:
            InputError: a value does not fit, or is missing.
        """
        self._refuse_nulls(field, array)
        if _types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if _types.is_timestamp(array.type):
            return self._instants(field.name, array)
        target = ARROW_TYPES[field.kind]
        try:
            if array.type != target:
                # An integer that a float cannot hold exactly is rounded, as elsewhere.
                array = array.cast(target, safe=field.kind is not float)
            if field.kind is str:
                array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._refusal(field.name, f"that is no {field.kind.__name__}", error) from None
        return array

    def values(self, name: str, array: pa.Array) -> list[Any]:
        """A column as Python values; instants are datetimes in UTC.

        Args:
            name: of the column.
            array: as it was read.

        Raises:
            InputError: one cannot be a Python value.
        """
        kind = array.type
        if _types.is_timestamp(kind) and (kind.tz is not None or self.time_zone is not None):
            return column_values(self._instants(name, array))
        exact = _in_microseconds(kind)
        try:
            values: list[Any] = (
                array if exact == kind else array.cast(exact, safe=False)
            ).to_pylist()
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise self._refusal(name, "that is none of Python", error) from None
        return values

    def field_values(self, field: ArrowField, array: pa.Array) -> list[Any]:
        """The values of a field, one for each row.

        Args:
            field: of the row type.
            array: as it was read.

        Raises:
            InputError: a value does not fit, or is missing.
        """
        if field.is_columnar:
            return column_values(self.column(field, array))
        self._refuse_nulls(field, array)
        return self.values(field.name, array)

    def times_us(self, name: str, array: pa.Array, unit_us: int) -> Sequence[int]:
        """A column as event times.

        Args:
            name: of the column.
            array: as it was read.
            unit_us: of numbers, in microseconds.

        Raises:
            InputError: one is missing, or is no instant.
        """
        if array.null_count:
            raise InputError(
                f"{self.path} has a row without an event time",
                detail=f"its {name!r} is missing",
                hint="correct the row, or give a function for event_time that returns an instant for it, and sort it "
                "out in the pipeline",
            )
        if _types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if _types.is_timestamp(array.type):
            return IntColumn(numbers_of(self._instants(name, array).cast(pa.int64())))
        try:
            if _types.is_integer(array.type):
                return self._counted_us(array, unit_us)
            texts = array.to_pylist()
            if _types.is_floating(array.type):
                texts = [value * unit_us / US_PER_SECOND for value in texts]
            return to_timestamps_us(texts)
        except Exception as error:
            raise self._refusal(name, "that is no instant", error) from error

    def check_times(self, schema: pa.Schema, name: str, *, has_unit: bool) -> None:
        """Check that a column, which is there, can be event times.

        Args:
            schema: of what has the columns.
            name: of the column.
            has_unit: whether a unit was given for numbers.

        Raises:
            InputError: it cannot.
        """
        kind = found = schema.field(name).type
        if _types.is_dictionary(kind):
            kind = kind.value_type
        is_number = _types.is_integer(kind) or _types.is_floating(kind)
        if not (is_number or _is_text(kind) or _types.is_timestamp(kind)) or (
            has_unit and not is_number
        ):
            raise InputError(
                f"{self.path} has a column {name!r} that cannot be the event time",
                detail=f"its type in the file is {found}"
                + (", and event_time_unit was given" if has_unit and not is_number else ""),
                hint="name one of instants, of text that says which instant it is, or of numbers; or give a function",
            )
        if _types.is_timestamp(kind) and kind.tz is None and self.time_zone is None:
            raise self.without_zone(name, kind)

    def _counted_us(self, array: pa.Array, unit_us: int) -> Sequence[int]:
        numbers = numbers_of(array.cast(pa.int64()))
        if not len(numbers):
            return IntColumn(numbers)
        if not (
            MIN_TIMESTAMP_US <= int(numbers.min()) * unit_us
            and int(numbers.max()) * unit_us <= MAX_TIMESTAMP_US
        ):
            raise ValueError("it is before the year 1 or after the year 9999")
        return IntColumn(numbers * np.int64(unit_us))

    def _instants(self, name: str, array: pa.Array) -> pa.Array:
        kind = array.type
        try:
            if kind.tz is None:
                array = _compute().assume_timezone(array, self.time_zone)
            instants = array.cast(TIMESTAMP_TYPE, safe=kind.unit != "ns")
        except pa.ArrowInvalid as error:
            raise self._refusal(name, "that is no instant", error) from None
        bounds = _compute().min_max(instants.cast(pa.int64()))
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low < MIN_TIMESTAMP_US or high > MAX_TIMESTAMP_US):
            why = ValueError("it is before the year 1 or after the year 9999")
            raise self._refusal(name, "that is no instant", why)
        return instants

    def _refuse_nulls(self, field: ArrowField, array: pa.Array) -> None:
        if array.null_count and not field.is_optional:
            raise InputError(
                f"{self.path} has a row in which {field.name!r} is missing",
                hint="correct the row or the type; a field that may be missing is declared as ... | None",
            )

    def _refusal(self, name: str, what: str, error: Exception) -> InputError:
        return InputError(
            f"{self.path} has a value of {name!r} {what}",
            detail=str(error),
            hint="correct the row, or the type of the field",
        )


def check_time_zone(name: str, time_zone: str | None) -> None:
    """Check the argument of a read.

    Args:
        name: of the read, for messages.
        time_zone: as the user gave it.

    Raises:
        PipelineError: there is no such time zone.
    """
    try:
        if time_zone is not None:
            _compute().assume_timezone(pa.array([0], pa.timestamp("us")), time_zone)
    except (pa.ArrowInvalid, TypeError) as error:
        raise PipelineError(
            f"{name} was given time_zone={time_zone!r}",
            detail=str(error),
            hint="give the name of a time zone, e.g. 'UTC' or 'Europe/Berlin'",
        ) from None


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type whose times have no digits below the microsecond, as Python's have none."""
    if _types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if _types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if _types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if _types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if _types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if _types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if _types.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    return kind
