"""WatchFiles: files of any format that appear while the job runs, in a folder or an object store.

The position has the names that are done, and how far the current file has been read; so a name is read once, and a file
is complete when it appears and never changes.

An object store may be away for a while, and what its client says of a file then is not to be believed: an error is one
of the place if that cannot be listed; and if it can, an error may still have been made by what is over, so it is
believed when it has come some times in a row (`Outages`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from dataflow.computations.name_set import NameRun, NameSet
from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import system_now_us
from dataflow.io.create import Read
from dataflow.io.files import FileSource, ReadFromFiles
from dataflow.io.outages import Outages
from dataflow.io.record_reader import RecordReader
from dataflow.io.storage import not_opened
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection, Pipeline
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.type_vars import T
from windowing.timestamps import MIN_TIMESTAMP_US, DurationLike, to_duration_us

#: A file that is being read: its path, its bytes when it was opened, and how far it has been read.
CurrentFile = tuple[str, int, Any]
#: The names that are done, as a `NameSet`; the current file; and how far event time has come, in microseconds.
WatchedPosition = tuple[tuple[NameRun, ...], CurrentFile | None, int]
_START: WatchedPosition = ((), None, MIN_TIMESTAMP_US)


@attrs.frozen(kw_only=True)
class WatchedSource(Source):
    """Records of the files that a pattern matches now and later.

    Attributes:
        files: how files are found and read.
        poll_us: how often the place is listed.
        now_us: the clock, in microseconds.
    """

    files: FileSource
    poll_us: int
    now_us: Callable[[], int] = system_now_us

    @property
    def element_type(self) -> Any:
        """The type of the records of the files."""
        return self.files.element_type

    @property
    def is_bounded(self) -> bool:
        """False: there may always be another file."""
        return False

    @property
    def input_name(self) -> str | None:
        """The pattern."""
        return self.files.input_name

    @property
    def has_event_times(self) -> bool:
        """Whether records of the files have."""
        return self.files.has_event_times

    @property
    def has_trusted_watermark(self) -> bool:
        """True: it looks at each record, if there is a limit for event times."""
        return True

    @property
    def keeps_set_aside(self) -> bool:
        """Whether there is a limit for event times."""
        return self.files.keeps_set_aside

    def check(self) -> None:
        """Check that the place can be listed, and the beginnings of the files that are there.

        Raises:
            InputError: it cannot, or one of them is not of this format.
        """
        if self.listed():
            self.files.check()

    def splits(self, desired: int) -> Sequence[int]:
        """One, as files are read in an order."""
        return [0]

    def open(self, split: int, position: WatchedPosition | None, *, fence: int) -> SourceReader:
        """Go on."""
        return _WatchedReader(self, position or _START)

    def listed(self) -> list[str]:
        """The files that are there, by name."""
        listed = self._patterns()
        return sorted({path for each in listed for path in self.files.storage.listed(each)})

    @property
    def may_be_away(self) -> bool:
        """Whether the files are elsewhere, in an object store or the like."""
        return any(map(self.files.storage.is_remote, self._patterns()))

    def _patterns(self) -> Sequence[str]:
        patterns = self.files.pattern
        return [patterns] if isinstance(patterns, str) else patterns


class _WatchedReader(SourceReader):
    def __init__(self, source: WatchedSource, position: WatchedPosition) -> None:
        self._source, self._files = source, source.files
        done, current, self._watermark_us = position
        self._done = NameSet(done)
        self._reader: RecordReader | None = None
        self._current: CurrentFile | None = None
        self._waiting = list[str]()
        self._listed_us: int | None = None
        self._current = current
        self._outages = Outages(f"{source.input_name}")

    def read(self, max_records: int) -> SourceBatch:
        if self._outages.is_pausing:
            return self._batch(outage=self._outages.outage)
        before = self._current, self._watermark_us
        try:
            batch = self._read_on(max_records)
        except (InputError, OSError) as error:
            self.close()
            # What was read of a file that could not be ended was not handed over.
            self._current, self._watermark_us = before
            self._waiting, self._listed_us = [], None
            self._failed(error)
            return self._batch(outage=self._outages.outage)
        self._outages.over()
        return batch

    def _failed(self, error: Exception) -> None:
        """Pause, or raise the error."""
        if not self._source.may_be_away:
            raise error
        try:
            self._source.listed()
        except InputError:
            self._outages.failed(error)
        else:
            self._outages.failed(error, is_refused=True)

    def _read_on(self, max_records: int) -> SourceBatch:
        if self._reader is None and not self._begin_any():
            return self._batch(status=SplitStatus.IDLE)
        assert self._reader is not None
        assert self._current is not None
        found = self._reader.read(max_records)
        disorder_us, newest_us = (
            self._files.max_disorder_us,
            self._reader.newest_us(found.timestamps_us),
        )
        if disorder_us is not None and newest_us is not None:
            self._watermark_us = max(self._watermark_us, newest_us - disorder_us)
        self._current = (*self._current[:2], found.position)
        if found.status is SplitStatus.FINISHED:
            self._end(self._current)
        return self._batch(
            values=found.values, timestamps_us=found.timestamps_us, set_aside=found.set_aside
        )

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _batch(self, **parts: Any) -> SourceBatch:
        return SourceBatch(
            position=(self._done.runs(), self._current, self._watermark_us),
            watermark_us=self._watermark_us,
            **{"values": (), "timestamps_us": (), **parts},
        )

    def _begin_any(self) -> bool:
        """Go on with the current file, or begin with the next one; returns whether there is one."""
        if self._current is not None:
            self._begin(self._current)
            return True
        now_us = self._source.now_us()
        if not self._waiting:
            if self._listed_us is not None and 0 <= now_us - self._listed_us < self._source.poll_us:
                return False
            self._waiting = [each for each in self._source.listed() if each not in self._done]
            self._waiting.reverse()
            self._listed_us = now_us
        if not self._waiting:
            return False
        path = self._waiting[-1]
        self._begin((path, self._size_of(path), None))
        self._waiting.pop()
        return True

    def _begin(self, file: CurrentFile) -> None:
        path, _, position = file
        self._check_unchanged(file)
        try:
            (split,) = self._files.split_file(path, 1)
            reader = self._files.open(split, position, fence=0)
        except OSError as error:
            raise not_opened(path, error) from None
        assert isinstance(reader, RecordReader)
        self._reader, self._current = reader, file
        self.reads_columns = reader.reads_columns

    def _end(self, file: CurrentFile) -> None:
        self._check_unchanged(file)
        self.close()
        self._done.add(file[0])
        self._current = None

    def _check_unchanged(self, file: CurrentFile) -> None:
        path, size_bytes, _ = file
        found = self._size_of(path)
        if found != size_bytes:
            raise InputError(
                f"{path} has changed while it was read",
                detail=f"it had {size_bytes} bytes, and has {found}",
                hint="write a file under a name that is hidden, and rename it when it is complete",
            )

    def _size_of(self, path: str) -> int:
        try:
            return self._files.storage.size(path)
        except OSError as error:
            raise not_opened(path, error) from None


class WatchFiles(OneOutput[Pipeline, T]):
    """Read files that are there, and those that appear later, each once.

    Args:
        read: how files are read, and which: any of the transforms that read files, with a pattern that may match none
            yet.  With ``event_time`` it needs ``max_disorder``, which is measured over all files.
        poll: how often the place is listed.

    Raises:
        PipelineError: ``read`` reads no files, or does not say how far event times go back.
        InputError: a file is malformed, or changes while it is read.
    """

    def __init__(self, read: ReadFromFiles[T], *, poll: DurationLike = 1) -> None:
        if not isinstance(read, ReadFromFiles):
            raise PipelineError(
                f"WatchFiles was given {read!r}",
                hint="give it a transform that reads files, such as df.ReadFromParquet(...)",
            )
        if read.source.has_event_times and read.source.max_disorder_us is None:
            raise PipelineError(
                "WatchFiles does not know how far event time has come",
                detail="its input does not end, and the files were given no max_disorder",
                hint="give how far event times go back over all files, e.g. max_disorder=timedelta(minutes=5)",
            )
        self._read = read
        self._source = WatchedSource(files=read.source, poll_us=max(0, to_duration_us(poll)))

    def default_label(self) -> str:
        """The name of the class, and of the transform that reads."""
        return f"WatchFiles({type(self._read).__name__})"

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Look at the place, and read."""
        self._source.check()
        return pcoll | Read(
            self._source, event_time=self._read.arrival, record_ids=self._read.record_ids
        )
