"""Adapters that take ranges over in the wrong order."""

import time
from collections.abc import Mapping, Sequence

from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.job import read_range
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.memory.tokens import Tokens
from runners.millwheel.store.port import JobRow, JobSpec, TakenRange


class ReadsBeforeMovingTheToken(MemoryStore):
    """MillWheel's figure 12: what commits between the scan and the new token is overlooked."""

    def acquire(
        self,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        with self._lock:
            stored = self._job(job)
            early = {r: read_range(stored, r) for r in range_ids if r in stored.ranges}
        time.sleep(0.001)  # a round trip
        late = super().acquire(job, range_ids, owner, version, cause)
        return {
            range_id: TakenRange(
                row=taken.row,
                timers=early[range_id].timers,
                delivered=taken.delivered,
                sent=taken.sent,
                checkpoints=taken.checkpoints,
            )
            for range_id, taken in late.items()
        }


class RepeatsTokens(MemoryStore):
    """A job that was reset hands out the tokens of its former life again."""

    def open_job(self, spec: JobSpec) -> JobRow:
        with self._lock:
            if spec.job not in self._jobs:
                self._tokens = Tokens()
            return super().open_job(spec)
