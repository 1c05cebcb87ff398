"""Messages are plain fields: they come back as they were, and whatever else the bytes are is refused."""

import pickle
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.errors import StoredFormatError
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.wire.messages import KINDS, decode, encode
from runners.millwheel.wire.plain_fields import layout_of
from runners.stored.framing import FORMAT, frame, opened
from tests.stored_examples import MESSAGES

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 64) - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=5),
    str: st.text(max_size=5),
    NoneType: st.none(),
}
HASHES = st.integers(0, 1 << 64)
#: Anything that MessagePack has.
FIELDS = st.recursive(
    st.one_of([each for kind, each in PLAIN.items() if kind is not int])
    | st.integers(-(1 << 63), (1 << 64) - 1),
    lambda each: st.lists(each, max_size=3),
    max_leaves=8,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, by what it declares."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return st.one_of([values_of(each) for each in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is frozenset:
        return st.frozensets(values_of(arguments[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(*map(values_of, arguments), max_size=3)
    if kind is KeyRange:
        pairs = st.lists(HASHES, min_size=2, max_size=2, unique=True).map(sorted)
        return pairs.map(lambda pair: KeyRange(*pair))
    hints = get_type_hints(kind)
    if attrs.has(kind):
        names = [(each.alias, each.name) for each in attrs.fields(kind)]
    else:
        names = [(each, each) for each in kind._fields]
    return st.builds(kind, **{alias: values_of(hints[name]) for alias, name in names})


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())
@given(st.data())
def test_a_message_is_the_same_on_both_sides(kind: type, data: st.DataObject) -> None:
    message = data.draw(values_of(kind))
    blob = encode(message)

    assert decode(blob) == message
    assert type(decode(blob)) is kind
    assert encode(decode(blob)) == blob


def leaves(fields: Any) -> list[tuple[Any, int]]:
    """Where there is something that may be another thing: a list, and an index in it."""
    if not isinstance(fields, list):
        return []
    return [(fields, at) for at in range(len(fields))] + [
        place for each in fields for place in leaves(each)
    ]


@given(
    st.sampled_from(sorted({*MESSAGES} - {"deliver", "deliver traced", "acknowledge"})),
    FIELDS,
    st.data(),
)
def test_other_fields_are_another_message_or_refused(
    name: str, other: Any, data: st.DataObject
) -> None:
    kind, (protocol, fields) = opened(encode(MESSAGES[name]))
    if not fields:
        return
    place, at = data.draw(st.sampled_from(leaves(fields)))
    place[at] = other
    blob = frame(kind, protocol, fields)

    try:
        found = decode(blob)
    except StoredFormatError:
        return
    # Nothing but a message of this kind, with what it says.
    assert type(found) is type(MESSAGES[name])
    assert encode(found) == blob


@given(
    st.one_of(
        st.binary(), st.sampled_from(["deliver", "acknowledge", *sorted(KINDS.values())]).map(frame)
    )
)
def test_what_is_no_message_is_refused(blob: bytes) -> None:
    with pytest.raises(StoredFormatError):
        decode(blob)


@pytest.mark.parametrize("text", ["", "ZXJyb3I="])
def test_text_that_could_stand_for_bytes_is_not_bytes(text: str) -> None:
    """In JSON it would be, where bytes are base64."""
    kind, (protocol, (worker, _)) = opened(encode(MESSAGES["failed"]))

    with pytest.raises(StoredFormatError, match="Expected `bytes`, got `str`"):
        decode(frame(kind, protocol, [worker, text]))


def test_a_pickle_in_place_of_the_fields_is_not_read() -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("it was unpickled",)

    kind, (protocol, _) = opened(encode(MESSAGES["stop"]))
    blob = msgspec.msgpack.encode((FORMAT.number, kind, protocol, pickle.dumps(Harmful())))

    with pytest.raises(StoredFormatError, match="Expected `array`, got `bytes`"):
        decode(blob)
    with pytest.raises(StoredFormatError):
        decode(pickle.dumps([1, "stop"]))


def test_a_message_with_a_field_of_an_unknown_type_is_no_message() -> None:
    with pytest.raises(TypeError, match="no layout for"):
        layout_of(tuple[object, ...])
