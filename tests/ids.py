"""Names for the cases of parametrized tests, the same in every process, so that several can share the tests."""

import re


def shown(value: object) -> str:
    """``repr`` without addresses."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = type(value).__name__
    return re.sub(r" at 0x[0-9a-f]+", "", text)
