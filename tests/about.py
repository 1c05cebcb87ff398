"""Which of many things a failure is about, in a test of all of them: a test of each would take longer than to look."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def about(what: object) -> Iterator[None]:
    """Notes in an error what it is about.

    Args:
        what: its name.
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"about {what}")
        raise
