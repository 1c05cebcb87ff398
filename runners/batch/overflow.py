"""Overflow: what a single element causes for later groupings, when that is more than should be kept in memory.

A group may be larger than memory (`FileValues`), and user code may emit something for each of its values.  A stage
cannot hand that to Spark before it is done with the element, so what is packed waits in a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from runners.batch.gather import Gatherer, Packed
from runners.batch.spill.spill_file import SpillFile
from runners.core.partials.partial import Partial
from runners.core.stages.stage_executor import StageExecutor
from runners.stored.runs import decode_packed, encode_packed


class Overflow:
    """Takes from an executor the outputs that exceed what it should keep in memory.

    Args:
        executor: of a stage.
        gatherer: packs the partials of the stage.
    """

    def __init__(self, executor: StageExecutor, gatherer: Gatherer) -> None:
        self._gatherer = gatherer
        self._file: SpillFile | None = None
        executor.overflow = self._take

    def packed(self) -> Iterator[Packed]:
        """The blobs packed since the last call."""
        file, self._file = self._file, None
        if file is not None:
            with closing(file):
                for blob in file.read():
                    yield decode_packed(blob)

    def close(self) -> None:
        """Drop the blobs that were not fetched."""
        if self._file is not None:
            self._file.close()

    def _take(self, groups: Mapping[str, Sequence[Partial]]) -> None:
        if self._file is None:
            self._file = SpillFile()
        for packed in self._gatherer.add(groups):
            self._file.write(encode_packed(*packed))
