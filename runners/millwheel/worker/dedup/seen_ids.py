"""SeenIds: which records of a source's split have been read before, exactly, and cheaply where they have not.

The exact answer is in the store's table of ids, which is written in the same commit as what the records cause.  A
filter in front of it answers most questions (`runners.millwheel.worker.dedup.id_filter`).  The filter is loaded from
the table a page at a time, while records are read; until it is complete, the table is asked about every record.  So a
lost filter, or a large one, delays no takeover.

MillWheel, section 6.1.1; ADR 0018.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from runners.core.ground.bundle import Bundle
from runners.core.stages.deduplication import Deduplicated, Deduplicator, NewId, horizon_us
from runners.millwheel.model.counts import IdCounts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.dedup.id_filter import IdFilter
from windowing.timestamps import US_PER_SECOND

#: Ids that are read from the table in one step.
PAGE_IDS = 20_000
#: Ids are deleted when the horizon has moved by this part of the slack, and at least by a second.
COLLECT_PARTS = 8


class IdTable(Protocol):
    """The part of `runners.millwheel.store.port.Store` that `SeenIds` needs."""

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        """Find which of these ids the range has."""

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        """A page of the range's ids."""


class SeenIds:
    """The ids of one split, as its owner sees them; not thread-safe.

    Args:
        table: has the ids that are committed.
        job: its name.
        range_id: the split.
        deduplicate: the deduplicator of the source.
        counts: where it counts; shared with the other splits of the source.
    """

    def __init__(
        self,
        table: IdTable,
        job: str,
        range_id: RangeId,
        deduplicate: Deduplicator,
        counts: IdCounts,
    ) -> None:
        self._table, self._job, self._range_id = table, job, range_id
        self._deduplicator, self._settings, self._counts = deduplicate, deduplicate.settings, counts
        self._collected_us: int | None = None
        self._filter = self._empty()
        #: Ids that are in no table yet.
        self._uncommitted: dict[bytes, NewId] = {}
        #: The last id that was loaded; None: all are.
        self._loaded: bytes | None = b""

    def deduplicate(self, bundle: Bundle, watermark_us: int) -> Deduplicated:
        """Return those of the records just read that are new; their ids are in no table yet.

        Raises:
            TransformError: a record has no id, and that is no dead letter.
            StoreError: the table is out of reach.
        """
        kept = len(self._filter)
        self._tidy(watermark_us)
        deduplicated = self._deduplicator.deduplicate(
            bundle, self._known, watermark_us=watermark_us
        )
        self._filter.add(deduplicated.ids)
        self._uncommitted.update((each.digest, each) for each in deduplicated.ids)
        self._counts.duplicates += deduplicated.duplicates
        self._counts.kept += len(self._filter) - kept
        return deduplicated

    def worth_keeping(self, ids: Sequence[NewId], watermark_us: int) -> list[NewId]:
        """The new ids that later records may have when the split's watermark is here.

        Args:
            ids: those of a bundle that was read.
            watermark_us: that of the split after the bundle; ids of records more than the slack behind it are left out.
        """
        until_us = horizon_us(self._settings.slack_us, watermark_us)
        return [each for each in ids if each.timestamp_us >= until_us]

    def collect(self, watermark_us: int) -> int | None:
        """The event time behind which ids are to be deleted now; None: later."""
        until_us = horizon_us(self._settings.slack_us, watermark_us)
        step_us = max(US_PER_SECOND, self._settings.slack_us // COLLECT_PARTS)
        if self._collected_us is not None and until_us < self._collected_us + step_us:
            return None
        self._collected_us = until_us
        return until_us

    def note_committed(self, ids: Sequence[NewId]) -> None:
        """Note that the table has these ids now."""
        for each in ids:
            self._uncommitted.pop(each.digest, None)

    def release(self) -> None:
        """Drop the filter."""
        self._counts.kept -= len(self._filter)
        self._filter = self._empty()

    def _tidy(self, watermark_us: int) -> None:
        """Drop ids behind the horizon, and go on loading."""
        until_us = horizon_us(self._settings.slack_us, watermark_us)
        self._filter.collect(until_us)
        if self._loaded is None and self._filter.is_worth_building(until_us):
            self._filter, self._loaded = self._empty(), b""
            self._filter.add(list(self._uncommitted.values()))
        if self._loaded is None:
            return
        page = self._table.read_record_ids(self._job, self._range_id, self._loaded, PAGE_IDS)
        self._filter.add(page)
        self._loaded = page[-1][0] if len(page) == PAGE_IDS else None
        if self._loaded is None:
            self._filter.note_built()

    def _known(self, digests: Sequence[bytes]) -> Collection[bytes]:
        if self._loaded is not None:
            return self._ask(digests)
        maybes = self._filter.maybes(digests)
        known = self._ask(maybes)
        self._counts.passed += len(digests) - len(maybes)
        self._counts.maybes += len(maybes)
        self._counts.false_maybes += len(maybes) - len(known)
        return known

    def _ask(self, digests: Sequence[bytes]) -> Collection[bytes]:
        asked = [digest for digest in digests if digest not in self._uncommitted]
        known = set(digests).difference(asked)
        if asked:
            known.update(self._table.known_record_ids(self._job, self._range_id, asked))
        return known

    def _empty(self) -> IdFilter:
        return IdFilter(self._settings.expected_ids, self._settings.false_positive_rate)
