"""Fields of elements: by their names, or computed.

Elements are typed rows, any objects with these attributes, or mappings with these keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from dataflow.columns import Rows, tuples_of
from dataflow.errors import PipelineError
from dataflow.row_expressions import RowExpression

#: A field by its name, or a function of an element, which may be a `RowExpression`.
Expression = str | Callable[[Any], Any]
#: Input of an aggregate: a field, or several, as a tuple.
Input = Expression | tuple[Expression, ...]


def check_expression(given: object, what: str) -> None:
    """Check what should be an `Expression`.

    Args:
        given: what the user gave.
        what: the transform, for messages.

    Raises:
        PipelineError: it is neither a name nor a function.
    """
    if not isinstance(given, str) and not callable(given):
        raise PipelineError(
            f"{what} needs the name of a field, or a function of the element, not {given!r}"
        )


def check_input(given: object, what: str) -> None:
    """Check what should be an `Input`.

    Args:
        given: what the user gave.
        what: the transform, for messages.

    Raises:
        PipelineError: it is neither a name nor a function, nor a tuple of these.
    """
    for each in given if isinstance(given, tuple) and given else (given,):
        check_expression(each, what)


def is_field_or_expression(wanted: Input) -> bool:
    """Whether a field is found without a function of the user's.

    Args:
        wanted: the field, or several.
    """
    if isinstance(wanted, tuple):
        return all(map(is_field_or_expression, wanted))
    return isinstance(wanted, str | RowExpression)


def field_value(element: Any, wanted: Input) -> Any:
    """The value of a field; of several a tuple.

    Args:
        element: an object, or a mapping.
        wanted: the field, or the fields.
    """
    if isinstance(wanted, tuple):
        return tuple([field_value(element, each) for each in wanted])
    if not isinstance(wanted, str):
        return wanted(element)
    return element[wanted] if isinstance(element, Mapping) else getattr(element, wanted)


def field_column(rows: Rows, wanted: Input) -> pa.Array | None:
    """The values of a field for all rows, of several tuples; None where they have to be asked one by one.

    Args:
        rows: the elements.
        wanted: the field, or the fields.
    """
    if isinstance(wanted, tuple):
        columns = [field_column(rows, each) for each in wanted]
        return None if any(each is None for each in columns) else tuples_of(columns)
    if isinstance(wanted, str):
        return rows.column(wanted)
    return wanted.column(rows) if isinstance(wanted, RowExpression) else None
