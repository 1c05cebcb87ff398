"""What the simulator raises: a violated invariant for the user, and the ends of simulated processes for itself."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


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
