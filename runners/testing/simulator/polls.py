"""Polls: the findings of every poll of every source split, which decide when event time may go on without a split.

**Invariant** (I5): event time goes past the reported watermark of a split only while the split has an owner that has
polled it within the last `LEASE_TTL_MS`, and has found nothing.  What is lost, on its way or stopped holds the
watermark back.

A master learns that a worker of a former driver has taken a split over when its own worker is fenced, or the lease of
that worker is over.  Until then its own worker counts as the owner.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.source import SourceBatch, SplitStatus
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.master.slots import LEASE_TTL_MS, Slot
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.places import decode_split
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.errors import InvariantError
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class Polls:
    """The polls of one job.

    Args:
        store: where the job is.
        job: its name.
        plan: the pipeline.
        clock: the virtual time.
    """

    def __init__(
        self, store: MemoryStore, job: str, plan: ExecutionPlan, clock: ManualClock
    ) -> None:
        self._store, self._job, self._plan, self._clock = store, job, plan, clock
        #: The furthest watermark that was read of each split or committed, by any worker, whether it stayed durable or
        #: not.
        self._output_watermark_us: dict[RangeId, int] = defaultdict(lambda: MIN_TIMESTAMP_US)
        #: When each worker last found nothing in a split.
        self._idle_ms: dict[tuple[RangeId, str], int] = {}
        #: Who has polled each split last while it was its owner.
        self._readers: dict[RangeId, str] = {}
        self._splits: dict[RangeId, Any] = {}

    def polled(self, worker: str, read: str, split: Any, batch: SourceBatch) -> None:
        """Note that a worker has polled a split.

        Args:
            worker: its name; need not be the owner any more.
            read: the name of the computation that reads the source.
            split: as the source made it.
            batch: what the poll has found.
        """
        for range_id in self.ranges_with(read, split):
            is_over = batch.status is SplitStatus.FINISHED
            output_watermark_us = MAX_TIMESTAMP_US if is_over else batch.watermark_us
            self._output_watermark_us[range_id] = max(
                self._output_watermark_us[range_id], output_watermark_us
            )
            job = self._store.read_job(self._job)
            row = None if job is None else job.ranges.get(range_id)
            if row is not None and row.owner == worker:
                self._readers[range_id] = worker
            if batch.status is SplitStatus.IDLE:
                self._idle_ms[range_id, worker] = self._clock.monotonic_ms()

    def ranges_with(self, read: str, split: Any) -> list[RangeId]:
        """The ranges of a split: several, where a source has made equal ones.

        Args:
            read: the name of the computation that reads the source.
            split: as the source made it.
        """
        return [each for each in self._ranges_of(read) if self._splits[each] == split]

    def committed(self, production: Production) -> None:
        """Note how far splits have come by a commit: also one that the store loses before the master has noticed.

        Args:
            production: what was committed; the end of a split that is drained is in no poll.
        """
        for range_id, watermark_us in production.watermarks_us.items():
            self._output_watermark_us[range_id] = max(
                self._output_watermark_us[range_id], watermark_us
            )

    def look_again(self) -> None:
        """Forget which splits there are: the job has got some."""
        self._splits.clear()

    def may_be_unreported(self, range_id: RangeId) -> bool:
        """Whether time may have gone on without a split before it was known that it has something again."""
        since_ms = self._clock.monotonic_ms() - LEASE_TTL_MS
        return any(
            each == range_id and at_ms >= since_ms for (each, _), at_ms in self._idle_ms.items()
        )

    def check(
        self, before_us: Mapping[str, int], inputs_us: Mapping[str, int], slots: Sequence[Slot]
    ) -> None:
        """Check that a master was right to let time go on.

        Args:
            before_us: the input watermarks that it had before, by computation.
            inputs_us: those that it has now.
            slots: of the master, with the leases of its workers.

        Raises:
            InvariantError: it went on without a split that was not known to have nothing.
        """
        for name, watermark_us in inputs_us.items():
            if watermark_us <= max(before_us[name], self.stored_us(name)):
                continue
            for read in self._plan.senders(name):
                if self._plan.stages[read].is_source:
                    for range_id in self._ranges_of(read):
                        self._check_split(name, watermark_us, range_id, slots)

    def stored_us(self, name: str) -> int:
        """The furthest input watermark by which a computation has fired, as the store has it.

        A master goes on from there after another one, and a worker that has all ranges can be further than its master.

        Args:
            name: of the computation.
        """
        job = self._store.read_job(self._job)
        rows = () if job is None else job.ranges.items()
        return max(
            (
                row.input_watermark_us
                for range_id, row in rows
                if range_id.computation == name and row.input_watermark_us is not None
            ),
            default=MIN_TIMESTAMP_US,
        )

    def _check_split(
        self, name: str, watermark_us: int, range_id: RangeId, slots: Sequence[Slot]
    ) -> None:
        job = self._store.read_job(self._job)
        assert job is not None
        row = job.ranges.get(range_id)
        if row is None:
            return  # a store that has gone back does not have it any more
        output_watermark_us = max(
            self._output_watermark_us[range_id], row.watermark_us or MIN_TIMESTAMP_US
        )
        if row.is_finished or watermark_us <= output_watermark_us:
            return
        # A worker that does not know what became of its commit makes sure that the store has no owner any more, and
        # ends.  It is gone as one is that dies: the master knows of it when its lease is over, or another is there.
        reader = row.owner or self._readers.get(range_id, "")
        owner = next((each for each in slots if each.worker == reader), None)
        if owner is None and reader and not any(reader in each.registered for each in slots):
            owner = next((each for each in slots if (range_id, each.worker) in self._idle_ms), None)
        idle_ms = None if owner is None else self._idle_ms.get((range_id, owner.worker or ""))
        now_ms = self._clock.monotonic_ms()
        if owner is None or idle_ms is None or now_ms - idle_ms > LEASE_TTL_MS:
            why = (
                "nobody has"
                if owner is None
                else f"has not been polled in vain for {LEASE_TTL_MS} ms"
            )
            raise InvariantError(
                f"I5: the input watermark of {name} goes on to {watermark_us} us without {range_id}, which has "
                f"reported {output_watermark_us} us and {why}"
            )

    def _ranges_of(self, read: str) -> Sequence[RangeId]:
        found = [each for each in self._splits if each.computation == read]
        if not found:
            job = self._store.read_job(self._job)
            for range_id, row in () if job is None else job.ranges.items():
                if range_id.computation == read:
                    self._splits[range_id] = decode_split(row.split) if row.split else None
                    found.append(range_id)
        return found
