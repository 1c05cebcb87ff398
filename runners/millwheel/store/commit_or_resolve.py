"""Commit a production, and find out what became of it where the answer to the commit was lost.

The only way in which a production is committed (`Store.commit` has no other caller).

**Invariant:** a production is sent once: where its outcome is unknown the store is asked, and nothing is sent again.
Sent again, a commit that had landed would be refused by its own fence, and taken to have failed.

ADR 0004.
"""

from typing import Protocol

import attrs

from runners.millwheel.model.production import Production
from runners.millwheel.store.port import CommitOutcome, Indeterminate


class Commits(Protocol):
    """The part of `runners.millwheel.store.port.Store` that a commit needs."""

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable."""

    def resolve(self, production: Production) -> CommitOutcome:
        """Find out what became of a production."""


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
    outcome = answer = store.commit(production)
    if isinstance(answer, Indeterminate):
        outcome = store.resolve(production)
    return CommitResult(outcome, answer)
