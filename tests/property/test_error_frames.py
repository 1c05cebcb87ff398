"""Errors are the same on both sides of a process, and bytes that are cut or changed are no other error."""

from hypothesis import example, given
from hypothesis import strategies as st

from runners.errors import JobFailedError
from runners.stored.errors import CLASSES, decode_error, encode_error
from runners.stored.framing import kind_of
from runners.task_traceback import TaskTraceback

#: With lone surrogates, which a file name can have and MessagePack has not.
WORDS = st.text(st.characters(exclude_categories=()))


def plain(text: str) -> str:
    """What a text is on the other side."""
    return text.encode("utf-8", "backslashreplace").decode()


@given(st.sampled_from(sorted(CLASSES)), WORDS, WORDS, WORDS, WORDS, st.lists(WORDS))
def test_errors_are_the_same_on_both_sides(
    name: str, fact: str, detail: str, hint: str, traceback: str, notes: list[str]
) -> None:
    error = CLASSES[name](fact, detail=detail, hint=hint)
    error.__cause__ = TaskTraceback(traceback)
    for note in notes:
        error.add_note(note)

    blob = encode_error(error)
    found = decode_error(blob)

    assert type(found) is CLASSES[name]
    assert [found.fact, found.detail, found.hint] == [plain(fact), plain(detail), plain(hint)]
    assert str(found) == plain(str(error))
    assert found.__cause__ is not None
    assert found.__cause__.args == (plain(traceback),)
    assert getattr(found, "__notes__", []) == [plain(note) for note in notes]
    assert encode_error(found) == blob


@given(st.data())
def test_half_an_error_is_reported_as_unreadable(data: st.DataObject) -> None:
    blob = encode_error(CLASSES["InputError"]("fact", detail="detail", hint="hint"))
    cut = blob[: data.draw(st.integers(0, len(blob) - 1))]

    assert type(decode_error(cut)) is JobFailedError


@given(st.binary() | st.binary().map(lambda fields: b"\x92\x01" + fields))
@example(b"\x92\x01\xa1\x80")  # a text that is not UTF-8
@example(b"\x93\x01\xa5error" + b"\x91" * 100_000)
def test_any_bytes_are_an_error_that_can_be_raised(blob: bytes) -> None:
    assert isinstance(decode_error(blob), JobFailedError)
    assert kind_of(blob) is None or isinstance(kind_of(blob), str)
