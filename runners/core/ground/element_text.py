"""Elements as text: how an error, a log or a dead letter shows one to people."""

from typing import Any

_ELEMENT_CHARACTERS_MAX = 500


def shown(element: Any) -> str:
    """The element in an error; the beginning of a long one."""
    try:
        text = repr(element)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises, this is said beside another failure
        text = f"<{type(element).__qualname__}, whose repr raises {type(error).__name__}>"
    if len(text) > _ELEMENT_CHARACTERS_MAX:
        return f"{text[:_ELEMENT_CHARACTERS_MAX]}... ({len(text)} characters)"
    return text
