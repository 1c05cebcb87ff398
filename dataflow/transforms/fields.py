"""Fields of elements: by their names, or computed.

Elements are typed rows, any objects with these attributes, or mappings with these keys.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dataflow.errors import PipelineError

#: A field by its name, or a function of an element.
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
