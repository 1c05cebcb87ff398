"""SplitDiscovery: asks the sources of a running job for splits that have come and gone, and has the job follow.

Two threads take turns for each source: one that may wait, which asks the source and writes to the store, and that of
the master, which never waits.

1. The source is asked, and has splits that the job does not know.
2. The master holds what the source feeds: no watermark goes on (`WatermarkAuthority.hold`).
3. The splits become rows of the store, at the watermark of the hold, in one transaction (`Store.change_splits`).
4. The master has the rows, gives them to workers as it gives any range, and ends the hold.

Who dies in between loses nothing: before the transaction there is nothing, and the next driver asks at once; after it
the next driver finds the rows with all others.

**Invariants**

* A split is in the store before it has an owner, and never twice.
* No watermark passes that at which a new split begins before its owner has reported.

MillWheel has a fixed number of injectors; this is the driver's enumerator of others.  ADR 0077.
"""

import logging
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import attrs

from dataflow.graph import Read
from dataflow.source import Source, checked_changes
from runners.core.ground.clock import Clock
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.port import JobRow, RangeRow, SplitsChange, Store
from runners.stored.places import decode_split, encode_split

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class Adopter(Protocol):
    """What a master does with splits; see `runners.millwheel.master.master.Master`."""

    def takes_splits(self) -> bool:
        """Whether splits may be added now; to be asked again, and right before `hold_splits`."""

    def hold_splits(self, source: str) -> int | None:
        """Hold what a source feeds; the watermark of new splits, or None."""

    def adopt_splits(self, source: str, rows: Sequence[RangeRow]) -> None:
        """Give splits to workers, and end the hold.

        Args:
            source: the computation that reads it.
            rows: of the new splits.
        """

    def open_splits(self, ranges: Sequence[RangeId]) -> list[RangeId]:
        """The splits among these that have not ended."""

    def end_splits(self, ranges: Sequence[RangeId]) -> None:
        """Have splits end."""

    def last_poll(self, range_id: RangeId) -> SplitPoll | None:
        """The last poll of a split, if one is known."""


@attrs.define
class _Growing:
    """A source that is asked.

    Attributes:
        known: every split that the job has of it, in the order of their ranges.
        is_asked: whether an answer of it is under way.
    """

    name: str
    source: Source
    every_ms: int
    due_ms: int
    known: list[Any]
    is_asked: bool = False
    is_failing: bool = False


@attrs.frozen
class _Found:
    growing: _Growing
    added: Sequence[Any]
    removed: Sequence[RangeId]


@attrs.frozen
class _Written:
    growing: _Growing
    change: SplitsChange
    rows: Sequence[RangeRow]


class SplitDiscovery:
    """Lives in the driver, beside the master of a job.

    Args:
        job: as the master began with it.
        plan: of its pipeline.
        clock: for the time between two questions.
    """

    def __init__(self, job: JobRow, plan: ExecutionPlan, clock: Clock) -> None:
        self._job, self._clock = job, clock
        now_ms = clock.monotonic_ms()
        self._growing = [
            _Growing(name, source, every_ms, now_ms, _splits_of(job, name))
            for name, (source, every_ms) in growing(plan).items()
        ]
        self._found: SimpleQueue[_Found] = SimpleQueue()
        #: What was found while the master could not take splits.
        self._waiting: list[_Found] = []
        self._to_write: SimpleQueue[tuple[_Growing, SplitsChange]] = SimpleQueue()
        self._written: SimpleQueue[_Written] = SimpleQueue()
        #: Taken from the queue, and perhaps not in the store yet.
        self._unwritten: list[tuple[_Growing, SplitsChange]] = []

    @property
    def is_needed(self) -> bool:
        """Whether any source may get splits."""
        return bool(self._growing)

    def ask(self, store: Store) -> None:
        """Ask the sources whose turn it is, and write what the master holds the watermarks for; may wait.

        Args:
            store: for the calling thread alone.

        Raises:
            InputError: a source has given no proper answer.
            StoreError: the store refuses, or is out of reach; when called again it goes on.
        """
        self._unwritten += _all_of(self._to_write)
        while self._unwritten:
            asked, change = self._unwritten[0]
            self._written.put(_Written(asked, change, store.change_splits(change)))
            del self._unwritten[0]
        for asked in self._growing:
            if not asked.is_asked and self._clock.monotonic_ms() >= asked.due_ms:
                self._ask(asked)

    def pass_on(self, master: Adopter) -> None:
        """Have the master hold watermarks for what was found, and take what was written; never waits.

        Args:
            master: of the job; to be called in its thread.
        """
        found, self._waiting = [*self._waiting, *_all_of(self._found)], []
        for each in found:
            self._hold(each, master)
        for written in _all_of(self._written):
            self._adopt(written, master)

    def _ask(self, asked: _Growing) -> None:
        try:
            changes: object = asked.source.discover(list(asked.known))
        except Exception as error:  # noqa: BLE001 - whatever it is, the splits that are known go on
            if not asked.is_failing:
                _LOG.warning(
                    "job %s: %r does not know which splits it has, and is asked again: %s: %s",
                    self._job.job,
                    asked.name,
                    type(error).__name__,
                    error,
                )
            asked.is_failing = True
            self._done(asked)
            return
        asked.is_failing = False
        checked = checked_changes(asked.source, changes)
        added: list[Any] = []
        for each in checked.added:
            if each not in asked.known and each not in added:
                added.append(each)
        removed = [
            RangeId(asked.name, index)
            for index, split in enumerate(asked.known)
            if split in checked.removed
        ]
        if added or removed:
            asked.is_asked = True
            self._found.put(_Found(asked, added, removed))
        else:
            self._done(asked)

    def _hold(self, found: _Found, master: Adopter) -> None:
        asked = found.growing
        removed = master.open_splits(found.removed)
        if not found.added and not removed:
            self._done(asked)
            return
        if not master.takes_splits():
            self._waiting.append(found)
            return
        watermark_us = master.hold_splits(asked.name)
        if watermark_us is None:
            self._done(asked)
            return
        change = SplitsChange(
            job=self._job.job,
            version=self._job.version,
            computation=asked.name,
            known=len(asked.known),
            added=[encode_split(each) for each in found.added],
            watermark_us=watermark_us,
            removed=removed,
        )
        self._to_write.put((asked, change))

    def _adopt(self, written: _Written, master: Adopter) -> None:
        asked, change = written.growing, written.change
        for row in written.rows:
            assert row.split is not None
            asked.known.append(decode_split(row.split))
            _LOG.info("job %s: %s is new: %r", self._job.job, row.range_id, asked.known[-1])
        for each in change.removed:
            poll = master.last_poll(each)
            _LOG.warning(
                "job %s: %s is not in its input any more, and ends where it has been read to: %r; backlog by its last "
                "poll: %s",
                self._job.job,
                each,
                asked.known[each.index],
                "not known" if poll is None or poll.backlog is None else poll.backlog,
            )
        master.adopt_splits(asked.name, written.rows)
        master.end_splits(change.removed)
        self._done(asked)

    def _done(self, asked: _Growing) -> None:
        asked.due_ms = self._clock.monotonic_ms() + asked.every_ms
        asked.is_asked = False


def growing(plan: ExecutionPlan) -> dict[str, tuple[Source, int]]:
    """The sources that may get splits while a job runs, with how often they are asked, by computation.

    None of a version that only retracts, which reads nothing.

    Args:
        plan: of the pipeline.
    """
    found: dict[str, tuple[Source, int]] = {}
    for stage in () if plan.retirement is not None else plan.sources():
        operation = stage.root.operation
        assert isinstance(operation, Read)
        every_ms = operation.source.discover_every_ms
        if every_ms is not None:
            found[stage.name] = operation.source, every_ms
    return found


def _splits_of(job: JobRow, name: str) -> list[Any]:
    rows = [row for each, row in sorted(job.ranges.items()) if each.computation == name]
    return [decode_split(row.split) for row in rows if row.split is not None]


def _all_of(queue: SimpleQueue[_T]) -> Iterator[_T]:
    """The items of a queue; never waits."""
    try:
        while True:
            yield queue.get_nowait()
    except Empty:
        return
