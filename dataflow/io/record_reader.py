"""RecordReader: what readers of files have in common: event times, the watermark, and the limit for what is ahead."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from dataflow.columns import RepeatedColumn
from dataflow.errors import InputError, TimeError
from dataflow.io.files import FileSource
from dataflow.set_aside import SetAside
from dataflow.source import Backlog, SourceBatch, SourceReader, SplitStatus
from windowing.errors import error_text
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    TimestampLike,
    to_timestamp_us,
    to_timestamps_us,
)


class RecordReader(SourceReader):
    """Makes batches of records; the watermark is behind the newest of them.

    Args:
        source: how the file is read.
        began_us: when the input was divided; None: nothing depends on that.
    """

    def __init__(self, source: FileSource, began_us: int | None) -> None:
        self._files = source
        #: The limit for event times; None: there is none.
        self.ahead = source.ceiling(began_us)
        self._watermark_us = MIN_TIMESTAMP_US

    @property
    @abstractmethod
    def is_at_end(self) -> bool:
        """Whether there is nothing more."""

    @property
    @abstractmethod
    def position(self) -> Any:
        """Where the next record is."""

    @property
    def backlog(self) -> Backlog | None:
        """What is left; None: not known."""
        return None

    def newest_us(self, timestamps_us: Sequence[int]) -> int | None:
        """The latest of the event times of some records; None if none has one."""
        return max(timestamps_us, default=None) if self._files.has_event_times else None

    def is_ahead(self, timestamp_us: int) -> bool:
        """Whether an event time is too far ahead of the clock."""
        return self.ahead is not None and timestamp_us > self.ahead.ceiling_us()

    def batch(
        self,
        records: Sequence[Any],
        timestamps_us: Sequence[int],
        set_aside: Sequence[SetAside] = (),
    ) -> SourceBatch:
        """The batch of some records, up to `position`.

        Args:
            records: in the order of the file.
            timestamps_us: the event time of each.
            set_aside: the records among them that are left out.
        """
        disorder_us = self._files.max_disorder_us
        if disorder_us is not None:
            newest_us = self.newest_us(timestamps_us)
            if newest_us is not None:
                self._watermark_us = max(self._watermark_us, newest_us - disorder_us)
        return SourceBatch(
            values=records,
            timestamps_us=timestamps_us,
            position=self.position,
            watermark_us=MAX_TIMESTAMP_US if self.is_at_end else self._watermark_us,
            status=SplitStatus.FINISHED if self.is_at_end else SplitStatus.ACTIVE,
            set_aside=set_aside,
            backlog=self.backlog,
        )


def event_times_us(
    path: str, event_time: Callable[[Any], TimestampLike] | None, values: Sequence[Any]
) -> Sequence[int]:
    """The event time of each record of a file.

    Args:
        path: for messages.
        event_time: from a record to its event time, as the user gave it; None: records have none.
        values: the records.

    Raises:
        InputError: a record has none.
    """
    if event_time is None:
        return RepeatedColumn(MIN_TIMESTAMP_US, len(values))
    if len(values) > 1:
        # Where one fails, it is found when each is asked for alone.
        return to_timestamps_us(list(map(event_time, values)))
    return [_time_us(path, event_time, value) for value in values]


def _time_us(path: str, event_time: Callable[[Any], TimestampLike], value: Any) -> int:
    what = "raised"
    try:
        found = event_time(value)
        what = f"gave {found!r}:"
        return to_timestamp_us(found)
    except Exception as error:
        why, hint = error_text(error), ""
        if isinstance(error, TimeError):
            why, hint = error.fact, f"{error.hint}; or "
        raise InputError(
            f"{path} has a record without an event time",
            detail=f"event_time {what} {type(error).__name__}: {why}; record: {value!r}",
            hint=f"{hint}correct the record, or return an instant for it from event_time and sort "
            "it out in the pipeline",
        ) from error
