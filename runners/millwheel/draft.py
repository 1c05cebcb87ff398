"""Draft: the production of one step while it is being put together."""

from collections.abc import Iterable, Mapping

from dataflow.io.table import TableWrite
from runners.core import poison
from runners.millwheel.ids import Channel, RangeId
from runners.millwheel.owned_range import OwnedRange
from runners.millwheel.production import (
    CellWrite,
    Checkpoint,
    DeadLetter,
    LateRecord,
    Production,
    TimerWrite,
)


class Draft:
    """Collects what a step does to ranges that one worker owns, and becomes one `Production`.

    Every range that is touched is fenced, and hands over the acknowledgements it holds.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._ranges: dict[RangeId, OwnedRange] = {}
        self._cells: list[CellWrite] = []
        self._timers: list[TimerWrite] = []
        self._late: list[LateRecord] = []
        self._dead: list[DeadLetter] = []
        self._tables: list[TableWrite] = []
        self._positions: dict[RangeId, bytes] = {}
        self._finished: set[RangeId] = set()
        self._delivered: dict[Channel, int] = {}
        self.checkpoints: list[Checkpoint] = []

    def touch(self, owned: OwnedRange) -> None:
        """Fence a range."""
        self._ranges[owned.range_id] = owned

    def write(self, cells: Iterable[CellWrite], timers: Iterable[TimerWrite]) -> None:
        """Change state of touched ranges."""
        self._cells.extend(cells)
        self._timers.extend(timers)

    def keep_late(self, late: Iterable[LateRecord]) -> None:
        """Keep records that came too late."""
        self._late.extend(late)

    def keep_dead(self, dead: Iterable[poison.DeadLetter]) -> None:
        """Keep records that user code could not take."""
        self._dead.extend(
            DeadLetter(
                stage=letter.stage,
                error=letter.error,
                traceback=letter.traceback,
                tries=letter.tries,
                timestamp_us=letter.timestamp_us,
                payload=poison.dead_payload(letter),
            )
            for letter in dead
        )

    def deliver(self, channel: Channel, sequence: int) -> None:
        """Note a channel into a touched range as delivered up to ``sequence``."""
        self._delivered[channel] = sequence

    def emit(
        self, tables: Iterable[TableWrite], payloads: Mapping[RangeId, bytes], *, hold_us: int
    ) -> None:
        """Write rows, and send payloads in the name of the first touched range.

        Whose name does not matter, as long as the range is fenced: it keeps the production until
        it is acknowledged, and
        holds its output watermark at ``hold_us`` until then.
        That is what the step had acted on before: nothing in the payloads is earlier, unless it is late already.
        """
        self._tables.extend(tables)
        sender = self._ranges[min(self._ranges)]
        for receiver, payload in payloads.items():
            channel = Channel(sender.range_id, receiver)
            self.checkpoints.append(sender.outbox.create(channel, hold_us, payload))

    def move(self, owned: OwnedRange, position: bytes, *, is_finished: bool) -> None:
        """Note how far a source range has read."""
        self._positions[owned.range_id] = position
        if is_finished:
            self._finished.add(owned.range_id)

    def production(self) -> Production:
        """The finished value; call once."""
        acknowledged: dict[Channel, int] = {}
        for owned in self._ranges.values():
            acknowledged.update(owned.outbox.take_acknowledged())
        return Production(
            job=self._job,
            fences=[owned.fence() for owned in self._ranges.values()],
            cells=self._cells,
            timers=self._timers,
            delivered=self._delivered,
            checkpoints=self.checkpoints,
            acknowledged=acknowledged,
            positions=self._positions,
            watermarks_us={
                range_id: owned.watermark_us for range_id, owned in self._ranges.items()
            },
            percentiles_us={
                range_id: owned.percentile_us
                for range_id, owned in self._ranges.items()
                if owned.percentile_us is not None
            },
            signal_marks={
                range_id: owned.signal_mark
                for range_id, owned in self._ranges.items()
                if owned.signal_mark != owned.signal_mark_committed
            },
            finished=frozenset(self._finished),
            late=self._late,
            dead=self._dead,
            tables=self._tables,
        )

    def committed(self) -> None:
        """The production is durable: the next one on these ranges takes the next bundle number."""
        for owned in self._ranges.values():
            owned.bundle += 1
            owned.signal_mark_committed = owned.signal_mark
