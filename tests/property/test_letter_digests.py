"""Digests of dead letters are those of the records alone, and of other records they are others."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dataflow.serialization import dumps, loads
from dataflow.set_aside import Origin
from runners.batch.letter_digests import Letters, Repeated
from runners.core.ground.dead_letters import DeadLetter
from windowing.window import GLOBAL_WINDOW, Window

KINDS = st.sampled_from(Repeated)
KEYS = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"]), st.tuples(st.integers(0, 1)))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(["", "1", "x"]),
    st.binary(max_size=1),
)
VALUES = st.recursive(
    st.one_of(PLAIN, st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(PLAIN, inner, max_size=3),
        st.frozensets(PLAIN, max_size=3),
    ),
    max_leaves=6,
)
WINDOWS = st.sampled_from([GLOBAL_WINDOW, Window(0, 10), Window(0, 20), Window(10, 20)])


def letter(
    element: Any, at_us: int = 0, window: Window = GLOBAL_WINDOW, sign: int = 1
) -> DeadLetter:
    return DeadLetter(
        stage="read",
        element=element,
        timestamp_us=at_us,
        window=window,
        sign=sign,
        error="poison",
        traceback="",
        tries=1,
    )


LETTERS = st.builds(
    letter,
    st.tuples(KEYS, VALUES),
    st.integers(0, 2),
    WINDOWS,
    st.sampled_from([1, -1]),
)


def copied(element: DeadLetter, random: Random) -> DeadLetter:
    """A letter of an equal record, made of other objects, that failed in another way."""
    own = loads(dumps(reordered(element.element, random)))
    return attrs.evolve(element, element=own, error=str(random.random()), tries=2)


def reordered(value: Any, random: Random) -> Any:
    """An equal value whose dictionaries were filled in another order."""
    if isinstance(value, dict):
        items = [(key, reordered(each, random)) for key, each in value.items()]
        return dict(random.sample(items, len(items)))
    if isinstance(value, list | tuple):
        return type(value)(reordered(each, random) for each in value)
    return value


@given(st.lists(LETTERS, max_size=5), KINDS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_neither_order_nor_identity_nor_the_error_counts(
    letters: Sequence[DeadLetter], kind: Repeated, cut: int, random: Random
) -> None:
    again = [copied(each, random) for each in random.sample(letters, len(letters))]

    together = Letters.of(again[:cut], kind) + Letters.of(again[cut:], kind)

    assert together == Letters.of(letters, kind)
    assert not together.differ(Letters.of(letters, kind))


def typed(value: Any) -> Any:
    """The value as a text in which equal values of several types are others."""
    if isinstance(value, dict | frozenset):
        parts = value.items() if isinstance(value, dict) else value
        return type(value).__name__, sorted(map(repr, map(typed, parts)))
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(each) for each in value]
    return type(value).__name__, repr(value)


def known(each: DeadLetter) -> Any:
    return typed((each.element, each.timestamp_us, tuple(each.window), each.sign))


@given(st.lists(LETTERS, max_size=3), LETTERS, LETTERS)
def test_one_record_of_a_source_is_not_taken_for_another(
    letters: list[DeadLetter], one: DeadLetter, other: DeadLetter
) -> None:
    assume(known(one) != known(other))

    before, now = (Letters.of([*letters, each], Repeated.ALL) for each in (one, other))

    assert before.differ(now)


@given(LETTERS, WINDOWS, KINDS)
def test_neither_the_window_nor_the_sign_is_left_out(
    one: DeadLetter, window: Window, kind: Repeated
) -> None:
    """All else may be equal: an element is in several windows, and is retracted as it was emitted."""
    others = [attrs.evolve(one, sign=-one.sign)]
    others += [attrs.evolve(one, window=window)] * (window != one.window)
    for other in others:
        assert Letters.of([one], kind).differ(Letters.of([other], kind))


@given(LETTERS, LETTERS)
def test_groups_are_known_by_key_and_window_alone(one: DeadLetter, other: DeadLetter) -> None:
    same = [(typed(each.element[0]), tuple(each.window), each.sign) for each in (one, other)]

    before, now = (Letters.of([each], Repeated.KEY) for each in (one, other))

    assert before.differ(now) == (same[0] != same[1])


#: What may come out of a group: lists, and sums of numbers that are not whole.
MADE = st.one_of(
    st.lists(VALUES, max_size=3),
    st.floats(),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.complex_numbers(),
    st.decimals(),
    st.lists(st.floats(), max_size=2).map(np.array),
    st.lists(st.integers(), max_size=2).map(deque),
)


@given(KEYS, PLAIN, PLAIN, MADE, MADE)
def test_what_a_shuffle_may_change_of_an_element_does_not_count(
    key: Any, one: Any, other: Any, made: Any, again: Any
) -> None:
    first, same, second = (
        Letters.of([letter((key, value))], Repeated.PLAIN)
        for value in ((one, made), (one, again), (other, made))
    )

    assert first == same
    assert first.differ(second) == (typed(one) != typed(other))


@pytest.mark.parametrize("other", [("b", 0), ("a", 5)])
def test_lines_that_cannot_be_read_are_known_by_their_place(other: tuple[str, int]) -> None:
    first, second = (
        attrs.evolve(
            letter(None),
            origin=Origin(path=path, line=1, start_bytes=start, end_bytes=start + 3, raw=b"abc"),
        )
        for path, start in (("a", 0), other)
    )

    before, now = (Letters.of([each], Repeated.ALL) for each in (first, second))

    assert before.differ(now)


# --- records of other types -------------------------------------------------------------------


@attrs.frozen
class Sale:
    item: str
    price: Any


@dataclass
class Bid:
    item: str
    price: Any


class Plain:
    def __init__(self, item: str, price: Any) -> None:
        self.item, self.price = item, price


class Colour(Enum):
    RED, BLUE = 1, 2


AT = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS: list[tuple[Any, Any]] = [
    (Sale("a", 1), Sale("a", 2)),
    (Sale("a", Bid("b", 1)), Sale("a", Bid("b", 2))),
    (Bid("a", 1), Sale("a", 1)),
    (Bid("a", 1), Bid("b", 1)),
    (Plain("a", 1), Plain("a", 2)),
    (Colour.RED, Colour.BLUE),
    (Decimal("1.0"), Decimal("1.00")),
    (UUID(int=1), UUID(int=2)),
    (AT, AT.replace(microsecond=1)),
    (AT.date(), AT),
    (np.int64(1), np.int64(2)),
    (np.int64(1), np.int32(1)),
    (np.array([1, 2]), np.array([2, 1])),
    (bytearray(b"a"), bytearray(b"b")),
    (10**5_000, 10**5_000 + 1),
    (1, True),
    (1, "1"),
    ("1", b"1"),
    ({1, 2}, frozenset({1, 2})),
    ("\ud800", "\ud801"),
    (0.0, -0.0),
    (Sale, Bid),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda each: type(each).__name__)
def test_records_of_any_type_have_distinct_digests(one: Any, other: Any) -> None:
    before, now = (Letters.of([letter(each)], Repeated.ALL) for each in (one, other))

    assert before.differ(now)
    assert before == Letters.of([letter(loads(dumps(one)))], Repeated.ALL)


def test_what_cannot_be_written_counts_by_its_type() -> None:
    class Closed:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("not me")

    hashes = [
        Letters.of([letter(each)], Repeated.ALL)
        for each in (Closed(), Closed(), threading.Lock(), threading.Lock())
    ]

    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]
    assert hashes[0].differ(hashes[2])


def test_a_record_that_contains_itself_has_a_digest() -> None:
    ring: list[Any] = []
    ring.append(ring)

    assert Letters.of([letter(ring)], Repeated.ALL) == Letters.of([letter(ring)], Repeated.ALL)


def test_a_digest_that_is_not_known_is_not_compared() -> None:
    unknown = Letters(1, None)
    one = Letters.of([letter(1)], Repeated.ALL)

    assert not unknown.differ(one)
    assert not one.differ(unknown)
    assert (unknown + one) == Letters(2, None)
    assert (unknown + one).differ(unknown)
