"""Frames are read without unpickling; what is of another format is brought up to date, or refused by its number."""

import pickle
from typing import Any

import pytest

from dataflow.serialization import dumps
from runners.errors import StoredFormatError
from runners.millwheel.wire import messages
from runners.millwheel.wire.messages import Stop, decode, encode
from runners.stored.framing import (
    FORMAT,
    Format,
    frame,
    kind_of,
    number_of,
    opened,
    unframed,
    writing,
)

OURS, NEXT = FORMAT.number, FORMAT.number + 1


class Harmful:
    """A pickle that does something when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


def test_a_frame_is_read_without_unpickling_what_is_in_it() -> None:
    own = dumps([Harmful()])
    kind, fields = opened(frame("partials", [1, None, "x"], own))

    assert ("partials", [[1, None, "x"], own]) == (kind, fields)
    assert "partials" == kind_of(frame("partials", own))


@pytest.mark.parametrize(
    "blob",
    [b"", b"\x93", pickle.dumps((1, "cell", b""), protocol=5), b"\x93\x01\xa4ce", b"line 9"],
)
def test_what_is_no_frame_is_refused(blob: bytes) -> None:
    with pytest.raises(StoredFormatError, match="no format of this package"):
        opened(blob)


def test_another_kind_is_refused() -> None:
    with pytest.raises(StoredFormatError, match="'split' where 'position' was expected"):
        unframed("position", frame("split", b""))


def test_a_later_format_is_refused_by_its_number() -> None:
    with writing(Format(number=NEXT)):
        blob = frame("cell", [0])

    with pytest.raises(
        StoredFormatError, match=rf"stored in format {NEXT}(?s:.*)writes format {OURS}"
    ):
        opened(blob)
    assert NEXT == number_of(blob)


def test_an_older_format_without_a_reader_is_refused() -> None:
    blob = frame("cell", [0])

    with (
        writing(Format(number=NEXT)),
        pytest.raises(
            StoredFormatError, match=rf"stored in format {OURS}(?s:.*)writes format {NEXT}"
        ),
    ):
        opened(blob)


def test_older_formats_are_brought_up_to_date_one_after_the_other() -> None:
    blob = frame("cell", "a")
    steps = {number: lambda kind, fields: [*fields, kind] for number in (OURS, NEXT)}

    with writing(Format(number=NEXT + 1, readers=steps)):
        assert ("cell", ["a", "cell", "cell"]) == opened(blob)
        assert ("cell", ["b"]) == opened(frame("cell", "b"))
    # A gap cannot be read over.
    assert {3, 2} == Format(number=3, readers={2: steps[NEXT]}).readable
    assert {1, 2, 3} == FORMAT.readable


def test_a_process_of_another_format_is_refused_by_its_first_message() -> None:
    """Whether older or newer, and whatever readers there are: what a message means is not in its bytes alone."""
    ours = encode(Stop())
    readers = {OURS: lambda _, fields: fields}
    for other in (Format(number=NEXT), Format(number=NEXT, readers=readers)):
        with writing(other):
            theirs = encode(Stop())
            with pytest.raises(StoredFormatError, match=f"sends format {OURS}, this one {NEXT}"):
                decode(ours)
        with pytest.raises(StoredFormatError, match=f"sends format {NEXT}, this one {OURS}"):
            decode(theirs)
    assert isinstance(decode(ours), Stop)


def test_a_process_whose_messages_have_other_fields_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as other:
        other.setattr(messages, "_PROTOCOL", 5)
        theirs = encode(Stop())

    with pytest.raises(
        StoredFormatError, match=r"another version of dataflow-model(?s:.*)\(stop\)"
    ):
        decode(theirs)
