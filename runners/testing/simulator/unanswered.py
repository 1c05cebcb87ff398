"""Unanswered: the commits whose answer was lost, none of which may be sent again."""

from runners.millwheel.model.ids import Fence
from runners.millwheel.model.production import Production
from runners.testing.simulator.errors import InvariantError


class Unanswered:
    """The commits of one store whose answer was lost, by the fences that they were sent with."""

    def __init__(self) -> None:
        self._fences: set[tuple[Fence, ...]] = set()
        #: How often the store has gone back.
        self.returns = 0

    def note(self, production: Production, returns: int = 0) -> None:
        """Note that the sender of a commit does not know its outcome.

        Args:
            production: that it has sent.
            returns: how often the store had gone back when it was sent.
        """
        if returns == self.returns:
            self._fences.add(tuple(production.fences))

    def check(self, production: Production) -> None:
        """A production is sent.

        Raises:
            InvariantError: it was sent before, or another one in its place, and its outcome is to be asked for.
        """
        if tuple(production.fences) in self._fences:
            ranges = ", ".join(str(fence.range_id) for fence in production.fences)
            raise InvariantError(f"I6: a commit of {ranges} is sent again, and may have landed")

    def clear(self) -> None:
        """The store is at an earlier moment, where the same fences may be given out anew."""
        self._fences.clear()
        self.returns += 1
