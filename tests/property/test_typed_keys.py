"""Keys of classes: each comes back as it was, is one only with those of its class, and its bytes never change."""

import os
import subprocess
import sys
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Self

import attrs
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.canonical_keys import CanonicalKeys, canonical_key
from dataflow.coders import decode_key, encode_key
from dataflow.element_digests import element_digest
from dataflow.rows import row_class
from dataflow.serialization import dumps, loads
from dataflow.testing import assert_that, contains_in_any_order
from dataflow.typed_keys import emitted_key
from runners.core.ground.key_codec import KeyCodec
from runners.core.partials.values_by_key import ValuesByKey
from tests.ids import shown
from windowing.pane import PaneTiming

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Color(Enum):
    RED = "red"
    CRIMSON = "red"  # noqa: PIE796 - an alias
    BLUE = "blue"
    #: A value that could not be a key.
    MIXED = ("red", frozenset("x"))


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Name(StrEnum):
    ANN = "ann"


class Access(Flag):
    READ = 1
    WRITE = 2


class Mode(IntFlag):
    X = 1
    Y = 2


class Point(NamedTuple):
    x: Any
    y: Any = 0


class Other(NamedTuple):
    x: Any
    y: Any = 0


Old = namedtuple("Old", "x y")  # noqa: PYI024 - what older programs have


@dataclass(frozen=True)
class Order:
    number: Any
    place: Any = None


@dataclass(frozen=True, slots=True)
class Slim:
    number: Any
    #: Not an argument.
    twice: Any = field(init=False, default=2)


@dataclass(frozen=True)
class Special(Order):
    """A subclass without fields of its own."""


@attrs.frozen
class Item:
    number: Any
    _hidden: Any = 1


ATOMS = st.one_of(
    st.sampled_from(
        [None, True, 1, 1.0, 0, "ann", "red", "RED", "x", b"x", date(2024, 2, 29), NOON]
    ),
    st.sampled_from([*Color, *Size, *Name, *Mode, Access.READ, Access.READ | Access.WRITE]),
    st.sampled_from([Mode.X | Mode.Y, HTTPMethod.GET, HTTPStatus.OK, PaneTiming.LATE, Access(0)]),
    st.sampled_from([np.int64(1), np.float64(2.5), np.str_("ann"), np.bytes_(b"x"), np.True_]),
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal(1), Decimal("1.00"), Decimal("1E+2"), Decimal("-0"), Decimal("2.50")]),
    st.uuids(),
    st.times(),
    st.timedeltas(),
    st.sampled_from([timedelta(0), time(0), time(1, fold=1), time(1)]),
    st.builds(df.Window, st.integers(0, 3), st.integers(4, 6)),
)
KEYS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(tuple),
        *(st.builds(cls, inner, inner) for cls in (Point, Other, Old, Order, Special)),
        st.builds(Slim, inner),
        st.builds(Item, inner),
        st.builds(row_class(("x", "y")), inner, inner),
    ),
    max_leaves=4,
)
#: Some of each kind that Python calls equal, and that are not one key.
UNLIKE = [
    [1, Decimal(1), Size.SMALL, Mode.X],
    ["ann", Name.ANN],
    [(1, 2), Point(1, 2), Other(1, 2), Old(1, 2), df.Window(1, 2)],
    [(Size.SMALL, 0), (1, 0), (Decimal(1), 0), Point(Size.SMALL), Point(1), Point(Decimal(1))],
    [200, HTTPStatus.OK],
]
#: Those that are one.
ALIKE = [
    [Decimal(1), Decimal("1.00"), Decimal("10E-1")],
    [Decimal("1E+2"), Decimal(100)],
    [Decimal(0), Decimal("-0"), Decimal("0E+7")],
    [Color.RED, Color.CRIMSON],
    [Order(1), Order(True), Order(1.0), Order(np.int64(1))],
    [Point(Decimal("2.50")), Point(Decimal("2.5"), False)],
    [time(1), time(1, fold=1)],
]


def spelled(key: Any) -> Any:
    """A key with all its types."""
    if isinstance(key, tuple):
        return type(key), tuple(map(spelled, key))
    if isinstance(key, Order | Slim | Item):
        names = type(key).__match_args__ if not isinstance(key, Slim) else ("number", "twice")
        return type(key), tuple(spelled(getattr(key, name)) for name in names if hasattr(key, name))
    return type(key), repr(key)


@given(key=KEYS)
@example(key=Slim(Item(Point(Color.RED, Decimal("1.50")))))
def test_a_key_comes_back_as_it_was(key: Any) -> None:
    """From its bytes, and from the partials, the journal and the memory of any runner; of its class, and equal."""
    canonical = canonical_key(key)
    again = loads(dumps(canonical))

    assert canonical == decode_key(encode_key(key)) == again == canonical_key(canonical)
    assert hash(canonical) == hash(again)
    emitted = emitted_key(canonical)
    assert emitted == key
    assert spelled(emitted) == spelled(emitted_key(decode_key(encode_key(key))))
    assert spelled(emitted) == spelled(emitted_key(again))
    assert encode_key(emitted) == encode_key(key) == encode_key(canonical)
    if type(key) is not type(emitted):
        assert type(key) in {bool, float} or isinstance(key, np.generic)


@given(one=KEYS, other=KEYS)
def test_keys_with_equal_bytes_are_equal(one: Any, other: Any) -> None:
    """In memory as in bytes."""
    is_one = encode_key(one) == encode_key(other)

    assert is_one == (canonical_key(one) == canonical_key(other))
    assert is_one == (
        spelled(emitted_key(canonical_key(one))) == spelled(emitted_key(canonical_key(other)))
    )
    if is_one:
        assert one == other


@pytest.mark.parametrize("keys", UNLIKE, ids=shown)
def test_keys_of_unlike_classes_are_not_one(keys: list[Any]) -> None:
    """Though Python calls them equal; in whatever order they come."""
    for some in (keys, keys[::-1]):
        assert all(some[0] == each for each in some if not isinstance(each, tuple))
        canonical = CanonicalKeys()
        assert (
            len(keys)
            == len({encode_key(key) for key in some})
            == len({canonical[key] for key in some})
        )
        codec = KeyCodec("here")
        hashes = {codec.hash(canonical_key(key)) for key in some}
        assert len(keys) == len(hashes)


@pytest.mark.parametrize("keys", ALIKE, ids=shown)
def test_equal_keys_of_one_class_are_one(keys: list[Any]) -> None:
    canonical = CanonicalKeys()

    assert 1 == len({encode_key(key) for key in keys}) == len({canonical[key] for key in keys})
    assert 1 == len({spelled(emitted_key(canonical_key(key))) for key in keys})


@given(keys=st.lists(KEYS, min_size=1, max_size=8))
def test_canonical_keys_remember_each_by_its_types(keys: list[Any]) -> None:
    canonical = CanonicalKeys()
    for key in [*keys, *keys]:
        assert canonical[key] == canonical_key(key)


def test_of_unlike_classes_in_one_bundle_each_has_its_values() -> None:
    window = df.Window(0, 1)
    keys = [Name.ANN, "ann", Point(1, 2), Other(1, 2), (1, 2), Name.ANN]
    values = ValuesByKey()
    values.add(list(zip(keys, range(6), strict=True)), [window] * 6)

    found = [(emitted_key(key), numbers) for key, numbers in values[window].items()]
    assert [[0, 5], [1], [2], [3], [4]] == [numbers for _, numbers in found]
    assert [type(keys[numbers[0]]) for _, numbers in found] == [type(key) for key, _ in found]


#: The bytes of a key of each class, for ever: they are in the stores of running jobs.
GOLDEN = [
    (Decimal("12.50"), "8203816431322e35"),
    (Decimal("1E+40"), "82038165312b3430"[:0] + "820381" + "65" + b"1E+40".hex()),
    (uuid.UUID(int=5), "820481" + "50" + "00" * 15 + "05"),
    (time(1, 2, 3, 4), "8205811adddd82c4"[:0] + "820581" + "1a" + f"{3_723_000_004:08x}"),
    (timedelta(days=-1), "820681" + "3b" + f"{86_400_000_000 - 1:016x}"),
    (
        HTTPMethod.GET,
        "820783" + "64" + b"http".hex() + "6a" + b"HTTPMethod".hex() + "63" + b"GET".hex(),
    ),
    (df.Window(1, 2), "820884" + "60" + "66" + b"window".hex() + "0102"),
    (PaneTiming.LATE, "820783" + "60" + "6b" + b"pane timing".hex() + "64" + b"LATE".hex()),
    (row_class(("x", "y"))(1, "a"), "820884" + "60" + "67" + b"row x y".hex() + "01" + "6161"),
]


@pytest.mark.parametrize(("key", "encoded"), GOLDEN, ids=shown)
def test_bytes_never_change(key: Any, encoded: str) -> None:
    assert encoded == encode_key(key).hex()


@pytest.mark.slow
def test_bytes_are_the_same_in_another_process() -> None:
    """With other hashes of texts."""
    program = (
        "from tests.property import test_typed_keys as t; from dataflow.coders import encode_key;"
        "keys = [t.Order(t.Color.RED, t.Access(3)), t.Item(t.Name.ANN), t.Point(t.Decimal('1.0')), t.Mode(3)];"
        "print([encode_key(key).hex() for key in keys])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    keys = [Order(Color.RED, Access(3)), Item(Name.ANN), Point(Decimal("1.0")), Mode(3)]
    assert printed == {f"{[encode_key(key).hex() for key in keys]}\n"}


@dataclass
class Loose:
    x: int


@dataclass(frozen=True)
class Cased:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cased) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


@dataclass(frozen=True)
class Aside:
    x: int
    note: str = field(default="", compare=False)


@attrs.frozen(eq=False)
class ByIdentity:
    x: int


class Longer(df.Window):
    """A window with a third value, which its fields do not show."""

    def __new__(cls, start: int, end: int, more: int) -> Self:
        return tuple.__new__(cls, (start, end, more))

    def __repr__(self) -> str:
        return "Longer"


class Bare:
    """Neither fields nor equality."""


def local() -> Any:
    @dataclass(frozen=True)
    class Local:
        x: int

    return Local(1)


@pytest.mark.parametrize(
    ("key", "why", "hint"),
    [
        (Cased("a"), "does not compare by its fields alone", "astuple"),
        (Aside(1), "field 'note' does not count", "astuple"),
        (ByIdentity(1), "does not compare by its fields alone", "attrs.astuple"),
        (Longer(1, 2, 3), "has more than its fields", "tuple(key)"),
        (local(), "is not found by its name", "top level"),
        (Point([1]), "list has no deterministic encoding", "fields"),
        (Order(frozenset()), "frozenset has no deterministic encoding", "sorted"),
        (Bare(), "Bare has no deterministic encoding", "fields"),
        (Decimal("NaN"), "not equal to itself", "None"),
        (time(1, tzinfo=UTC), "in a zone", "tzinfo=None"),
        (pd.Timedelta(1), "Timedelta has no deterministic", "timedelta"),
    ],
    ids=shown,
)
def test_what_cannot_be_a_key_is_refused(key: Any, why: str, hint: str) -> None:
    """The error says why, what to do, and which transform it was."""
    for each in (key, (1, key), Order(key)):
        with pytest.raises(df.KeyEncodingError, match="cannot be a key") as caught:
            encode_key(each)
        assert why in caught.value.detail
        assert hint in caught.value.hint
    if why.startswith("list"):
        return
    p = df.Pipeline()
    p | df.Create([0]) | df.Map(lambda _: (key, 1)) | "Count" >> df.CombinePerKey(sum)
    with pytest.raises(
        df.KeyEncodingError, match=r"'Count' \(.*test_typed_keys\.py:\d+\): .* cannot be a key"
    ):
        p.run()


def test_a_dataclass_that_is_not_frozen_is_refused_with_what_to_do() -> None:
    p = df.Pipeline()
    p | df.Create([0]) | df.Map(lambda _: (Loose(1), 1)) | df.GroupByKey()
    with pytest.raises(df.TransformError, match="cannot be hashed") as caught:
        p.run()
    assert "frozen" in caught.value.hint


@pytest.mark.parametrize(
    "key", [1 << 20_000, ("k", -(1 << 20_000)), Point(1 << 20_000)], ids=["int", "tuple", "point"]
)
def test_an_integer_of_more_digits_than_python_prints_is_refused_clearly(key: Any) -> None:
    with pytest.raises(df.KeyEncodingError, match=r"a key of 2,5\d\d bytes is too long"):
        encode_key(key)


def test_large_integers_are_keys() -> None:
    key = 1 << 15_000
    assert decode_key(encode_key(key)) == key


def test_a_class_that_is_gone_is_named() -> None:
    gone = bytes.fromhex(encode_key(HTTPMethod.GET).hex().replace(b"http".hex(), b"htt0".hex()))
    with pytest.raises(df.PipelineError, match="class 'HTTPMethod' of 'htt0', which is not there"):
        decode_key(gone)


def test_digests_of_elements_are_what_they_were() -> None:
    """A named tuple counts as a plain one there, and what is chosen by digests stays chosen."""
    assert element_digest(Point(1, 2)) == element_digest((1, 2))
    assert element_digest(Size.SMALL) == element_digest(1)


def test_users_see_their_own_classes() -> None:
    """Behind each kind of grouping."""
    pairs = [
        (Point(Color.RED, 1), 1),
        (Point(Color.RED, 1), 2),
        (Decimal("1.10"), 3),
        (df.Window(0, 5), 4),
    ]
    with df.Pipeline() as p:
        values = p | df.Create(pairs)
        sums = (
            values
            | df.CombinePerKey(sum)
            | "types" >> df.MapTuple(lambda k, v: (type(k).__name__, v))
        )
        assert_that(
            sums, contains_in_any_order([("Point", 3), ("Decimal", 3), ("Window", 4)]), label="sums"
        )
        groups = values | df.GroupByKey() | df.MapTuple(lambda k, v: (type(k).__name__, sorted(v)))
        assert_that(
            groups,
            contains_in_any_order([("Point", [1, 2]), ("Decimal", [3]), ("Window", [4])]),
            label="groups",
        )
        firsts = values | df.Keys() | df.Distinct() | df.Map(lambda k: type(k).__name__)
        assert_that(firsts, contains_in_any_order(["Point", "Decimal", "Window"]), label="distinct")
