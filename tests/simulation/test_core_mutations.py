"""The simulator is tested: a core broken on purpose must fail, within some dozen seeds, and name one of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import pytest

from dataflow.canonical_keys import CanonicalKeys
from dataflow.coders import encode_key, hash_key
from runners.core.ground.key_codec import EncodedKey, KeyCodec
from runners.core.ground.timers import Timers
from runners.core.open_windows.buffered import Buffered
from runners.core.open_windows.stream_cells import StreamCells
from runners.core.partials import merging as partial_merging
from runners.core.partials import row_folding, stateful_inputs, values_by_key
from runners.errors import JobFailedError, WorkerStoppedError
from runners.millwheel.control.shapes import Shapes
from runners.millwheel.master.assignment import Assignment, BySlot
from runners.millwheel.master.master import Master
from runners.millwheel.master.slots import Slot
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.master.witness import Witness
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store import commit_or_resolve
from runners.millwheel.store.commit_or_resolve import CommitResult, SubmittedCommit
from runners.millwheel.store.memory import store as memory
from runners.millwheel.store.memory.job import StoredJob, read_range
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Indeterminate, TakenRange
from runners.millwheel.wire.messages import (
    Acknowledge,
    Deliver,
    EndHandover,
    Report,
    Revoke,
    decode,
)
from runners.millwheel.worker import committer, owned_computation, productions, window_steps
from runners.millwheel.worker import worker as worker_module
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.confirmed_reads import ConfirmedReads
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.inbox import Inbox
from runners.millwheel.worker.input_watermark import InputWatermark
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.outgoing import Outgoing
from runners.millwheel.worker.own_watermarks import OwnWatermarks
from runners.millwheel.worker.owned_range import OwnedRange, accepted_of
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker import Worker
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.places import decode_position, decode_split
from runners.testing.simulator import Fault, SimulationError, SyncPoint, simulate
from runners.testing.simulator.simulation import BuildLike
from runners.testing.simulator.store import SimulatedStore
from tests.simulation import dense
from tests.simulation.bad_seeds import known_first
from windowing.timestamps import MAX_TIMESTAMP_US

pytestmark = pytest.mark.slow

#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300

Patch = pytest.MonkeyPatch


def skip_the_token(patch: Patch) -> None:
    """Whoever has the next number may commit."""
    patch.setattr(
        MemoryStore,
        "_holds",
        lambda _, job, fence: job.ranges[fence.range_id].bundle + 1 == fence.bundle,
    )


def send_again_what_was_not_answered(patch: Patch) -> None:
    """A commit that has landed is refused by its own fence, and taken to have failed."""

    class SentAgain(SubmittedCommit):
        def result(self) -> CommitResult:
            answer = self.under_way.outcome()
            is_lost = isinstance(answer, Indeterminate)
            again: Any = self.store
            return CommitResult(again.commit(self.production) if is_lost else answer, answer)

    patch.setattr(commit_or_resolve, "SubmittedCommit", SentAgain)


def token_per_owner(patch: Patch) -> None:
    """A commit that was sent twice lands twice."""

    def holds(_: MemoryStore, job: StoredJob, fence: Fence) -> bool:
        return fence.token == job.ranges[fence.range_id].token

    patch.setattr(MemoryStore, "_holds", holds)


def acknowledge_before_the_commit(patch: Patch) -> None:
    """The sender forgets what the receiver may still lose."""

    def take(worker: Worker, name: str, computation: GroupingComputation) -> bool:
        deliveries = worker._courier.inbox.take(name, worker._spec.options.steps.deliveries)
        if not deliveries:
            return False
        step = computation.deliveries.take_in(deliveries, worker._clock.now_us())
        for owned in worker._ranges.values():
            owned.delivered.update(owned.accepted)
        worker._courier.acknowledge({delivery.channel for delivery in deliveries})
        worker._committer.commit(step)
        return True

    patch.setattr(Worker, "_take_deliveries", take)


def restore_the_watermark_one_bundle_ahead(patch: Patch) -> None:
    """A source goes on with the watermark that is behind what it is still to read."""
    take = SourceComputation.take

    def broken(computation: SourceComputation, taken: TakenRange) -> OwnedRange:
        owned = take(computation, taken)
        split = computation._splits[owned.range_id]
        if taken.row.position is not None and not split.is_finished:
            assert taken.row.split is not None
            position = decode_position(taken.row.position)
            opened = computation._source.read.source.open(
                decode_split(taken.row.split), position, fence=0
            )
            ahead = opened.read(1_000)
            owned.watermark_us = max(owned.watermark_us, ahead.watermark_us)
        return owned

    patch.setattr(SourceComputation, "take", broken)


def scan_before_moving_the_token(patch: Patch) -> None:
    """The new owner reads what the old one is still writing (MillWheel, figure 12)."""

    def acquire(
        store: SimulatedStore,
        job: str,
        range_ids: Sequence[RangeId],
        owner: str,
        version: int | None = None,
        cause: Cause = UNKNOWN,
    ) -> Mapping[RangeId, TakenRange]:
        store._reach()
        inner = store._shared.inner
        with inner._lock:
            scanned = {each: read_range(inner._jobs[job], each) for each in range_ids}
        # Long enough for somebody to commit in between.
        for _ in range(20):
            store._sync(SyncPoint.BEFORE_TAKEOVER)
        taken = inner.acquire(job, range_ids, owner, version, cause)
        store._sync(SyncPoint.AFTER_TAKEOVER)
        return {each: attrs.evolve(scanned[each], row=taken[each].row) for each in range_ids}

    patch.setattr(SimulatedStore, "acquire", acquire)


def keep_to_oneself_by_which_watermark_some_fire(patch: Patch) -> None:
    """A new owner does not know how late the record is that comes for a window of which nothing is left."""
    act = InputWatermark.act_in_part

    def broken(time: InputWatermark, clocks: Any, until_us: int | None) -> None:
        act(time, clocks, until_us)
        for owned in time._ranges.values():
            owned.firing_us = None

    patch.setattr(InputWatermark, "act_in_part", broken)


def drop_a_timer_on_takeover(patch: Patch) -> None:
    """One timer stays behind."""
    take = GroupingComputation.take
    patch.setattr(
        GroupingComputation,
        "take",
        lambda computation, taken: take(computation, attrs.evolve(taken, timers=taken.timers[1:])),
    )


def process_what_is_sent_again(patch: Patch) -> None:
    """A receiver does not look at the number of a delivery."""

    def put(inbox: Inbox, delivery: Deliver) -> bool:
        if delivery.channel.receiver in inbox._ranges:
            inbox._waiting[delivery.channel.receiver.computation].append(delivery)
        return False

    def accept(owned: OwnedRange, deliveries: Sequence[Deliver]) -> list[Deliver]:
        for each in deliveries:
            seen = owned.accepted.get(each.channel, 0)
            owned.accepted[each.channel] = max(each.sequence, seen)
        return list(deliveries)

    patch.setattr(Inbox, "put", put)
    patch.setattr(OwnedRange, "accept", accept)


def send_before_the_commit(patch: Patch) -> None:
    """A delivery of something that may never be."""
    commit = Committer.commit

    def broken(committer: Committer, step: Any, taken_in: Any = ()) -> None:
        for each in step.checkpoints if step is not None else ():
            committer._courier.send(each)
        commit(committer, step, taken_in)

    patch.setattr(Committer, "commit", broken)


def commit_a_round_behind(patch: Patch) -> None:
    """A worker reports what is not durable: it commits a round when it begins the next one."""
    work, commit_round = Worker._work, Committer.commit_round

    def broken(worker: Worker) -> bool:
        commit_round(worker._committer)
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(worker._committer, "commit_round", lambda: None)
            return work(worker)

    patch.setattr(Worker, "_work", broken)


def let_pass(patch: Patch, *kinds: type) -> None:
    """Messages of these kinds leave the worker as soon as their commit is sent."""
    send = Outgoing.send

    def broken(outgoing: Outgoing, address: str, message: bytes) -> None:
        if isinstance(decode(message), kinds):
            outgoing.send_at_once(address, message)
        else:
            send(outgoing, address, message)

    patch.setattr(Outgoing, "send", broken)


def send_while_the_commit_is_under_way(patch: Patch) -> None:
    """A receiver has what may never be durable at its sender."""
    let_pass(patch, Deliver)


def acknowledge_while_the_commit_is_under_way(patch: Patch) -> None:
    """A sender deletes what its receiver may have to be sent again."""
    submit = Committer._submit

    def broken(committer: Committer, step: WorkerStep, channels: Collection[Channel] = ()) -> None:
        submit(committer, step, channels)
        committer._courier.acknowledge(channels)

    patch.setattr(Committer, "_submit", broken)
    let_pass(patch, Acknowledge)


def acknowledge_again_while_the_commit_is_under_way(patch: Patch) -> None:
    """A sender deletes it although it has sent it a second time: what is taken in twice is acknowledged twice."""
    let_pass(patch, Acknowledge)


def report_while_the_commit_is_under_way(patch: Patch) -> None:
    """Event time goes on by what may never be durable."""
    let_pass(patch, Report)


def send_the_next_commit_behind_the_one_under_way(patch: Patch) -> None:
    """The fence would refuse it if the one ahead has failed; if its answer was lost nobody knows what is refused."""

    def submit(store: Any, production: Production, ready: object) -> SubmittedCommit:
        del ready
        return SubmittedCommit(store, production, store.submit(production))

    patch.setattr(committer, "submit_or_resolve", submit)


def notify_of_what_is_under_way(patch: Patch) -> None:
    """A reader acknowledges to its system what may never be durable."""
    submitted = productions.note_submitted

    def broken(step: WorkerStep) -> None:
        submitted(step)
        for act in step.when_committed:
            act()

    patch.setattr(committer, "note_submitted", broken)


def read_what_is_under_way(patch: Patch) -> None:
    """A worker reads what has gone from its memory before it knows what its last commit has made of it."""
    build = owned_computation.build_computations

    def broken(job: str, plan: Any, router: Any, reads: ConfirmedReads, options: Any) -> Any:
        return build(job, plan, router, reads._store, options)

    patch.setattr(worker_module, "build_computations", broken)


def go_on_whatever_became_of_the_commit(patch: Patch) -> None:
    """A worker takes a commit to have happened whose answer was lost."""
    confirm = Committer.confirm

    def broken(committer: Committer) -> None:
        try:
            confirm(committer)
        except WorkerStoppedError:
            committer._under_way = None
            committer._outgoing.release()

    patch.setattr(Committer, "confirm", broken)


def delete_what_is_on_its_way(patch: Patch) -> None:
    """A commit takes everything that it sends to have been taken in by itself."""

    def broken(step: WorkerStep) -> None:
        for channel, sequence, _, _ in step.checkpoints:
            step.ranges[channel.sender].outbox.acknowledge(channel, sequence)

    patch.setattr(committer, "take_in_own", broken)


def send_routes_once(patch: Patch) -> None:
    """Where to send is announced once, on a connection that can break."""
    patch.setattr(Master, "_ask_again", lambda _: None)


def report_for_a_range_what_others_have_reported(patch: Patch) -> None:
    """A range that was behind reports as if it had been where its new neighbours are."""

    def output_watermark_us(time: InputWatermark) -> int:
        hold_us = time.window_hold_us
        return time.watermark_us if hold_us is None else min(time.watermark_us, hold_us)

    patch.setattr(InputWatermark, "output_watermark_us", property(output_watermark_us))


def send_from_any_of_the_ranges(patch: Patch) -> None:
    """What two ranges emit in one step is sent by the one that has reported more, which holds nothing back there."""
    patch.setattr(
        window_steps, "_sender_of", lambda touched: min(touched, key=lambda each: each.range_id)
    )


def take_deliveries_before_the_watermark(patch: Patch) -> None:
    """After a takeover a record is in time that by all that was reported before is late."""

    acquire, advance = Worker._acquire, Worker._advance

    def broken(worker: Worker, range_ids: Sequence[RangeId], *more: Any) -> Sequence[RangeId]:
        patch.setattr(Worker, "_advance", lambda *_: False)
        taken = acquire(worker, range_ids, *more)
        patch.setattr(Worker, "_advance", advance)
        return taken

    def work(worker: Worker) -> bool:
        worked = worker._act_on_signals()
        for name, computation in worker._computations.items():
            if isinstance(computation, GroupingComputation):
                worked |= worker._take_deliveries(name, computation)
                worked |= worker._advance(name, computation)
            else:
                worked |= worker._read(computation)
        worker._committer.commit_round()
        return worked

    patch.setattr(Worker, "_acquire", broken)
    patch.setattr(Worker, "_work", work)


def end_handovers_at_once(patch: Patch) -> None:
    """A split range moves while there is something on its way that holds its keys, addressed to the other half."""
    patch.setattr(Shapes, "_all_follow", lambda *_: True)


def let_a_new_range_hold_nothing_back(patch: Patch) -> None:
    """Nobody waits for what a range that is born has sent, until it reports."""
    add, report = WatermarkAuthority.add, WatermarkAuthority.report

    def broken(authority: WatermarkAuthority, range_id: RangeId) -> None:
        add(authority, range_id)
        authority._outputs_us[range_id] = MAX_TIMESTAMP_US

    def reported(
        authority: WatermarkAuthority, outputs_us: Mapping[RangeId, int], **more: Any
    ) -> None:
        furthest_us = {
            each: max(us, authority._outputs_us[each]) for each, us in outputs_us.items()
        }
        report(authority, furthest_us, **more)

    patch.setattr(WatermarkAuthority, "add", broken)
    patch.setattr(WatermarkAuthority, "report", reported)
    patch.setattr(WatermarkAuthority, "begin_anew", lambda *_: None)


def hand_out_ranges_in_handover_one_by_one(patch: Patch) -> None:
    """Whoever takes a range over does not get the one that takes in its deliveries."""
    patch.setattr(memory, "family", lambda _, range_ids: list(range_ids))


def take_keys_as_they_come(patch: Patch) -> None:
    """A key is what Python calls equal to it, until it has been in the store."""

    def encoded(codec: KeyCodec, key: Any) -> EncodedKey:
        found = codec._known.get(key)
        if found is None:
            found = EncodedKey(encode_key(key), hash_key(encode_key(key)))
            codec._known[key] = found
        return found

    for module in (values_by_key, stateful_inputs, partial_merging, row_folding):
        for name in ("canonical_key", "are_canonical"):
            patch.setattr(module, name, lambda key: key, raising=False)
    patch.setattr(CanonicalKeys, "__getitem__", lambda _, key: key)
    patch.setattr(KeyCodec, "encode", encoded)


def believe_who_is_gone(patch: Patch) -> None:
    """Event time goes on without a split that nobody reads, because its last reader had found nothing in it."""
    vacate, confirm = Slot.vacate, Slot.confirm

    def keep(slot: Slot, end: Callable[[Slot], None]) -> None:
        idle = slot.idle
        end(slot)
        slot.idle = idle

    patch.setattr(Slot, "vacate", lambda slot: keep(slot, vacate))
    patch.setattr(Slot, "confirm", lambda slot: keep(slot, confirm))


def retire_what_is_not_acknowledged(patch: Patch) -> None:
    """A range that was merged into another is gone before all that it has sent has arrived."""
    end_handovers = Worker._end_handovers

    def broken(worker: Worker, message: EndHandover) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(Outbox, "is_empty", property(lambda _: True))
            end_handovers(worker, message)

    patch.setattr(Worker, "_end_handovers", broken)


def release_what_waits_to_be_committed(patch: Patch) -> None:
    """A range goes to another worker while steps of it are only in memory; whoever had it dies of their commit."""
    release = Worker._release

    def broken(worker: Worker, revoke: Revoke) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(Committer, "flush", lambda *_: None)
            release(worker, revoke)

    patch.setattr(Worker, "_release", broken)


def end_handovers_beside_what_waits(patch: Patch) -> None:
    """The end of a handover is to be committed together with steps that are only in memory."""
    end_handovers = Worker._end_handovers

    def broken(worker: Worker, message: EndHandover) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(worker._committer, "flush", lambda _: None)
            end_handovers(worker, message)

    patch.setattr(Worker, "_end_handovers", broken)


def keep_what_waits_for_a_released_range(patch: Patch) -> None:
    """What had arrived for a range is taken in when it comes back, after its next owner took it in."""
    patch.setattr(Inbox, "forget", lambda *_: None)


def keep_timers_of_a_released_range(patch: Patch) -> None:
    """A worker goes on waiting for what another one fires."""
    patch.setattr(Timers, "forget", lambda *_: None)


def keep_columns_of_a_released_range(patch: Patch) -> None:
    """A worker has the columns of a range of another one."""
    patch.setattr(Buffered, "forget", StreamCells.forget)


def hold_by_what_was_open_at_first(patch: Patch) -> None:
    """What opens after a takeover holds nothing back, and what has fired then goes on doing it."""
    done = WindowSteps.done

    def broken(steps: WindowSteps, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as at_once:
            at_once.setattr(OwnedState, "hold_back", lambda _: None)
            return done(steps, *args)

    patch.setattr(WindowSteps, "done", broken)


def fire_before_all_is_taken_in(patch: Patch) -> None:
    """A worker that has all ranges does not wait for what it has sent to itself."""
    patch.setattr(Outbox, "hold_of", lambda *_: None)


def fire_before_panes_that_are_to_come(patch: Patch) -> None:
    """A worker that has all ranges does not wait for the windows of a grouping that sends to another one."""

    def output_us(own: OwnWatermarks, owned: OwnedRange, receiver: str) -> int:
        hold_us = owned.outbox.hold_of(receiver, partial(accepted_of, own._ranges))
        return owned.watermark_us if hold_us is None else min(owned.watermark_us, hold_us)

    patch.setattr(OwnWatermarks, "_output_us", output_us)


def compute_watermarks_without_all_ranges(patch: Patch) -> None:
    """A worker goes on computing them when it has released ranges, until the master's news says otherwise."""
    input_us = OwnWatermarks.input_us

    def broken(
        own: OwnWatermarks, name: str, due_us: Mapping[str, int], *, is_time: bool
    ) -> int | None:
        granted = own.granted
        own.granted = granted and len(own._ranges)
        own.index_ranges()
        found = input_us(own, name, due_us, is_time=is_time)
        own.granted = granted
        return found

    patch.setattr(OwnWatermarks, "input_us", broken)


def own_what_is_retired(patch: Patch) -> None:
    """A range that was merged into another stays with its last owner."""
    end, forget = Worker._end_handovers, Worker._forget

    def broken(worker: Worker, message: EndHandover) -> None:
        patch.setattr(Worker, "_forget", lambda *_: None)
        end(worker, message)
        patch.setattr(Worker, "_forget", forget)

    patch.setattr(Worker, "_end_handovers", broken)


def take_a_handover_for_unfinished(patch: Patch) -> None:
    """The owner of a range does not note that its handover has ended, only the store does."""
    end = Worker._end_handovers

    def broken(worker: Worker, message: EndHandover) -> None:
        before = {range_id: owned.handover_with for range_id, owned in worker._ranges.items()}
        end(worker, message)
        for range_id, owned in worker._ranges.items():
            owned.handover_with = before[range_id]

    patch.setattr(Worker, "_end_handovers", broken)


def end_while_a_range_is_on_its_way(patch: Patch) -> None:
    """The job is done when all who are there report it; a range that is nobody's has something to delete yet."""
    patch.setattr(Assignment, "is_at_rest", True)


def end_while_ranges_are_in_handover(patch: Patch) -> None:
    """The job is done in the middle of a split or merge."""
    patch.setattr(Shapes, "is_at_rest", True)


def give_ranges_without_their_commits(patch: Patch) -> None:
    """The master does not send to a new owner of a range how far it was committed by the reports of former ones."""
    assign = Master._assign

    def broken(master: Master, given: BySlot) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(Witness, "known_of", lambda *_: {})
            assign(master, given)

    patch.setattr(Master, "_assign", broken)


def finish_what_is_not_there(patch: Patch) -> None:
    """The job is done by what workers have reported, whatever the store has of it."""
    patch.setattr(Witness, "check", lambda *_: None)


def take_channels_as_they_are(patch: Patch) -> None:
    """Whoever takes ranges over does not compare the ends of their channels."""
    patch.setattr(memory, "check_channels", lambda *_: None)


def send_to_the_retired(patch: Patch) -> None:
    """Whoever takes ranges over does not look whether there is somebody who takes in what they send."""
    patch.setattr(memory, "check_receivers", lambda *_: None)


def rely_on_what_is_gone(patch: Patch) -> None:
    """A commit does not look whether those of others are there that it relies on."""
    patch.setattr(MemoryStore, "_check_relied_on", lambda *_: None)


def take_cuts_as_they_are(patch: Patch) -> None:
    """Whoever takes ranges over does not ask others how far they had come."""
    patch.setattr(memory, "check_cuts", lambda *_: None)


def keep_no_cut(patch: Patch) -> None:
    """Nothing but the two ranges themselves says that one has taken in what the other has made."""
    patch.setattr(productions, "_cut_of", lambda *_: {})


def forget_what_is_not_taken_in(patch: Patch) -> None:
    """The end of a round forgets what was handed on and not taken in."""
    patch.setattr(
        Committer, "send_handed_on", lambda committer, name: committer._handed_on.pop(name, None)
    )


def send_what_was_taken_in(patch: Patch) -> None:
    """Partials that were handed on are sent on channels too."""

    def take(committer: Committer, receiver: str, bytes_max: int) -> Any:
        del bytes_max
        return list(committer._handed_on.get(receiver, ()))

    patch.setattr(Committer, "take_handed_on", take)


def commit_apart_what_was_handed_on(patch: Patch) -> None:
    """A commit makes durable what was handed on before it is taken in."""
    commit = Committer.commit

    def broken(committer: Committer, step: WorkerStep | None, taken_in: Any = ()) -> None:
        if step is not None and step.takes_handed_on:
            committer.commit_round()
        commit(committer, step, taken_in)

    patch.setattr(Committer, "commit", broken)


def fire_before_what_is_handed_on(patch: Patch) -> None:
    """The watermark goes past what was handed on to a grouping that could not take it in yet."""
    send = Committer.send_handed_on

    def broken(committer: Committer, receiver: str) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(OwnedRange, "send", _send_without_hold)
            send(committer, receiver)

    patch.setattr(Committer, "send_handed_on", broken)


def _send_without_hold(owned: OwnedRange, payloads: Any, *, hold_us: int) -> Any:
    del hold_us
    return tuple(
        owned.outbox.create(Channel(owned.range_id, receiver), MAX_TIMESTAMP_US, payload)
        for receiver, payload in payloads
    )


ALL_WEAK = dict.fromkeys(("read", "sum"), Guarantees(strong_productions=False))
RESHAPING = {Fault.SPLIT: 0.1, Fault.MERGE: 0.1, Fault.MOVE: 0.1}
#: Where few seeds find it with everything, what does: mostly something that is there all the while (`dense`), and the
#: faults that it needs, often.
OPTIONS: Mapping[Any, Mapping[str, Any]] = {
    believe_who_is_gone: {"faults": {Fault.ZOMBIE: 0.1}},
    # It must be at the very end.
    end_while_a_range_is_on_its_way: {"faults": {Fault.MOVE: 0.2, Fault.DELAY: 1.0}, "steps": 1},
    end_while_ranges_are_in_handover: {"faults": {Fault.SPLIT: 0.05, Fault.MERGE: 0.05}},
    keep_to_oneself_by_which_watermark_some_fire: {
        "faults": {
            Fault.DRIVER_CRASH: 0.1,
            Fault.CRASH: 0.02,
            Fault.SLOW_COMMIT: 0.05,
            Fault.DUPLICATE: 0.1,
            Fault.LOSS: 0.05,
        },
        "workers": 1,
        "steps": 1,
    },
    let_a_new_range_hold_nothing_back: {"faults": {Fault.SPLIT: 0.2}},
    restore_the_watermark_one_bundle_ahead: {"faults": {Fault.CRASH: 0.03}},
    # What a range has sent must be on its way for longer than all that it takes in.
    retire_what_is_not_acknowledged: {
        "faults": {Fault.MERGE: 0.1, Fault.SPLIT: 0.1, Fault.HALF_OPEN: 0.1}
    },
    commit_a_round_behind: {"faults": {Fault.CRASH: 0.05, Fault.MOVE: 0.1}},
    report_for_a_range_what_others_have_reported: {"faults": {Fault.MOVE: 0.1, Fault.DELAY: 0.1}},
    send_from_any_of_the_ranges: {
        "faults": {Fault.MERGE: 0.1, Fault.SPLIT: 0.1, Fault.MOVE: 0.2},
        "seeds": known_first(223, SEEDS_MAX),
    },
    acknowledge_again_while_the_commit_is_under_way: {
        "faults": {Fault.DUPLICATE: 0.5, Fault.CRASH: 0.1},
        "seeds": known_first(135, SEEDS_MAX),
    },
    fire_before_all_is_taken_in: {"workers": 1},
    fire_before_panes_that_are_to_come: {"workers": 1},
    compute_watermarks_without_all_ranges: {"faults": {Fault.MOVE: 0.1, Fault.DELAY: 0.5}},
    send_routes_once: {"faults": {Fault.LOSS: 0.02, Fault.MOVE: 0.1}},
    scan_before_moving_the_token: {
        "faults": {Fault.PAUSE: 0.02, Fault.ZOMBIE: 0.05, Fault.MOVE: 0.1}
    },
    skip_the_token: {"faults": {Fault.LATE_COMMIT: 0.05, Fault.ZOMBIE: 0.03}},
    token_per_owner: {"faults": {Fault.LATE_COMMIT: 0.05}},
    take_deliveries_before_the_watermark: {"faults": {Fault.CRASH: 0.05}, "workers": 1},
    end_handovers_at_once: {"faults": RESHAPING},
    keep_what_waits_for_a_released_range: {"faults": {Fault.MOVE: 0.2}},
    keep_timers_of_a_released_range: {"faults": {Fault.MOVE: 0.2}},
    keep_columns_of_a_released_range: {"faults": {Fault.MOVE: 0.2}},
    own_what_is_retired: {"faults": {Fault.MERGE: 0.3, Fault.SPLIT: 0.1}},
    take_a_handover_for_unfinished: {"faults": RESHAPING},
    give_ranges_without_their_commits: {"faults": {Fault.LOST_PART: 0.05, Fault.MOVE: 0.1}},
    finish_what_is_not_there: {"faults": {Fault.LOST_PART: 0.05}},
    take_channels_as_they_are: {"faults": {Fault.LOST_PART: 0.05, Fault.ZOMBIE: 0.05}},
    # Nobody may live who knows that the range was merged into another.
    send_to_the_retired: {
        "faults": {
            Fault.LOST_PART: 0.05,
            Fault.DRIVER_CRASH: 0.01,
            Fault.MERGE: 0.1,
            Fault.SPLIT: 0.1,
        }
    },
    rely_on_what_is_gone: {"faults": {Fault.LOST_PART: 0.05}},
    # A range must come to another owner while nobody knows from the reports of the former one.
    take_cuts_as_they_are: {
        "faults": {Fault.LOST_PART: 0.1, Fault.DRIVER_CRASH: 0.05, Fault.CRASH: 0.02},
        "workers": 1,
    },
    keep_no_cut: {
        "faults": {Fault.LOST_PART: 0.1, Fault.DRIVER_CRASH: 0.05, Fault.CRASH: 0.02},
        "workers": 1,
    },
    forget_what_is_not_taken_in: {"workers": 1},
    send_what_was_taken_in: {"workers": 1},
    commit_apart_what_was_handed_on: {"faults": {Fault.CRASH: 0.05}, "workers": 1},
    fire_before_what_is_handed_on: {"workers": 1},
    release_what_waits_to_be_committed: {
        "faults": {Fault.MOVE: 0.1, Fault.DELAY: 1.0},
        "guarantees": ALL_WEAK,
    },
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mutation", "pipeline", "invariant"),
    [
        (acknowledge_before_the_commit, "sums", "I8"),
        (believe_who_is_gone, dense.silent, "I5"),
        (commit_a_round_behind, dense.chain, "I"),
        (send_while_the_commit_is_under_way, "sums", "I9"),
        (acknowledge_while_the_commit_is_under_way, "sums", "I8"),
        (acknowledge_again_while_the_commit_is_under_way, "sums", "I8"),
        (report_while_the_commit_is_under_way, dense.chain, "I"),
        (send_the_next_commit_behind_the_one_under_way, "sums", "I6"),
        (notify_of_what_is_under_way, "sums", "I"),
        (go_on_whatever_became_of_the_commit, "sums", "I"),
        (read_what_is_under_way, "sums", "I6"),
        (delete_what_is_on_its_way, "sums", "I8"),
        (drop_a_timer_on_takeover, "stateful", "I"),
        (end_while_a_range_is_on_its_way, "chain", "I10"),
        (end_while_ranges_are_in_handover, "sums", "I10"),
        (keep_to_oneself_by_which_watermark_some_fire, "late", "I2"),
        (let_a_new_range_hold_nothing_back, dense.chain, "I4"),
        (process_what_is_sent_again, "sums", "I8"),
        (retire_what_is_not_acknowledged, dense.always_sending, "I10"),
        (restore_the_watermark_one_bundle_ahead, dense.chain, "I"),
        (send_from_any_of_the_ranges, "stamped", "I4"),
        (send_routes_once, dense.chain, "I11"),
        (scan_before_moving_the_token, dense.chain, "I"),
        (send_before_the_commit, "sums", "I9"),
        (skip_the_token, dense.chain, "I6"),
        (take_deliveries_before_the_watermark, "late", "I2"),
        (take_keys_as_they_come, "keys", "I"),
        (report_for_a_range_what_others_have_reported, dense.pausing, "I4"),
        (send_again_what_was_not_answered, "sums", "I6"),
        (token_per_owner, "sums", "I6"),
        (end_handovers_at_once, dense.chain, "I"),
        (keep_what_waits_for_a_released_range, "sums", "I10"),
        (keep_timers_of_a_released_range, "sums", "I10"),
        (keep_columns_of_a_released_range, "typed", "I10"),
        (hold_by_what_was_open_at_first, "stamped", "I10"),
        (own_what_is_retired, "sums", "I10"),
        (fire_before_all_is_taken_in, dense.chain, "I"),
        (fire_before_panes_that_are_to_come, "stamped", "I"),
        (compute_watermarks_without_all_ranges, dense.chain, "I"),
        (take_a_handover_for_unfinished, "sums", "I10"),
        (give_ranges_without_their_commits, "sums", "I8"),
        (finish_what_is_not_there, "sums", "I10"),
        (take_channels_as_they_are, "sums", "I"),
        (send_to_the_retired, "sums", "I11"),
        (rely_on_what_is_gone, "sums", "I8"),
        (take_cuts_as_they_are, "sums", "I"),
        (keep_no_cut, "sums", "I"),
        (forget_what_is_not_taken_in, "sums", "I"),
        (send_what_was_taken_in, "sums", "I"),
        (commit_apart_what_was_handed_on, "sums", "I"),
        (fire_before_what_is_handed_on, dense.chain, "I"),
        (release_what_waits_to_be_committed, dense.always_sending, "I11"),
    ],
)
@pytest.mark.timeout(600)
def test_simulator_rejects(
    mutation: Callable[[Patch], None],
    pipeline: BuildLike | str,
    invariant: str,
    monkeypatch: Patch,
) -> None:
    mutation(monkeypatch)

    # What the command line has no option for is replayed by a call.
    replay = r"replay: (.* --seed \d+|simulate\(.*seeds=\[\d+\])"
    with pytest.raises(SimulationError, match=rf"(?s)seed \d+: {invariant}.*{replay}") as found:
        simulate(pipeline, **{"seeds": SEEDS_MAX, **OPTIONS.get(mutation, {})})
    assert "TypeError" not in str(found.value), "it does not fit the code, and so breaks anything"


def test_ranges_that_do_not_cover_all_keys_are_refused(monkeypatch: Patch) -> None:
    """By the workers themselves: what has no range would be nowhere."""
    hand_out_ranges_in_handover_one_by_one(monkeypatch)

    with pytest.raises(
        (JobFailedError, SimulationError), match=r"(?s)(have|has) no range.*replay: .*seeds=\[\d+\]"
    ):
        simulate(dense.chain, seeds=SEEDS_MAX, faults=RESHAPING)


def test_what_waits_to_be_committed_is_committed_before_a_handover_ends(monkeypatch: Patch) -> None:
    """Where it is not, the committer itself refuses to make one commit of the two."""
    faults = {Fault.SPLIT: 0.1, Fault.MERGE: 0.1, Fault.MOVE: 0.1, Fault.DELAY: 1.0}
    simulate(dense.always_sending, seeds=3, faults=faults, guarantees=ALL_WEAK)
    end_handovers_beside_what_waits(monkeypatch)
    seeds = known_first(17, SEEDS_MAX)

    with pytest.raises(
        (JobFailedError, SimulationError), match=r"(?s)a commit of its own.*replay: .*seeds=\[\d+\]"
    ):
        simulate(dense.always_sending, seeds=seeds, faults=faults, guarantees=ALL_WEAK)
