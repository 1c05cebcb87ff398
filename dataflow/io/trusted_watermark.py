"""TrustedReader: a reader whose watermark is believed only as far as it can be: not far ahead of the clock.

A watermark that follows the newest record follows a wrong one too, into 2099, and never comes back.  The readers of
files that come along look at each record (`dataflow.io.max_ahead`).  Any other reader is given the latest time that can
be right (`SourceReader.ignore_after`), and if it heeds that, records that are later are set aside, and its watermark
goes on with the right ones.  Of one that does not it is unknown what its watermark follows; but one that is further
ahead has followed a wrong record.  So it is ignored: event time stays where it was, and elements that are that far
ahead are set aside.  A source that reports that all has come (the end of time, or that it is finished) is believed.
"""

import logging
from typing import Any

import attrs

from dataflow.columns import RepeatedColumn, picked
from dataflow.graph import Read
from dataflow.io.max_ahead import MaxAhead, newest_of
from dataflow.source import SourceBatch, SourceReader, SplitStatus, open_split
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_datetime

_LOG = logging.getLogger(__name__)


def opened(
    read: Read,
    split: Any,
    position: Any | None,
    *,
    fence: int = 0,
    began_us: int | None = None,
) -> SourceReader:
    """A reader of a split, with event times that are not too far ahead of the clock.

    Args:
        read: the read with its source.
        split: of the source.
        position: where to go on; None: at its start.
        fence: of the owner of the split; 0: there is none.
        began_us: when the reading began, for an engine that may read again after others; None: time goes by.
    """
    reader = open_split(read.source, split, position, fence=fence)
    if read.max_ahead_us is None:
        return reader
    ahead = MaxAhead(read.max_ahead_us)
    name = type(read.source).__name__
    return TrustedReader(reader, ahead if began_us is None else ahead.since(began_us), name)


class TrustedReader(SourceReader):
    """Reads as another reader does, but follows no watermark that is too far ahead.

    Args:
        reader: the other reader.
        ahead: how far event times may be ahead of the clock.
        name: of the source.
    """

    def __init__(self, reader: SourceReader, ahead: MaxAhead, name: str) -> None:
        self._reader, self._ahead, self._name = reader, ahead, name
        self.reads_columns = reader.reads_columns
        self._watermark_us = MIN_TIMESTAMP_US
        self._has_warned = False

    def read(self, max_records: int) -> SourceBatch:
        """Read as the other reader, but set aside elements that are too far ahead.

        Raises:
            InputError: the input cannot be read on.
        """
        ceiling_us = self._ahead.ceiling_us()
        is_heeded = self._reader.ignore_after(ceiling_us)
        batch = self._reader.read(max_records)
        is_over = batch.status is SplitStatus.FINISHED or batch.watermark_us >= MAX_TIMESTAMP_US
        if is_over or batch.watermark_us <= ceiling_us:
            self._watermark_us = max(self._watermark_us, batch.watermark_us)
            newest_us = newest_of(batch.timestamps_us) if is_heeded else None
            if newest_us is None or newest_us <= ceiling_us:
                return batch
        else:
            self._warn(batch.watermark_us)
        return self._without_later(batch, ceiling_us)

    def _without_later(self, batch: SourceBatch, ceiling_us: int) -> SourceBatch:
        """A batch whose elements behind the ceiling are set aside."""
        times_us = list(batch.timestamps_us)
        kept = [index for index, time_us in enumerate(times_us) if time_us <= ceiling_us]
        values = picked(batch.values, range(len(times_us)))
        signs = batch.signs or RepeatedColumn(+1, len(times_us))
        aside = [
            attrs.evolve(
                self._ahead.set_aside(self._name, None, values[index], time_us), sign=signs[index]
            )
            for index, time_us in enumerate(times_us)
            if time_us > ceiling_us
        ]
        return attrs.evolve(
            batch,
            values=picked(batch.values, kept),
            timestamps_us=picked(batch.timestamps_us, kept),
            watermark_us=self._watermark_us,
            set_aside=[*batch.set_aside, *aside],
            signs=batch.signs and picked(batch.signs, kept),
        )

    def committed(self, position: Any) -> None:
        """Notify the other reader."""
        self._reader.committed(position)

    def close(self) -> None:
        """Close the other reader."""
        self._reader.close()

    def _warn(self, watermark_us: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s reports a watermark of %s, which is further ahead of the clock than max_ahead; it is not "
                "used, and the watermark stays where it is until a smaller one is reported: did it follow a "
                "wrong record?",
                self._name,
                to_datetime(watermark_us),
            )
