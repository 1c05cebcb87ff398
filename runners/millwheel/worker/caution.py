"""Caution: which step a worker is in the middle of, for the process that watches it; and steps that ended a process.

A record can end the process that works on it (a crash of native code, `os._exit`), or never come back.  The process
itself cannot catch that, so the one that watches it must know which step it was in (`Watch.begin`).  The next owner of
the range runs user code on trial, in a process of its own (`Watch.trial`), before it runs it itself.  So the record is
found in the same way as one for which user code raises (`runners.core.user_code.poison`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from dataflow.metric_updates import running
from runners.core.ground.clock import Clock
from runners.core.user_code.poison import Trial
from runners.millwheel.model.ids import Channel
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.handed_on import HandedOnPart
from runners.millwheel.worker.owned_computation import Computation
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.worker_step import WorkerStep


class Watch(Protocol):
    """Watches the process of a worker from outside."""

    def begin(self, at: Sequence[StepInput]) -> None:
        """Note that user code starts on this input."""

    def end(self) -> None:
        """Note that user code has returned."""

    def commits(self, since_us: int) -> None:
        """Note since when the worker waits for a commit, in microseconds since 1970; 0: it does not any more."""

    @property
    def trial(self) -> Trial | None:
        """Runs user code in a process of its own first; None: that cannot be done here."""


class _Unwatched:
    trial: Trial | None = None

    def begin(self, at: Sequence[StepInput]) -> None:
        """Do nothing: no process watches."""

    def end(self) -> None:
        """Do nothing: no process watches."""

    def commits(self, since_us: int) -> None:
        """Do nothing: no process watches."""


#: For workers that no process watches.
UNWATCHED: Watch = _Unwatched()


def of_split(owned: OwnedRange) -> Sequence[StepInput]:
    """The next records of a split."""
    return (StepInput((owned.range_id,), None, owned.bundle, owned.bundle),)


def of_deliveries(deliveries: Sequence[Deliver]) -> Sequence[StepInput]:
    """Deliveries to the ranges of one computation, in the order of their channels."""
    spans: dict[Channel, tuple[int, int]] = {}
    for each in deliveries:
        first, _ = spans.get(each.channel, (each.sequence, 0))
        spans[each.channel] = first, each.sequence
    return [
        StepInput((channel.receiver,), channel.sender, first, last)
        for channel, (first, last) in spans.items()
    ]


def of_handed_on(parts: Iterable[HandedOnPart]) -> Sequence[StepInput]:
    """Partials that were handed on, by the number that they have if they are sent: the next owner has them sent."""
    channels = dict.fromkeys(
        (sender.range_id, receiver.range_id, sender.outbox) for sender, receiver, _ in parts
    )
    numbers = [
        (receiver, sender, outbox.next_sequence(Channel(sender, receiver)))
        for sender, receiver, outbox in channels
    ]
    return [StepInput((receiver,), sender, number, number) for receiver, sender, number in numbers]


def of_due(ranges: Collection[OwnedRange]) -> Sequence[StepInput]:
    """Timers and signals that are due in the ranges of one computation; without ranges nothing can be due."""
    if not ranges:
        return ()
    names = tuple(sorted(owned.range_id for owned in ranges))
    return (StepInput(names, None, sum(owned.bundle for owned in ranges), None),)


class Caution:
    """Reports what one worker is working on to the process that watches it.

    Args:
        computations: by name.
        watch: of its process.
        clock: for how long steps take.
    """

    def __init__(self, computations: Mapping[str, Computation], watch: Watch, clock: Clock) -> None:
        self._computations, self._watch, self._clock = computations, watch, clock
        #: How long the worker has been in steps of each computation, in microseconds.
        self.spent_us: Counter[str] = Counter()
        self._suspects: list[StepInput] = []
        #: On which user code has run since the last commit was sent, and what of it is in that commit.
        self._uncommitted: list[StepInput] = []
        self._under_way: list[StepInput] = []

    @property
    def is_suspicious(self) -> bool:
        """Whether input has ended a process, and has not been done since."""
        return bool(self._suspects)

    def submitted(self) -> None:
        """Note that all that user code has done is in the commit that was sent last."""
        self._under_way, self._uncommitted = self._uncommitted, []

    def confirmed(self) -> None:
        """Note that the commit that was sent last is durable."""
        self._under_way = []

    def refused(self) -> None:
        """Report that the process ends because of what user code has done for a commit, if that is any.

        Of two the first: the other one has not been sent.
        """
        if inputs := self._under_way or self._uncommitted:
            self._watch.begin(inputs)

    def suspect(self, inputs: Collection[StepInput]) -> None:
        """Note input that has ended a process."""
        if self._watch.trial is not None:
            # The master assigns again when an answer is lost.
            self._suspects = [*dict.fromkeys([*self._suspects, *inputs])]

    @contextmanager
    def at(self, inputs: Sequence[StepInput]) -> Iterator[None]:
        """Report that user code runs on input of one computation; on trial first, if it has ended a process here."""
        computation = None
        if self._suspects and self._are_suspect(inputs):
            computation = self._computations[inputs[0].ranges[0].computation]
        self._uncommitted += inputs
        self._watch.begin(inputs)
        now = running()
        now.step = inputs
        began_us = self._clock.now_us()
        try:
            if computation is not None:
                computation.try_first(self._watch.trial)
            yield
        except Exception:
            # User code has returned; what ends the process is no `Exception`, and must be reported at this step.
            self._watch.end()
            now.step = None
            raise
        self._watch.end()
        now.step = None
        if inputs:
            self.spent_us[inputs[0].ranges[0].computation] += self._clock.now_us() - began_us
        if computation is not None:
            computation.try_first(None)

    def of_steps(
        self, ranges: Collection[OwnedRange], steps: Iterable[WorkerStep]
    ) -> Iterator[WorkerStep]:
        """Yield steps that run user code on what is due in ranges of one computation, each reported by itself.

        Args:
            ranges: of the computation.
            steps: made one by one, as they are asked for.
        """
        remaining = iter(steps)
        while True:
            with self.at(of_due(ranges)):
                step = next(remaining, None)
            if step is None:
                return
            yield step

    def nothing_due(self, name: str) -> None:
        """Note that nothing is due in a computation: what was due when a process ended is done."""
        if self._suspects:
            self._suspects = [
                each
                for each in self._suspects
                if each.last is not None or each.ranges[0].computation != name
            ]

    def _are_suspect(self, inputs: Sequence[StepInput]) -> bool:
        suspects, is_suspect = [], False
        for suspect in self._suspects:
            found = next((each for each in inputs if _is_like(each, suspect)), None)
            if found is None:
                suspects.append(suspect)
            elif suspect.last is None or found.first <= suspect.last:
                suspects.append(suspect)
                is_suspect = True
        self._suspects = suspects
        return is_suspect


def _is_like(one: StepInput, other: StepInput) -> bool:
    """Whether they are of one kind, of the same sender, and to the same range or to some of the same ranges."""
    return (
        one.sender == other.sender
        and (one.last is None) == (other.last is None)
        and not set(one.ranges).isdisjoint(other.ranges)
    )
