"""CacheCounts: how many bytes the cells of a worker take in memory, and how many were read and evicted; reported."""

import attrs


@attrs.frozen(kw_only=True)
class CacheCounts:
    """Counts since a worker started.

    Attributes:
        bytes_buffered: what is in memory now.
        hits: cells that a step needed and that were in memory.
        misses: cells that a step needed and that were not in memory; neither hits nor misses are counted while all
            cells are in memory.
        loads: reads of the store because of misses.
        evictions: cells that were evicted.
    """

    bytes_buffered: int = 0
    hits: int = 0
    misses: int = 0
    loads: int = 0
    evictions: int = 0

    def __add__(self, other: "CacheCounts") -> "CacheCounts":
        return CacheCounts(
            bytes_buffered=self.bytes_buffered + other.bytes_buffered,
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            loads=self.loads + other.loads,
            evictions=self.evictions + other.evictions,
        )

    def of_the_past(self) -> "CacheCounts":
        """The counts of a worker that is gone, without what it had in memory."""
        return attrs.evolve(self, bytes_buffered=0)
