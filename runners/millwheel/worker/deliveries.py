"""Deliveries: how the partials that are sent or handed on reach the windows of a grouping, each once."""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from runners.core.open_windows.open_windows import Arrival
from runners.core.partials.partial import Partial
from runners.core.partials.parts import by_label, parts_of
from runners.core.stages.grouping import GroupingStage
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.wire.messages import Deliver
from runners.millwheel.worker.handed_on import HandedOn, HandedOnPart
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.sizes import StepSize
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.millwheel.worker.worker_step import WorkerStep
from runners.stored.partials import decode_partials


class Deliveries:
    """Takes in the deliveries to the ranges of one grouping.

    Args:
        stage: the grouping.
        state: of the ranges that the worker owns.
        steps: makes steps of a worker of what the windows do.
        guarantees: those that it has.
        limits: how much it does in one step.
    """

    def __init__(
        self,
        stage: GroupingStage,
        state: OwnedState,
        steps: WindowSteps,
        guarantees: Guarantees,
        limits: StepLimits,
    ) -> None:
        self._stage, self._state, self._steps = stage, state, steps
        self._guarantees = guarantees
        self._limits = limits
        #: How many bytes of payloads a step may take in: where what comes is sent on to many, it causes more.
        self._payloads_size = StepSize(attrs.evolve(limits, first=limits.nbytes))

    @property
    def bytes_max(self) -> int:
        """How many bytes of payloads the next step should take in at most."""
        return self._payloads_size.allowed(self._limits.nbytes)

    def take_in(self, deliveries: Sequence[Deliver], now_us: int) -> WorkerStep | None:
        """Process deliveries; returns the step, None if none of them was new.

        Args:
            deliveries: in the order of their channels.
            now_us: the processing time, in microseconds.
        """
        accepted = [
            (owned, delivery)
            for delivery in deliveries
            if (owned := self._state.ranges.get(delivery.channel.receiver)) is not None
            and owned.accept([delivery])
        ]
        if not accepted:
            return None
        arrivals = [
            arrival
            for owned, delivery in accepted
            for arrival in self._arrivals(owned, delivery.payload)
        ]
        step = self._steps.take(self._accepted(accepted), arrivals, now_us)
        self._payloads_size.caused(sum(len(each.payload) for _, each in accepted), step.nbytes)
        return step

    def parts_of(self, handed_on: Sequence[HandedOn]) -> list[HandedOnPart]:
        """Divide what was handed on among the ranges of its keys.

        Args:
            handed_on: to this grouping, all of whose ranges are owned here.

        Raises:
            KeyEncodingError: a key has no deterministic encoding; names the grouping.
        """
        ranges, found = self._state.ranges, list[HandedOnPart]()
        for each in handed_on:
            if each.partials is None:
                found += [HandedOnPart(each.sender, ranges[to], part) for to, part in each.payloads]
            else:
                parts = by_label(each.partials, self._state.locate)
                found += [HandedOnPart(each.sender, owned, part) for owned, part in parts.items()]
        return found

    def take_handed_on(self, parts: Sequence[HandedOnPart], now_us: int) -> WorkerStep:
        """Process what was handed on; returns the step, which must be in one commit with those that have made it.

        Args:
            parts: of everything that was handed on, in its order.
            now_us: the processing time, in microseconds.
        """
        arrivals, taken = list[Arrival](), 0
        for _, owned, part in parts:
            if isinstance(part, bytes):
                taken += len(part)
                arrivals += self._arrivals(owned, part)
            else:
                self._state.meter.take_in(owned.range_id, part, self._state.hash_of)
                arrivals.append(Arrival(part, owned.range_id))
        before = WorkerStep(
            ranges={owned.range_id: owned for _, owned, _ in parts}, takes_handed_on=True
        )
        step = self._steps.take(before, arrivals, now_us)
        if taken:
            self._payloads_size.caused(taken, step.nbytes)
        return step

    def _accepted(self, accepted: Sequence[tuple[OwnedRange, Deliver]]) -> WorkerStep:
        """Take deliveries in on their channels; durably, if they are to be deduplicated."""
        taken_in = {delivery.channel: delivery.sequence for _, delivery in accepted}
        origins = {delivery.channel: delivery.origin for _, delivery in accepted}
        is_kept = self._guarantees.exactly_once
        return WorkerStep(
            ranges={owned.range_id: owned for owned, _ in accepted},
            taken_in=taken_in,
            delivered=taken_in if is_kept else {},
            origins=origins if is_kept else {},
        )

    def _arrivals(self, owned: OwnedRange, payload: bytes) -> Iterator[Arrival]:
        """Divide the partials of a delivery among the ranges that their keys belong to now."""
        state = self._state
        taken_in = decode_partials(payload, self._stage.combiners)
        by_range: Mapping[OwnedRange, Sequence[Partial]] = {owned: taken_in}
        if any(each.handover_with for each in state.ranges.values()):
            # It may have been addressed before the ranges were reshaped.
            by_range = by_label(taken_in, state.locate)
        for each, partials in by_range.items():
            for part in parts_of(partials):
                state.meter.take_in(each.range_id, part, state.hash_of)
            yield Arrival(partials, each.range_id, payload if partials is taken_in else None)
