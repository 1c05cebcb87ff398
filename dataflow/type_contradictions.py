"""Whether two type hints contradict each other, so that no value is of both.

Less is certain here than for a type checker, and only that is refused: of ``int | str`` into ``str`` some values fit,
and an ``object`` may be anything.  What a value of a subclass could be is decided by the classes that there are: two
classes contradict each other if neither is a subclass of the other, and nothing is a subclass of both.  Containers are
compared by what is in them, as if none were empty.
"""

from __future__ import annotations

import numbers
from abc import ABCMeta
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Any, Literal, get_args, get_origin

import numpy as np

from dataflow.type_hints import (
    class_of,
    entries_of,
    fields_of,
    is_union,
    item_of,
    members_of,
    plain,
)

#: Where the classes are whose subclasses by somebody else are no reason to be in doubt.
_CLOSED_MODULES = frozenset(("builtins", "datetime", "decimal", "fractions", "uuid", "types"))
#: A class with more subclasses is not searched.
_SUBCLASSES_MAX = 2_000


def contradict(given: Any, wanted: Any) -> bool:
    """Whether it is certain that values of one type are none of another.

    Args:
        given: the type of the values.
        wanted: what they should be.
    """
    if given is Any or wanted is Any:  # as nearly always
        return False
    given, wanted = plain(given), plain(wanted)
    if given is Any or wanted is Any or given == wanted:
        return False
    if is_union(given):
        return all(contradict(each, wanted) for each in members_of(given))
    if is_union(wanted):
        return all(contradict(given, each) for each in members_of(wanted))
    if get_origin(given) is Literal:
        return all(_contradicts_value(wanted, value) for value in get_args(given))
    if get_origin(wanted) is Literal:
        return all(contradict(given, type(value)) for value in get_args(wanted))
    classes = class_of(given), class_of(wanted)
    if None in classes:
        return False
    return not _may_be_both(*classes) or _parts_contradict(given, wanted)  # type: ignore[arg-type]


def _contradicts_value(wanted: Any, value: Any) -> bool:
    if get_origin(wanted) is Literal:
        return value not in get_args(wanted)
    return contradict(type(value), wanted)


def _parts_contradict(given: Any, wanted: Any) -> bool:
    fields, others = fields_of(given), fields_of(wanted)
    if fields is not None and others is not None:
        pairs = zip(fields, others, strict=False)
        return len(fields) != len(others) or any(contradict(*each) for each in pairs)
    if fields is not None or others is not None:
        items = item_of(wanted if fields is not None else given)
        return any(contradict(each, items) for each in fields or others or ())
    entries, known = entries_of(given), entries_of(wanted)
    if entries is not None and known is not None:
        return any(contradict(*each) for each in zip(entries, known, strict=True))
    return contradict(item_of(given), item_of(wanted))


def _may_be_both(one: type, other: type) -> bool:
    """Whether an object may be an instance of both classes, or one is taken for the other."""
    if any(map(_is_unknown, (one, other))):
        return True
    try:
        if issubclass(one, other) or issubclass(other, one):
            return True
        if _are_taken_for_each_other(one, other):
            return True
        return _is_one_in(one, other) or _is_one_in(other, one)
    except Exception:  # noqa: BLE001 - whatever a class raises that is asked for its instances
        return True


def _is_unknown(cls: type) -> bool:
    """Whether its instances need not be those of its subclasses: a protocol, a class that is made of Any."""
    check = type(cls).__instancecheck__
    is_usual = check in (type.__instancecheck__, ABCMeta.__instancecheck__)
    return getattr(cls, "_is_protocol", False) or Any in cls.__mro__ or not is_usual


def _are_taken_for_each_other(one: type, other: type) -> bool:
    kinds: tuple[tuple[type, ...], ...] = (
        (numbers.Complex, np.number),  # an int is written where a float is meant
        (bool, np.bool_),
        (bytes, bytearray, memoryview),
    )
    return any(issubclass(one, kind) and issubclass(other, kind) for kind in kinds)


def _is_one_in(cls: type, other: type) -> bool:
    """Whether a subclass of a class is one of another."""
    if _is_closed(cls):
        return False
    subclasses = list(islice(_subclasses(cls), _SUBCLASSES_MAX))
    return len(subclasses) == _SUBCLASSES_MAX or any(issubclass(each, other) for each in subclasses)


def _is_closed(cls: type) -> bool:
    is_final = getattr(cls, "__final__", False) or (issubclass(cls, Enum) and len(cls) > 0)
    return cls.__module__ in _CLOSED_MODULES or is_final


def _subclasses(cls: type) -> Iterator[type]:
    waiting, seen = [cls], {cls}
    while waiting:
        found: list[type] = type.__subclasses__(waiting.pop())
        for each in found:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
                yield each
