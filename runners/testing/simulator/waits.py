"""Waits: which parts of a job wait for another one, and since when, while nothing is down that could cause it.

**Invariant** (I11): when nothing fails any more, everything that waits is done before long, and not only the job: a
range has an owner, a delivery is taken in and deleted, a split or merge is carried out, windows have fired by a signal,
and a request is answered.  A job that gets over such a wait by luck (a lease that runs out, a worker that dies) comes
to its end, and keeps people waiting all the same.
"""

from collections.abc import Collection, Iterable, Mapping

from runners.millwheel.master.master import Master
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.requests import Verb
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.errors import InvariantError

#: How often to look, in milliseconds.
_LOOK_MS = 500


class Waits:
    """The waits of one job.

    Args:
        store: where the job is.
        job: its name.
        clock: the virtual time.
        longest_ms: how long anything may wait.
    """

    def __init__(self, store: MemoryStore, job: str, clock: ManualClock, longest_ms: int) -> None:
        self._store, self._job, self._clock = store, job, clock
        self._longest_ms = longest_ms
        self._looked_ms = 0
        self._since_ms: dict[str, int] = {}

    @property
    def is_time(self) -> bool:
        """Whether to look again."""
        return self._clock.monotonic_ms() - self._looked_ms >= _LOOK_MS

    def begin_again(self) -> None:
        """Start counting anew: something is down, or was a moment ago, and what waits may wait for that."""
        self._looked_ms = self._clock.monotonic_ms()
        self._since_ms.clear()

    def look(
        self,
        master: Master,
        owned: Mapping[str, Collection[RangeId]],
        open_deliveries: Iterable[Channel],
    ) -> None:
        """Note what waits now.

        Args:
            master: of the job.
            owned: by worker that is alive, the ranges that it believes to own.
            open_deliveries: the channels with productions that are committed and not deleted.

        Raises:
            InvariantError: something has waited for too long.
        """
        now_ms = self._looked_ms = self._clock.monotonic_ms()
        job = self._store.read_job(self._job)
        assert job is not None
        waiting = [
            *_without_owner(job, owned),
            *_undelivered(job, open_deliveries),
            *_being_reshaped(job, master),
            *self._unprocessed_signals(job, master),
            *self._unanswered(),
        ]
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in waiting}
        for what, since_ms in self._since_ms.items():
            if now_ms - since_ms > self._longest_ms:
                raise InvariantError(
                    f"I11: for {now_ms - since_ms} ms {what}, and nothing has failed meanwhile"
                )

    def _unprocessed_signals(self, job: JobRow, master: Master) -> Iterable[str]:
        listening = master._signals._listening  # noqa: SLF001 - the simulator sees everything
        for number, name in self._store.read_signals(self._job, 0):
            for range_id in listening:
                row = job.ranges.get(range_id)
                if row is not None and row.signal_mark.number < number:
                    yield f"{range_id} has not processed signal {number}, {name!r}"

    def _unanswered(self) -> Iterable[str]:
        for each in self._store.read_requests(self._job, 0):
            if each.answer is None and each.request.verb is not Verb.DRAIN:
                yield f"there is no answer to request {each.number}, to {each.request}"


def _without_owner(job: JobRow, owned: Mapping[str, Collection[RangeId]]) -> Iterable[str]:
    for range_id, row in job.ranges.items():
        if not row.is_retired and range_id not in owned.get(row.owner or "", ()):
            yield f"{range_id} has no worker"


def _undelivered(job: JobRow, channels: Iterable[Channel]) -> Iterable[str]:
    """Deliveries that are not taken in and deleted, with the bundle of the receiver, which shows whether it works."""
    for sender, receiver in channels:
        row = job.ranges.get(receiver)
        bundle = 0 if row is None else row.bundle
        yield f"what {sender} has sent is not delivered and deleted, and {receiver} is at bundle {bundle}"


def _being_reshaped(job: JobRow, master: Master) -> Iterable[str]:
    for asked in master._shapes.asked.values():  # noqa: SLF001 - the simulator sees everything
        yield f"{asked} is asked for"
    for range_id, row in job.ranges.items():
        if row.handover_with is not None and not row.is_retired:
            yield f"{range_id} is in handover with {row.handover_with}"
