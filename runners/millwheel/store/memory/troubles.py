"""Troubles of jobs in memory."""

from collections.abc import Sequence
from datetime import UTC, datetime

import attrs

from runners.millwheel.model.troubles import TROUBLES_MAX, StoredTrouble, Trouble
from runners.millwheel.store.guards import escape_text


class MemoryTroubles:
    """The part of a `MemoryStore` that keeps them; the caller has its lock."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[tuple[str, str, str], StoredTrouble]] = {}

    def note(self, job: str, troubles: Sequence[Trouble], now_us: int) -> None:
        """Keep troubles of a job that is there.

        Args:
            job: its name; whether there is such a job has been checked.
            troubles: each is added to what is known of the same kind, place and headline; beyond `TROUBLES_MAX`, the
                oldest go.
            now_us: the time by the store's clock, in microseconds since 1970.
        """
        at = datetime.fromtimestamp(now_us / 1_000_000, UTC)
        known = self._jobs.setdefault(job, {})
        for trouble in troubles:
            each = attrs.evolve(
                trouble, place=escape_text(trouble.place), reason=escape_text(trouble.reason)
            )
            key = (each.kind, each.place, each.headline)
            before = known.pop(key, None)
            count = each.count + (before.trouble.count if before else 0)
            known[key] = StoredTrouble(
                trouble=attrs.evolve(each, count=count),
                first_at=before.first_at if before else at,
                last_at=at,
            )
        while len(known) > TROUBLES_MAX:
            del known[next(iter(known))]

    def read(self, job: str) -> Sequence[StoredTrouble]:
        """The troubles of a job, the latest first."""
        return list(reversed(self._jobs.get(job, {}).values()))

    def forget(self, job: str) -> None:
        """Forget the troubles of a job that is reset."""
        self._jobs.pop(job, None)
