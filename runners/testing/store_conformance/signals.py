"""Checks of signals: numbered for each job, read in order, and processed as far as a range has committed."""

import threading
from functools import partial

import attrs

from runners.errors import SignalError, StoreError
from runners.millwheel.model.key_range import KEY_SPACE_END
from runners.millwheel.model.signals import NO_SIGNALS, Signal, SignalMark
from runners.millwheel.store.port import Fenced, Store
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    SIGNALS,
    SPLIT,
    Owner,
    StoreFactory,
    at_once,
    cell,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
    take_over,
)

_SENDERS, _SIGNALS_EACH = 4, 10


def check_signals_are_numbered_for_each_job(connect: StoreFactory) -> None:
    """From 1 without a gap, whatever their names, and whatever other jobs are sent."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("other"), tables=[]))
    expect_equal(list(store.read_signals(JOB, 0)), [], "signals of a new job")
    sent = [
        store.send_signal(job, name)
        for job, name in ((JOB, "flush"), ("other", "flush"), (JOB, "peek"), (JOB, "flush"))
    ]
    expect_equal(sent, [1, 1, 2, 3], "the numbers of signals")
    expected = [Signal(1, "flush"), Signal(2, "peek"), Signal(3, "flush")]
    for after in range(5):
        found = list(connect().read_signals(JOB, after))
        expect_equal(found, expected[after:], f"signals after {after}")
    expect_equal(list(store.read_signals("other", 0)), [Signal(1, "flush")], "of another job")
    expect_equal(list(store.read_signals("nobody", 0)), [], "signals of an unknown job")


def check_signals_that_no_trigger_listens_to_are_refused(connect: StoreFactory) -> None:
    """Signals of an unknown name, to a job that is finished, in batch, or unknown are refused; and nothing is kept."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("history", mode="batch"), tables=[]))
    store.send_signal(JOB, "peek")
    expect_error(SignalError, partial(store.send_signal, JOB, "flsh"), "an unknown name")
    expect_error(SignalError, partial(store.send_signal, "history", "flush"), "a batch job")
    expect_error(StoreError, partial(store.send_signal, "nobody", "flush"), "an unknown job")
    store.finish_job(JOB)
    expect_error(SignalError, partial(store.send_signal, JOB, "flush"), "a finished job")
    expect_equal(list(store.read_signals(JOB, 0)), [Signal(1, "peek")], "signals after refusals")


def check_open_returns_what_a_job_listens_to(connect: StoreFactory) -> None:
    """A new version of the code may listen to other signals."""
    store = opened(connect)
    expect_equal(set(store.read_job(JOB).signals), set(SIGNALS), "what a new job listens to")  # type: ignore[union-attr]
    spec = attrs.evolve(job_spec(), signals=frozenset({"stop"}))
    expect_equal(set(connect().open_job(spec).signals), {"stop"}, "what it listens to now")
    expect_equal(store.send_signal(JOB, "stop"), 1, "the first signal")
    expect_error(SignalError, partial(store.send_signal, JOB, "flush"), "a former name")


def check_signals_by_many_senders_at_once(connect: StoreFactory) -> None:
    """Every signal has a number of its own, and who reads on after the last one misses none."""
    store, stores = opened(connect), [connect() for _ in range(_SENDERS)]
    is_over = threading.Event()

    def send(sender: Store) -> list[int]:
        return [sender.send_signal(JOB, "flush") for _ in range(_SIGNALS_EACH)]

    def read() -> list[Signal]:
        found: list[Signal] = []
        was_over = False
        while not was_over:
            was_over = is_over.is_set()
            found += store.read_signals(JOB, found[-1].number if found else 0)
        return found

    def send_all() -> list[list[int]]:
        try:
            return at_once([partial(send, sender) for sender in stores])
        finally:
            is_over.set()

    numbers, found = at_once([send_all, read])
    expected = list(range(1, _SENDERS * _SIGNALS_EACH + 1))
    given_out = sorted(number for given in numbers for number in given)
    expect_equal(given_out, expected, "the numbers given out")
    expect_equal([signal.number for signal in found], expected, "the numbers read on the way")
    for given in numbers:
        expect_equal(given, sorted(given), "the numbers of one sender")


def check_signal_marks(connect: StoreFactory) -> None:
    """A range keeps a mark of how far it has come; the next owner finds it, and it only advances."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    expect_equal(take_over(store, SPLIT).row.signal_mark, NO_SIGNALS, "of a new range")
    last = KEY_SPACE_END - 1
    marks = [(0, last), (1, 0), (1, 7), (1, 1 << 63), (1, last), (5, 0), (5, 9)]
    for mark in marks:
        owner.commit(signal_marks={HIGH: SignalMark(*mark)})
        job = connect().read_job(JOB)
        assert job is not None
        expect_equal(job.ranges[HIGH].signal_mark, SignalMark(*mark), "how far a range has come")
    for mark in reversed(marks):
        owner.commit(signal_marks={HIGH: SignalMark(*mark), LOW: SignalMark(2, 3)})
    owner.commit()
    expect_equal(take_over(store, LOW).row.signal_mark, SignalMark(2, 3), "at takeover")
    expect_equal(take_over(store, HIGH).row.signal_mark, SignalMark(5, 9), "after earlier marks")


def check_signal_marks_are_fenced(connect: StoreFactory) -> None:
    """The mark that a former owner commits does not count."""
    zombie = Owner(opened(connect), LOW, name="zombie")
    delayed = zombie.production(signal_marks={LOW: SignalMark(9)}, cells=[cell(b"k", b"1")])
    successor = Owner(connect(), LOW, name="successor")
    expect_equal(zombie.store.commit(delayed), Fenced(LOW), "the delayed commit")
    successor.commit(signal_marks={LOW: SignalMark(1)})
    expect_equal(take_over(successor.store).row.signal_mark, SignalMark(1), "the successor's")


def check_reset_forgets_signals(connect: StoreFactory) -> None:
    """A new job under an old name has received no signal."""
    store = opened(connect)
    store.send_signal(JOB, "flush")
    Owner(store, LOW).commit(signal_marks={LOW: SignalMark(1)})
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect_equal(list(store.read_signals(JOB, 0)), [], "signals of the new job")
    expect_equal(take_over(store).row.signal_mark, NO_SIGNALS, "how far its range has come")
    expect_equal(store.send_signal(JOB, "peek"), 1, "the new job's first signal")


def check_list_of_jobs(connect: StoreFactory) -> None:
    """Jobs are listed by name, with what is left to do; a watermark only when every split of a source has one."""
    store = opened(connect)
    expect(len(store.read_jobs()) == 1, "one job is not one job")
    store.open_job(attrs.evolve(job_spec("a batch", mode="batch"), tables=[], signals=frozenset()))
    owner = Owner(store, LOW, HIGH, SPLIT)
    owner.commit(watermarks_us={LOW: 5})
    expect_equal(connect().read_jobs()[1].watermark_us, None, "a watermark without its source")
    owner.commit(watermarks_us={SPLIT: -7}, finished=frozenset({SPLIT}))
    first, second = connect().read_jobs()
    expect_equal((first.job, first.mode, set(first.signals)), ("a batch", "batch", set()), "first")
    expect_equal(
        (second.job, second.mode, set(second.signals)), (JOB, "streaming", set(SIGNALS)), "next"
    )
    expect_equal((second.ranges, second.open_ranges), (3, 2), "its ranges")
    # A key range that has committed nothing has had nothing.
    expect_equal((second.watermark_us, second.is_finished), (-7, False), "its progress")
    owner.commit(watermarks_us={HIGH: 9})
    store.finish_job(JOB)
    _, second = connect().read_jobs()
    expect_equal((second.watermark_us, second.is_finished), (-7, True), "its progress at the end")
    expect_equal(second.open_ranges, 0, "what is left to do at the end")
