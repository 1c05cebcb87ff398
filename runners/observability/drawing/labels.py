"""Where a label goes so that it covers nothing: the first of the places offered that is free, or the least bad one."""

from collections.abc import Sequence
from itertools import pairwise

import attrs

from runners.observability.drawing.svg import XY

_CLEARANCE = 2.0


@attrs.frozen
class PixelBox:
    """A rectangle of the picture, in its pixels."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, centre: XY, width: float, height: float) -> "PixelBox":
        """A box of this size.

        Args:
            centre: its middle.
            width: in pixels.
            height: in pixels.
        """
        x, y = centre
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def overlap(self, other: "PixelBox") -> float:
        """The area that both have."""
        width = min(self.right, other.right) - max(self.left, other.left) + _CLEARANCE
        height = min(self.bottom, other.bottom) - max(self.top, other.top) + _CLEARANCE
        return max(width, 0) * max(height, 0)


@attrs.define
class Occupied:
    """What is on the picture already: boxes, and how much it hurts to cover them."""

    _boxes: list[tuple[PixelBox, float]] = attrs.field(factory=list)

    def add(self, box: PixelBox, weight: float = 1.0) -> None:
        """Note that something is here.

        Args:
            box: where.
            weight: how much it hurts to cover it.
        """
        self._boxes.append((box, weight))

    def add_path(self, points: Sequence[XY], weight: float = 1.0) -> None:
        """Note that a line is here: small boxes along it.

        Args:
            points: of the line.
            weight: how much it hurts to cover it.
        """
        for (x1, y1), (x2, y2) in pairwise(points):
            steps = max(1, round(max(abs(x2 - x1), abs(y2 - y1)) / 4))
            for step in range(steps + 1):
                part = step / steps
                self.add(
                    PixelBox.around((x1 + (x2 - x1) * part, y1 + (y2 - y1) * part), 4, 4), weight
                )

    def cost(self, box: PixelBox) -> float:
        """How much would be covered."""
        left, right = box.left - _CLEARANCE, box.right + _CLEARANCE
        top, bottom = box.top - _CLEARANCE, box.bottom + _CLEARANCE
        return sum(
            weight * box.overlap(other)
            for other, weight in self._boxes
            # Of hundreds of boxes a few are near.
            if other.left < right and left < other.right
            if other.top < bottom and top < other.bottom
        )

    def place(self, candidates: Sequence[tuple[PixelBox, float]]) -> PixelBox:
        """Take the cheapest place, the first of these where several cost the same.

        Args:
            candidates: boxes, and what is wrong with each of them from the start.
        """
        best, _ = min(candidates, key=lambda each: round(each[1] + self.cost(each[0]), 3))
        self.add(best, 4.0)
        return best
