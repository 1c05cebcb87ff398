"""Typed keys: keys that are not only what they contain, but of a class: enums, named tuples, dataclasses, decimals.

Python calls such a key equal to a key of another class (``Color.RED == "red"``, ``Point(1, 2) == (1, 2)``,
``Decimal(1) == 1``), and a dataclass may say of itself what it equals.  So between the transform that makes it and the
one that receives it, a key of a class is a `TypedKey`: equal to those whose class and fields are the same, on every
runner and machine, and to nothing else.  What users see is its value (`emitted_key`).

A class is named by its module and qualified name, as in pickles; one of this package by its tag
(`dataflow.value_tags`), as the package may be laid out anew.  `dataflow.coders` makes bytes of what stands here.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable
from datetime import time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from importlib import import_module
from operator import attrgetter
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import attrs

from dataflow.errors import PipelineError
from dataflow.rows import is_row_type, row_class
from dataflow.serialization import class_of_tag, tag_of

#: The packages whose classes are named by their tags, but for those of what is for tests.
_OURS = frozenset(("dataflow", "runners", "triggers", "windowing"))
_FOR_TESTS = ("dataflow.testing", "runners.testing")
#: What the tag of a class of rows begins with, before the names of its fields.
_ROW = "row "
_MICROSECOND = timedelta(microseconds=1)
#: Whole decimals of up to so many digits have no exponent.
_WHOLE_DIGITS_MAX = 28


class TypedKey:
    """A key of a class, as the core holds it.

    Args:
        encoded: its bytes, by which it is equal to another.
        value: the canonical key that users see.
    """

    __slots__ = ("encoded", "value")

    def __init__(self, encoded: bytes, value: Any) -> None:
        self.encoded, self.value = encoded, value

    def __eq__(self, other: object) -> bool:
        return type(other) is TypedKey and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return repr(self.value)


def emitted_key(key: Any) -> Any:
    """The key as user code sees it.

    Args:
        key: canonical.
    """
    return key.value if type(key) is TypedKey else key


def emitted_keys(keys: list[Any]) -> list[Any]:
    """Keys as user code sees them; cheaper than a call for each.

    Args:
        keys: canonical.
    """
    return list(map(emitted_key, keys)) if TypedKey in set(map(type, keys)) else keys


class NotAKeyError(Exception):
    """A value of a class cannot be a key.

    Args:
        why: the reason.
        convert: how to make a key of it, as part of a hint.
    """

    def __init__(self, why: str, convert: str) -> None:
        super().__init__(why)
        self.why, self.convert = why, convert


def canonical_decimal(value: Decimal) -> Decimal:
    """The one of all equal decimals that is emitted: without zeros at its end, and no exponent if it is whole.

    Raises:
        NotAKeyError: it is not a number.
    """
    if value.is_nan():
        raise NotAKeyError("NaN is not equal to itself", "e.g. None in its place")
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return Decimal("-Infinity" if sign else "Infinity")
    end = len(digits)
    while not digits[end - 1]:
        end -= 1
    exponent += len(digits) - end
    kept = digits[:end]
    if 0 < exponent <= _WHOLE_DIGITS_MAX - end:
        kept, exponent = kept + (0,) * exponent, 0
    return Decimal((sign, kept, exponent))


def canonical_time(value: time) -> time:
    """A time of day, which has no zone.

    Raises:
        NotAKeyError: it has one.
    """
    if value.tzinfo is not None:
        raise NotAKeyError(
            "a time of day in a zone is no moment: the zone's offset depends on the day",
            "e.g. key.replace(tzinfo=None), or a datetime",
        )
    return value.replace(fold=0)


def time_us(value: time) -> int:
    """A time of day in microseconds since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def time_of_us(since_us: int) -> time:
    """The inverse of `time_us`.

    Args:
        since_us: microseconds since midnight.
    """
    seconds, microsecond = divmod(since_us, 1_000_000)
    minutes, second = divmod(seconds, 60)
    return time(*divmod(minutes, 60), second, microsecond)


def timedelta_us(value: timedelta) -> int:
    """A duration in microseconds."""
    return value // _MICROSECOND


#: Classes of single values: the canonical one of those that are equal.
ATOMS: dict[type, Callable[[Any], Any]] = {
    Decimal: canonical_decimal,
    UUID: lambda value: value,
    time: canonical_time,
    timedelta: lambda value: value,
}

#: The path of a class in bytes: module and qualified name; or nothing, and the tag of a class of this package.
ClassPath = tuple[str, str]


@attrs.frozen
class EnumKind:
    """A class of names."""

    path: ClassPath
    cls: type[Enum]

    def content(self, member: Any) -> str | int:
        """What tells a member from the others: its name, which outlives its value; of flags, the value."""
        return int(member.value) if isinstance(member, Flag) else str(member.name)

    def member(self, content: str | int) -> Any:
        """The inverse of `content`."""
        return self.cls[content] if isinstance(content, str) else self.cls(content)


@attrs.frozen
class RecordKind:
    """A class of records: named tuples, and frozen classes of fields.

    Attributes:
        take: the fields of an instance.
        make: an instance of these fields.
    """

    path: ClassPath
    cls: type
    take: Callable[[Any], tuple[Any, ...]]
    make: Callable[[Iterable[Any]], Any]


_kinds: WeakKeyDictionary[type, EnumKind | RecordKind | NotAKeyError | None] = WeakKeyDictionary()


def kind_of(cls: type) -> EnumKind | RecordKind | None:
    """How instances of a class are taken apart and made again; None if they are neither members nor records.

    Raises:
        NotAKeyError: they are, and cannot be keys.
    """
    if cls not in _kinds:
        try:
            _kinds[cls] = _kind(cls)
        except NotAKeyError as error:
            _kinds[cls] = error
    kind = _kinds[cls]
    if isinstance(kind, NotAKeyError):
        raise NotAKeyError(kind.why, kind.convert)
    return kind


def kind_at(path: ClassPath) -> Any:
    """The kind of the class at a path, for bytes that are read.

    Raises:
        PipelineError: there is no such class.
    """
    module, name = path
    try:
        cls = _found(module, name) if module else _tagged(name)
    except (ImportError, AttributeError, KeyError) as error:
        raise PipelineError(
            f"a stored key is of the class {name!r} of {module or 'dataflow-model'!r}, which is not there",
            detail=f"{type(error).__name__}: {error}",
            hint="bring the class back under that name until the job has been drained; keys are stored by the names "
            "of their classes",
        ) from None
    return kind_of(cls)


def _tagged(name: str) -> Any:
    if name.startswith(_ROW):
        return row_class(tuple(name.removeprefix(_ROW).split()))
    return class_of_tag(name)


def _found(module: str, name: str) -> Any:
    return attrgetter(name)(sys.modules.get(module) or import_module(module))


def _kind(cls: type) -> EnumKind | RecordKind | None:
    if issubclass(cls, Enum):
        return EnumKind(_path(cls, "e.g. key.value"), cls)
    if is_row_type(cls):
        _check_equality(cls, "e.g. tuple(key)", is_generated=cls.__eq__ is tuple.__eq__)
        return RecordKind(_path(cls, "e.g. tuple(key)"), cls, tuple, _maker_of_tuples(cls))
    if dataclasses.is_dataclass(cls):
        fields: Any = dataclasses.fields(cls)
        names = [field.name for field in fields]
        uncompared = [field.name for field in fields if not field.compare]
        file, convert = "<string>", "e.g. dataclasses.astuple(key)"
    elif attrs.has(cls):
        fields = attrs.fields(cls)
        names = [field.name for field in fields]
        uncompared = [field.name for field in fields if field.eq is not True or field.eq_key]
        file, convert = "<attrs generated", "e.g. attrs.astuple(key)"
    else:
        return None
    if uncompared:
        raise NotAKeyError(
            f"its field {uncompared[0]!r} does not count where it is compared", convert
        )
    code = getattr(cls.__eq__, "__code__", None)
    _check_equality(
        cls, convert, is_generated=code is not None and code.co_filename.startswith(file)
    )
    return RecordKind(_path(cls, convert), cls, _taker(names), _maker(cls, names))


def _check_equality(cls: type, convert: str, *, is_generated: bool) -> None:
    if not is_generated:
        raise NotAKeyError(
            f"{cls.__qualname__} does not compare by its fields alone, and its bytes could not follow",
            convert,
        )


def _path(cls: type, convert: str) -> ClassPath:
    tag = tag_of(cls)
    if tag is not None:
        return "", tag
    names = getattr(cls, "_fields", ())
    if names and row_class(names) is cls:
        return "", _ROW + " ".join(names)
    module, name = cls.__module__, cls.__qualname__
    is_ours = module.partition(".")[0] in _OURS and not module.startswith(_FOR_TESTS)
    try:
        found = None if is_ours else _found(module, name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise NotAKeyError(
            f"{module}.{name} is not found by its name, as stored keys need it",
            f"or define its class at the top level of the script or of a module; {convert}",
        )
    return module, name


def _maker_of_tuples(cls: type) -> Callable[[Iterable[Any]], Any]:
    return lambda fields: tuple.__new__(cls, fields)


def _taker(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _maker(cls: type, names: list[str]) -> Callable[[Iterable[Any]], Any]:
    """Makes instances as pickle does, without a call of the constructor, which may take something else."""

    def make(fields: Iterable[Any]) -> Any:
        value: Any = object.__new__(cls)
        for name, field in zip(names, fields, strict=True):
            object.__setattr__(value, name, field)
        return value

    return make
