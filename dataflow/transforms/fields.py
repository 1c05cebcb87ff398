"""Fields of elements: by their names, or computed.

Elements are typed rows, any objects with these attributes, or mappings with these keys.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from dataflow.columns import Rows
from dataflow.errors import PipelineError
from dataflow.row_expressions import RowExpression

#: A field by its name, or a function of an element, which may be a `RowExpression`.
Expression = str | Callable[[Any], Any]


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


def field_value(element: Any, wanted: Expression) -> Any:
    """The value of a field.

    Args:
        element: an object, or a mapping.
        wanted: the field.
    """
    if not isinstance(wanted, str):
        return wanted(element)
    return element[wanted] if isinstance(element, Mapping) else getattr(element, wanted)


def field_column(rows: Rows, wanted: Expression) -> pa.Array | None:
    """The values of a field for all rows; None where they have to be asked one by one.

    Args:
        rows: the elements.
        wanted: the field.
    """
    if isinstance(wanted, str):
        return rows.column(wanted)
    return wanted.column(rows) if isinstance(wanted, RowExpression) else None
