"""SplitReader: reads one split up to the point at which a stream is to go on.

The point is an event time, or as far as there is anything.  A split ends there

* before its first record at or behind the point: that one, and what follows it, is left to the stream;
* or when the source reports that its event time has come so far, or that it is finished;
* or, in any case, when there is nothing to read now.

**Invariant:** behind the last batch, `position` is where the stream reads on, and everything before it has been handed
over.

Where exactly a split ends changes no result; that it ends at the same place when it is read again does
(`runners.millwheel.control.backfill_progress`), so then the number of records decides, and nothing else.
"""

from functools import partial
from typing import Any

from dataflow.graph import Read
from dataflow.io.trusted_watermark import opened
from dataflow.source import Source, SourceBatch, SplitStatus
from runners.core.stages.source_stage import watermark_behind
from runners.errors import UnrepeatableError
from runners.stored.places import SplitMark


class SplitReader:
    """Reads one split up to its point; to be closed at the end.

    Args:
        source: one that repeats itself (`Source.repeatable`).
        split: of the source.
        begin: how far it has been read, to go on from there; an empty mark: from the beginning.
        end: how far it was read before, to read the same again; None: unknown.
        until_us: the point; None: as far as there is anything.
        where: names the read, for errors.
        max_ahead_us: how far the source's watermark may be ahead of ``began_us``; None: as far as it likes.
        began_us: when the reading began, for all who read the split.
        fence: of the task that reads it.
    """

    def __init__(
        self,
        source: Source,
        split: Any,
        *,
        begin: SplitMark,
        end: SplitMark | None,
        until_us: int | None,
        where: str,
        max_ahead_us: int | None = None,
        began_us: int | None = None,
        fence: int = 0,
    ) -> None:
        self._open = partial(
            opened, Read(source, max_ahead_us=max_ahead_us), split, began_us=began_us, fence=fence
        )
        self._end, self._until_us, self._where = end, until_us, where
        self.records, self.position = begin.records, begin.position
        #: How far event time has come.  That there will never be more is `is_source_finished`, and moves nothing: the
        #: end of time is left to the stream.
        self.watermark_us = begin.watermark_us
        self.is_source_finished = self._is_over = False
        self._reader = self._open(self.position)

    def close(self) -> None:
        """Release the resources of the source."""
        self._reader.close()

    def read(self, records_max: int) -> SourceBatch | None:
        """At most so many more records, at least one, which may be set aside; None: the split is read.

        Raises:
            InputError: the input is malformed.
            UnrepeatableError: there is less than there was.
        """
        if self._end is not None:
            return self._read_again(self._end, records_max)
        if self._is_over:
            return None
        batch = self._reader.read(records_max)
        beyond = self._first_beyond(batch)
        if beyond is not None:
            return self._cut(beyond)
        return self._advance(batch)

    def _read_again(self, end: SplitMark, records_max: int) -> SourceBatch | None:
        if self.records >= end.records:
            self.position, self.watermark_us = end.position, end.watermark_us
            self.is_source_finished = end.is_source_finished
            return None
        batch = self._reader.read(min(records_max, end.records - self.records))
        if batch.records == 0:
            raise UnrepeatableError(
                f"{self._where} has {self.records} records, and had {end.records} when it was read before",
                detail="results of the former input are in the store already",
                hint="do not change input while it is read; start over with fresh=True",
            )
        return self._advance(batch)

    def _cut(self, beyond: int) -> SourceBatch | None:
        """Read once more, and only what is before the point."""
        self._is_over = True
        self._reader.close()
        self._reader = self._open(self.position)
        if beyond == 0:
            return None
        batch = self._reader.read(beyond)
        if self._first_beyond(batch) is not None:
            return None  # it comes in one piece: all of it is left to the stream
        return self._advance(batch)

    def _advance(self, batch: SourceBatch) -> SourceBatch | None:
        self.records += batch.records
        self.position = batch.position
        self.is_source_finished = batch.status is SplitStatus.FINISHED
        before_us = self.watermark_us
        self.watermark_us = watermark_behind(batch, before_us, end_us=before_us)
        is_there = self._until_us is not None and self.watermark_us >= self._until_us
        is_empty = batch.records == 0
        self._is_over = is_there or self.is_source_finished or is_empty
        return None if is_empty else batch

    def _first_beyond(self, batch: SourceBatch) -> int | None:
        if self._until_us is None:
            return None
        times_us = enumerate(batch.timestamps_us)
        return next((index for index, time_us in times_us if time_us >= self._until_us), None)
