"""Elements as text: the form in which errors, logs and dead letters show them."""

from typing import Any

_ELEMENT_CHARACTERS_MAX = 500


def shown(element: Any) -> str:
    """The text of an element in an error; only the beginning if it is long."""
    try:
        text = repr(element)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises, this is shown beside another failure
        text = f"<{type(element).__qualname__}, whose repr raises {type(error).__name__}>"
    if len(text) > _ELEMENT_CHARACTERS_MAX:
        return f"{text[:_ELEMENT_CHARACTERS_MAX]}... ({len(text)} characters)"
    return text
