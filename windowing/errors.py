"""Errors of time and windowing: each is a fact, then detail, then what to do.

`windowing` is the lowest layer, so the shape of an error is defined here and `dataflow.errors` builds on it.
"""

import traceback
from typing import Any, Self, TypeVar

from windowing.location import user_location, written_at
from windowing.user_frames import user_traceback

#: As much is shown of the text of a user's exception; what a validator says of a record can have a line for each field.
_SHOWN_LINES_MAX, _SHOWN_CHARACTERS_MAX = 4, 1000

_Error = TypeVar("_Error", bound="DataflowError")
_AnyError = TypeVar("_AnyError", bound=BaseException)


class DataflowError(Exception):
    """Base of every error that this SDK raises on purpose.  Survives pickling.

    Args:
        fact: one short sentence.
        detail: what was found; may be empty.
        hint: what the user can do; may be empty.
    """

    def __init__(self, fact: str, *, detail: str = "", hint: str = "") -> None:
        self.fact = fact
        self.detail = detail
        self.hint = hint
        lines = [fact]
        if detail:
            lines.append(f"  detail: {detail}")
        if hint:
            lines.append(f"  what to do: {hint}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own reduction would call the class with the joined message and lose the keywords.
        return _rebuild, (type(self), self.fact, self.detail, self.hint)

    def _render_traceback_(self) -> list[str]:
        """The lines that a notebook prints; IPython's own have five of the code around each frame."""
        frames = self.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(
            "IPython."
        ):
            frames = frames.tb_next
        lines = traceback.format_exception(in_brief(self.with_traceback(frames)))
        return "".join(lines).rstrip("\n").split("\n")

    def located(self, where: str) -> Self:
        """A copy of the error with ``where`` (a transform and its line) put in front of the fact."""
        return _rebuild(type(self), f"{where}: {self.fact}", self.detail, self.hint)


def _rebuild(cls: type[_Error], fact: str, detail: str, hint: str) -> _Error:
    # Without the constructor of a user's subclass, which may take something else.
    error = cls.__new__(cls)
    DataflowError.__init__(error, fact, detail=detail, hint=hint)
    return error


def in_brief(error: _AnyError) -> _AnyError:
    """An error to raise where the user called us: of its frames, those of user code remain.

    Its cause is what user code raised, which its text names already: it is not printed a second time, and stays in
    ``__context__``, with all frames.  What is no error of this package is returned as it is.
    """
    if not isinstance(error, DataflowError):
        return error
    cause = error.__cause__
    frames = None if cause is None else user_traceback(cause.__traceback__)
    frames = frames or user_traceback(error.__traceback__)
    if cause is not None:
        error.__cause__, error.__context__ = None, cause
    error.__suppress_context__ = True
    return error.with_traceback(frames)


def error_text(error: object) -> str:
    """The text of an exception of a user's, whose class may have a ``__str__`` that raises."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - whatever it raises, this is shown beside another failure
        return f"<its text cannot be shown: __str__ raises {type(another).__name__}>"


def what_was_raised(error: Exception) -> str:
    """The class and the text of an exception of a user's, of which only the beginning is shown if it is long."""
    text = error_text(error)
    lines = text.splitlines()
    if len(lines) > _SHOWN_LINES_MAX:
        more = f"... ({len(lines) - _SHOWN_LINES_MAX} more lines)"
        text = "\n".join([*lines[:_SHOWN_LINES_MAX], more])
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = f"{text[:_SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"
    return f"{type(error).__name__}: {text}"


class TimeError(DataflowError, ValueError):
    """A value that should be a time or a duration is neither."""


class WindowError(DataflowError, ValueError):
    """A window function is configured, or behaves, in a way that cannot be right."""


def not_positive(need: str, given: object) -> WindowError:
    """The error for a duration that is zero or less.

    It is raised when a window function or trigger is made, before a transform has it: so it names the user's line.

    Args:
        need: what needs which duration.
        given: the value.
    """
    return WindowError(
        f"{need}, not {given!r}",
        detail=f"written at {user_location()}",
        hint='give a length of time above zero: text such as "10 minutes", a timedelta, or a number of seconds',
    )


def no_time(fact: str, *, detail: str = "", hint: str) -> TimeError:
    """The error for a value that should be a time or a duration; it names the user's line where that is known.

    Args:
        fact: one short sentence.
        detail: what was found; may be empty.
        hint: what the user can do.
    """
    found = filter(None, (detail, written_at()))
    return TimeError(fact, detail="; ".join(found), hint=hint)
