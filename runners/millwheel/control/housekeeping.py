"""Housekeeping: what the driver of a stream deletes from its store while the job runs.

It folds what user code has counted, of which each commit adds a row.  It deletes late records, dead letters and lineage
when they are older than the user wants to keep them, and what ranges, requests and former owners leave behind, after a
day.  Otherwise each of these would grow for as long as the job lives.

No result depends on it, so a driver that cannot do it goes on, and tries again later.
"""

import logging
from collections.abc import Callable, Collection, Mapping

import attrs

from dataflow.errors import PipelineError
from runners.core.ground.clock import Clock
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import PurgedKind, Store
from runners.stored.metrics import folded
from windowing.timestamps import DurationLike, to_duration_us

#: Between two rounds.
INTERVAL_MS = 60_000
#: Between two times that what was counted is folded: a stream adds a row with each commit that counts.
FOLD_INTERVAL_MS = 5_000
#: Longer than a message can be on its way, or a worker be asleep and come back.
PRUNED_AFTER_S = 86_400.0

_LOG = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Retention:
    """How long a job keeps late records, dead letters and lineage, in seconds; None: for ever."""

    late_s: float | None = None
    dead_s: float | None = None
    lineage_s: float | None = None

    @classmethod
    def of(
        cls,
        *,
        keep_late: DurationLike | None,
        keep_dead: DurationLike | None,
        keep_lineage: DurationLike | None = None,
    ) -> "Retention":
        """Make one from lengths of time as a user writes them.

        Args:
            keep_late: how long late records are kept, in seconds where it is a number; None: for ever.
            keep_dead: the same of dead letters.
            keep_lineage: the same of lineage.

        Raises:
            PipelineError: one of them is negative.
            TimeError: one of them is no length of time.
        """
        return cls(
            late_s=_seconds("keep_late", keep_late),
            dead_s=_seconds("keep_dead", keep_dead),
            lineage_s=_seconds("keep_lineage", keep_lineage),
        )


class Housekeeper:
    """Deletes what one job needs no more; used by one thread, which has a store of its own.

    Args:
        job: its name in the store.
        retention: of late records, dead letters and lineage.
        clock: for the time between two rounds; the store knows how old its rows are.
        signals_processed: returns the number of the last signal that every range which listens has processed.
    """

    def __init__(
        self, job: str, retention: Retention, clock: Clock, signals_processed: Callable[[], int]
    ) -> None:
        self._job, self._retention, self._clock = job, retention, clock
        self._signals_processed = signals_processed
        self._due_ms = self._fold_due_ms = clock.monotonic_ms()
        #: The ranges that the master knows to be retired; set from the master's thread.
        self.retired: Collection[RangeId] = frozenset()

    def step(self, store: Store) -> None:
        """Do a round, if it is time, and log what was deleted.

        Raises:
            StoreError: the store is out of reach; the next round comes at its time all the same.
        """
        if self._clock.monotonic_ms() >= self._fold_due_ms:
            self._fold_due_ms = self._clock.monotonic_ms() + FOLD_INTERVAL_MS
            store.fold_metrics(self._job, folded)
        if self._clock.monotonic_ms() < self._due_ms:
            return
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_MS
        kept: Mapping[PurgedKind, float | None] = {
            "late": self._retention.late_s,
            "dead": self._retention.dead_s,
            "lineage": self._retention.lineage_s,
        }
        deleted: dict[str, int] = {}
        for kind, older_than_s in kept.items():
            if older_than_s is not None:
                deleted[kind] = store.purge(self._job, kind, older_than_s=older_than_s)
        deleted |= store.prune(
            self._job,
            older_than_s=PRUNED_AFTER_S,
            retired=self.retired,
            signals_up_to=self._signals_processed(),
        )
        if any(deleted.values()):
            what = ", ".join(f"{count} {kind}" for kind, count in deleted.items() if count)
            _LOG.info("job %s: deleted from the store by age: %s", self._job, what)


def _seconds(name: str, value: DurationLike | None) -> float | None:
    if value is None:
        return None
    seconds = to_duration_us(value) / 1_000_000
    if seconds < 0:
        raise PipelineError(
            f"{name} must not be negative, and is {value}",
            hint="give a length of time, or None to keep them for ever",
        )
    return seconds
