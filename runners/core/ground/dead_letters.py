"""Dead letters: records that were left out because user code or a reader fails on them.

A dead letter keeps the record as it came into the stage, so that it can be fed again when the code is correct.
A record that a source's reader cannot read arrives set aside (`dataflow.set_aside`), with its place in the input.
"""

import traceback
from collections.abc import Mapping
from typing import Any

import attrs

from dataflow.do_fn import TimestampedValue
from dataflow.errors import DataflowError, PipelineError
from dataflow.graph import TransformNode
from dataflow.set_aside import Origin, SetAside
from dataflow.source import SourceBatch
from dataflow.views import WithViews
from runners.core.ground.element_text import shown
from windowing.errors import error_text
from windowing.timestamps import MIN_TIMESTAMP_US, to_datetime
from windowing.window import GLOBAL_WINDOW, Window


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A record that user code or a reader fails on.

    Attributes:
        stage: the read, grouping or stateful DoFn whose record it is.
        element, timestamp_us, window, sign: the record as it was there; for a timer that failed, the key and the
            timer's name; ``element`` is None if it could not be read.
        error: describes the failure, with the user's transform and line.
        tries: how often the record was tried alone.
        origin: where the record is in its file, if a reader has set it aside.
    """

    stage: str
    element: Any
    timestamp_us: int
    window: Window
    sign: int
    error: str
    traceback: str
    tries: int
    origin: Origin | None = None


def checked_tries(tries: int | None) -> int | None:
    """Check a user's ``tries_per_record``, and return it.

    Raises:
        PipelineError: it is neither None nor a number of at least 1.
    """
    if tries is not None and (not isinstance(tries, int) or tries < 1):
        raise PipelineError(
            f"tries_per_record cannot be {tries!r}",
            hint="give a number of at least 1, or None to have the first failure end the run",
        )
    return tries


def dead_mapping(letter: DeadLetter) -> Mapping[str, Any]:
    """A dead letter as a mapping; `dataflow.runner.PipelineResult.dead_letters` describes what is in it."""
    return {
        "stage": letter.stage,
        "error": letter.error,
        "traceback": letter.traceback,
        "tries": letter.tries,
        "timestamp_us": letter.timestamp_us,
        **dead_contents(letter),
    }


def dead_text(letter: DeadLetter) -> str:
    """The text that a store keeps of a dead letter for people, who unpickle nothing."""
    return shown(_seen(letter))


def letters_set_aside(
    batch: SourceBatch, node: TransformNode, *, tries: int | None
) -> list[DeadLetter]:
    """The records that a reader has set aside, as dead letters.

    Args:
        batch: as the reader returned it.
        node: the read.
        tries: None: no record may be left out.

    Raises:
        InputError: one was set aside that may not be left out.
    """
    return [_letter_of(each, node, tries=tries) for each in batch.set_aside]


def _letter_of(aside: SetAside, node: TransformNode, *, tries: int | None) -> DeadLetter:
    error = aside.error.located(str(node))
    if tries is None and not aside.is_always_kept:
        raise error from aside.cause
    error.__cause__ = aside.cause
    return dead_letter(
        error,
        stage=node.label,
        element=aside.element,
        timestamp_us=MIN_TIMESTAMP_US if aside.timestamp_us is None else aside.timestamp_us,
        window=GLOBAL_WINDOW,
        sign=aside.sign,
        tries=1,
        origin=aside.origin,
    )


def dead_letter(
    error: DataflowError,
    *,
    stage: str,
    element: Any,
    timestamp_us: int,
    window: Window,
    sign: int,
    tries: int,
    origin: Origin | None = None,
) -> DeadLetter:
    """Make a dead letter of a record that has failed for the last time.

    Args:
        error: the failure.
        stage: the label of the read, grouping or stateful DoFn whose record it is.
        element: the record.
        timestamp_us: its event time, in microseconds.
        window: its window.
        sign: +1, or -1 if it is a retraction.
        tries: how often it was tried alone.
        origin: where it is in its file, if a reader has set it aside.
    """
    return DeadLetter(
        stage=stage,
        # The views of side inputs are the same for many, and what is fed again meets those that are there then.
        element=element.element if isinstance(element, WithViews) else element,
        timestamp_us=timestamp_us,
        window=window,
        sign=sign,
        error=_storable(error_text(error)),
        traceback=_storable("".join(traceback.format_exception(error.__cause__ or error))),
        tries=tries,
        origin=origin,
    )


def _storable(text: str) -> str:
    """The text without characters that a database refuses, so that storing a letter does not stop the job."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _seen(letter: DeadLetter) -> Any:
    """The record, or the bytes that could not be read as one."""
    if letter.element is None and letter.origin is not None:
        return letter.origin.raw
    return letter.element


def dead_contents(letter: DeadLetter) -> dict[str, Any]:
    """The record of a dead letter, with all that is needed to replay it."""
    origin, element = letter.origin, letter.element
    is_unread = origin is not None and element is None
    return {
        "element": None
        if is_unread
        else TimestampedValue(element, to_datetime(letter.timestamp_us)),
        "text": dead_text(letter),
        "origin": None if origin is None else attrs.asdict(origin),
        "window_start_us": letter.window.start_us,
        "window_end_us": letter.window.end_us,
        "sign": letter.sign,
    }
