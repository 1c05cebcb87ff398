"""ImpulseSource: one element, so that something happens although an input is empty."""

from collections.abc import Sequence

from dataflow.source import Backlog, Source, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US


class ImpulseSource(Source[bytes]):
    """The element ``b""``, once, at the beginning of time.  Beam's ``Impulse``."""

    @property
    def input_name(self) -> str:
        """Always the same."""
        return "impulse"

    @property
    def has_event_times(self) -> bool:
        """False: nothing has happened."""
        return False

    def splits(self, desired: int) -> Sequence[int]:
        """One."""
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        """Read the element, or after it nothing."""
        return _ImpulseReader(is_read=position is not None)


class _ImpulseReader(SourceReader):
    def __init__(self, *, is_read: bool) -> None:
        self._values = [] if is_read else [b""]

    def read(self, max_records: int) -> SourceBatch:
        values, self._values = self._values, []
        return SourceBatch(
            values=values,
            timestamps_us=[MIN_TIMESTAMP_US] * len(values),
            position=1,
            watermark_us=MAX_TIMESTAMP_US,
            status=SplitStatus.FINISHED,
            backlog=Backlog(records=0),
        )
