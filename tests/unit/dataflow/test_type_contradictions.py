"""Two type hints contradict each other if no value can be of both; when in doubt they do not."""

import enum
import numbers
from collections.abc import (
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from datetime import date, datetime
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    Protocol,
    SupportsInt,
    TypedDict,
    TypeVar,
    Union,
)

import numpy as np
import pytest
import typeguard
from hypothesis import given
from hypothesis import strategies as st

from dataflow.type_contradictions import contradict
from dataflow.type_hints import is_hint, solved, substituted, text_of, type_of, union_of


class Sale(NamedTuple):
    shop: str
    amount: int


class Visit(TypedDict):
    page: str


class Color(enum.Enum):
    RED = 1


class Base: ...


class Derived(Base): ...


class Other: ...


class Left: ...


class Right: ...


class Both(Left, Right): ...


class Named(Protocol):
    name: str


UserId = NewType("UserId", int)

Text = TypeVar("Text", bound=str)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def generic(origin: Any, *parameters: Any) -> Any:
    """A hint that type checkers do not look at."""
    return origin[parameters if len(parameters) > 1 else parameters[0]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int, str),
        (None, int),
        (UserId, str),
        (Annotated[int, "metres"], str),
        (Text, int),
        (Decimal, float),  # money is no float
        (str, bytes),
        (date, str),
        (Color, str),
        (Base, Other),
        (int, list[int]),
        (int, Iterable[int]),
        (list[int], Hashable),
        (type[int], str),
        (Callable[[int], int], int),
        (Visit, str),
        (Literal["a"], int),
        (Literal["a"], Literal["b"]),
        (str | bytes, int | None),
        (tuple[str, int], tuple[str, str]),
        (tuple[int, int, int], tuple[Any, Any]),
        (tuple[int, ...], tuple[str, ...]),
        (tuple[int, str], Iterable[int]),
        (Sale, tuple[int, int]),
        (list[int], Iterable[str]),
        (Sequence[int], list[str]),
        (dict[str, int], Mapping[str, str]),
        (dict[str, int], Iterable[int]),
        (tuple[str, Sequence[int]], tuple[str, Iterable[str]]),
        (Iterator[int], list[int]),
        (Generator[int, None, None], Sequence[int]),
    ],
)
def test_contradictions(one: Any, other: Any) -> None:
    assert contradict(one, other)
    assert contradict(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int, int),
        (int, float),  # an int is written where a float is meant
        (float, int),
        (bool, int),
        (np.int64, int),
        (np.bool_, bool),
        (int, numbers.Integral),
        (bytearray, bytes),
        (Any, str),
        (object, str),
        ("Unknown", str),
        (T, str),
        (UserId, int),
        (Annotated[int, 3], float),
        (int | str, str),
        (int | None, int),
        (Literal[1, "a"], int),
        (Base, Derived),
        (Left, Right),  # there is a class of both
        (Base, Named),
        (int, SupportsInt),
        (datetime, date),
        (Sale, tuple[str, int]),
        (tuple[str, int], Sale),
        (tuple[int, ...], tuple[int, int]),
        (str, Sequence[str]),
        (bytes, Sequence[int]),
        (list, Iterable[int]),
        (list[int], Sequence[float]),
        (dict[str, int], Iterable[str]),
        (Visit, dict[str, Any]),
        (Visit, Mapping[str, object]),
        (Iterable[int], Sized),
        (Iterable[int], Generator[int, None, None]),
        (Color, Hashable),
        (type[int], type[str]),
        (Callable[[int], int], Callable[[str], str]),
    ],
)
def test_what_is_not_certain_is_no_contradiction(one: Any, other: Any) -> None:
    assert not contradict(one, other)
    assert not contradict(other, one)


_LEAVES: Any = st.sampled_from(
    [1, True, 1.5, "a", b"a", None, Decimal(1), date(2024, 1, 1), Color.RED, Sale("a", 1), Both()]
)
#: None is empty: an empty list is of the types of all lists.
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=1)
    ),
    max_leaves=4,
)


_PLAIN: Any = st.sampled_from(
    [int, float, str, bytes, None, Decimal, date, datetime, Color, Sale, Left, Right, Hashable]
)
_HINTS = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        inner.map(lambda hint: generic(list, hint)),
        inner.map(lambda hint: generic(Sequence, hint)),
        inner.map(lambda hint: hint | None if hint is not None else None),
        st.tuples(inner, inner).map(lambda pair: generic(tuple, *pair)),
        st.tuples(inner, inner).map(lambda pair: generic(Mapping, *pair)),
        st.tuples(inner, inner).map(union_of),
    ),
    max_leaves=4,
)


def is_of(value: Any, hint: Any) -> bool:
    try:
        typeguard.check_type(
            value,
            hint,
            collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS,
        )
    except typeguard.TypeCheckError:
        return False
    return True


@given(_VALUES, _HINTS)
def test_the_type_of_a_value_contradicts_no_type_that_it_is_of(value: Any, hint: Any) -> None:
    assert is_of(value, type_of(value))
    if is_of(value, hint):
        assert not contradict(type_of(value), hint)


@given(_VALUES, _HINTS, _HINTS)
def test_types_of_one_value_do_not_contradict_each_other(value: Any, one: Any, other: Any) -> None:
    if is_of(value, one) and is_of(value, other):
        assert not contradict(one, other)


@given(_HINTS, _HINTS)
def test_contradictions_are_mutual(one: Any, other: Any) -> None:
    assert contradict(one, other) == contradict(other, one)


#: Of a key and a value.
PATTERNS = (
    generic(tuple, K, V),
    generic(tuple, K, generic(Sequence, V)),
    generic(Mapping, K, V),
)


@given(_HINTS, _HINTS)
def test_type_variables_are_what_stands_in_their_places(key: Any, value: Any) -> None:
    for pattern in PATTERNS:
        whole = substituted(pattern, {K: key, V: value})
        assert substituted(pattern, solved(pattern, whole)) == whole


def test_type_variables_that_nothing_decides_are_unknown() -> None:
    assert tuple[int, list[Any]] == substituted(generic(tuple, K, generic(list, V)), {K: int})
    assert {} == solved(PATTERNS[0], Any) == solved(PATTERNS[0], tuple[int, ...])
    assert {T: int} == solved(generic(Union, T, None), int | None)
    assert {T: int | str} == solved(generic(tuple, T, T), tuple[int, str])


def test_types_as_people_write_them() -> None:
    texts = {
        None: "None",
        tuple[str, int | None]: "tuple[str, int | None]",
        Sale | None: "Sale | None",
        Literal["a", 1]: "Literal['a', 1]",
        tuple[int, ...]: "tuple[int, ...]",
        Callable[[int], str]: "Callable[[int], str]",
        Any: "Any",
    }
    assert list(texts.values()) == list(map(text_of, texts))


def test_what_is_a_type() -> None:
    assert all(map(is_hint, (int, None, Any, list[int], int | None, T, UserId)))
    assert not any(map(is_hint, (3, "int", [int], (int, str))))
