"""Keys as bytes: equal keys and only those have equal bytes, which never change."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import cbor2
import numpy as np
import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.coders import KEY_BYTES_MAX, decode_key, encode_key, encode_keys, hash_key
from runners.core.ground.key_codec import KEYS_MAX, KeyCodec
from runners.millwheel.model.key_range import KEY_SPACE_END, range_index, range_indexes
from tests.ids import shown

ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=8))]
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 2),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, 1e300, 2.0**64, math.inf, -math.inf]),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.dates(),
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES),  # noqa: DTZ001 - without a time zone, as the test says
)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(one=KEYS, other=KEYS)
def test_equal_keys_and_only_they_have_equal_bytes(one: Any, other: Any) -> None:
    """So grouping in memory (by equality) and routing (by bytes) never disagree."""
    assert (one == other) == (encode_key(one) == encode_key(other))


@given(key=KEYS)
def test_round_trip(key: Any) -> None:
    """Decoding gives an equal key, with equal bytes and an equal hash of Python's."""
    decoded = decode_key(encode_key(key))

    assert key == decoded
    assert hash(key) == hash(decoded)
    assert encode_key(key) == encode_key(decoded)


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True],
        [0, 0.0, -0.0, False],
        [(1, "a"), (True, "a"), (1.0, "a")],
        [2**64, 2.0**64],
        [int(1e300), 1e300],
        [
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
            pendulum.datetime(2024, 1, 1, 7, tz="America/New_York"),
        ],
        [date(2024, 1, 1), pendulum.date(2024, 1, 1)],
    ],
    ids=shown,
)
def test_what_python_calls_equal_is_one_key(equal: list[Any]) -> None:
    """Numbers by value, instants whatever their zone."""
    assert 1 == len(set(equal))
    assert 1 == len({encode_key(key) for key in equal})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", 1),
        ("a", b"a"),
        ((), None),
        ((1,), 1),
        ((2, 737060), date(2018, 12, 31)),
        ((1, 0), datetime(1970, 1, 1, tzinfo=UTC)),
        ((0, ()), ((),)),
        (date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_looks_alike_is_not_one_key(one: Any, other: Any) -> None:
    """Tags of the encoding cannot be confused with tuples of the user's."""
    assert one != other
    assert encode_key(one) != encode_key(other)


@pytest.mark.parametrize(
    ("key", "encoded", "hashed"),
    [
        (None, "f6", 4024527418219047511),
        (1, "01", 65369308820478381),
        ("user-1", "66757365722d31", 17049025235876267192),
        (b"\x00", "4100", 16364115693574822313),
        (0.5, "f93800", 7690038229384556032),
        (("a", (1, None)), "820082616182008201f6", 17330779356238799917),
        (date(2024, 2, 29), "82021a000b4681", 3163207707352551131),
        (
            datetime(2024, 2, 29, 12, tzinfo=UTC),
            "82011b00061283ffaff000",
            431318315385822501,
        ),
    ],
    ids=shown,
)
def test_bytes_and_hashes_never_change(key: Any, encoded: str, hashed: int) -> None:
    """They are in the stores of running jobs: a change here loses state."""
    assert encoded == encode_key(key).hex()
    assert hashed == hash_key(encode_key(key))


class Money:
    """A user's class with equality, but no deterministic encoding."""


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (Money(), "Money has no deterministic encoding"),
        (frozenset([1]), "frozenset has no deterministic encoding"),
        ((1, frozenset()), "frozenset has no deterministic encoding"),
        (math.nan, "NaN"),
        ((1, (math.nan,)), "NaN"),
        (datetime(2024, 1, 1), "no time zone"),  # noqa: DTZ001 - without a time zone, as the test says
        ("\ud800", "surrogate"),
        (("\ud800",), "surrogate"),
    ],
    ids=shown,
)
def test_other_keys_are_refused(key: Any, why: str) -> None:
    """The error names the key, the type, and what can be a key."""
    with pytest.raises(df.KeyEncodingError) as caught:
        encode_key(key)

    assert "cannot be a key" in caught.value.fact
    assert why in caught.value.detail
    assert "tuples of these" in caught.value.hint


@given(keys=st.lists(KEYS, max_size=8))
def test_codec_remembers_what_it_encoded(keys: list[Any]) -> None:
    """The codec's answer is the encoder's, the first time and the second."""
    codec = KeyCodec("here")
    for key in [*keys, *keys]:
        encoded = encode_key(key)

        assert (encoded, hash_key(encoded)) == codec.encode(key)
        assert codec.hash(key) == hash_key(encoded)


def test_codec_forgets_rather_than_grow() -> None:
    codec = KeyCodec("here")
    codec._known = dict.fromkeys(range(KEYS_MAX), codec.encode(0))
    codec._hashes = dict.fromkeys(range(KEYS_MAX), 0)
    codec.encode("one more")
    codec.hash("one more")

    assert [1, 1] == [len(codec._known), len(codec._hashes)]


@pytest.mark.parametrize("name", ["encode", "hash"])
def test_codec_names_the_place(name: str) -> None:
    with pytest.raises(df.KeyEncodingError, match=r"^transform 'x': NaN|^transform 'x': nan"):
        getattr(KeyCodec("transform 'x'"), name)(math.nan)
    with pytest.raises(df.KeyEncodingError, match=r"^transform 'x': NaN|^transform 'x': nan"):
        KeyCodec("transform 'x'").hashes([1.5, math.nan])


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_texts_are_encoded_as_the_library_does(text: str) -> None:
    """Short ones are done by hand."""
    assert encode_key(text) == cbor2.dumps(text, canonical=True)


@given(
    keys=st.lists(ATOMS)
    | st.lists(st.integers(-(2**66), 2**66) | st.sampled_from([0, 23, 24, 255, 256, 2**64 - 1]))
    | st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    ranges=st.integers(1, 9),
)
def test_several_keys_have_the_bytes_and_hashes_of_each(keys: list[Any], ranges: int) -> None:
    encoded = [encode_key(key) for key in keys]
    hashes = KeyCodec("here").hashes(keys)

    assert encode_keys(keys) == encoded
    assert hashes.tolist() == [hash_key(each) for each in encoded]
    wanted = [range_index(each, ranges) for each in hashes.tolist()]
    assert range_indexes(hashes, ranges).tolist() == wanted


@given(st.integers(1, 1_000))
def test_the_ends_of_the_hashes_are_in_the_first_range_and_the_last(ranges: int) -> None:
    ends = np.array([0, KEY_SPACE_END - 1], np.uint64)
    assert range_indexes(ends, ranges).tolist() == [0, ranges - 1]


@given(key=KEYS)
def test_hash_is_of_64_bits(key: Any) -> None:
    assert 0 <= hash_key(encode_key(key)) < 1 << 64


@given(key=st.text(st.characters(exclude_categories=["Cs"])) | st.binary(), size=st.integers(1, 3))
def test_a_key_that_no_index_could_hold_is_refused(key: Any, size: int) -> None:
    """On every runner, before anything is sent; at the limit it passes."""
    room = KEY_BYTES_MAX - len(encode_key((key, b"-" * 1_000))) + 1_000
    fits, longer = (key, b"-" * room), (key, b"-" * (room + size))

    assert len(encode_key(fits)) == KEY_BYTES_MAX
    with pytest.raises(df.KeyEncodingError, match=f"key of {KEY_BYTES_MAX + size:,} bytes is too"):
        encode_key(longer)
