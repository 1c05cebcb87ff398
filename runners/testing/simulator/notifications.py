"""Notifications: what readers were notified of, against what was committed.

**Invariants** (I6): no reader is notified of a position before that is committed, nor of an earlier one than before;
and at the end somebody was notified of where each split is.
"""

from collections import defaultdict
from typing import Any

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.places import encode_position
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.polls import Polls


class Notifications:
    """The notifications of one job.

    Args:
        store: where the job is, or a part of it already.
        job: its name.
        polls: of the job.
    """

    def __init__(self, store: MemoryStore, job: str, polls: Polls) -> None:
        self._store, self._job, self._polls = store, job, polls
        #: The positions of each split that were ever committed, in their order; one that is committed again, by a store
        #: that had gone back, in the order of the last time.
        self._committed: dict[RangeId, list[bytes]] = defaultdict(list)
        self._notified: dict[tuple[str, RangeId], bytes] = {}
        found = store.read_job(job)
        for range_id, row in () if found is None else found.ranges.items():
            if row.position is not None:
                self._committed[range_id].append(row.position)

    def committed(self, production: Production) -> None:
        """Note the positions of a production that is durable.

        Args:
            production: what was committed.
        """
        for range_id, position in production.positions.items():
            known = self._committed[range_id]
            if position in known:
                known.remove(position)
            known.append(position)

    def notified(self, reader: str, read: str, split: Any, position: Any) -> None:
        """Note that a reader was notified.

        Args:
            reader: unique among the readers, or the workers that read each split once.
            read: the name of the computation that reads the source.
            split: as the source made it.
            position: what is durable.

        Raises:
            InvariantError: it is not, or the reader was further.
        """
        blob = encode_position(position)
        for range_id in self._polls.ranges_with(read, split):
            known = self._committed[range_id]
            if blob not in known:
                raise InvariantError(
                    f"I6: {reader} was notified of position {position!r} of {range_id}, which is not committed"
                )
            before = self._notified.get((reader, range_id), blob)
            if known.index(blob) < known.index(before):
                raise InvariantError(
                    f"I6: {reader} was notified of position {position!r} of {range_id} after a later one"
                )
            self._notified[reader, range_id] = blob

    def check_end(self) -> None:
        """Check that somebody was notified of where each split is.

        Raises:
            InvariantError: nobody was.
        """
        found = self._store.read_job(self._job)
        for range_id, row in () if found is None else sorted(found.ranges.items()):
            if row.split is None or row.position is None:
                continue
            known = self._committed[range_id]
            notified = [blob for (_, each), blob in self._notified.items() if each == range_id]
            if known.index(row.position) > max(map(known.index, notified), default=-1):
                raise InvariantError(f"I6: nobody was notified of where {range_id} is in the end")
