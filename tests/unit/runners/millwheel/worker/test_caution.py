"""Caution: input that has ended a process is run on trial until it is done, and nothing else is."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.caution import Caution, of_deliveries, of_due
from runners.millwheel.worker.compactor import Compactor
from runners.testing.manual_clock import ManualClock

READ, OTHER, LOW, HIGH = (RangeId(name, index) for name in ("read", "sum") for index in (0, 1))


class Watching:
    """A watch that knows what is at work."""

    def __init__(self) -> None:
        self.at: Sequence[StepInput] = ()
        self.trial: Any = object()

    def begin(self, at: Sequence[StepInput]) -> None:
        self.at = at

    def end(self) -> None:
        self.at = ()

    def commits(self, since_us: int) -> None:
        """Nothing is committed here."""


class Tried:
    """A computation that knows whether its user code runs on trial."""

    def __init__(self) -> None:
        self.trial: Any = None

    def try_first(self, trial: Any) -> None:
        self.trial = trial


class Steps:
    """The caution of a worker with one source and one grouping."""

    def __init__(self, *suspects: StepInput) -> None:
        self.watch = Watching()
        self.computations: Any = {"read": Tried(), "sum": Tried()}
        self.caution = Caution(self.computations, self.watch, ManualClock())
        self.caution.suspect(suspects)

    def on_trial(self, *inputs: StepInput) -> bool:
        """Whether a step of this input runs on trial."""
        (name,) = {each.ranges[0].computation for each in inputs}
        with self.caution.at(inputs):
            assert self.watch.at == inputs
            is_tried = self.computations[name].trial is self.watch.trial
        assert not self.watch.at
        assert self.computations[name].trial is None
        return is_tried


def records(bundle: int) -> StepInput:
    return StepInput((READ,), None, bundle, bundle)


def deliveries(first: int, last: int, sender: RangeId = READ) -> StepInput:
    return StepInput((LOW,), sender, first, last)


def due(bundles: int, *ranges: RangeId) -> StepInput:
    return StepInput(ranges or (LOW, HIGH), None, bundles, None)


def test_the_next_records_of_a_split_until_they_are_committed() -> None:
    steps = Steps(records(3))

    assert [steps.on_trial(records(n)) for n in (3, 3, 4, 3)] == [True, True, False, False]


def test_deliveries_until_those_that_come_are_behind_them() -> None:
    """However many come at once: the record can be in any of them."""
    steps = Steps(deliveries(3, 5))
    spans = [(2, 4), (3, 9), (5, 5), (6, 6), (5, 5)]

    assert [steps.on_trial(deliveries(*span)) for span in spans] == [True, True, True, False, False]


def test_deliveries_of_one_sender_and_those_of_another_one_are_apart() -> None:
    steps = Steps(deliveries(3, 5))

    assert not steps.on_trial(deliveries(1, 90, OTHER))
    assert not steps.on_trial(due(80))
    assert steps.on_trial(deliveries(7, 8, OTHER), deliveries(3, 3))


def test_what_is_due_until_nothing_is() -> None:
    """It can take many steps, and each of them commits something."""
    steps = Steps(due(7), deliveries(3, 3))

    assert [steps.on_trial(due(n)) for n in (7, 8, 90)] == [True, True, True]
    steps.caution.nothing_due("others")
    assert steps.on_trial(due(91, LOW))
    steps.caution.nothing_due("sum")
    assert not steps.on_trial(due(7))
    assert steps.on_trial(deliveries(3, 3))


def test_what_is_due_in_other_ranges_is_not_on_trial() -> None:
    assert not Steps(due(7, LOW)).on_trial(due(7, HIGH))
    assert Steps(due(7, LOW)).on_trial(due(7, HIGH, LOW))


def test_nothing_is_suspect_where_there_can_be_no_trial() -> None:
    steps = Steps()
    steps.watch.trial = None
    steps.caution.suspect([records(3)])

    assert not steps.caution._suspects


def test_input_that_is_suspect_already_is_kept_once() -> None:
    """The master names it with every range that it assigns."""
    steps = Steps(records(3), deliveries(1, 2))
    steps.caution.suspect([deliveries(1, 2), records(3)])

    assert steps.caution._suspects == [records(3), deliveries(1, 2)]


def test_without_ranges_nothing_is_due() -> None:
    """A worker that is killed meanwhile has ended on no input."""
    assert of_due([]) == ()


def test_an_error_of_user_code_is_no_end_of_the_process() -> None:
    """A process that ends is found at its step; one that goes on after an error is at none."""
    steps = Steps()

    def ends_by(error: BaseException) -> Sequence[StepInput]:
        with pytest.raises(type(error)), steps.caution.at([records(3)]):
            raise error
        return steps.watch.at

    assert ends_by(ValueError()) == ()
    assert ends_by(KeyboardInterrupt()) == [records(3)]


def test_deliveries_are_named_by_their_channels() -> None:
    channels = Channel(READ, LOW), Channel(OTHER, LOW), Channel(READ, HIGH)
    order = [(0, 3), (1, 7), (0, 4), (2, 1), (0, 5)]
    some = [
        Deliver(channel=channels[index], sequence=sequence, payload=b"")
        for index, sequence in order
    ]

    assert of_deliveries(some) == [
        deliveries(3, 5),
        deliveries(7, 7, OTHER),
        StepInput((HIGH,), READ, 1, 1),
    ]


def test_merging_what_goes_into_cells_is_reported_step_by_step() -> None:
    """Merging runs user code, and a step of a compactor is one of the worker like any other."""
    steps = Steps()
    seen: list[object] = []

    def relieve(*_: object) -> Iterator[str]:
        for name in ("one", "two"):
            seen.append((name, *steps.watch.at))
            yield name

    grouping: Any = SimpleNamespace(
        state=SimpleNamespace(
            ranges={LOW: SimpleNamespace(range_id=LOW, bundle=4)},
        ),
        window_steps=SimpleNamespace(relieve=relieve),
    )
    committer: Any = SimpleNamespace(
        flush=lambda _: None,
        commit_at_once=lambda step: seen.append((step, *steps.watch.at)),
    )
    clock: Any = SimpleNamespace(now_us=lambda: 0, monotonic_ms=lambda: 0)
    Compactor({}, committer, steps.caution, clock)._relieve("sum", grouping, [LOW])

    at = due(4, LOW)
    assert seen == [("one", at), ("one",), ("two", at), ("two",)]


def test_a_refused_commit_is_blamed_on_all_input_since_the_last_one() -> None:
    steps = Steps()
    read, taken = StepInput((READ,), None, 3, 3), StepInput((LOW,), READ, 1, 2)
    assert not steps.on_trial(read)
    steps.caution.submitted()
    steps.caution.confirmed()
    assert not steps.on_trial(read)
    assert not steps.on_trial(taken)
    steps.caution.refused()

    assert steps.watch.at == [read, taken]


def test_a_refused_commit_is_not_blamed_on_what_was_done_after_it() -> None:
    steps = Steps()
    read, taken = StepInput((READ,), None, 3, 3), StepInput((LOW,), READ, 1, 2)
    assert not steps.on_trial(read)
    steps.caution.submitted()
    assert not steps.on_trial(taken)
    steps.caution.refused()

    assert steps.watch.at == [read]


def test_a_refused_commit_without_user_code_leaves_what_was_reported_before() -> None:
    steps = Steps()
    assert not steps.on_trial(StepInput((READ,), None, 3, 3))
    steps.caution.submitted()
    steps.caution.confirmed()
    steps.watch.at = [StepInput((READ,), None, 3, 3)]
    steps.caution.refused()

    assert steps.watch.at
