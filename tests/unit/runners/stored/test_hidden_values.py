"""What is read of values of the user's own without their code: states of triggers, and nothing else."""

from decimal import Decimal

import pytest

from dataflow.serialization import dumps, loads
from runners.stored.columns import HIDDEN, hidden_own_of, own_blob
from triggers.parts import Fired

CALLED: list[str] = []


class Evil:
    """Its pickle calls a function."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return CALLED.append, ("called",)


class Listed(list[int]):
    """A list of the user's, whose pickle appends to it."""


@pytest.mark.parametrize(
    "other", [5, "text", [1, 2], Evil(), Listed([1]), {Listed: 1}, Fired((Evil(),))]
)
def test_states_of_triggers_are_read_and_others_hidden(other: object) -> None:
    state = Fired((True, Fired((3, None))))
    own = hidden_own_of(own_blob([other, state, other]))
    assert [own(), own(), own(), own()] == [HIDDEN, state, HIDDEN, HIDDEN]
    assert CALLED == []
    # What others read in this process is as it was.
    assert loads(dumps([state, Decimal(5)])) == [state, Decimal(5)]


def test_what_is_no_pickle_is_hidden() -> None:
    assert hidden_own_of(b"no pickle")() is HIDDEN
    assert hidden_own_of(b"")() is HIDDEN
