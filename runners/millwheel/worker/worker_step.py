"""WorkerStep: what one step of a worker has done, as a value; steps are merged into one commit.

**Law:** `merged` is associative, and ``WorkerStep()`` is its identity: steps that become one commit leave what they
would have left one after the other, however they are put together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import attrs

from dataflow.metric_updates import MetricValues, merged_metrics
from dataflow.table import TableWrite
from runners.core.ground.lineage import LineageEntry
from runners.core.tables.values import size_of_rows
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.production import (
    CellWrite,
    Checkpoint,
    JournalEntry,
    LateRecord,
    Reshape,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.owned_range import OwnedRange

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class RangeProgress(NamedTuple):
    """How far a range had come when a step ended."""

    watermark_us: int
    percentile_us: int | None
    firing_us: int | None
    signal_mark: SignalMark


#: What most steps have of most fields.
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


# Not frozen, as a round makes ten of them, and those of two dozen fields take three times as long to make.
@attrs.define(kw_only=True, on_setattr=attrs.setters.NO_OP)
class WorkerStep:
    """The effects of one step on key ranges or splits that one worker owns.  Nothing is assigned to it but by `seal`.

    Attributes:
        ranges: those that it has touched, each of which is fenced.
        progress: how far these had come when it ended (`seal`).
        cells: cells that it has written.
        timers: timers that it has written.
        journal: entries for the journals of the ranges.
        compacted: up to which bundle the entries of a range's journal are deleted, as they are in cells and timers.
        late: records that came too late.
        dead: records that user code could not take.
        tables: rows that it has written.
        lineage: where what it has done comes from, if that is recorded.
        checkpoints: what it sends.
        handed_on: what it hands on within the worker.
        takes_handed_on: whether it has taken in what another step has handed on, and must be in one commit with that.
        positions: how far source ranges have read.
        finished: ranges that have nothing left to do, ever.
        record_ids: the ids of new records of source ranges, with their event times in microseconds.
        horizons_us: ids behind them are forgotten, in microseconds.
        reshape: gives ranges other bounds.
        ended_handovers: ranges whose handover ends.
        taken_in: the last delivery that it has taken in on each channel.
        delivered: the same, as far as it is to be kept durably.
        origins: the sender's commit as of which that delivery was durable, or None, by channel of ``delivered``.
        metrics: what user code has counted for it.
        when_committed: called as soon as it is durable, and not otherwise.
        traces: contexts of the spans that it has done this in (`runners.millwheel.worker.tracing`).
    """

    ranges: Mapping[RangeId, OwnedRange] = _NOTHING
    progress: Mapping[RangeId, RangeProgress] = _NOTHING
    cells: Sequence[CellWrite] = ()
    timers: Sequence[TimerWrite] = ()
    journal: Sequence[JournalEntry] = ()
    compacted: Mapping[RangeId, int] = _NOTHING
    late: Sequence[LateRecord] = ()
    dead: Sequence[StoredDeadLetter] = ()
    tables: Sequence[TableWrite] = ()
    lineage: Sequence[LineageEntry] = ()
    checkpoints: Sequence[Checkpoint] = ()
    handed_on: Sequence[HandedOn] = ()
    takes_handed_on: bool = False
    positions: Mapping[RangeId, bytes] = _NOTHING
    finished: frozenset[RangeId] = frozenset()
    record_ids: Mapping[RangeId, Sequence[tuple[bytes, int]]] = _NOTHING
    horizons_us: Mapping[RangeId, int] = _NOTHING
    reshape: Reshape | None = None
    ended_handovers: frozenset[RangeId] = frozenset()
    taken_in: Mapping[Channel, int] = _NOTHING
    delivered: Mapping[Channel, int] = _NOTHING
    origins: Mapping[Channel, CommitMark | None] = _NOTHING
    metrics: MetricValues = _NOTHING
    when_committed: Sequence[Callable[[], None]] = ()
    traces: Sequence[bytes] = ()

    @classmethod
    def touching(cls, *ranges: OwnedRange) -> "WorkerStep":
        """The step that changes nothing of some ranges, but fences them."""
        return cls(ranges={each.range_id: each for each in ranges})

    @property
    def computation(self) -> str:
        """The computation of the first range that it has touched."""
        return next(iter(self.ranges)).computation

    @property
    def nbytes(self) -> int:
        """About how many bytes it has: all that can be large."""
        payloads = [entry.payload for entry in self.journal]
        payloads += [checkpoint.payload for checkpoint in self.checkpoints]
        payloads += [record.payload for record in self.late]
        payloads += [letter.payload for letter in self.dead]
        payloads += [cell.value for cell in self.cells if cell.value]
        payloads += [each.encode() for entry in self.lineage for each in entry.elements]
        sizes = [each.nbytes for each in self.handed_on]
        return sum(map(len, payloads)) + sum(sizes) + sum(map(size_of_rows, self.tables))

    @property
    def is_alone(self) -> bool:
        """Whether it must be a commit of its own."""
        return bool(self.reshape or self.ended_handovers)

    def seal(self, metrics: MetricValues | None = None) -> "WorkerStep":
        """Note how far its ranges have come until now, which goes with what it did; returns the step itself.

        Args:
            metrics: what user code has counted for it; None: what the step has.
        """
        self.progress = {
            range_id: RangeProgress(
                owned.watermark_us, owned.percentile_us, owned.firing_us, owned.signal_mark
            )
            for range_id, owned in self.ranges.items()
        }
        if metrics is not None:
            self.metrics = metrics
        return self

    @property
    def unacknowledged(self) -> Sequence[Checkpoint]:
        """What it has sent that has not been acknowledged."""
        return tuple(
            each
            for each in self.checkpoints
            if self.ranges[each.channel.sender].outbox.is_open(each)
        )


def merged(steps: Sequence[WorkerStep]) -> WorkerStep:
    """One step that has done what these have done, in their order.

    Args:
        steps: of one computation.

    Raises:
        ValueError: several of them change the bounds of ranges.
    """
    if len(steps) == 1:
        return steps[0]
    fields: dict[str, Any] = {}
    # Of no steps there are no fields.
    for name, of_steps in zip(_MERGES, zip(*map(_parts_of, steps), strict=True), strict=False):
        # Most steps have nothing of most fields.
        if any(of_steps):
            parts = [part for part in of_steps if part]
            fields[name] = parts[0] if len(parts) == 1 else _MERGES[name](parts)
    return WorkerStep(**fields)


def _in_order(parts: Iterable[Sequence[ItemT]]) -> tuple[ItemT, ...]:
    return tuple(chain.from_iterable(parts))


def _newest(parts: Iterable[Mapping[KeyT, ValueT]]) -> Mapping[KeyT, ValueT]:
    newest: dict[KeyT, ValueT] = {}
    for part in parts:
        newest.update(part)
    return newest


def _any(parts: Iterable[frozenset[KeyT]]) -> frozenset[KeyT]:
    return frozenset().union(*parts)


def _in_order_by_range(
    parts: Iterable[Mapping[RangeId, Sequence[ItemT]]],
) -> Mapping[RangeId, Sequence[ItemT]]:
    found: dict[RangeId, tuple[ItemT, ...]] = {}
    for part in parts:
        for range_id, items in part.items():
            found[range_id] = (*found.get(range_id, ()), *items)
    return found


def _only(parts: Iterable[Reshape | None]) -> Reshape | None:
    found = [part for part in parts if part is not None]
    if len(found) > 1:
        raise ValueError(f"each change of the bounds of ranges is a commit of its own: {found}")
    return found[0] if found else None


#: How each field of steps is merged: the parts that are not empty, in their order, two at least.
_MERGES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "ranges": _newest,
    "progress": _newest,
    "cells": _in_order,
    "timers": _in_order,
    "journal": _in_order,
    "compacted": _newest,
    "late": _in_order,
    "dead": _in_order,
    "tables": _in_order,
    "lineage": _in_order,
    "checkpoints": _in_order,
    "handed_on": _in_order,
    "takes_handed_on": any,
    "positions": _newest,
    "finished": _any,
    "record_ids": _in_order_by_range,
    "horizons_us": _newest,
    "reshape": _only,
    "ended_handovers": _any,
    "taken_in": _newest,
    "delivered": _newest,
    "origins": _newest,
    "metrics": merged_metrics,
    "when_committed": _in_order,
    "traces": _in_order,
}
_parts_of = attrgetter(*_MERGES)
