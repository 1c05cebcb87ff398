"""Signals do not overtake data, however ranges are divided, united, moved and reported on meanwhile.

The master's board and what ranges pass on, both real, in scripts of a grouping of which several ranges are with
several workers.  A worker behaves as `Worker` does: it processes the news that comes with a range before anything else
(`tests/unit/runners/millwheel/worker/test_news_of_signals.py`), and what several of its ranges emit in one step is sent
by any of them.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint
from runners.millwheel.model.signals import NO_SIGNALS, Signal, SignalBoard, SignalMark
from runners.millwheel.worker.outbox import Outbox
from runners.millwheel.worker.owned_range import OwnedRange
from runners.testing.scripted_source import ScriptedSource

READ, NEXT = RangeId("read", 0), RangeId("next", 0)
WORKERS = 2
Patch = pytest.MonkeyPatch
#: What is done, and three numbers that choose with what.
WHAT = [
    *["move", "ask_for_a_split", "split", "merge", "retire", "restart"],
    *["emit", "post", "split_at_once", "commit"] * 2,
    *["act_on_news"] * 3,
    *["acknowledge", "report", "deliver_report", "report_at_once"] * 4,
]
SCRIPTS = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)),
    min_size=10,
    max_size=100,
)


def pipeline(listening: str) -> ExecutionPlan:
    """Two groupings in a row, some of which fire by a signal."""
    p = df.Pipeline(DirectRunner())
    by_signal, by_count = (
        df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(part),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        for part in (df.AfterSignal("flush"), df.AfterCount(1))
    )
    (
        p
        | "read" >> df.Read(ScriptedSource([]))
        | "windows" >> (by_signal if "group" in listening else by_count)
        | "group" >> df.GroupByKey()
        | "sum" >> df.Map(lambda pair: (pair[0], sum(pair[1])))
        | "again" >> (by_signal if "next" in listening else by_count)
        | "next" >> df.GroupByKey()
    )
    return plan(p.graph())


PLANS = {each: pipeline(each) for each in ("group and next", "group", "next")}


@attrs.define
class Range:
    """A range of the first grouping as it really is."""

    owned: OwnedRange
    worker: int
    has_keys: bool = True
    #: What is not acknowledged, and the last signal that all whose panes are in it had processed.
    sent: deque[tuple[Checkpoint, int]] = attrs.field(factory=deque)

    @property
    def mark(self) -> int:
        return self.owned.signal_mark.number

    @property
    def stored(self) -> int:
        return self.owned.signal_mark_committed.number

    def commit(self) -> None:
        self.owned.signal_mark_committed = self.owned.signal_mark


class SimulatedJob:
    """What happens to a job; `check` after each of it.

    Args:
        listening: which groupings listen.
        is_weak: whether productions are weak, so that steps are committed some time after they are done.
    """

    def __init__(self, listening: str, *, is_weak: bool) -> None:
        self._plan, self._is_listening = PLANS[listening], "group" in listening
        self._is_weak = is_weak
        self._posted: list[Signal] = []
        self._ranges = {
            RangeId("group", index): Range(self._owned(RangeId("group", index)), index % WORKERS)
            for index in range(2)
        }
        self._born, self._next_mark = len(self._ranges), 0
        #: Splits that the master has asked for, by the range that is to be born, and merges that are committed.
        self._asked: dict[RangeId, RangeId] = {}
        self._gone: dict[RangeId, RangeId] = {}
        self._begin()

    def check(self) -> None:
        inputs, known = self.board.news.inputs, {each.number for each in self.board.news.signals}
        number = inputs["next"]
        # What it was notified of before this driver it has behind it.
        number = number if number > self._next_before else 0
        for range_id, each in self._ranges.items():
            if each.has_keys:
                assert each.mark >= number, f"{range_id} has not processed signal {number}"
            for checkpoint, processed in each.sent:
                assert processed >= number, f"{checkpoint} was sent before signal {number}"
            if self._is_listening:
                due = {each.number for each in self._posted if each.number <= inputs["group"]}
                lost = {signal for signal in due if signal > each.stored} - known
                assert not lost, f"{range_id} is never notified of {lost}"
        self._next_mark = inputs["next"]

    def _begin(self) -> None:
        """Begin anew, like a driver that has started: it knows what is committed."""
        marks = {
            range_id: SignalMark(each.stored) if self._is_listening else NO_SIGNALS
            for range_id, each in self._ranges.items()
        }
        marks |= {READ: NO_SIGNALS, NEXT: SignalMark(self._next_mark)}
        self.board = SignalBoard(self._plan, list(marks), marks)
        self._asked.clear()
        self._next_before = self._next_mark
        self._reports: dict[int, deque[dict[RangeId, int]]] = defaultdict(deque)
        self.board.post(each for each in self._posted if each.number > self.board.latest)

    # What can happen; the numbers choose of what there is.

    def post(self, *_: int) -> None:
        self._posted.append(Signal(len(self._posted) + 1, "flush"))
        self.board.post(self._posted[-1:])
        # All that the source has read before has arrived.
        self.board.report({READ: len(self._posted)})
        self.board.pass_on()

    def act_on_news(self, worker: int, *_: int) -> None:
        """A worker processes what the master has sent it, in all of its ranges."""
        number = self.board.news.inputs["group"]
        for each in self._of(worker % WORKERS):
            each.owned.act_on_signals(SignalMark(number))
            if not self._is_weak:
                each.commit()

    def commit(self, worker: int, *_: int) -> None:
        """What waited is committed."""
        for each in self._of(worker % WORKERS):
            each.commit()

    def emit(self, worker: int, which: int, sender: int) -> None:
        """A step of several ranges of a worker."""
        ours = self._of(worker % WORKERS)
        touched = [each for at, each in enumerate(ours) if (which + 1) >> at & 1]
        if touched:
            sends = touched[sender % len(touched)]
            channel = Channel(sends.owned.range_id, NEXT)
            checkpoint = sends.owned.outbox.create(channel, 0, b"")
            sends.sent.append((checkpoint, min(each.mark for each in touched)))

    def acknowledge(self, which: int, *_: int) -> None:
        if waiting := [each for each in self._ranges.values() if each.sent]:
            each = waiting[which % len(waiting)]
            checkpoint, _processed = each.sent.popleft()
            each.owned.outbox.acknowledge(checkpoint.channel, checkpoint.sequence)

    def report(self, worker: int, *_: int) -> None:
        worker %= WORKERS
        passed = {each.owned.range_id: each.owned.passed_signal() for each in self._of(worker)}
        self._reports[worker].append(passed)

    def deliver_report(self, worker: int, *_: int) -> None:
        worker %= WORKERS
        if reports := self._reports[worker]:
            report = reports.popleft()
            # The master believes nobody who reports on what he does not have.
            if all(each in self._ranges and self._ranges[each].worker == worker for each in report):
                self.board.report(report)
                self.board.pass_on()
                self.board.report({NEXT: self.board.news.inputs["next"]})
                self.board.pass_on()

    def report_at_once(self, worker: int, *_: int) -> None:
        self.report(worker)
        while self._reports[worker % WORKERS]:
            self.deliver_report(worker)

    def move(self, which: int, worker: int, *_: int) -> None:
        """Somebody else takes a range over, with the one with which it is in handover, and all that waits there."""
        range_id = self._one(which)
        head = self._gone.get(range_id, range_id)
        for each in (head, *(gone for gone, of in self._gone.items() if of == head)):
            self._take(self._ranges[each], worker % WORKERS)
        self.act_on_news(worker)

    def ask_for_a_split(self, which: int, *_: int) -> None:
        range_id = self._one(which)
        if self._ranges[range_id].has_keys and self._is_free(range_id):
            born, self._born = RangeId("group", self._born), self._born + 1
            self._asked[born] = range_id
            self.board.add(born, range_id)

    def split(self, which: int, *_: int) -> None:
        """The owner has committed a split; both ranges begin with what is stored of the one."""
        if not self._asked:
            return
        born = [*self._asked][which % len(self._asked)]
        head = self._ranges[self._asked.pop(born)]
        head.commit()
        mark = head.owned.signal_mark
        self._ranges[born] = Range(self._owned(born), head.worker)
        self._take(head, head.worker)
        # Where it is not stored, as the worker had it from the master.
        for each in (head, self._ranges[born]):
            each.owned.act_on_signals(mark)
            each.commit()

    def split_at_once(self, which: int, *_: int) -> None:
        self.ask_for_a_split(which)
        self.split(len(self._asked) - 1)

    def merge(self, which: int, other: int, *_: int) -> None:
        """The owner of two ranges gives the keys of the one to the other."""
        head, gone = self._one(which), self._one(other)
        ours, others = self._ranges[head], self._ranges[gone]
        if (
            head != gone
            and ours.worker == others.worker
            and ours.has_keys
            and others.has_keys
            and self._is_free(head)
            and self._is_free(gone)
        ):
            assert ours.mark == others.mark, "or cells would get a signal twice, or never"
            for each in (ours, others):
                each.commit()
            others.has_keys, self._gone[gone] = False, head

    def retire(self, which: int, *_: int) -> None:
        """A range without keys, of which everything has arrived."""
        done = [gone for gone in self._gone if self._ranges[gone].owned.outbox.is_empty]
        done = [each for each in done if not self._ranges[each].sent]
        if done:
            gone = done[which % len(done)]
            del self._ranges[gone], self._gone[gone]
            self.board.retire(gone)

    def restart(self, which: int, *_: int) -> None:
        """The driver dies, and with it the workers."""
        if which > 1:
            return
        for at, each in enumerate(self._ranges.values()):
            self._take(each, at % WORKERS)
        for gone, head in self._gone.items():
            self._ranges[gone].worker = self._ranges[head].worker
        self._begin()
        for worker in range(WORKERS):
            self.act_on_news(worker)

    def _take(self, each: Range, worker: int) -> None:
        found = self._owned(each.owned.range_id, [checkpoint for checkpoint, _ in each.sent])
        if self._is_listening:
            found.signal_mark_committed = each.owned.signal_mark_committed
            found.act_on_signals(each.owned.signal_mark_committed)
        each.owned, each.worker = found, worker

    def _owned(self, range_id: RangeId, checkpoints: Sequence[Checkpoint] = ()) -> OwnedRange:
        newest = {each.channel: each.sequence for each in checkpoints}
        found = OwnedRange(range_id, 1, 0, Outbox(checkpoints, newest), {}, 0)
        found.keeps_signal_mark = self._is_listening
        return found

    def _of(self, worker: int) -> list[Range]:
        return [each for each in self._ranges.values() if each.worker == worker]

    def _one(self, which: int) -> RangeId:
        return [*self._ranges][which % len(self._ranges)]

    def _is_free(self, range_id: RangeId) -> bool:
        busy = {*self._gone, *self._gone.values(), *self._asked.values()}
        return range_id not in busy


def check_script(
    listening: str, script: Sequence[tuple[Any, ...]], *, is_weak: bool = False
) -> None:
    """Let it all happen, and look each time."""
    job = SimulatedJob(listening, is_weak=is_weak)
    for what, *chosen in script:
        getattr(job, what)(*chosen)
        job.check()


def script_of(*happened: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(*each, 0, 0, 0)[:4] for each in happened]


#: A range is born and sends; its neighbours have passed the next signal on.
BORN = script_of(
    ("post",),
    ("split_at_once",),
    ("emit", 0, 1),
    *[("act_on_news", worker) for worker in range(WORKERS)],
    *[("report_at_once", worker) for worker in range(WORKERS)],
)
#: A range is born and has moved; all others, on another worker, are notified first.
BORN_AND_MOVED = script_of(
    ("split_at_once",),
    ("move", 2, 1),
    ("move", 1, 0),
    ("post",),
    ("act_on_news", 0),
    ("report_at_once", 0),
)
#: One that has passed a signal on comes to one that has not; the first then sends what both emit.
MET = script_of(
    ("post",),
    ("act_on_news", 1),
    ("report_at_once", 1),
    ("move", 1, 0),
    ("emit", 0, 2, 1),
    ("act_on_news", 0),
    ("report_at_once", 0),
)


@pytest.mark.parametrize("listening", PLANS)
@example(script=BORN)
@example(script=BORN_AND_MOVED)
@example(script=MET)
@given(script=SCRIPTS)
def test_the_next_grouping_is_notified_when_all_that_was_sent_before_has_arrived(
    listening: str, script: list[tuple[Any, ...]]
) -> None:
    """And every range gets every signal, while there is a range that has not."""
    check_script(listening, script)


#: All have processed a signal, and one of them has not committed that.
UNCOMMITTED = script_of(
    ("post",),
    *[("act_on_news", worker) for worker in range(WORKERS)],
    *[("report_at_once", worker) for worker in range(WORKERS)],
)


@pytest.mark.parametrize("listening", ["group", "group and next"])
@example(script=UNCOMMITTED)
@given(script=SCRIPTS)
def test_a_signal_is_kept_until_all_have_committed_that_they_have_processed_it(
    listening: str, script: list[tuple[Any, ...]]
) -> None:
    """Also where productions are weak, and arrive before the step that has made them is committed."""
    check_script(listening, script, is_weak=True)


# --- broken on purpose ------------------------------------------------------------------------


def new_ranges_do_not_listen(patch: Patch) -> None:
    def add(board: SignalBoard, range_id: RangeId, like: RangeId) -> None:
        board._outputs[range_id] = board._outputs[like]
        board._ranges[range_id.computation].append(range_id)

    patch.setattr(SignalBoard, "add", add)


def new_ranges_have_passed_all_on(patch: Patch) -> None:
    add = SignalBoard.add

    def added(board: SignalBoard, range_id: RangeId, like: RangeId) -> None:
        add(board, range_id, like)
        board._outputs[range_id] = board.latest

    patch.setattr(SignalBoard, "add", added)


def one_range_is_enough(patch: Patch) -> None:
    pass_on = SignalBoard.pass_on

    def passed_on(board: SignalBoard) -> bool:
        for name in ("next",):
            outputs = [board._outputs[each] for each in board._ranges["group"]]
            board._inputs[name] = max(board._inputs[name], *outputs)
        return pass_on(board)

    patch.setattr(SignalBoard, "pass_on", passed_on)


def signals_are_passed_on_at_once(patch: Patch) -> None:
    patch.setattr(OwnedRange, "passed_signal", lambda owned: owned.signal_mark.number)


def what_a_former_owner_has_sent_does_not_count(patch: Patch) -> None:
    patch.setattr(Outbox, "newest", lambda outbox: dict(outbox._acknowledged))


def a_range_is_taken_over_before_the_news(patch: Patch) -> None:
    """So that a range which is further sends what one that is behind has emitted."""
    move = SimulatedJob.move

    def moved(job: SimulatedJob, which: int, worker: int, *_: int) -> None:
        act_on_news, patched = SimulatedJob.act_on_news, pytest.MonkeyPatch()
        patched.setattr(SimulatedJob, "act_on_news", lambda *_: None)
        move(job, which, worker)
        patched.undo()
        assert SimulatedJob.act_on_news is act_on_news

    patch.setattr(SimulatedJob, "move", moved)


@pytest.mark.parametrize(
    "mutate",
    [
        new_ranges_do_not_listen,
        new_ranges_have_passed_all_on,
        one_range_is_enough,
        signals_are_passed_on_at_once,
        what_a_former_owner_has_sent_does_not_count,
        a_range_is_taken_over_before_the_news,
    ],
)
def test_what_lets_a_signal_overtake_is_found(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)

    def look() -> None:
        for script in (BORN, BORN_AND_MOVED, MET):
            for listening in PLANS:
                check_script(listening, script)

    with pytest.raises(AssertionError):
        look()
