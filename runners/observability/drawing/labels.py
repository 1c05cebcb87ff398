"""Where a label goes so that it covers nothing: the first of the places offered that is free, or the least bad one."""

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

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


@attrs.define
class Occupied:
    """What is on the picture already: boxes, and how much it hurts to cover them."""

    # Left, top, right, bottom and weight of each box: what was added since the table was made is in the list.
    _table: NDArray[np.float64] = attrs.field(factory=lambda: np.empty((0, 5)))
    _added: list[tuple[float, float, float, float, float]] = attrs.field(factory=list)

    def add(self, box: PixelBox, weight: float = 1.0) -> None:
        """Note that something is here.

        Args:
            box: where.
            weight: how much it hurts to cover it.
        """
        self._added.append((box.left, box.top, box.right, box.bottom, weight))

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

    def costs(self, boxes: Sequence[PixelBox]) -> list[float]:
        """How much each of several boxes would cover: areas, by how much it hurts.

        Args:
            boxes: to be compared.
        """
        if self._added:
            self._table = np.concatenate([self._table, self._added])
            self._added.clear()
        ours = np.array([(box.left, box.top, box.right, box.bottom) for box in boxes])
        if not ours.size:
            return []
        # All at once: there are tens of places for each label, and of thousands of boxes a few are near.
        first, last = ours[:, :2].min(axis=0) - _CLEARANCE, ours[:, 2:].max(axis=0) + _CLEARANCE
        is_near = (self._table[:, :2] < last).all(axis=1) & (first < self._table[:, 2:4]).all(
            axis=1
        )
        others = self._table[is_near]
        ends = np.minimum(ours[:, None, 2:], others[:, 2:4])
        begins = np.maximum(ours[:, None, :2], others[:, :2])
        covered = np.maximum(ends - begins + _CLEARANCE, 0).prod(axis=-1) @ others[:, 4]
        costs: list[float] = covered.tolist()
        return costs

    def place(self, candidates: Sequence[tuple[PixelBox, float]]) -> PixelBox:
        """Take the cheapest place, the first of these where several cost the same.

        Args:
            candidates: boxes, and what is wrong with each of them from the start.
        """
        costs = self.costs([box for box, _ in candidates])
        worth = [round(bad + cost, 3) for (_, bad), cost in zip(candidates, costs, strict=True)]
        best = candidates[worth.index(min(worth))][0]
        self.add(best, 4.0)
        return best
