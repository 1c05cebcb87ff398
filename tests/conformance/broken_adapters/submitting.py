"""Adapters that are wrong about commits which are under way."""

from collections.abc import Callable

import attrs

from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Answered, CommitOutcome, UnderWay


@attrs.frozen
class AskedAgain:
    """Commits each time that somebody asks for the outcome."""

    commit: Callable[[], CommitOutcome]
    is_answered: bool = False

    def outcome(self) -> CommitOutcome:
        return self.commit()


class SendsForWhoIsNotReady(MemoryStore):
    """Asks the sender when it is too late."""

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        outcome = self.commit(production)
        ready()
        return Answered(outcome)


class CommitsWhenItIsAsked(MemoryStore):
    """Does nothing before somebody waits for the outcome."""

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        ready()
        return AskedAgain(lambda: self.commit(production))


class AnswersByTheStateOfNow(MemoryStore):
    """Commits, and asks what has become of it by committing again."""

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        ready()
        self.commit(production)
        return AskedAgain(lambda: self.commit(production))
