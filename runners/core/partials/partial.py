"""Partials: what goes through the shuffle to a grouping, accumulated as far as one bundle allows (lifted combines).

A partial is ``(key, window, accumulator, count)``, and its key is canonical (`dataflow.canonical_keys`).
"""

from typing import Any

from runners.core.ground.cells import LateElement
from windowing.window import Window

Partial = tuple[Any, Window, Any, int]


class LatePartial(tuple[Any, Window, Any, int]):  # noqa: SLOT001 - tuples cannot have any
    """A partial of one record that was behind the watermark, with the record as it was before it was folded."""

    record: LateElement

    @classmethod
    def of(cls, partial: Partial, record: LateElement) -> "LatePartial":
        """A late partial of a partial and its record.

        Args:
            partial: of one record.
            record: as it was before it was folded.
        """
        late = cls(partial)
        late.record = record
        return late
