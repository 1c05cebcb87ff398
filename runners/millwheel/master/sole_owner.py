"""SoleOwner: whether one worker has all ranges of the job, and computes the input watermarks itself (ADR 0111).

The news of watermarks says so.  The worker stops as soon as news does not, or when it has other ranges than the master
knows of.  Where the master must know how far watermarks have come at most, as before a source gets splits, it revokes
that, and waits until every worker has reported since.

Pure; the master sends and receives.
"""

from collections.abc import Sequence

from runners.millwheel.master.assignment import Assignment
from runners.millwheel.master.slots import Slot


class SoleOwner:
    """Lives in the master.

    Args:
        has_been_one: whether there may have been one before this master.
    """

    def __init__(self, *, has_been_one: bool) -> None:
        self._has_been_one = has_been_one
        #: When that was revoked, or ranges came to another owner after that; None: it is not.
        self._revoked_ms: int | None = None

    def ranges(self, assignment: Assignment) -> int:
        """How many ranges the worker has that has all of them; 0: there is no such worker, or that is revoked.

        Args:
            assignment: who has which range.
        """
        if self._revoked_ms is not None or not assignment.is_at_rest:
            return 0
        found = len(assignment.slots) if assignment.is_in_one_slot else 0
        self._has_been_one |= found > 0
        return found

    def revoke(self, now_ms: int) -> None:
        """Have the master alone compute watermarks, until `let_go`.

        Args:
            now_ms: the monotonic clock.
        """
        if self._revoked_ms is None:
            self._revoked_ms = now_ms

    def note_taken_over(self, now_ms: int) -> None:
        """Note that a worker has taken ranges over, whose former owner may have computed watermarks.

        Args:
            now_ms: the monotonic clock.
        """
        if self._revoked_ms is not None:
            self._revoked_ms = now_ms

    def is_revoked(self, assignment: Assignment, slots: Sequence[Slot]) -> bool:
        """Whether the master knows how far every watermark has come, and no worker computes any.

        Args:
            assignment: who has which range.
            slots: with the last reports of their workers.
        """
        if not self._has_been_one:
            return True
        revoked_ms = self._revoked_ms
        return (
            revoked_ms is not None
            and assignment.is_at_rest
            and all(slots[index].as_of_ms > revoked_ms for index in {*assignment.slots.values()})
        )

    def let_go(self) -> None:
        """Have a worker compute watermarks again, if one has all ranges."""
        self._revoked_ms = None
