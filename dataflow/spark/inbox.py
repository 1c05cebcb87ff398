"""SparkInbox and ReadFromSparkInbox: what a streaming frame of Spark emits, as an input without end.

Spark gives each micro-batch a number, and repeats one that it does not know to be done: with the same number and, as
its log has the offsets, the same rows.  So a micro-batch is written under its number, and appears as a whole, by the
rename of its folder; one that is there, or was there and is read, is not written again.  Whoever reads goes from number
to number.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.create import Read
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.parquet_files import ParquetSource, ReadFromParquet
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.spark.frames import instants_as_such
from windowing.timestamps import MIN_TIMESTAMP_US, DurationLike, TimestampLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dataflow.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
_QUERY, _READ = "_query", "_read"
_BATCH, _PARTIAL = "batch-", "_partial-"
#: Of the thread in which Spark runs a micro-batch.
_QUERY_ID = "sql.streaming.queryId"

#: The number of a batch, which of its files, and the position in that; None: its beginning.
Position = tuple[int, int, Any]


class SparkInbox:
    """A folder for the micro-batches of one streaming query: ``frame.writeStream.foreachBatch(df.SparkInbox(folder))``.

    The query needs a checkpoint; it may die and be started again as often as it likes.

    Args:
        folder: which Spark's driver and executors, and our workers, reach by this path; of one query alone.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a micro-batch, unless it is there or was read.

        Args:
            frame: its rows.
            number: of it, as Spark counts.

        Raises:
            InputError: the folder is of another query, whose numbers mean something else.
        """
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        self._check_query(frame)
        final = folder / f"{_BATCH}{number:012d}"
        if final.exists() or number <= read_up_to(folder):
            _LOG.info("%s has micro-batch %s already", folder, number)
            return
        partial = folder / f"{_PARTIAL}{number:012d}-{secrets.token_hex(8)}"
        with instants_as_such(frame):
            frame.write.parquet(partial.as_uri())
        # A batch that is there has files, so nothing can take its place.
        with suppress(OSError):
            partial.rename(final)
        for left in folder.glob(f"{_PARTIAL}{number:012d}-*"):
            shutil.rmtree(left, ignore_errors=True)
        if not final.exists() and number > read_up_to(folder):
            raise InputError(
                f"micro-batch {number} is not in {folder}, though Spark has written it",
                hint="is it one folder, by this path, for Spark's driver and executors?",
            )

    def _check_query(self, frame: DataFrame) -> None:
        query = str(frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
        noted = self._folder / _QUERY
        if not noted.exists():
            _write(noted, query)
        elif noted.read_text() != query:
            raise InputError(
                f"{self._folder} has micro-batches of another query",
                detail=f"of {noted.read_text()}, this is {query}; a query is another one if its checkpoint is",
                hint="a folder is of one query: give this one another folder",
            )


def read_up_to(folder: Path) -> int:
    """The number of the last micro-batch that was read and deleted; -1: none was.

    Args:
        folder: of an inbox.
    """
    try:
        return int((folder / _READ).read_text())
    except FileNotFoundError:
        return -1


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    partial.write_text(text)
    partial.replace(path)


class ReadFromSparkInbox(OneOutput["Pipeline", Any]):
    """The rows of a streaming query of Spark, each exactly once.  The input has no end.

    They are read micro-batch by micro-batch, and a micro-batch is deleted when what was made of it is durable.  Query
    and job know nothing of each other, and each may die and be started again.

    Args:
        folder: that of the `SparkInbox`; it need not be there yet.
        rows: as for `ReadFromParquet`.
        event_time: as for `ReadFromParquet`: a column, or a function.
        event_time_unit: as for `ReadFromParquet`.
        time_zone: as for `ReadFromParquet`.
        max_disorder: how far rows may be behind the newest one, in event time.
        max_ahead: as for `ReadFromParquet`.

    Raises:
        InputError: a micro-batch is gone that was not read; or as `ReadFromParquet`.
        PipelineError: as `ReadFromParquet`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | str | None = None,
        event_time_unit: str | None = None,
        time_zone: str | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
    ) -> None:
        read = ReadFromParquet[Any](
            folder,
            rows=rows,
            event_time=event_time,
            event_time_unit=event_time_unit,
            time_zone=time_zone,
            max_disorder=0 if max_disorder is None and event_time is not None else max_disorder,
            max_ahead=max_ahead,
        )
        files = read._source  # noqa: SLF001 - the same files, in another order
        if not isinstance(files, ParquetSource):
            raise PipelineError("ReadFromSparkInbox reads files of Parquet")
        self._source = SparkInboxSource(folder=str(Path(folder).absolute()), files=files)

    def default_label(self) -> str:
        """``ReadFromSparkInbox``."""
        return "ReadFromSparkInbox"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Read it."""
        return pcoll | Read(self._source)


@attrs.frozen(kw_only=True)
class SparkInboxSource(Source):
    """Reads an inbox; see `ReadFromSparkInbox`.

    Attributes:
        files: how each file is read.
    """

    folder: str
    files: ParquetSource

    @property
    def is_bounded(self) -> bool:
        """False: there may be more micro-batches."""
        return False

    @property
    def acknowledges(self) -> bool:
        """True: what is durable is deleted."""
        return True

    @property
    def keeps_set_aside(self) -> bool:
        """Whether rows too far ahead of the clock are set aside."""
        return self.files.keeps_set_aside

    @property
    def has_trusted_watermark(self) -> bool:
        """True: each row is looked at, if there is a limit for event times."""
        return self.files.has_trusted_watermark

    @property
    def element_type(self) -> Any:
        """The row type, or mappings."""
        return self.files.element_type

    @property
    def input_name(self) -> str:
        """The folder."""
        return self.folder

    @property
    def has_event_times(self) -> bool:
        """Whether there is a column, or a function, of them."""
        return self.files.has_event_times

    def splits(self, desired: int) -> list[str]:
        """One: micro-batches come one after the other."""
        return [self.folder]

    def open(self, split: str, position: Position | None, *, fence: int) -> SourceReader:
        """Read on in a file of a micro-batch."""
        return _InboxReader(self, Path(split), position)


class _InboxReader(SourceReader):
    def __init__(self, source: SparkInboxSource, folder: Path, position: Position | None) -> None:
        self._source, self._folder = source, folder
        self.reads_columns = source.files.is_columnar
        self.position = position
        self._files: list[Path] = []
        self._file: SourceReader | None = None
        self._watermark_us = MIN_TIMESTAMP_US

    def read(self, max_records: int) -> SourceBatch:
        if self._file is None and not self._next_file():
            return SourceBatch(
                values=(),
                timestamps_us=(),
                position=self.position,
                watermark_us=self._watermark_us,
                status=SplitStatus.IDLE,
            )
        assert self._file is not None
        assert self.position is not None
        batch = self._file.read(max_records)
        number, file, _ = self.position
        if batch.status is not SplitStatus.FINISHED:
            self.position = number, file, batch.position
        else:
            self._close_file()
            is_last = file + 1 >= len(self._files)
            self.position = (number + 1, 0, None) if is_last else (number, file + 1, None)
        disorder_us = self._source.files.max_disorder_us
        if disorder_us is not None and len(batch.timestamps_us):
            newest_us = int(max(batch.timestamps_us)) - disorder_us
            self._watermark_us = max(self._watermark_us, newest_us)
        return attrs.evolve(
            batch,
            position=self.position,
            watermark_us=self._watermark_us,
            status=SplitStatus.ACTIVE,
            backlog=None,
        )

    def committed(self, position: Position | None) -> None:
        """Delete the micro-batches before a position."""
        if position is None:
            return
        before = position[0]
        # Noted first: Spark may repeat one that it does not know to be done.
        if before - 1 > read_up_to(self._folder):
            _write(self._folder / _READ, f"{before - 1}")
        for number, folder in self._batches():
            if number < before:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _batches(self) -> list[tuple[int, Path]]:
        """The micro-batches that are there, in order."""
        found = [
            (int(each.name.removeprefix(_BATCH)), each)
            for each in self._folder.glob(f"{_BATCH}*")
            if each.is_dir()
        ]
        return sorted(found)

    def _next_file(self) -> bool:
        """Open the file at the position; False: it is not there yet."""
        batches = self._batches()
        if self.position is None:
            behind = read_up_to(self._folder)
            batches = [each for each in batches if each[0] > behind]
            if not batches:
                return False
            self.position = batches[0][0], 0, None
        number, file, inner = self.position
        batches = [each for each in batches if each[0] >= number]
        if not batches and not (file or inner):
            return False
        if not batches or batches[0][0] != number:
            raise InputError(
                f"micro-batch {number} of Spark is gone from {self._folder} before it was read",
                detail=f"the next one is {batches[0][0]}" if batches else "there is none",
                hint="do not delete there: what is read is deleted by the job; was a backup of the store restored?",
            )
        self._files = sorted(batches[0][1].glob("*.parquet"))
        if file >= len(self._files):
            self.position = number + 1, 0, None
            return self._next_file()
        path = str(self._files[file])
        (split,) = self._source.files.split_file(path, 1)
        self._file = self._source.files.open(split, inner, fence=0)
        return True
