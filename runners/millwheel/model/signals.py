"""Signals: names that are sent to a running job from outside, on their way to the windows that listen.

A job's signals are numbered from 1 by the store, which keeps them.  The master reads new ones and lets them follow the
data through the job, as watermarks do: a source passes a signal on at once, and a grouping when its windows have fired
by it; but a range passes it on only when all that it sent before has been acknowledged.  So a signal never overtakes
data: a window receives it after all that a source had read before the source received it, and after all that an earlier
grouping emitted because of it.

**Invariants**

* A key range processes signals in the order of their numbers, each once.  How far it has come (`SignalMark`) is
  committed with the state that results, so it does not depend on who owns the range; only then is a signal passed on.
* That is so even if no window has changed: a window that opens afterwards does not receive an earlier signal, not even
  after a crash.

Dataflow Model, section 2.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from runners.core.panes.signal_delivery import trigger_of
from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.model.ids import RangeId


class Signal(NamedTuple):
    """One signal of a job."""

    number: int
    name: str


class SignalMark(NamedTuple):
    """How far a key range has come: it has processed all signals up to ``number``.

    It has also processed the next one in the cells whose unsigned key hash is below ``next_hash``: a range with very
    many cells does that in several commits.  Of two marks of a range the greater one is the later one.
    """

    number: int = 0
    next_hash: int = 0


#: The mark of a range that has processed no signal.
NO_SIGNALS = SignalMark()


@attrs.frozen(kw_only=True)
class SignalNews:
    """What the master sends to workers: up to which signal each computation is to go, and the signals themselves.

    Only those that some range may not have processed, in the order of their numbers.
    """

    inputs: Mapping[str, int] = attrs.field(factory=dict)
    signals: tuple[Signal, ...] = ()


class SignalBoard:
    """Lives in the master: which signals there are, and up to which one each computation is to go.

    Args:
        plan: the pipeline.
        ranges: every range of the job.
        committed: how far each range has come, by its last commit.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        ranges: Sequence[RangeId],
        committed: Mapping[RangeId, SignalMark],
    ) -> None:
        self._ranges = {
            name: [range_id for range_id in ranges if range_id.computation == name]
            for name in plan.stages
        }
        self._senders = {name: plan.senders(name) for name in plan.stages}
        self._outputs = dict.fromkeys(ranges, 0)
        self._listening = []
        self._known_names: frozenset[str] = frozenset()
        for name, stage in plan.stages.items():
            trigger = trigger_of(plan.graph, stage.root)
            if trigger is not None and trigger.signals:
                self._listening += self._ranges[name]
                self._known_names |= trigger.signals
        # A range commits the signals that it has processed, and all senders had passed these on by then: so the range
        # that has come furthest counts for its whole computation.
        self._inputs = {
            name: max((committed[each].number for each in self._ranges[name]), default=0)
            for name in plan.stages
        }
        self._signals: list[Signal] = []
        #: The number of the last signal that is known; later ones are to be read from the store.
        self.latest = min((committed[each].number for each in self._listening), default=0)

    @property
    def is_listening(self) -> bool:
        """Whether any trigger of the pipeline listens to any signal."""
        return bool(self._listening)

    @property
    def news(self) -> SignalNews:
        """What workers are to receive."""
        if not self.is_listening:
            return SignalNews()
        inputs = {name: min(number, self.latest) for name, number in self._inputs.items()}
        return SignalNews(inputs=inputs, signals=tuple(self._signals))

    def post(self, signals: Iterable[Signal]) -> bool:
        """Add signals that the store has, those after `latest` in their order; returns whether there were any."""
        before = self.latest
        for signal in signals:
            self.latest = signal.number
            if signal.name in self._known_names:
                self._signals.append(signal)
        self.pass_on()
        return self.latest > before

    def add(self, range_id: RangeId, like: RangeId) -> None:
        """Add a range that comes from another: it has passed on the same signals.

        Args:
            range_id: of the new range.
            like: the range that it comes from.
        """
        self._outputs[range_id] = self._outputs[like]
        self._ranges[range_id.computation].append(range_id)
        if like in self._listening:
            self._listening.append(range_id)

    def add_split(self, range_id: RangeId) -> None:
        """Add a split that a source has got; until its owner reports, no signal overtakes what it reads.

        Args:
            range_id: of the new split.
        """
        self._outputs[range_id] = 0
        self._ranges[range_id.computation].append(range_id)

    def retire(self, range_id: RangeId) -> None:
        """Remove a range that has nothing left to do."""
        del self._outputs[range_id]
        self._ranges[range_id.computation].remove(range_id)
        if range_id in self._listening:
            self._listening.remove(range_id)

    def report(self, outputs: Mapping[RangeId, int]) -> None:
        """Note how far ranges have passed signals on; `pass_on` lets computations go on accordingly."""
        for range_id, number in outputs.items():
            self._outputs[range_id] = max(self._outputs[range_id], number)

    def pass_on(self) -> bool:
        """Let computations go on by what was reported; returns whether any may."""
        is_further = False
        for name, senders in self._senders.items():
            behind = [self._outputs[each] for sender in senders for each in self._ranges[sender]]
            number = min(behind, default=self.latest)
            if number > self._inputs[name]:
                self._inputs[name] = number
                is_further = True
        done = min((self._outputs[each] for each in self._listening), default=self.latest)
        self._signals = [signal for signal in self._signals if signal.number > done]
        return is_further
