"""Dead letters: records that were left out because user code or a reader cannot take them.

What is kept is the record as it came into the stage, so that it can be fed again when the code is right.
What a source's reader cannot read comes here set aside (`dataflow.io.set_aside`), with its place in the input.
"""

import traceback
from collections.abc import Mapping
from typing import Any

import attrs

from dataflow.do_fn import TimestampedValue
from dataflow.errors import DataflowError, PipelineError
from dataflow.graph import TransformNode
from dataflow.io.set_aside import Origin, SetAside
from dataflow.io.source import SourceBatch
from runners.core.ground.element_text import shown
from windowing.timestamps import MIN_TIMESTAMP_US, to_datetime
from windowing.window import GLOBAL_WINDOW, Window


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A record that user code cannot take.

    ``stage``: the read, grouping or stateful DoFn whose record it is; ``element``, ``timestamp_us``, ``window`` and
    ``sign`` are the record there; of a timer that failed, the key and the timer's name.
    ``origin``: where the record is in its file, if a reader has set it aside; ``element`` is None if it could not be
    read.
    ``error`` says what failed, with the user's transform and line; ``tries``: how often it was tried alone.
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
    """What a user gave as ``tries_per_record``.

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
    """A dead letter as a mapping; `dataflow.runner.PipelineResult.dead_letters` says what is in it."""
    return {
        "stage": letter.stage,
        "error": letter.error,
        "traceback": letter.traceback,
        "tries": letter.tries,
        "timestamp_us": letter.timestamp_us,
        **dead_contents(letter),
    }


def dead_text(letter: DeadLetter) -> str:
    """What a store keeps of a dead letter for people, who unpickle nothing."""
    return shown(_seen(letter))


def letters_set_aside(
    batch: SourceBatch, node: TransformNode, *, tries: int | None
) -> list[DeadLetter]:
    """The records that a reader has set aside, as dead letters.

    Args:
        batch: as the reader handed it over.
        node: the read.
        tries: whether records may be left out: not None.

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
        sign=+1,
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
    """A record that has failed for the last time."""
    return DeadLetter(
        stage=stage,
        element=element,
        timestamp_us=timestamp_us,
        window=window,
        sign=sign,
        error=_storable(str(error)),
        traceback=_storable("".join(traceback.format_exception(error.__cause__ or error))),
        tries=tries,
        origin=origin,
    )


def _storable(text: str) -> str:
    """Text without what a database would refuse, or it would be the letter that stops the job."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _seen(letter: DeadLetter) -> Any:
    """The record, or the bytes that are none."""
    if letter.element is None and letter.origin is not None:
        return letter.origin.raw
    return letter.element


def dead_contents(letter: DeadLetter) -> dict[str, Any]:
    """The record of a dead letter: what may be replayed of it."""
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
