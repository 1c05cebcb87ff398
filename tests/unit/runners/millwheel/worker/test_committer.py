"""Committer: a worker that cannot go on says why, also what the commit was answered with before it was looked up."""

import pytest

from runners.millwheel.ids import RangeId
from runners.millwheel.production import Production
from runners.millwheel.store.memory import MemoryStore
from runners.millwheel.store.port import CommitOutcome, Fenced, Indeterminate
from runners.millwheel.worker.committer import Committer, WorkerStoppedError
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.delivery import Outbox
from runners.millwheel.worker.draft import Draft
from runners.millwheel.worker.owned_range import OwnedRange
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock

RANGE = RangeId("sum", 0)
CUT = Indeterminate("connection not in pipeline mode")


class SayingStore(MemoryStore):
    """Answers as it is told."""

    def __init__(self, committed: CommitOutcome, resolved: CommitOutcome) -> None:
        super().__init__()
        self._committed, self._resolved = committed, resolved

    def commit(self, production: Production) -> CommitOutcome:
        return self._committed

    def resolve(self, production: Production) -> CommitOutcome:
        return self._resolved


@pytest.mark.parametrize(
    ("committed", "resolved", "said"),
    [
        (Fenced(RANGE), Fenced(RANGE), [r"sum\[0\] is not this worker's"]),
        (CUT, Fenced(RANGE), [r"sum\[0\] is not this worker's", "connection not in pipeline mode"]),
        (CUT, Indeterminate("no route"), ["no route", "connection not in pipeline mode"]),
    ],
)
def test_the_reason_of_every_failed_commit_is_said(
    committed: CommitOutcome, resolved: CommitOutcome, said: list[str]
) -> None:
    clock = ManualClock()
    owned = OwnedRange(
        range_id=RANGE, token=1, bundle=0, outbox=Outbox((), {}), delivered={}, watermark_us=0
    )
    courier = Courier({RANGE: owned}, LocalNetwork().endpoint("w"), clock)
    committer = Committer("w", SayingStore(committed, resolved), courier, clock, {})
    draft = Draft("job")
    draft.touch(owned)

    for words in said:
        with pytest.raises(WorkerStoppedError, match=words):
            committer.commit(draft)
