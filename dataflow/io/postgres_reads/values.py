"""Values of Postgres as texts, and what they are in Python: one reading for rows of tables and of replication.

Both come from sessions with the settings below, so that a value has one text, and a row that is retracted is equal to
the row that was handed over.  Types that are not listed (enums, domains, networks, ranges) are their text.
"""

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

#: Of every session that reads: what texts look like.
SESSION_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "timezone": "UTC",
    "client_encoding": "UTF8",
}
Decode = Callable[[bytes], Any]
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)
#: As psycopg takes them, too; a month has no length of its own.
_DAYS_PER_YEAR, _DAYS_PER_MONTH = 365, 30


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")


def _bytes(raw: bytes) -> bytes:
    if not raw.startswith(b"\\x"):
        raise ValueError("bytes are not in hexadecimal digits")
    return bytes.fromhex(raw[2:].decode("ascii"))


def _bool(raw: bytes) -> bool:
    return raw == b"t"


def _decimal(raw: bytes) -> Decimal:
    return Decimal(raw.decode("ascii"))


def _date(raw: bytes) -> date:
    return date.fromisoformat(raw.decode("ascii"))


def _time(raw: bytes) -> time:
    return time.fromisoformat(raw.decode("ascii"))


def _datetime(raw: bytes) -> datetime:
    return datetime.fromisoformat(raw.decode("ascii"))


def _uuid(raw: bytes) -> UUID:
    return UUID(raw.decode("ascii"))


def _json(raw: bytes) -> Any:
    return json.loads(raw)


def _interval(raw: bytes) -> timedelta:
    found = _INTERVAL.fullmatch(raw.decode("ascii"))
    if found is None:
        raise ValueError(f"{raw!r} is no interval")
    years, months, days, hours, minutes = (int(each or 0) for each in found.groups()[:5])
    seconds = Decimal(found[6] or 0)
    return timedelta(
        days=years * _DAYS_PER_YEAR + months * _DAYS_PER_MONTH + days,
        hours=hours,
        minutes=minutes,
        microseconds=int(seconds * 1_000_000),
    )


_SCALARS: dict[int, tuple[Decode, int]] = {
    # the number of a type: how it is read, and the number of the type of its arrays
    16: (_bool, 1000),
    17: (_bytes, 1001),
    20: (int, 1016),
    21: (int, 1005),
    23: (int, 1007),
    25: (_text, 1009),
    26: (int, 1028),
    114: (_json, 199),
    700: (float, 1021),
    701: (float, 1022),
    1042: (_text, 1014),
    1043: (_text, 1015),
    1082: (_date, 1182),
    1083: (_time, 1183),
    1114: (_datetime, 1115),
    1184: (_datetime, 1185),
    1186: (_interval, 1187),
    1700: (_decimal, 1231),
    2950: (_uuid, 2951),
    3802: (_json, 3807),
}


class _Array:
    """Reads an array, of any number of dimensions, as a list."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode

    def __call__(self, raw: bytes) -> list[Any]:
        text = raw.decode("utf-8")
        if text.startswith("["):  # bounds that do not begin at 1
            text = text[text.index("=") + 1 :]
        values, at = self._list(text, 0)
        if at != len(text):
            raise ValueError(f"an array ends in {text[at:]!r}")
        return values

    def _list(self, text: str, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        at += 1
        while text[at] != "}":
            if text[at] == ",":
                at += 1
            value, at = self._list(text, at) if text[at] == "{" else self._item(text, at)
            values.append(value)
        return values, at + 1

    def _item(self, text: str, at: int) -> tuple[Any, int]:
        if text[at] != '"':
            end = at
            while text[end] not in ",}":
                end += 1
            word = text[at:end]
            return (None if word == "NULL" else self._decode(word.encode("utf-8"))), end
        characters: list[str] = []
        at += 1
        while text[at] != '"':
            at += text[at] == "\\"
            characters.append(text[at])
            at += 1
        return self._decode("".join(characters).encode("utf-8")), at + 1


_DECODERS: dict[int, Decode] = {
    **{oid: decode for oid, (decode, _) in _SCALARS.items()},
    **{array_oid: _Array(decode) for decode, array_oid in _SCALARS.values()},
}

#: Types whose values have the same order in Python as in Postgres; of texts, that of their bytes (the collation C).
ORDERED_TYPES = {16, 17, 20, 21, 23, 26, 1082, 1083, 1114, 1184, 1700, 2950}
TEXT_TYPES = {25, 1043}


def decoder_of(type_oid: int) -> Decode:
    """The function that reads the text of a value of a type.

    Args:
        type_oid: the number of the type, as in ``pg_type``.
    """
    return _DECODERS.get(type_oid, _text)
