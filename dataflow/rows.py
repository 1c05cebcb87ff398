"""Typed rows: the types that a row can have, and the classes of rows that transforms make.

A row type is a `typing.NamedTuple` class whose fields are int, float, str, bool or datetime, or one of these or None.
Elements of such a type travel as columns where they can (`dataflow.columns`); to functions they are instances.
"""

from collections import namedtuple
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from dataflow.errors import PipelineError
from dataflow.serialization import read_as, written_as

#: The types that a field can have.
FIELD_TYPES = (int, float, str, bool, datetime)


@attrs.frozen
class RowField:
    """One field of a row type: ``kind`` is one of `FIELD_TYPES`."""

    name: str
    kind: type
    is_optional: bool


def row_fields(row_type: Any, what: str) -> tuple[RowField, ...]:
    """The fields of a row type, in order.

    Args:
        row_type: a `typing.NamedTuple` class.
        what: names, in an error, the transform that needs it.

    Raises:
        PipelineError: it is something else, or has a field of another type.
    """
    if not isinstance(row_type, type) or not is_row_type(row_type):
        raise PipelineError(
            f"{what} needs a row type, not {row_type!r}",
            hint="class Event(typing.NamedTuple): with a field and its type on each line",
        )
    hints = get_type_hints(row_type)
    return tuple(_field(row_type, name, hints.get(name), what) for name in row_type._fields)  # type: ignore[attr-defined]


def is_row_type(kind: type) -> bool:
    """Whether instances of a class are rows: named tuples."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")


def _field(row_type: type, name: str, hint: Any, what: str) -> RowField:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = [kind for kind in kinds if kind is not NoneType]
    if len(found) != 1 or found[0] not in FIELD_TYPES:
        raise PipelineError(
            f"{what} cannot take the field {name!r} of {row_type.__name__}",
            detail=f"its type is {hint!r}",
            hint=f"use one of {', '.join(each.__name__ for each in FIELD_TYPES)}, or one of them | None",
        )
    return RowField(name, found[0], is_optional=len(kinds) > 1)


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> Any:
    """The class of rows with fields of these names; the same names, the same class.  Its rows are plain pickles.

    Raises:
        PipelineError: they cannot be the names of fields.
    """
    try:
        plain = namedtuple("Row", names)  # type: ignore[misc]  # noqa: PYI024 - the types are the columns'
    except ValueError as error:
        raise PipelineError(
            f"{', '.join(map(repr, names))} cannot be the fields of a row",
            detail=str(error),
            hint="each is a Python name that is used once, no keyword, and begins with a letter",
        ) from None
    members = {"__slots__": (), "__module__": __name__, "__reduce__": _reduced}
    made = type("Row", (plain,), members)
    written_as("row", made, _fields)
    return made


def _reduced(row: Any) -> tuple[Any, ...]:
    return made_row, _fields(row)


def _fields(row: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    return row._fields, tuple(row)


def made_row(names: tuple[str, ...], values: Sequence[Any]) -> Any:
    """A row of `row_class`.

    Args:
        names: of the fields.
        values: one for each field.
    """
    return row_class(names)._make(values)


read_as("row", made_row)
