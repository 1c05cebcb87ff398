"""Questions as people write them."""

from dataflow.errors import DataflowError, TimeError
from dataflow.runner import WindowLike
from runners.observability.why.explain import Question
from windowing.timestamps import to_timestamp_us
from windowing.window import Window


def question(
    key: object = None, window: WindowLike | None = None, transform: str | None = None
) -> Question:
    """A question.

    Args:
        key: a key, or its text; None: of no key.
        window: a window; an instant that is in it, as text, an aware datetime, or seconds since 1970; or both ends as
            texts with a slash between them.
        transform: a transform, or a table that is written.

    Raises:
        DataflowError: the window is none.
    """
    text = None if key is None else key if isinstance(key, str) else repr(key)
    bounds = None if window is None else _window(window)
    return Question(key=text, window=bounds, transform=transform)


def _window(given: WindowLike) -> Window:
    if isinstance(given, Window):
        return Window(given.start_us, given.end_us)
    try:
        if isinstance(given, str) and "/" in given:
            start, _, end = given.partition("/")
            return Window(to_timestamp_us(start.strip()), to_timestamp_us(end.strip()))
        instant_us = to_timestamp_us(given)
    except TimeError as error:
        raise DataflowError(
            f"{given!r} is no window",
            detail=str(error),
            hint="give an instant that is in it, such as 2024-03-31T12:04:00Z, or both of its ends with a slash",
        ) from error
    return Window(instant_us, instant_us)
