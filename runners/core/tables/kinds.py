"""Kinds of columns beyond numbers, texts, bytes and instants: how their values are stored, and which fit.

A value as it is stored is what Postgres gives back, so that a bundle in memory, a test in memory and the server agree
which rows are the same.  What does not fit is left as it is, and `misfit` says why.

**Money is exact**: a decimal column takes decimals and integers, never floats, and every digit is kept.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any
from uuid import UUID

import attrs
import numpy as np

from dataflow.table import element_type

#: Why a value does not fit, and what to do.
Reason = tuple[str, str]
#: Digits that a numeric of Postgres may have before and behind its point.
_DIGITS_BEFORE_MAX, _DIGITS_BEHIND_MAX = 131_072, 16_383
#: Python reads no longer integer out of JSON.
_JSON_INT_BITS_MAX = 14_000
_AS_TEXT = "write it as text, or into a column of its own"


@attrs.frozen
class ColumnKind:
    """One kind of column.

    Attributes:
        stored: a value as it is read back; what does not fit comes back as it is.
        misfit: why a value, not None, does not fit; None if it does.
        size: about how many characters a value takes; None where all are small.
    """

    stored: Callable[[Any], Any]
    misfit: Callable[[Any], Reason | None]
    size: Callable[[Any], int] | None = None


def kind_of(column_type: Any) -> ColumnKind | None:
    """The kind of a column; None for those that `values` and `changelog` know themselves.

    Args:
        column_type: of the column.
    """
    return _kind_of(column_type)


@lru_cache(maxsize=1_000)
def _kind_of(column_type: Any) -> ColumnKind | None:
    if isinstance(column_type, type) and issubclass(column_type, Enum):
        return _enum_kind(column_type)
    return _KINDS.get(column_type)


def enum_texts(column_type: type[Enum]) -> dict[Enum, str]:
    """What is stored for each member: its value if the values of all members are texts, else its name.

    Args:
        column_type: the enum.
    """
    members = list(column_type.__members__.values())
    if all(isinstance(each.value, str) for each in members):
        return {each: str.__str__(each.value) for each in members}
    return {each: each.name for each in members}


def size_of(column_type: Any, value: Any) -> int:
    """About how many characters a value takes in its column, if that may be many; else nothing.

    Args:
        column_type: of the column.
        value: as it is stored, or None.
    """
    if value is None:
        return 0
    if column_type in (str, bytes):
        return len(value)
    if element_type(column_type) is not None:
        return sum([_VALUE_CHARACTERS + size_of(element_type(column_type), each) for each in value])
    kind = kind_of(column_type)
    return kind.size(value) if kind is not None and kind.size is not None else 0


#: About what a value in an array takes, texts apart.
_VALUE_CHARACTERS = 8


def json_text(value: Any) -> str:
    """JSON of a value that fits."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def hashable(value: Any) -> Any:
    """A form of JSON and arrays in which they are equal if Postgres says so.

    Args:
        value: as it is stored.
    """
    kind = type(value)
    if kind is dict:
        return dict, frozenset([(name, hashable(each)) for name, each in value.items()])
    if kind is list:
        return list, tuple([hashable(each) for each in value])
    if kind is bool:
        return bool, value
    return "NaN" if value != value else value  # noqa: PLR0124 - true of NaN alone


def _decimal(value: Any) -> Any:
    if type(value) is int or isinstance(value, np.integer):
        return Decimal(int(value))
    if not isinstance(value, Decimal):
        return value
    if value.is_qnan():
        # Without a sign, and without what Python keeps in it.
        return Decimal("NaN")
    if not value.is_finite():
        return Decimal(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if exponent > _DIGITS_BEFORE_MAX:
        return value
    if exponent > 0:
        digits, exponent = digits + (0,) * exponent, 0
    # Postgres has no negative zero.
    return Decimal((sign if any(digits) else 0, digits, exponent))


def _misfit_decimal(value: Any) -> Reason | None:
    if isinstance(value, float):
        return (
            "a float, which is rounded in binary",
            'make a Decimal of text, e.g. Decimal("0.10"), or use a float column',
        )
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        return f"a {type(value).__name__}", "convert it to Decimal, or change the column"
    if isinstance(value, int):
        return None if value.bit_length() < _DIGITS_BEFORE_MAX else _TOO_LONG
    if value.is_snan():
        return "a signaling NaN", 'use Decimal("NaN"), or None'
    if not value.is_finite():
        return None
    exponent = value.as_tuple().exponent
    if value.adjusted() >= _DIGITS_BEFORE_MAX or -int(exponent) > _DIGITS_BEHIND_MAX:
        return _TOO_LONG
    return None


_TOO_LONG = (
    f"which has more than {_DIGITS_BEFORE_MAX:,} digits before its point, or {_DIGITS_BEHIND_MAX:,} behind it",
    "round it first, or use a str column",
)


def _decimal_size(value: Any) -> int:
    return len(value.as_tuple().digits) if isinstance(value, Decimal) else value.bit_length() // 3


def _date(value: Any) -> Any:
    if type(value) is date or not isinstance(value, date) or isinstance(value, datetime):
        return value
    return date.fromordinal(value.toordinal())


def _misfit_date(value: Any) -> Reason | None:
    if isinstance(value, datetime):
        return (
            "a datetime, of which the time would be lost",
            "e.g. value.date(), or a datetime column",
        )
    return _unless_of(date, value)


def _time(value: Any) -> Any:
    if not isinstance(value, time) or value.tzinfo is not None:
        return value
    return time(value.hour, value.minute, value.second, value.microsecond)


def _misfit_time(value: Any) -> Reason | None:
    if isinstance(value, time) and value.tzinfo is not None:
        return "a time of day in a zone", "e.g. value.replace(tzinfo=None), or a datetime column"
    return _unless_of(time, value)


def _timedelta(value: Any) -> Any:
    if type(value) is timedelta or not isinstance(value, timedelta) or value != value:  # noqa: PLR0124 - pandas' NaT
        return value
    return timedelta(value.days, value.seconds, value.microseconds)


def _unless_of(kind: type, value: Any) -> Reason | None:
    if isinstance(value, kind):
        return None
    return f"a {type(value).__name__}", f"convert it to {kind.__name__}, or change the column"


def _enum_kind(column_type: type[Enum]) -> ColumnKind:
    texts = enum_texts(column_type)
    known = set(texts.values())

    def stored(value: Any) -> Any:
        return texts[value] if isinstance(value, column_type) and value in texts else value

    def misfit(value: Any) -> Reason | None:
        if type(value) is str and value in known:
            return None
        return f"which is no member of {column_type.__name__}", (
            f"give one of its members, of which {sorted(known)[:5]} are stored; of flags, use an int column"
        )

    return ColumnKind(stored, misfit)


def _json(value: Any) -> Any:
    """JSON as it is read back: a copy in plain types; what is no JSON stays."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = float(value)
        # Postgres writes all digits of such a number, and no point.
        return int(Decimal(repr(number))) if "e+" in repr(number) else number + 0.0
    if isinstance(value, Mapping):
        return {_json(name): _json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return value


def _misfit_json(value: Any) -> Reason | None:
    if value is None or type(value) is bool:
        return None
    if isinstance(value, str):
        return None if _is_text(value) else ("with text that is no Unicode, or has a NUL", _AS_TEXT)
    if isinstance(value, int):
        is_long = value.bit_length() > _JSON_INT_BITS_MAX
        return ("with an integer of thousands of digits", _AS_TEXT) if is_long else None
    if isinstance(value, float):
        return None if isfinite(value) else ("with a number that JSON does not have", "use None")
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                return f"with the name {name!r}, and names in JSON are texts", "e.g. str(name)"
        return next(filter(None, map(_misfit_json, [*value, *value.values()])), None)
    if isinstance(value, list | tuple):
        return next(filter(None, map(_misfit_json, value)), None)
    return f"with a {type(value).__name__}, which JSON does not have", _AS_TEXT


def _json_of(kind: type) -> ColumnKind:
    def misfit(value: Any) -> Reason | None:
        return _unless_of(kind, value) or _misfit_json(value)

    def stored(value: Any) -> Any:
        fits = isinstance(value, Mapping if kind is dict else (list, tuple))
        return _json(value) if fits else value

    return ColumnKind(stored, misfit, lambda value: len(json_text(value)))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


_KINDS: Mapping[Any, ColumnKind] = {
    Decimal: ColumnKind(_decimal, _misfit_decimal, _decimal_size),
    date: ColumnKind(_date, _misfit_date),
    time: ColumnKind(_time, _misfit_time),
    timedelta: ColumnKind(_timedelta, lambda value: _unless_of(timedelta, value)),
    UUID: ColumnKind(lambda value: value, lambda value: _unless_of(UUID, value)),
    dict: _json_of(dict),
    list: _json_of(list),
}
