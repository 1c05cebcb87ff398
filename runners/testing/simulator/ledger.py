"""Ledger: checks every commit of a job against all those before it, with records of its own.

It trusts neither the workers nor the store: what it needs to know of the past it has recorded itself.  The names of
the invariants are those of `docs/how-to/break-your-pipeline.md`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from dataflow.graph import Read
from runners.core.partials.folding import combiners_of
from runners.core.partials.partial import Partial
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.cell_codec import decode_cell_id
from runners.millwheel.model.guarantees import BOTH, Guarantees
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.key_range import KeyMap
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.memory.job import has_committed
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import RangeRow
from runners.millwheel.wire.messages import Acknowledge, Deliver
from runners.stored.partials import Combiners, decode_partials
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.panes import PaneLog
from runners.testing.simulator.parts import replace
from runners.testing.simulator.polls import Polls
from triggers.windowing_strategy import WindowingStrategy
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_IDS_MAX = 1 << 40


class _Pending(NamedTuple):
    """A production on its way.

    Attributes:
        expiry_us: when the first window expires that it is about.
        open_us: when those expire that had not when it was made, in their order, and that event time was not found to
            have passed, rightly, while it was on its way.
    """

    expiry_us: int
    open_us: Sequence[int]

    @property
    def next_expiry_us(self) -> int:
        """When the first of those expires."""
        return self.open_us[0] if self.open_us else MAX_TIMESTAMP_US

    def passed(self, watermark_us: int) -> "_Pending":
        """The production once it is known that event time could not but pass it."""
        return self._replace(open_us=[each for each in self.open_us if each > watermark_us])


Before = Mapping[RangeId, RangeRow]


class Ledger:
    """The ledger of one job.

    Args:
        store: where the job is.
        job: its name.
        plan: the pipeline.
        panes: receives the panes that are committed.
        guarantees: of computations that do without some.
    """

    def __init__(
        self,
        store: MemoryStore,
        job: str,
        plan: ExecutionPlan,
        panes: PaneLog,
        guarantees: Mapping[str, Guarantees],
    ) -> None:
        self._guarantees = guarantees
        self._store, self._job, self._plan, self._panes = store, job, plan, panes
        self._bundles: dict[RangeId, int] = defaultdict(int)
        self._tokens: dict[RangeId, int] = defaultdict(int)
        self._watermarks_us: dict[RangeId, int] = {}
        self._percentiles_us: dict[RangeId, int] = {}
        self._firing_us: dict[RangeId, int] = {}
        self._marks: dict[RangeId, SignalMark] = {}
        self._delivered: dict[Channel, int] = defaultdict(int)
        self._sent: dict[Channel, int] = defaultdict(int)
        self._payloads: dict[tuple[Channel, int], bytes] = {}
        #: Committed and not delivered: by channel, then sequence; when the first window that it is about expires.
        self._open: dict[Channel, dict[int, _Pending]] = defaultdict(dict)
        #: The furthest input watermark that any master has had.
        self._inputs_us: dict[str, int] = {}
        #: Committed and not deleted: the sequences of each channel.
        self._kept: dict[Channel, set[int]] = defaultdict(set)
        self._retired: set[RangeId] = set()
        #: The payload of every production that was ever made.
        self._made: dict[tuple[Channel, int], _Pending] = {}
        #: Computations whose part of the store has gone back by itself.
        self._torn: set[str] = set()
        self._strategies, self._combiners = _strategies(plan), _combiners(plan)
        self._record_ids: dict[RangeId, dict[bytes, int]] = defaultdict(dict)
        self._is_merging: dict[str, bool] = {}
        self.commits = 0
        self._inherit()

    def _inherit(self) -> None:
        """Take the contents of a job that exists already to be right."""
        job = self._store.read_job(self._job)
        for table in () if job is None else self._plan.graph.tables():
            self._panes.add(table, self._store.read_table(table))
        for range_id, row in ({} if job is None else job.ranges).items():
            self._bundles[range_id], self._tokens[range_id] = row.bundle, row.token
            self._marks[range_id] = row.signal_mark
            if row.watermark_us is not None:
                self._watermarks_us[range_id] = row.watermark_us
            if row.percentile_us is not None:
                self._percentiles_us[range_id] = row.percentile_us
            if row.firing_us is not None:
                self._firing_us[range_id] = row.firing_us
            ids = self._store.read_record_ids(self._job, range_id, b"", _IDS_MAX)
            self._record_ids[range_id].update(ids)

    def before(self, production: Production) -> Before:
        """The ranges that a production changes, as they are in the store."""
        job = self._store.read_job(self._job)
        ranges = {} if job is None else job.ranges
        fenced = [fence.range_id for fence in production.fences]
        return {range_id: ranges[range_id] for range_id in fenced if range_id in ranges}

    def updated(self, plan: ExecutionPlan, kept: Collection[str]) -> None:
        """Go over to another pipeline of the job.

        Args:
            plan: the next pipeline.
            kept: the computations that go on, under the names that they have in it.
        """
        for known in (
            self._bundles,
            self._tokens,
            self._watermarks_us,
            self._percentiles_us,
            self._firing_us,
            self._marks,
            self._record_ids,
        ):
            for range_id in [each for each in known if each.computation not in kept]:
                del known[range_id]
        for channels in (self._delivered, self._sent, self._open, self._kept):
            for channel in [each for each in channels if not _is_between(kept, each)]:
                del channels[channel]
        self._payloads = {
            place: payload
            for place, payload in self._payloads.items()
            if _is_between(kept, place[0])
        }
        self._plan, self._is_merging = plan, {}
        self._strategies, self._combiners = _strategies(plan), _combiners(plan)

    def go_back(self, name: str, then: Mapping[str, Any]) -> None:
        """Take the store's part of a computation to be as it was at an earlier moment.

        Args:
            name: of the computation.
            then: the attributes of the ledger at that moment, by name; not shared.
        """

        def is_range(range_id: RangeId) -> bool:
            return range_id.computation == name

        def is_sent(channel: Channel) -> bool:
            return is_range(channel.sender)

        for book in (
            *("_bundles", "_tokens", "_watermarks_us", "_percentiles_us", "_firing_us", "_marks"),
            "_record_ids",
        ):
            replace(vars(self)[book], then[book], is_range)
        for book in ("_sent", "_kept"):
            replace(vars(self)[book], then[book], is_sent)
        replace(self._delivered, then["_delivered"], lambda channel: is_range(channel.receiver))
        for channel in {channel for channel, _ in self._made}:
            if name in (channel.sender.computation, channel.receiver.computation):
                numbers = range(self._delivered[channel] + 1, self._sent[channel] + 1)
                self._open[channel] = {each: self._made[channel, each] for each in numbers}
        self._torn.add(name)

    def applied(self, production: Production, before: Before) -> None:
        """Check a production that was committed, and note it.

        Args:
            production: what was committed.
            before: the ranges that it changes, as they were in the store before.

        Raises:
            InvariantError: it should not have been, or not like this.
        """
        self.commits += 1
        self._check_fences(production, before)
        self._check_news(production, before)
        self._check_progress(production)
        self._check_senders(production)
        self._check_ranges(before)
        self._check_deliveries(production)
        self._check_addresses(production)
        self._check_record_ids(production)
        for write in production.tables:
            self._panes.add(write.table, write.inserts)

    @property
    def undelivered(self) -> Iterable[Channel]:
        """The channels with productions that are committed and not delivered, where nothing was lost meanwhile."""
        return [
            channel
            for channel, pending in self._open.items()
            if pending and self._torn.isdisjoint(each.computation for each in channel)
        ]

    @property
    def open_deliveries(self) -> Iterable[Channel]:
        """The channels with productions that are committed, and not delivered or not deleted."""
        return [channel for channel, kept in self._kept.items() if kept]

    def sent(self, delivery: Deliver) -> None:
        """A production is sent.

        Raises:
            InvariantError: I9, it is not durable, or not what is durable.
        """
        sender = delivery.channel.sender
        if not self._guarantees.get(sender.computation, BOTH).strong_productions:
            return
        if sender.computation in self._torn and not self._has_made(sender, delivery.origin):
            return  # sent by a worker that does not know yet that it is gone
        known = self._payloads.get((delivery.channel, delivery.sequence))
        if known != delivery.payload:
            what = "is not durable" if known is None else "says something else than before"
            raise InvariantError(
                f"I9: production {delivery.sequence} of {_shown(delivery.channel)} is sent and {what}"
            )

    def acknowledged(self, message: Acknowledge) -> None:
        """A production is acknowledged, so that its sender deletes it.

        Raises:
            InvariantError: I8, the receiver has not committed what it has done with it, and may still lose it.
        """
        channel, sequence = message.channel, message.sequence
        if not self._counts_once((channel, sequence)):
            return
        if not self._torn.isdisjoint(each.computation for each in channel):
            return  # sent by a worker that does not know yet that it is gone
        if sequence > self._delivered[channel]:
            raise InvariantError(
                f"I8: production {sequence} of {_shown(channel)} is acknowledged, but only {self._delivered[channel]} "
                "are delivered"
            )

    def on_watermarks(
        self, inputs_us: Mapping[str, int], polls: Polls, *, can_be_late: bool
    ) -> None:
        """The master has accepted these input watermarks.

        What a production holds back (`Checkpoint.min_timestamp_us`) may be earlier: a new owner does not know how far
        the last one had come.  What is in it may not, unless it was late already when it was made.

        Args:
            inputs_us: by computation.
            polls: know which split may have been taken for idle when it was not any more.
            can_be_late: whether a source goes back behind its watermark, or comes back from a silence.

        Raises:
            InvariantError: I4, a window has expired for which there is something on its way.
        """
        for name, input_us in inputs_us.items():
            self._inputs_us[name] = max(input_us, self._inputs_us.get(name, input_us))
        for channel, pending in self._open.items():
            if not self._torn.isdisjoint(each.computation for each in channel):
                continue  # the watermark of then is gone, and is seen in what the job emits
            known_us = inputs_us.get(channel.receiver.computation, MIN_TIMESTAMP_US)
            for sequence, each in pending.items():
                expiry_us = each.next_expiry_us if can_be_late else each.expiry_us
                if expiry_us > known_us:
                    continue
                if can_be_late and polls.may_be_unreported(channel.sender):
                    # A watermark does not go back: later, when the silence is long over, this is still no mistake.
                    pending[sequence] = each.passed(known_us)
                else:
                    raise InvariantError(
                        f"I4: the input watermark of {channel.receiver.computation} is {known_us} us, but production "
                        f"{sequence} of {_shown(channel)} is not delivered, and its window expires at {expiry_us} us"
                    )

    def _check_fences(self, production: Production, before: Before) -> None:
        for fence in production.fences:
            range_id, row = fence.range_id, before[fence.range_id]
            if (row.token, row.bundle) != (fence.token, fence.bundle - 1):
                raise InvariantError(
                    f"I6: bundle {fence.bundle} under token {fence.token} was committed on {range_id}, "
                    f"which was at bundle {row.bundle} under token {row.token}"
                )
            if fence.bundle != self._bundles[range_id] + 1 or fence.token < self._tokens[range_id]:
                raise InvariantError(
                    f"I6: {range_id} went from bundle {self._bundles[range_id]}, token {self._tokens[range_id]} "
                    f"to bundle {fence.bundle}, token {fence.token}"
                )
            self._bundles[range_id], self._tokens[range_id] = fence.bundle, fence.token

    def _check_ranges(self, before: Before) -> None:
        job = self._store.read_job(self._job)
        assert job is not None
        for range_id in before:
            handover_with = job.ranges[range_id].handover_with
            if (
                handover_with is not None
                and job.ranges[handover_with].owner != job.ranges[range_id].owner
            ):
                raise InvariantError(
                    f"I6: {range_id} and {handover_with} are in handover, and have two owners"
                )
        for name in {each.computation for each in before} & self._strategies.keys():
            keys = {
                each: row.keys
                for each, row in job.ranges.items()
                if each.computation == name and row.keys is not None
            }
            if not KeyMap(keys).is_whole:
                raise InvariantError(f"I6: the ranges of {name} are {keys}")

    def _check_news(self, production: Production, before: Before) -> None:
        """Refuse commits of a worker that has nothing to do: else every idle job would keep its store busy."""
        content = attrs.asdict(production, recurse=False)
        progress = "watermarks_us", "percentiles_us", "firing_us", "signal_marks"
        for name in ("job", "fences", *progress):
            del content[name]
        is_further = any(
            value != getattr(before[range_id], name)
            for name, values in (
                ("watermark_us", production.watermarks_us),
                ("percentile_us", production.percentiles_us),
                ("firing_us", production.firing_us),
                ("signal_mark", production.signal_marks),
            )
            for range_id, value in values.items()
        )
        moved = {
            each: at for each, at in production.positions.items() if at != before[each].position
        }
        if not is_further and not any({**content, "positions": moved}.values()):
            names = ", ".join(str(each) for each in before)
            raise InvariantError(f"I11: a commit of {names} changes nothing")

    def _check_progress(self, production: Production) -> None:
        progress: tuple[tuple[str, dict[RangeId, Any], Mapping[RangeId, Any]], ...] = (
            ("watermark", self._watermarks_us, production.watermarks_us),
            ("percentile watermark", self._percentiles_us, production.percentiles_us),
            ("watermark of a firing", self._firing_us, production.firing_us),
            ("signal mark", self._marks, production.signal_marks),
        )
        for name, known, now in progress:
            for range_id, value in now.items():
                if range_id in known and value < known[range_id]:
                    raise InvariantError(
                        f"I4: the {name} of {range_id} goes back from {known[range_id]} to {value}"
                    )
                known[range_id] = value

    def _check_senders(self, production: Production) -> None:
        """Refuse watermarks that no master has had, and of which the store does not show how senders came so far.

        A worker that has all ranges computes them itself.  The next owner of a sender would not know of them.
        """
        further_us: dict[str, int] = {}
        for progress in (production.watermarks_us, production.firing_us):
            for range_id, watermark_us in progress.items():
                name = range_id.computation
                known_us = further_us.get(name, self._inputs_us.get(name, MIN_TIMESTAMP_US))
                if self._plan.senders(name) and watermark_us > known_us:
                    further_us[name] = watermark_us
        job = self._store.read_job(self._job) if further_us else None
        for name, watermark_us in further_us.items():
            senders = self._plan.senders(name)
            for range_id, row in ({} if job is None else job.ranges).items():
                stored_us = row.input_watermark_us
                reached_us = MIN_TIMESTAMP_US if stored_us is None else stored_us
                is_gone = row.is_retired or not self._torn.isdisjoint([name, range_id.computation])
                if range_id.computation in senders and reached_us < watermark_us and not is_gone:
                    raise InvariantError(
                        f"I4: {name} has come to {watermark_us} us, which no master has sent, and {range_id}, which "
                        f"sends to it, to {reached_us} us"
                    )

    def _check_record_ids(self, production: Production) -> None:
        for range_id, ids in production.record_ids.items():
            kept = self._record_ids[range_id]
            for digest, timestamp_us in ids:
                if digest in kept:
                    raise InvariantError(
                        f"I8: a record of {range_id} at {timestamp_us} us counts, and one with its id has counted"
                    )
                kept[digest] = timestamp_us
        for range_id, horizon_us in production.record_id_horizons_us.items():
            read = self._plan.stages[range_id.computation].root.operation
            assert isinstance(read, Read)
            assert read.record_ids is not None
            if horizon_us > self._watermarks_us[range_id] - read.record_ids.slack_us:
                raise InvariantError(
                    f"I8: {range_id} forgets ids up to {horizon_us} us, with its watermark at "
                    f"{self._watermarks_us[range_id]} us and a slack of {read.record_ids.slack_us} us"
                )
            kept = self._record_ids[range_id]
            self._record_ids[range_id] = {
                digest: at_us for digest, at_us in kept.items() if at_us >= horizon_us
            }

    def _check_deliveries(self, production: Production) -> None:
        for checkpoint in production.checkpoints:
            self._payloads[checkpoint.channel, checkpoint.sequence] = checkpoint.payload
            if self._counts_once((checkpoint.channel, checkpoint.sequence)):
                self._make(checkpoint)
        for channel, sequence in filter(self._counts_once, production.delivered.items()):
            pending, seen = self._open[channel], self._delivered[channel]
            if sequence <= seen:
                raise InvariantError(
                    f"I8: production {sequence} of {_shown(channel)} is applied again, after {seen}"
                )
            for each in range(seen + 1, sequence + 1):
                if pending.pop(each, None) is None:
                    raise InvariantError(
                        f"I8: production {each} of {_shown(channel)} is applied, and nobody has made it"
                    )
            self._delivered[channel] = sequence
        for channel, sequence in filter(self._counts_once, production.acknowledged.items()):
            if sequence > self._delivered[channel]:
                raise InvariantError(
                    f"I8: production {sequence} of {_shown(channel)} is deleted, but only {self._delivered[channel]} "
                    "are delivered"
                )

    def _check_addresses(self, production: Production) -> None:
        for checkpoint in production.checkpoints:
            self._kept[checkpoint.channel].add(checkpoint.sequence)
        for channel, sequence in production.acknowledged.items():
            self._kept[channel] = {each for each in self._kept[channel] if each > sequence}
        self._retired |= production.ended_handovers & production.finished
        for channel, kept in self._kept.items():
            if not self._torn.isdisjoint(
                (channel.sender.computation, channel.receiver.computation)
            ):
                # What was deleted before is there again; the next owner of a range finds that out.
                continue
            if kept and channel.sender in self._retired:
                raise InvariantError(
                    f"I10: {channel.sender} is retired, and {_shown(channel)} #{min(kept)} is still to be delivered "
                    "or deleted: nobody would send it again"
                )
            if kept and channel.receiver in self._retired:
                raise InvariantError(
                    f"I11: {channel.receiver} is retired, and {_shown(channel)} #{min(kept)} is still to be delivered "
                    "or deleted: whoever takes the sender over could never do either"
                )

    def _has_made(self, range_id: RangeId, mark: CommitMark | None) -> bool:
        jobs = self._store._jobs  # noqa: SLF001 - the simulator sees everything
        return mark is not None and has_committed(jobs[self._job], range_id, mark)

    def _counts_once(self, delivery: tuple[Channel, int]) -> bool:
        """Whether both ends of a delivery's channel have all guarantees."""
        (sender, receiver), _ = delivery
        return (
            self._guarantees.get(sender.computation, BOTH).strong_productions
            and self._guarantees.get(receiver.computation, BOTH).exactly_once
        )

    def _make(self, checkpoint: Checkpoint) -> None:
        channel, sequence = checkpoint.channel, checkpoint.sequence
        if sequence != self._sent[channel] + 1:
            raise InvariantError(
                f"I8: production {sequence} of {_shown(channel)} follows {self._sent[channel]}"
            )
        self._sent[channel] = sequence
        strategy = self._strategies[channel.receiver.computation]
        expiries_us = [
            strategy.expiry_us(window)
            for _, window, *_ in self._partials(channel.receiver, checkpoint.payload)
        ]
        known_us = self._inputs_us.get(channel.receiver.computation, MIN_TIMESTAMP_US)
        late_us = max(known_us, checkpoint.min_timestamp_us)
        self._open[channel][sequence] = self._made[channel, sequence] = _Pending(
            min(expiries_us, default=MAX_TIMESTAMP_US),
            sorted({each for each in expiries_us if each > late_us}),
        )

    def lines_of(self, production: Production) -> Iterable[tuple[str, frozenset[str]]]:
        """The contents of a production, for the story: lines, and the keys that they are about."""
        for range_id, watermark_us in production.watermarks_us.items():
            if watermark_us != self._watermarks_us.get(range_id):
                yield f"  {range_id} has the input watermark {watermark_us} us", frozenset()
        for channel, sequence in production.delivered.items():
            # Numbers of weak productions begin anew, far above, with each owner.
            first = (
                sequence if sequence not in self._open[channel] else self._delivered[channel] + 1
            )
            for each in range(first, sequence + 1):
                payload = self._payloads.get((channel, each), b"")
                yield from self._partial_lines(
                    channel, f"  takes in {_shown(channel)} #{each}", payload
                )
        for cell in production.cells:
            cell_id = decode_cell_id(cell.cell_key, is_merging=self._merges(cell.computation))
            key, window = cell_id[0], cell_id[1]
            where = "" if window is None else f" window {window}"
            verb = "frees" if cell.value is None else "changes"
            yield f"  {verb} {cell.computation} {key!r}{where}", frozenset([repr(key)])
        for made in production.checkpoints:
            what = f"  makes {_shown(made.channel)} #{made.sequence}"
            yield from self._partial_lines(made.channel, what, made.payload)
        for late in production.late:
            yield f"  drops as late, at {late.watermark_us} us: {late.key}", frozenset([late.key])
        for write in production.tables:
            yield from self._panes.lines_of(write.table, write.inserts)

    def _partial_lines(
        self, channel: Channel, what: str, payload: bytes
    ) -> Iterable[tuple[str, frozenset[str]]]:
        """A line for each partial in a production."""
        for key, window, accumulator, *_ in self._partials(channel.receiver, payload):
            yield f"{what}: {key!r} window {window}: {accumulator!r}", frozenset([repr(key)])

    def _partials(self, receiver: RangeId, payload: bytes) -> Sequence[Partial]:
        combiners = self._combiners[receiver.computation]
        return decode_partials(payload, combiners) if payload else ()

    def _merges(self, computation: str) -> bool:
        if computation not in self._is_merging:
            stage = GroupingStage(self._plan, self._plan.stages[computation])
            self._is_merging[computation] = stage.machine.is_merging
        return self._is_merging[computation]


def _strategies(plan: ExecutionPlan) -> dict[str, WindowingStrategy]:
    return {
        name: plan.graph.pcollections[stage.root.inputs[0]].strategy
        for name, stage in plan.stages.items()
        if not stage.is_source
    }


def _combiners(plan: ExecutionPlan) -> dict[str, Combiners]:
    return {name: combiners_of(plan.graph, stage.root) for name, stage in plan.stages.items()}


def _is_between(names: Collection[str], channel: Channel) -> bool:
    return channel.sender.computation in names and channel.receiver.computation in names


def _shown(channel: Channel) -> str:
    return f"{channel.sender}->{channel.receiver}"
