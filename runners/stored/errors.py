"""Errors as bytes, on their way from a worker to the driver: the class by its name, the words, and the user's frames.

An error that came as a pickle could not be read where a user's class is missing or does not let itself be made again,
and then hid what had gone wrong.  Here the words are plain texts; the pickle of an object is in a field of its own, of
classes of the user's alone, and the error is raised without it where it cannot be read.
"""

from collections.abc import Iterator

import msgspec

from dataflow import errors as sdk_errors
from dataflow.errors import DataflowError
from dataflow.serialization import dumps_code, loads_code
from runners import errors as runner_errors
from runners.errors import JobFailedError, StoredFormatError
from runners.stored.framing import frame, unframed
from runners.task_traceback import task_traceback, traceback_of
from windowing.errors import error_text

ERROR = "error"
#: The beginning of a frame of this kind, behind its length and its number.
_PREFIX = msgspec.msgpack.encode(ERROR)
#: Class, fact, detail, hint, traceback, notes, the name of the user's class, and the pickle of its instance.
_Fields = tuple[str, str, str, str, str, list[str], str | None, bytes]


def _errors() -> Iterator[type[DataflowError]]:
    for module in (sdk_errors, runner_errors):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, DataflowError):
                yield kind


#: The errors of this package, by their names.
CLASSES = {kind.__name__: kind for kind in _errors()}


def encode_error(error: DataflowError) -> bytes:
    """An error as bytes; whatever a user's class does when it is asked for its words or pickled."""
    kind = type(error)
    # The nearest class of this package that it is an instance of.
    known = next(each for each in kind.__mro__ if CLASSES.get(each.__name__) is each)
    return frame(
        ERROR,
        known.__name__,
        *(_plain(getattr(error, name, "")) for name in ("fact", "detail", "hint")),
        _plain(traceback_of(error)),
        [_plain(note) for note in getattr(error, "__notes__", ())],
        None if known is kind else _plain(f"{kind.__module__}.{kind.__qualname__}"),
        b"" if known is kind else _pickled(error),
    )


def is_error(blob: bytes) -> bool:
    """Whether bytes are a frame of an error; looks at their beginning alone."""
    return blob.startswith(_PREFIX, 2)


def decode_error(blob: bytes) -> DataflowError:
    """The error that `encode_error` was given, to be raised in another process; its cause is the text of its traceback.

    An instance of a user's class that cannot be read here is one of the nearest class of this package, with a note.

    Returns:
        The error; a `JobFailedError` if the bytes cannot be read.
    """
    try:
        fields = msgspec.convert(unframed(ERROR, blob), type=_Fields)
    except (StoredFormatError, msgspec.ValidationError) as why:
        return JobFailedError(
            "a worker has failed, and its error cannot be read here",
            detail=getattr(why, "fact", None) or str(why),
            hint="the log of the worker has the error; install the same version of dataflow-model on every machine",
        )
    name, fact, detail, hint, traceback, notes, user_class, own = fields
    error: DataflowError | None = None
    if user_class is not None:
        error, why_not = _unpickled(own)
        if error is None:
            notes.append(
                f"It was raised as {user_class}, which cannot be made again here: {why_not}"
            )
    if error is None:
        error = CLASSES.get(name, JobFailedError)(fact, detail=detail, hint=hint)
        if name not in CLASSES:
            notes.append(
                f"It was raised as {name}, which this version of dataflow-model does not have"
            )
    for note in notes:
        error.add_note(note)
    error.__cause__ = task_traceback(traceback)
    return error


def _plain(text: object) -> str:
    """A text without lone surrogates, which MessagePack cannot represent."""
    found = text if isinstance(text, str) else error_text(text)
    return found.encode("utf-8", "backslashreplace").decode()


def _pickled(error: DataflowError) -> bytes:
    """The instance of a user's class; empty if it cannot be pickled."""
    try:
        return dumps_code(error, "an error")
    except Exception:  # noqa: BLE001 - a user's class may do anything here; the words are there
        return b""


def _unpickled(own: bytes) -> tuple[DataflowError | None, str]:
    """The instance of a user's class, or why there is none."""
    if not own:
        return None, "it cannot be pickled"
    try:
        error = loads_code(own)
    except Exception as why:  # noqa: BLE001 - a user's class may do anything here
        return None, f"{type(why).__name__}: {error_text(why)}"
    if not isinstance(error, DataflowError):
        return None, f"its pickle is of the class {type(error).__name__}"
    return error, ""
