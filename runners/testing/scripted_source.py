"""ScriptedSource: a source that hands over exactly the batches, and the watermarks, of a script."""

from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


@attrs.frozen
class Batch:
    """Records that arrive together, and the watermark that the source reports after them.

    Attributes:
        signs: as those of a `SourceBatch`.
    """

    values: Sequence[Any]
    timestamps_us: Sequence[int]
    watermark_us: int = MIN_TIMESTAMP_US
    status: SplitStatus = SplitStatus.ACTIVE
    signs: Sequence[int] | None = None


class ScriptedSource(Source):
    """One split per script; one batch per read, whatever the number of records asked for.

    The end of a script is an empty batch with the status that the split is finished.  It emits retractions if a batch
    has signs.
    """

    has_arrival_order = True

    def __init__(self, *scripts: Sequence[Batch]) -> None:
        self._scripts = [list(script) for script in scripts]
        # Asked for each step, and scripts may be long.
        self._has_signs = any(
            batch.signs is not None for script in self._scripts for batch in script
        )

    @property
    def emits_retractions(self) -> bool:
        """Whether a batch has signs."""
        return self._has_signs

    def splits(self, desired: int) -> Sequence[int]:
        """The numbers of the scripts."""
        return range(len(self._scripts))

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        """A reader of a script, from the batch with the number ``position``."""
        return _ScriptedReader(self._scripts[split], position or 0)


class _ScriptedReader(SourceReader):
    def __init__(self, script: Sequence[Batch], position: int) -> None:
        self._script, self._next = script, position

    def read(self, max_records: int) -> SourceBatch:
        if self._next == len(self._script):
            return SourceBatch(
                values=[],
                timestamps_us=[],
                position=self._next,
                watermark_us=MAX_TIMESTAMP_US,
                status=SplitStatus.FINISHED,
            )
        batch = self._script[self._next]
        self._next += 1
        return SourceBatch(
            values=batch.values,
            timestamps_us=batch.timestamps_us,
            position=self._next,
            watermark_us=batch.watermark_us,
            status=batch.status,
            signs=batch.signs,
        )
