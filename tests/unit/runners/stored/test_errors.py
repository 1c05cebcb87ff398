"""Errors cross processes as texts: whatever the user's class does, what went wrong is raised in the driver."""

import ast
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

import attrs
import msgspec
import pytest

import dataflow as df
import dataflow.testing
import runners.cli
import runners.testing.simulator
from dataflow.errors import DataflowError, TransformError
from dataflow.serialization import dumps_code
from runners.errors import JobFailedError, StoreUnreachableError
from runners.stored.errors import CLASSES, ERROR, decode_error, encode_error, is_error
from runners.stored.framing import FORMAT, Format, frame, opened, writing
from tests.stored_bytes import ours_in
from windowing.errors import DataflowError as Base

ROOT = Path(df.__file__).parent.parent
PACKAGES = ("windowing", "triggers", "dataflow", "runners")
HERE = [df, dataflow.testing, runners.cli, runners.testing.simulator]


class CodedError(df.TransformError):
    """A user's error with another constructor, and more than words."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}", hint="look it up")
        self.code = code


class LockedError(df.InputError):
    """A user's error that does not let itself be pickled."""

    def __reduce__(self) -> Never:
        raise RuntimeError("not picklable, I")


class MissingError(df.InputError):
    """A user's error whose pickle does not let itself be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _import_what_is_not_there, ()


class SpeechlessError(Exception):
    """Has no text."""

    def __str__(self) -> Never:
        raise ValueError("no words")


@attrs.frozen
class OtherThing:
    """Pickles to something that is no error."""


class DisguisedError(df.InputError):
    """Its pickle is of something else."""

    def __reduce__(self) -> tuple[Any, ...]:
        return OtherThing, ()


def _import_what_is_not_there() -> Never:
    raise ModuleNotFoundError("No module named 'theirs'")


def crossed(error: DataflowError) -> DataflowError:
    """The error as another process has it."""
    return decode_error(encode_error(error))


def shown(error: BaseException) -> str:
    """The error as a driver prints it."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_error_of_ours_comes_back_without_a_pickle(kind: type[DataflowError]) -> None:
    blob = encode_error(kind("fact", detail="detail", hint="hint"))
    found = decode_error(blob)

    assert type(found) is kind
    assert (found.fact, found.detail, found.hint) == ("fact", "detail", "hint")
    assert str(found) == str(kind("fact", detail="detail", hint="hint"))
    assert opened(blob)[1][-2:] == [None, b""]
    assert ours_in(blob) == []


@pytest.mark.slow
def test_all_errors_of_this_package_are_known_by_name() -> None:
    # From the sources: whether an error is seen must not depend on which modules are imported.
    names = {Base.__name__}
    classes = [each for package in PACKAGES for each in _classes_of(package)]
    while True:
        found = names | {name for name, bases in classes if not names.isdisjoint(bases)}
        if found == names:
            break
        names = found

    assert names == set(CLASSES)


def _classes_of(package: str) -> Iterator[tuple[str, list[str]]]:
    """Every class in the sources of a package, with the last name of each of its bases."""
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def test_the_cause_is_the_text_of_the_users_own_frames() -> None:
    try:
        try:
            int("seven")
        except ValueError as cause:
            cause.add_note("said beside it")
            raise TransformError("fact") from cause
    except TransformError as error:
        found = crossed(error)

    assert 'int("seven")' in str(found.__cause__)
    assert "said beside it" in str(found.__cause__)
    assert "raise TransformError" not in str(found.__cause__)
    # As often as it crosses.
    assert shown(crossed(found)) == shown(found)


def test_notes_come_along() -> None:
    error = df.InputError("fact")
    error.add_note("first")
    error.add_note("second \udcff")

    assert crossed(error).__notes__ == ["first", "second \\udcff"]


def test_an_error_of_a_users_class_is_caught_as_that() -> None:
    found = crossed(CodedError(7))

    assert type(found) is CodedError
    assert (found.fact, found.hint) == ("code 7", "look it up")


def test_a_class_of_a_function_travels_too() -> None:
    class LocalError(df.TransformError):
        """Not importable anywhere."""

    assert isinstance(crossed(LocalError("fact")), LocalError)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (LockedError("fact", detail="d", hint="h"), "it cannot be pickled"),
        (
            MissingError("fact", detail="d", hint="h"),
            "ModuleNotFoundError: No module named 'theirs'",
        ),
        (DisguisedError("fact", detail="d", hint="h"), "its pickle is of the class OtherThing"),
    ],
)
def test_a_users_error_that_cannot_be_made_again_keeps_its_words(
    error: DataflowError, why: str
) -> None:
    found = crossed(error)

    assert type(found) is df.InputError
    assert (found.fact, found.detail, found.hint) == ("fact", "d", "h")
    (note,) = found.__notes__
    assert type(error).__name__ in note
    assert why in note


def test_whatever_is_in_place_of_its_words_is_shown_as_text() -> None:
    error = df.InputError("fact", detail="detail")
    error.fact, error.detail, error.hint = 5, SpeechlessError(), "\udcff"  # type: ignore[assignment]
    found = crossed(error)

    assert (found.fact, found.hint) == ("5", "\\udcff")
    assert "__str__ raises ValueError" in found.detail


def test_reading_the_words_of_a_users_error_unpickles_nothing() -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("it was unpickled",)

    blob = frame(ERROR, "InputError", "fact", "", "", "here", [], None, dumps_code(Harmful(), "x"))

    assert opened(blob)[0] == ERROR
    # Only of a user's class is there a pickle to be read.
    assert type(decode_error(blob)) is df.InputError


UNREADABLE = {
    "a pickle": pickle.dumps(StoreUnreachableError("down")),
    "nothing": b"",
    "another kind": frame("split", b""),
    "too few fields": frame(ERROR, "InputError"),
    "too many fields": frame(ERROR, "InputError", "", "", "", "", [], None, b"", 1),
    "other fields": frame(ERROR, "InputError", 5, "", "", "", [], None, b""),
    "half of it": encode_error(df.InputError("fact"))[:-5],
}


@pytest.mark.parametrize("blob", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_reported_as_that(blob: bytes) -> None:
    found = decode_error(blob)

    assert type(found) is JobFailedError
    assert "its error cannot be read" in found.fact
    assert found.detail
    assert "log" in found.hint


def test_an_error_of_another_format_is_reported_with_its_number() -> None:
    with writing(Format(number=FORMAT.number + 1)):
        blob = encode_error(df.InputError("fact"))

    assert f"format {FORMAT.number + 1}" in str(decode_error(blob))


def test_an_error_that_only_another_version_has_keeps_its_words() -> None:
    fields = opened(encode_error(df.InputError("fact", hint="hint")))[1]
    found = decode_error(frame(ERROR, "LaterError", *fields[1:]))

    assert type(found) is JobFailedError
    assert (found.fact, found.hint) == ("fact", "hint")
    assert "LaterError" in found.__notes__[0]


def test_an_error_is_distinguished_from_everything_else_by_its_beginning() -> None:
    assert is_error(encode_error(df.InputError("fact")))
    assert not any(
        map(is_error, (b"", frame("split", b"x"), frame("errors"), msgspec.msgpack.encode(ERROR)))
    )
