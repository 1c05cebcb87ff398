"""Merges: those that were asked for and wait until both ranges are in one place."""

from collections.abc import Iterator
from contextlib import suppress

from runners.millwheel.control.shapes import MergeKeys, ShapeError, Shapes
from runners.millwheel.master.assignment import Assignment
from runners.millwheel.model.ids import RangeId


class Merges:
    """The merges that one master was asked for.

    Args:
        shapes: of the key ranges.
        assignment: of the ranges to slots.
    """

    def __init__(self, shapes: Shapes, assignment: Assignment) -> None:
        self._shapes, self._assignment = shapes, assignment
        self._wanted: list[tuple[RangeId, RangeId, str]] = []

    def want(self, range_id: RangeId, gone: RangeId, reason: str) -> None:
        """Note that a range is to take in another, as soon as it can.

        Args:
            range_id: has all keys afterwards.
            gone: its neighbour, which is retired.
            reason: for people.
        """
        self._wanted.append((range_id, gone, reason))

    def begin(self) -> Iterator[MergeKeys]:
        """Return the merges that can begin now; the owner of their ranges is to be asked."""
        for wanted in list(self._wanted):
            if not all(map(self._assignment.is_stable, wanted[:2])):
                continue
            self._wanted.remove(wanted)
            if self._assignment.slot_of(wanted[0]) == self._assignment.slot_of(wanted[1]):
                # Other requests may have had them split meanwhile; then there is nothing to merge.
                with suppress(ShapeError):
                    asked = self._shapes.merge(*wanted)
                    self._assignment.handover(asked.gone, asked.range_id)
                    yield asked
