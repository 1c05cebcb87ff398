"""Commit a production, and find out what became of it where the answer to the commit was lost.

The only way in which a production is committed (`Store.commit` and `Store.submit` have no other caller).

**Invariant:** a production is sent once: where its outcome is unknown the store is asked, and nothing is sent again.
Sent again, a commit that had landed would be refused by its own fence, and taken to have failed.

ADR 0004.
"""

from collections.abc import Callable
from typing import Protocol

import attrs

from runners.millwheel.model.production import Production
from runners.millwheel.store.port import CommitOutcome, Indeterminate, UnderWay


class Commits(Protocol):
    """The part of `runners.millwheel.store.port.Store` that a commit needs."""

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable."""

    def resolve(self, production: Production) -> CommitOutcome:
        """Find out what became of a production."""


class Submits(Commits, Protocol):
    """The part of `runners.millwheel.store.port.Store` that a commit needs which is under way for a while."""

    def submit(self, production: Production, ready: Callable[[], None] = lambda: None) -> UnderWay:
        """Send a production."""


@attrs.frozen
class CommitResult:
    """The outcome of a production, as far as it is known.

    Attributes:
        outcome: `Indeterminate` if the store could not be asked either; then only its next reader will know.
        answer: what the commit itself was answered.
    """

    outcome: CommitOutcome
    answer: CommitOutcome

    @property
    def detail(self) -> str:
        """For an error: why the outcome is unknown, and what the commit itself was answered if that was not it."""
        known = [self.outcome.reason] if isinstance(self.outcome, Indeterminate) else []
        if self.answer != self.outcome:
            reason = self.answer.reason if isinstance(self.answer, Indeterminate) else self.answer
            known.append(f"the commit itself was answered: {reason}")
        return "; ".join(known)


def commit_or_resolve(store: Commits, production: Production) -> CommitResult:
    """Commit a production; if the answer is lost, ask what became of it.

    Args:
        store: where the owner of the production's ranges commits.
        production: to be sent to the store once.  After an error or `Indeterminate` it must not be passed here again:
            its maker gives its ranges up, and whoever takes them over goes on from what the store has.

    Raises:
        StoreError: no worker can commit it as it is, and nothing of it was committed; or the store refused to answer
            what became of it.
    """
    return _resolved(store, production, store.commit(production))


@attrs.frozen
class SubmittedCommit:
    """A commit that is under way.

    Attributes:
        store: answers what became of the production.
        production: that was sent.
        under_way: as the store has sent it.
    """

    store: Commits
    production: Production
    under_way: UnderWay

    @property
    def is_answered(self) -> bool:
        """Whether its result is there, as good as certainly; asks nobody."""
        return self.under_way.is_answered

    def result(self) -> CommitResult:
        """Wait for the outcome; returns and raises what `commit_or_resolve` does, and is called until it returns."""
        return _resolved(self.store, self.production, self.under_way.outcome())


def submit_or_resolve(
    store: Submits, production: Production, ready: Callable[[], None]
) -> SubmittedCommit:
    """Send a production, and return while its commit is under way.

    Args:
        store: as for `commit_or_resolve`.
        production: as for `commit_or_resolve`.
        ready: called before anything is sent; what it raises is raised, and nothing is sent.

    Raises:
        StoreError: as `commit_or_resolve`.
    """
    return SubmittedCommit(store, production, store.submit(production, ready))


def _resolved(store: Commits, production: Production, answer: CommitOutcome) -> CommitResult:
    outcome = answer
    if isinstance(answer, Indeterminate):
        outcome = store.resolve(production)
    return CommitResult(outcome, answer)
