"""Draft: the production of one step while it is being put together."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dataflow.io.table import TableWrite
from runners.core.ground import dead_letters
from runners.core.tables.values import size_of_rows
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.production import (
    CellWrite,
    Checkpoint,
    JournalEntry,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.worker.owned_range import OwnedRange


class _Progress(NamedTuple):
    """How far a range had come when a step ended."""

    watermark_us: int
    percentile_us: int | None
    signal_mark: SignalMark


#: What is added up when two steps become one commit, in their order; in the rest the later step replaces the earlier.
_IN_ORDER = (
    "_cells",
    "_timers",
    "_journal",
    "_late",
    "_dead",
    "_tables",
    "_afterwards",
    "checkpoints",
)
_LATER_WINS = (
    "_ranges",
    "_positions",
    "_delivered",
    "_taken_in",
    "_origins",
    "_progress",
    "_horizons_us",
)


class Draft:
    """Collects what a step does to ranges that one worker owns, and becomes one `Production`.

    Every range that is touched is fenced, and the acknowledgements in its outbox go into the production.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._ranges: dict[RangeId, OwnedRange] = {}
        self._cells: list[CellWrite] = []
        self._timers: list[TimerWrite] = []
        self._journal: list[JournalEntry] = []
        self._compacted: dict[RangeId, int] = {}
        self._late: list[LateRecord] = []
        self._dead: list[StoredDeadLetter] = []
        self._tables: list[TableWrite] = []
        self._positions: dict[RangeId, bytes] = {}
        self._finished: set[RangeId] = set()
        self._record_ids: dict[RangeId, Sequence[tuple[bytes, int]]] = {}
        self._horizons_us: dict[RangeId, int] = {}
        self._reshape: Reshape | None = None
        self._ended_handovers: set[RangeId] = set()
        self._delivered: dict[Channel, int] = {}
        self._taken_in: dict[Channel, int] = {}
        self._origins: dict[Channel, CommitMark | None] = {}
        self._progress: dict[RangeId, _Progress] = {}
        self._afterwards: list[Callable[[], None]] = []
        self.checkpoints: list[Checkpoint] = []

    def touch(self, owned: OwnedRange) -> None:
        """Fence a range."""
        self._ranges[owned.range_id] = owned

    def write(self, cells: Iterable[CellWrite], timers: Iterable[TimerWrite]) -> None:
        """Change state of touched ranges."""
        self._cells.extend(cells)
        self._timers.extend(timers)

    def note(self, owned: OwnedRange, cells: int, payload: bytes) -> None:
        """Keep what has changed in the state of a range, in that many cells."""
        self.touch(owned)
        self._journal.append(JournalEntry(owned.range_id, cells, payload))

    def compact(self, owned: OwnedRange, bundle: int) -> None:
        """Delete the entries of a range's journal up to a bundle: they are in its cells and timers now."""
        self.touch(owned)
        self._compacted[owned.range_id] = bundle

    def keep_late(self, late: Iterable[LateRecord]) -> None:
        """Keep records that came too late."""
        self._late.extend(late)

    def keep_dead(self, dead: Iterable[dead_letters.DeadLetter]) -> None:
        """Keep records that user code could not take."""
        self._dead.extend(map(StoredDeadLetter.of, dead))

    def deliver(
        self,
        channel: Channel,
        sequence: int,
        origin: CommitMark | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        """Note a channel into a touched range as delivered up to ``sequence``; durably, if that is to be kept.

        ``origin``: the sender's commit as of which that was durable, if it was.
        """
        self._taken_in[channel] = sequence
        if is_kept:
            self._delivered[channel] = sequence
            self._origins[channel] = origin

    def emit(
        self,
        tables: Iterable[TableWrite],
        payloads: Iterable[tuple[RangeId, bytes]],
        *,
        hold_us: int,
    ) -> None:
        """Write rows, and send payloads in the name of the first touched range.

        Which of the touched ranges is the sender does not matter, as long as it is fenced: it keeps the production
        until that is acknowledged, and holds its output watermark at ``hold_us`` until then.
        ``hold_us`` is the input watermark that the step had reached before (ADR 0007): nothing in the payloads is
        earlier, unless it is late already.
        """
        self._tables.extend(tables)
        sender = self._ranges[min(self._ranges)]
        for receiver, payload in payloads:
            channel = Channel(sender.range_id, receiver)
            self.checkpoints.append(sender.outbox.create(channel, hold_us, payload))

    def move(self, owned: OwnedRange, position: bytes, *, is_finished: bool) -> None:
        """Note how far a source range has read."""
        self._positions[owned.range_id] = position
        if is_finished:
            self._finished.add(owned.range_id)

    def end(self, owned: OwnedRange) -> None:
        """Note that a source range will not read on."""
        self._finished.add(owned.range_id)

    def reshape(self, reshape: Reshape) -> None:
        """Give touched ranges other bounds."""
        self._reshape = reshape

    def end_handover(self, owned: OwnedRange) -> None:
        """End the handover of a range; one that has no keys any more is retired."""
        self.touch(owned)
        self._ended_handovers.add(owned.range_id)
        if owned.keys is None:
            self._finished.add(owned.range_id)

    def remember(
        self, owned: OwnedRange, ids: Sequence[tuple[bytes, int]], horizon_us: int | None
    ) -> None:
        """Keep the ids of new records of a source range, and forget those behind a horizon, if there is one."""
        if ids:
            self._record_ids[owned.range_id] = ids
        if horizon_us is not None:
            self._horizons_us[owned.range_id] = horizon_us

    def when_committed(self, act: Callable[[], None]) -> None:
        """Call this as soon as the production is durable, and not otherwise."""
        self._afterwards.append(act)

    @property
    def nbytes(self) -> int:
        """About how many bytes it has: all that can be large."""
        written = [entry.payload for entry in self._journal]
        written += [checkpoint.payload for checkpoint in self.checkpoints]
        written += [record.payload for record in self._late]
        written += [letter.payload for letter in self._dead]
        return sum(map(len, written)) + sum(map(size_of_rows, self._tables))

    @property
    def computation(self) -> str:
        """The computation whose step it is."""
        return next(iter(self._ranges)).computation

    def seal(self) -> None:
        """End the step: how far its ranges have come until here goes with what it did."""
        for range_id, owned in self._ranges.items():
            self._progress[range_id] = _Progress(
                owned.watermark_us, owned.percentile_us, owned.signal_mark
            )

    def absorb(self, later: "Draft") -> None:
        """Add what a later step did, so that both are one commit.

        A step that changes ranges, or compacts a journal, is a commit of its own, and no earlier step may wait then.
        """
        assert not self.is_alone, "nothing may be added to a step that is a commit of its own"
        assert not later.is_alone, "steps wait before one that is a commit of its own"
        mine, theirs = vars(self), vars(later)
        for name in _IN_ORDER:
            mine[name] = [*mine[name], *theirs[name]]
        for name in _LATER_WINS:
            mine[name] = {**mine[name], **theirs[name]}
        for range_id, ids in theirs["_record_ids"].items():
            self._record_ids[range_id] = [*self._record_ids.get(range_id, ()), *ids]
        self._finished |= theirs["_finished"]

    @property
    def is_alone(self) -> bool:
        """Whether it must be a commit of its own."""
        return bool(self._reshape or self._ended_handovers or self._compacted)

    @property
    def is_acknowledged(self) -> bool:
        """Whether all that it has sent has been acknowledged."""
        return not any(map(self._is_open, self.checkpoints))

    def leave_out_acknowledged(self) -> int:
        """Leave out productions that have arrived, which need not become durable; returns how many remain."""
        self.checkpoints = [each for each in self.checkpoints if self._is_open(each)]
        return len(self.checkpoints)

    def _is_open(self, checkpoint: Checkpoint) -> bool:
        return self._ranges[checkpoint.channel.sender].outbox.is_open(checkpoint)

    def production(self) -> Production:
        """The finished value; call once, when it is sealed."""
        acknowledged: dict[Channel, int] = {}
        receipts: dict[Channel, Receipt] = {}
        for owned in self._ranges.values():
            taken = owned.outbox.take_acknowledged()
            acknowledged.update(taken)
            receipts.update(
                (each, of) for each, of in owned.outbox.receipts.items() if each in taken
            )
        return Production(
            job=self._job,
            fences=[owned.fence() for owned in self._ranges.values()],
            cells=self._cells,
            timers=self._timers,
            journal=self._journal,
            compacted=self._compacted,
            delivered=self._delivered,
            origins={channel: mark for channel, mark in self._origins.items() if mark},
            checkpoints=self.checkpoints,
            acknowledged=acknowledged,
            receipts=receipts,
            positions=self._positions,
            record_ids=self._record_ids,
            record_id_horizons_us=self._horizons_us,
            watermarks_us={
                range_id: progress.watermark_us for range_id, progress in self._progress.items()
            },
            percentiles_us={
                range_id: progress.percentile_us
                for range_id, progress in self._progress.items()
                if progress.percentile_us is not None
            },
            signal_marks={
                range_id: progress.signal_mark
                for range_id, progress in self._progress.items()
                if progress.signal_mark != self._ranges[range_id].signal_mark_committed
            },
            finished=frozenset(self._finished),
            reshape=self._reshape,
            ended_handovers=frozenset(self._ended_handovers),
            late=self._late,
            dead=self._dead,
            tables=self._tables,
        )

    def committed(self) -> None:
        """Note that the production is durable: the next one on these ranges takes the next bundle number."""
        for range_id, owned in self._ranges.items():
            owned.bundle += 1
            owned.signal_mark_committed = self._progress[range_id].signal_mark
        for channel, sequence in self._taken_in.items():
            self._ranges[channel.receiver].delivered[channel] = sequence
        for checkpoint in self.checkpoints:
            self._ranges[checkpoint.channel.sender].outbox.keep(checkpoint)
        for act in self._afterwards:
            act()
