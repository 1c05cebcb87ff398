"""What the simulator raises: a violated invariant for the user, and the ends of simulated processes for itself."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from runners.core.stages import committed_positions


class InvariantError(BaseException):
    """The job violated an invariant.  Not an `Exception`, which a worker would take for one of user code.

    Args:
        text: which invariant, and how.
        keys: the keys that it is about, as text, so that the story can be about them alone.
    """

    def __init__(self, text: str, keys: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.keys = frozenset(keys)


class SimulationError(AssertionError):
    """A seed that fails: what is wrong, and, from `simulate`, the line that replays it and the story.

    Args:
        text: all of that.
        keys: the keys that it is about, as for `InvariantError`.
    """

    def __init__(self, text: str, keys: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.keys = frozenset(keys)


class ProcessDied(BaseException):
    """The process in which this is raised is dead."""


@contextmanager
def as_simulation_error() -> Iterator[None]:
    """Raise a violated invariant as an error like any other."""
    try:
        yield
    except InvariantError as error:
        raise SimulationError(str(error), error.keys) from None


class SystemSilentError(OSError):
    """The system behind a simulated source does not answer; nobody need read of it in a log."""

    def __str__(self) -> str:
        return "the system does not answer"


def _is_not_simulated(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], SystemSilentError))


logging.getLogger(committed_positions.__name__).addFilter(_is_not_simulated)
