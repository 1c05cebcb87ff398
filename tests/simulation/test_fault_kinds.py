"""Each of these faults is there for a reason: a core broken on purpose that only this one finds."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from runners.errors import (
    JobFailedError,
    StoreError,
    StoreRestartedError,
    StoreUnreachableError,
    WorkerStoppedError,
)
from runners.millwheel.master.master import Master
from runners.millwheel.master.slots import Slot
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.store.port import CommitOutcome, Committed, Indeterminate
from runners.millwheel.wire.messages import Assign, Register
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.silence import MASTER_SILENCE_MS
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX, Pieces
from runners.millwheel.worker.state.entry_pieces import EntryPieces
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker import Worker
from runners.testing.simulator import ALL_FAULTS, Fault, SimulationError, dice, simulate
from runners.testing.simulator.simulation import BuildLike
from runners.testing.simulator.store import SharedStore, SimulatedStore
from runners.testing.simulator.transactions import LOCK_TIMEOUT_MS
from tests.simulation import dense
from tests.simulation.bad_seeds import known_first

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300
#: With every other fault, each of which does not find it.
SEEDS_OF_OTHERS = 8
#: A delivery that is sent for so long is not sent any more.
PATIENCE_MS = 8_000


def wait_for_the_store(patch: Patch) -> None:
    """A worker that cannot take ranges over stays, and waits until it can."""
    take_over = Worker._take_over

    def broken(worker: Worker, assign: Assign) -> None:
        with suppress(StoreUnreachableError):
            take_over(worker, assign)

    patch.setattr(Worker, "_take_over", broken)


def never_miss_a_worker(patch: Patch) -> None:
    """A worker that sends nothing any more is believed alive: it keeps its ranges, and the master answers it."""
    patch.setattr(Slot, "is_within_lease", lambda *_: True)


def give_up_sending(patch: Patch) -> None:
    """What is not acknowledged is sent again for a while only, to the same worker."""
    send, first_ms = Courier.send, dict[Any, int]()

    def broken(courier: Courier, checkpoint: Checkpoint) -> None:
        now_ms = courier._clock._true.monotonic_ms()  # type: ignore[attr-defined]
        channel, sequence, *_ = checkpoint
        place = courier, channel, sequence, courier._routes.get(channel.receiver)
        if now_ms - first_ms.setdefault(place, now_ms) < PATIENCE_MS:
            send(courier, checkpoint)

    patch.setattr(Courier, "send", broken)


def believe_the_clock_of_the_master(patch: Patch) -> None:
    """When the master's last message came is noted by the master's clock, and compared with the worker's own."""
    on_news, news_ms = Worker._on_news, dict[Worker, int]()

    def noted(worker: Worker, *news: Any) -> None:
        on_news(worker, *news)
        news_ms[worker] = worker._clock._true.monotonic_ms()  # type: ignore[attr-defined]

    def broken(worker: Worker) -> None:
        begun_ms = worker._clock._true.monotonic_ms()  # type: ignore[attr-defined]
        last_ms = news_ms.setdefault(worker, begun_ms)
        if worker._clock.monotonic_ms() - last_ms > MASTER_SILENCE_MS:
            raise WorkerStoppedError("nothing was received")

    patch.setattr(Worker, "_on_news", noted)
    patch.setattr(Worker, "_stop_if_cut_off", broken)


def refuse_who_registers_twice(patch: Patch) -> None:
    """A worker whose name is known is taken for another one with the same name."""
    place = Master._place

    def broken(master: Master, register: Register) -> None:
        if master._slots[register.slot].worker == register.worker:
            master.failure = JobFailedError("I11: two workers with one name")
        place(master, register)

    patch.setattr(Master, "_place", broken)


def take_over_without_waiting(patch: Patch) -> None:
    """Somebody reads what a commit under way is still to change: the lock of a fence is left out."""
    patch.setattr(SharedStore, "wait_for", lambda *_: None)


def go_on_after_a_refusal(patch: Patch) -> None:
    """A commit that the store has refused, and can be reached, and is the same as ever, is taken for done."""
    confirm = Committer.confirm

    def broken(committer: Committer) -> None:
        try:
            confirm(committer)
        except (StoreUnreachableError, StoreRestartedError):
            raise
        except StoreError:
            committer._under_way = None
            committer._outgoing.release()

    patch.setattr(Committer, "confirm", broken)


def take_a_lock_that_is_gone_for_a_commit(patch: Patch) -> None:
    """Whoever had a range locked, and gave it free by itself, is believed to have committed."""
    resolve = SimulatedStore.resolve

    def broken(store: SimulatedStore, production: Production) -> CommitOutcome:
        was_locked = any(
            each.production is production for each in store._shared._transactions._open
        )
        since_ms = store._shared.now_ms
        outcome = resolve(store, production)
        was_ended = store._shared.now_ms - since_ms >= LOCK_TIMEOUT_MS
        is_known = not isinstance(outcome, Indeterminate)
        return Committed() if is_known and was_locked and not was_ended else outcome

    patch.setattr(SimulatedStore, "resolve", broken)


def divide_by_the_step_alone(patch: Patch) -> None:
    """What a step writes is divided into pieces however small a value may be."""
    make = Pieces.__init__

    def broken(pieces: Pieces, value_bytes_max: int, what: Any, steps: StepLimits) -> None:
        make(pieces, value_bytes_max, what, steps)
        pieces._piece_bytes = steps.piece_bytes

    patch.setattr(Pieces, "__init__", broken)


def leave_sizes_to_the_store(patch: Patch) -> None:
    """A value that is too large is refused where nobody can know whose it is, and again whenever it is tried."""
    make = Pieces.__init__

    def broken(pieces: Pieces, _: int, what: Any, steps: StepLimits) -> None:
        make(pieces, 1 << 40, what, steps)

    patch.setattr(Pieces, "__init__", broken)


def divide_columns_by_the_step_alone(patch: Patch) -> None:
    """What is kept as columns is divided as if every store took as much as a database does."""
    make = EntryPieces.__init__

    def broken(pieces: EntryPieces, where: str, value_bytes_max: int, steps: StepLimits) -> None:
        make(pieces, where, value_bytes_max, steps)
        pieces._rows = Pieces(VALUE_BYTES_MAX, repr, steps)

    patch.setattr(EntryPieces, "__init__", broken)


#: The pipeline that shows it in a few seeds, and with how many workers.
WHERE: dict[Any, tuple[BuildLike | str, int]] = {
    # The connection must stay half open for longer than the lease of a worker, between two that both live.
    give_up_sending: (dense.always_sending, 3),
    # Those of the others keep nothing as columns.
    divide_columns_by_the_step_alone: ("typed", 2),
}

#: The seed that shows it, where it is not one of the first.
KNOWN: dict[Any, int] = {divide_columns_by_the_step_alone: 143}


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mutation", "fault", "rate", "others"),
    [
        (wait_for_the_store, Fault.STORE_CUT, 0.03, {Fault.MOVE: 0.1}),
        (never_miss_a_worker, Fault.ONE_WAY, 0.05, {}),
        (give_up_sending, Fault.HALF_OPEN, 0.1, {}),
        (believe_the_clock_of_the_master, Fault.CLOCK_DRIFT, 1.0, {}),
        (refuse_who_registers_twice, Fault.DUPLICATE, 0.1, {}),
        (
            take_over_without_waiting,
            Fault.SLOW_COMMIT,
            0.1,
            {Fault.MOVE: 0.05, Fault.CRASH: 0.01, Fault.ZOMBIE: 0.02},
        ),
        (go_on_after_a_refusal, Fault.REFUSED, 0.05, {}),
        (take_a_lock_that_is_gone_for_a_commit, Fault.CUT_COMMIT, 0.1, {}),
        (divide_by_the_step_alone, Fault.SIZE_LIMIT, 1.0, {}),
        (leave_sizes_to_the_store, Fault.SIZE_LIMIT, 1.0, {}),
        (divide_columns_by_the_step_alone, Fault.SIZE_LIMIT, 1.0, {Fault.MOVE: 0.02}),
    ],
)
def test_only_this_fault_finds_it(
    mutation: Callable[[Patch], None],
    fault: Fault,
    rate: float,
    others: dict[Fault, float],
    monkeypatch: Patch,
) -> None:
    mutation(monkeypatch)

    pipeline, workers = WHERE.get(mutation, ("sums", 2))
    simulate(pipeline, seeds=SEEDS_OF_OTHERS, faults=ALL_FAULTS - {fault}, workers=workers)
    seeds = known_first(KNOWN.get(mutation, 0), SEEDS_MAX)
    with pytest.raises((SimulationError, JobFailedError), match=r"I\d+: ") as failure:
        simulate(pipeline, seeds=seeds, faults={fault: rate, **others}, workers=workers)
    replay = [str(failure.value), *getattr(failure.value, "__notes__", ())]
    assert re.search(r"replay: simulate\(\S+, seeds=\[", "\n".join(replay))


def test_one_seed_in_three_takes_tiny_steps() -> None:
    """Some breakages are seen only then (`test_many_timers.py`)."""
    tiny = [seed for seed in range(300) if dice.Dice(seed, ()).steps.timers <= 2]

    assert 70 < len(tiny) < 130
    assert {dice.Dice(seed, ()).steps.timers for seed in tiny} == {1, 2}
