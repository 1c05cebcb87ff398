"""Deduplication of a read's records: which of a batch are new, duplicates, or too late to be deduplicated.

Pure: the caller keeps the ids that were seen before, is called once for each batch, and stores the new ids in the same
commit as the effects of their records.

**Invariants**

* Of all records of a split with one id, at most one is new.
* A record behind the horizon is neither new nor a duplicate, whatever its id: it is late.
* Ids are deleted only behind the horizon, where no record is compared with them any more.

MillWheel, section 6.1.1.
"""

from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import attrs

from dataflow.errors import KeyEncodingError, TransformError
from dataflow.graph import Read, TransformNode
from dataflow.record_ids import record_digest
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import LateArrival, LateElement
from runners.core.ground.dead_letters import DeadLetter, dead_letter
from runners.core.ground.element_text import shown
from windowing.errors import error_text
from windowing.window import GLOBAL_WINDOW, Window

#: Returns which of some digests have been seen in the split; it gets each digest once.
Known = Callable[[Sequence[bytes]], Collection[bytes]]


class NewId(NamedTuple):
    """The stored id of a new record: the digest of the id, and the event time of the record in microseconds."""

    digest: bytes
    timestamp_us: int


@attrs.frozen(kw_only=True)
class Deduplicated:
    """A batch after deduplication.

    Attributes:
        bundle: the records that are new, in their order.
        ids: their ids, to be stored.
        duplicates: the number of duplicates.
        late: records behind the horizon.
        dead: records without an id.
    """

    bundle: Bundle
    ids: Sequence[NewId]
    duplicates: int
    late: Sequence[LateArrival]
    dead: Sequence[DeadLetter]


def horizon_us(slack_us: int, watermark_us: int) -> int:
    """The event time behind which ids of a split may be deleted.

    Args:
        slack_us: how long ids are kept behind the watermark, in microseconds.
        watermark_us: that of the split, in microseconds.
    """
    return watermark_us - slack_us


class Deduplicator:
    """Deduplicates the batches of one read.

    Args:
        node: the read; it has record ids.
        tries: how often to try a record whose id cannot be computed, before it is a dead letter; None: the first
            failure is raised.
    """

    def __init__(self, node: TransformNode, *, tries: int | None = None) -> None:
        operation = node.operation
        assert isinstance(operation, Read)
        assert operation.record_ids is not None
        self._node, self._tries, self.settings = node, tries, operation.record_ids

    def deduplicate(self, bundle: Bundle, known: Known, *, watermark_us: int) -> Deduplicated:
        """Deduplicate a batch that was read, before it has any effect.

        Args:
            bundle: what the source returned.
            known: returns which ids have been seen before; called at most once.
            watermark_us: that of the split before the batch, in microseconds.

        Raises:
            TransformError: a record has no id, and there are no tries.
        """
        ids, dead = self._ids(bundle)
        until_us = horizon_us(self.settings.slack_us, watermark_us)
        late, first = [], dict[bytes, int]()
        for index, record_id, digest in ids:
            if bundle.timestamps_us[index] < until_us:
                late.append(_late(bundle, index, record_id, watermark_us))
            else:
                first.setdefault(digest, index)
        seen = known(list(first)) if first else ()
        new = [(digest, index) for digest, index in first.items() if digest not in seen]
        indexes = [index for _, index in new]
        is_all = len(indexes) == len(bundle)
        return Deduplicated(
            bundle=bundle
            if is_all
            else bundle.take(indexes, [bundle.values[index] for index in indexes]),
            ids=[NewId(digest, bundle.timestamps_us[index]) for digest, index in new],
            duplicates=len(ids) - len(late) - len(new),
            late=late,
            dead=dead,
        )

    def _ids(self, bundle: Bundle) -> tuple[list[tuple[int, Any, bytes]], list[DeadLetter]]:
        """Index, id and digest of the records that have an id, and dead letters for those that have none."""
        try:
            record_ids = list(map(self.settings.of, bundle.values))
            digests = list(map(record_digest, record_ids))
            return list(zip(range(len(bundle)), record_ids, digests, strict=True)), []
        except Exception:  # noqa: BLE001 - which record it was, and what it was, is seen one by one
            return self._ids_one_by_one(bundle)

    def _ids_one_by_one(
        self, bundle: Bundle
    ) -> tuple[list[tuple[int, Any, bytes]], list[DeadLetter]]:
        ids, dead = list[tuple[int, Any, bytes]](), []
        for index, value in enumerate(bundle.values):
            for attempt in range(1, (self._tries or 1) + 1):
                try:
                    ids.append((index, *self._id(value)))
                    break
                except TransformError as error:
                    if self._tries is None:
                        raise
                    if attempt == self._tries:
                        dead.append(self._dead(error, bundle, index))
        return ids, dead

    def _id(self, value: Any) -> tuple[Any, bytes]:
        try:
            record_id = self.settings.of(value)
            return record_id, record_digest(record_id)
        except KeyEncodingError as error:
            raise TransformError(
                f"{self._node}: {error.fact}",
                detail=f"{error.detail}; record: {shown(value)}",
                hint=error.hint,
            ) from error
        except Exception as error:
            raise TransformError(
                f"{self._node} cannot get the id of a record: {type(error).__name__}: {error_text(error)}",
                detail=f"record: {shown(value)}",
                hint="correct the function of record_ids, or what it is given",
            ) from error

    def _dead(self, error: TransformError, bundle: Bundle, index: int) -> DeadLetter:
        assert self._tries is not None
        return dead_letter(
            error,
            stage=self._node.label,
            element=bundle.values[index],
            timestamp_us=bundle.timestamps_us[index],
            window=GLOBAL_WINDOW,
            sign=+1,
            tries=self._tries,
        )


def _late(bundle: Bundle, index: int, record_id: Any, watermark_us: int) -> LateArrival:
    timestamp_us, value = bundle.timestamps_us[index], bundle.values[index]
    # The record is in no window yet: its own event time shows how late it is.
    return LateArrival(
        key=record_id,
        window=Window(timestamp_us, timestamp_us + 1),
        accumulator=value,
        count=1,
        watermark_us=watermark_us,
        record=LateElement(value, timestamp_us, +1),
        is_keyed=False,
    )


class SplitIds:
    """A deduplicator with the ids of one split in memory, for engines whose state is lost when they stop.

    Args:
        deduplicator: of the read.
    """

    def __init__(self, deduplicator: Deduplicator) -> None:
        self._deduplicator = deduplicator
        self._digests: set[bytes] = set()
        self._by_time: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._digests)

    def kept(self, watermark_us: int) -> list[NewId]:
        """The ids that a record may still be compared with when the split's watermark is here, in microseconds."""
        until_us = horizon_us(self._deduplicator.settings.slack_us, watermark_us)
        return sorted(NewId(digest, at) for at, digest in self._by_time if at >= until_us)

    def deduplicate(self, bundle: Bundle, watermark_us: int) -> Deduplicated:
        """Delete ids behind the horizon, deduplicate a batch that was read, and remember the new ids.

        Args:
            bundle: what the source returned.
            watermark_us: that of the split before the batch, in microseconds.
        """
        until_us = horizon_us(self._deduplicator.settings.slack_us, watermark_us)
        while self._by_time and self._by_time[0][0] < until_us:
            self._digests.discard(heappop(self._by_time)[1])
        deduplicated = self._deduplicator.deduplicate(
            bundle, self._digests.intersection, watermark_us=watermark_us
        )
        for each in deduplicated.ids:
            self._digests.add(each.digest)
            heappush(self._by_time, (each.timestamp_us, each.digest))
        return deduplicated
