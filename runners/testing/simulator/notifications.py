"""Notifications: what readers were notified of, against what was committed.

**Invariants** (I6): no reader is notified of a position before that is committed, nor of an earlier one than before;
and at the end somebody was notified of where each split is, or tried to be.
"""

from collections import Counter, defaultdict
from typing import Any

from runners.errors import StoredFormatError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.places import decode_position
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.polls import Polls

#: A reader that has tried so often has not given up; the job may end before it tries again.
_TRIES = 2


class Notifications:
    """The notifications of one job.

    Args:
        store: where the job is, or a part of it already.
        job: its name.
        polls: of the job.
    """

    def __init__(self, store: MemoryStore, job: str, polls: Polls) -> None:
        self._store, self._job, self._polls = store, job, polls
        #: Whether the store was at an earlier moment once: in which order readers are notified is open from then on.
        self.has_gone_back = False
        #: The positions of each split that were ever committed, in their order; one that is committed again, by a store
        #: that had gone back, in the order of the last time.
        #: As text, because the bytes of a position depend on the stored format.
        self._committed: dict[RangeId, list[str]] = defaultdict(list)
        self._notified: dict[tuple[str, RangeId], str] = {}
        #: Splits that a backfill has read to their end, which no reader opens any more.
        self._finished = set[RangeId]()
        #: Positions of which somebody was to be notified whose system did not answer.
        self._tried = Counter[tuple[RangeId, str]]()
        found = store.read_job(job)
        for range_id, row in () if found is None else found.ranges.items():
            if row.position is not None:
                self._committed[range_id].append(_text(row.position))
            if row.is_finished:
                self._finished.add(range_id)

    def committed(self, production: Production) -> None:
        """Note the positions of a production that is durable.

        Args:
            production: what was committed.
        """
        for range_id, blob in production.positions.items():
            known, position = self._committed[range_id], _text(blob)
            if position in known:
                known.remove(position)
            known.append(position)

    def notified(self, reader: str, read: str, split: Any, position: Any) -> None:
        """Note that a reader was notified.

        Args:
            reader: unique among the readers of a split.
            read: the name of the computation that reads the source.
            split: as the source made it.
            position: what is durable.

        Raises:
            InvariantError: it is not, or the reader was further.
        """
        text = repr(position)
        for range_id in self._polls.ranges_with(read, split):
            known = self._committed[range_id]
            if text not in known:
                raise InvariantError(
                    f"I6: {reader} was notified of position {position!r} of {range_id}, which is not committed"
                )
            before = self._notified.get((reader, range_id), text)
            if known.index(text) < known.index(before) and not self.has_gone_back:
                raise InvariantError(
                    f"I6: {reader} was notified of position {position!r} of {range_id} after a later one"
                )
            self._notified[reader, range_id] = text

    def tried(self, read: str, split: Any, position: Any) -> None:
        """Note that a reader could not acknowledge a position; if the job ends then, nobody tries again.

        Args:
            read: the name of the computation that reads the source.
            split: as the source made it.
            position: what is durable.
        """
        for range_id in self._polls.ranges_with(read, split):
            self._tried[range_id, repr(position)] += 1

    def check_end(self) -> None:
        """Check that somebody was notified of where each split is.

        Raises:
            InvariantError: nobody was.
        """
        found = None if self.has_gone_back else self._store.read_job(self._job)
        for range_id, row in () if found is None else sorted(found.ranges.items()):
            if row.split is None or row.position is None or range_id in self._finished:
                continue
            known = self._committed[range_id]
            if self._tried[range_id, _text(row.position)] >= _TRIES:
                continue
            notified = [text for (_, each), text in self._notified.items() if each == range_id]
            if known.index(_text(row.position)) > max(map(known.index, notified), default=-1):
                raise InvariantError(f"I6: nobody was notified of where {range_id} is in the end")


def _text(blob: bytes) -> str:
    try:
        return repr(decode_position(blob))
    except StoredFormatError:
        # The mark of a backfill that is under way, of which nobody is notified.
        return repr(blob)
