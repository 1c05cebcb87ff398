"""caught: the message of a law about a mistake that it has to find."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

#: Far more than any of the mistakes needs to be found.
hard = settings(
    max_examples=300,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def caught(law: Callable[[Any], None], examples: st.SearchStrategy[Any]) -> str:
    """Run a law over examples; return the message of the first that it refuses."""

    @hard
    @given(examples)
    def look(example: Any) -> None:
        law(example)

    with pytest.raises(AssertionError) as failure:
        look()
    return str(failure.value)
