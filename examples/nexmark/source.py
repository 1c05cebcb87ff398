"""Nexmark's events as a source: in splits, with or without an end, resumed exactly where it was."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

import dataflow as df
from dataflow.columns import IntColumn, Rows
from examples.nexmark.events import Event
from examples.nexmark.generator import GeneratorConfig, arrivals, event_columns, events
from windowing.timestamps import MAX_TIMESTAMP_US

#: A split: its number among how many.
Split = tuple[int, int]


@attrs.frozen
class NexmarkSource(df.Source[Event]):
    """The events of a `GeneratorConfig` in the order of their arrival, dealt out to splits in turns.

    Attributes:
        config: of the stream; one without a size never ends.
        row_type: a named tuple with some fields of `examples.nexmark.events.EventRow`; events are columns of these
            rows, and no other field is made.  None: instances of `Person`, `Auction` and `Bid`.
    """

    config: GeneratorConfig
    row_type: Any = None

    @property
    def element_type(self) -> Any:
        """The type of the rows, or of any event."""
        return Event if self.row_type is None else self.row_type

    @property
    def is_bounded(self) -> bool:
        """Whether there is a last event."""
        return self.config.size is not None

    @property
    def has_trusted_watermark(self) -> bool:
        """True: event times are those of the configuration."""
        return True

    def splits(self, desired: int) -> Sequence[Split]:
        """The numbers of as many splits as are desired."""
        return [(number, desired) for number in range(desired)]

    def open(self, split: Split, position: int | None, *, fence: int) -> df.SourceReader:
        """Read on; a position is how many events of the split have been read."""
        return _Reader(self, split, position or 0)


class _Reader(df.SourceReader):
    def __init__(self, source: NexmarkSource, split: Split, position: int) -> None:
        self._source, self._split, self._position = source, split, position
        self.reads_columns = source.row_type is not None

    def read(self, max_records: int) -> df.SourceBatch:
        """The next events, and how far event time has come with them."""
        config, (number, step) = self._source.config, self._split
        end = self._position + max_records
        if config.size is not None:
            end = min(end, -(-(config.size - number) // step))
        places = number + step * np.arange(self._position, max(end, self._position))
        self._position += len(places)
        behind = number + step * self._position
        is_finished = config.size is not None and behind >= config.size
        numbers = arrivals(config, places)[0] if len(places) else places
        return df.SourceBatch(
            values=self._values(numbers),
            timestamps_us=IntColumn(config.time_ms(numbers) * 1_000),
            position=self._position,
            watermark_us=MAX_TIMESTAMP_US if is_finished else self._watermark_us(behind),
            status=df.SplitStatus.FINISHED if is_finished else df.SplitStatus.ACTIVE,
            backlog=None
            if config.size is None
            else df.Backlog(records=max(0, -(-(config.size - behind) // step))),
        )

    def _watermark_us(self, place: int) -> int:
        return int(arrivals(self._source.config, np.array([place]))[1][0]) * 1_000

    def _values(self, numbers: Any) -> Sequence[Any]:
        config, row_type = self._source.config, self._source.row_type
        if row_type is None:
            return events(config, numbers)
        names = row_type._fields
        columns = event_columns(config, numbers, names)
        return Rows.of(row_type, names, [columns[name] for name in names])
