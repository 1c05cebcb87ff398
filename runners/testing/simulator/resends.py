"""Resends: whether what is committed and not delivered is sent again, while both of its ends are there.

**Invariant** (I11): a worker that owns a range, and knows who owns the receiver, sends the range's undelivered
productions again at intervals, whatever became of the last attempt.  It is checked as it happens: a job in which a
worker has given up may get over that by luck (a lease that runs out, a range that moves).
"""

from collections.abc import Iterable, Mapping

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.store.port import RangeRow
from runners.millwheel.worker.courier import RESEND_INTERVAL_MS
from runners.testing.manual_clock import ManualClock
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.process import WorkerProcess

#: Clocks of workers are up to twice as slow as the true one.
_LONGEST_MS = 3 * RESEND_INTERVAL_MS
#: How often to look.
_LOOK_MS = 500


class Resends:
    """The attempts to deliver of one job.

    Args:
        clock: the virtual time.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._looked_ms = 0
        self._sent_ms: dict[Channel, int] = {}
        #: By channel with something undelivered: the workers at both ends, and since when it has been these.
        self._since_ms: dict[Channel, tuple[str, str, int]] = {}

    @property
    def is_time(self) -> bool:
        """Whether to look again."""
        return self._clock.monotonic_ms() - self._looked_ms >= _LOOK_MS

    def sent(self, channel: Channel) -> None:
        """Note an attempt; it need not arrive."""
        self._sent_ms[channel] = self._clock.monotonic_ms()

    def begin_again(self) -> None:
        """Start counting anew: workers may not know yet what the store has."""
        self._since_ms.clear()

    def look(
        self,
        channels: Iterable[Channel],
        rows: Mapping[RangeId, RangeRow],
        processes: Mapping[str, WorkerProcess],
    ) -> None:
        """Note who is to deliver what now.

        Args:
            channels: those with productions that are committed and not delivered.
            rows: the ranges, as they are in the store.
            processes: those that can do something now, by name.

        Raises:
            InvariantError: a worker sends no more what it has to send.
        """
        now_ms = self._looked_ms = self._clock.monotonic_ms()
        before, self._since_ms = self._since_ms, {}
        for channel in channels:
            sender, receiver = (rows[each].owner if each in rows else None for each in channel)
            process = processes.get(sender or "")
            if process is None or receiver is None or not _can_send(process, channel, receiver):
                continue
            who, whom, since_ms = before.get(channel, (sender, receiver, now_ms))
            if (who, whom) != (sender, receiver):
                since_ms = now_ms
            self._since_ms[channel] = process.name, receiver, since_ms
            last_ms = max(since_ms, self._sent_ms.get(channel, 0))
            if (worked_ms := process.stepped_before_ms - last_ms) > _LONGEST_MS:
                raise InvariantError(
                    f"I11: {process.name} has worked for {worked_ms} ms without sending again "
                    f"what {channel.sender} has for {channel.receiver}"
                )


def _can_send(process: WorkerProcess, channel: Channel, receiver: str) -> bool:
    worker = process.worker
    if worker is None or process.name == receiver:
        return False
    routes = worker._courier._routes  # noqa: SLF001 - the simulator sees everything
    return channel.sender in worker._ranges and routes.get(channel.receiver) == receiver  # noqa: SLF001 - as above
