"""Laws of the timers of a cell: which is the first, and that none that is due is overlooked."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runners.core.stateful import keyed_state
from runners.core.stateful.keyed_state import UserTimers
from windowing.time_domain import TimeDomain

FEW = 2
acts = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 4)),
    st.tuples(st.just("clear"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("look"), st.integers(0, 1), st.just(0)),
)
MANY = [("set", number, 4) for number in range(4)]


def domain_of(timer: Any) -> TimeDomain:
    """Every other timer is of processing time."""
    return TimeDomain.PROCESSING if int(timer) % 2 else TimeDomain.EVENT


@given(script=st.lists(acts, max_size=20))
@example(script=[*MANY, ("look", 0, 0), ("set", 4, 2)])
@example(script=[*MANY, ("look", 0, 0), ("clear", 0, 0), ("look", 0, 0)])
@example(script=[*MANY, ("look", 0, 0), ("clear", 0, 0), ("clear", 1, 0), ("look", 0, 0), *MANY])
def test_the_first_timer_is_the_one_that_was_set_first_for_the_first_instant(
    script: list[tuple[str, int, int]],
) -> None:
    """However many there are, and whatever has been asked meanwhile; and a quick no is true."""
    expected: dict[str, tuple[int, int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_state, "_FEW", FEW)
        timers = UserTimers()
        for turn, (act, number, fire_us) in enumerate(script):
            name = str(number)
            if act == "set":
                expected.pop(name, None)
                timers.pop(name, None)
                timers[name] = (fire_us, turn)
                expected[name] = (fire_us, turn)
            elif act == "clear":
                assert timers.pop(name, None) == expected.pop(name, None)
            else:
                check_first(timers, expected, (TimeDomain.EVENT, TimeDomain.PROCESSING)[number])
            least_us = min((fire_us for fire_us, _ in expected.values()), default=99)
            assert timers.may_be_due(least_us) == bool(expected)
        for domain in TimeDomain:
            check_first(timers, expected, domain)
        # All queues are up to date now, and the answer is exact.
        assert not timers.may_be_due(min((at for at, _ in expected.values()), default=99) - 1)


def check_first(
    timers: UserTimers, expected: dict[str, tuple[int, int]], domain: TimeDomain
) -> None:
    """Check which timer of a domain is the first."""
    found = [(*at, name) for name, at in expected.items() if domain_of(name) is domain]
    first = min(found, default=None)
    assert timers.first(domain, domain_of) == (None if first is None else (first[0], first[2]))
