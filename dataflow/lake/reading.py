"""LakeSource: a table of a lake by version, file after file; and then, without an end, what changes from there on.

A position is whether it is of changes, the last version that is read to its end, the one that is being read, the number
of a file, and a row in it.  Of changes the two versions are the same where none is being read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError, TableFileError, TableNotOpenedError
from dataflow.io.arrival import system_now_us
from dataflow.io.outages import Outages
from dataflow.io.parquet_files import ArrowReader, ParquetSource
from dataflow.lake.refusals import is_refusal
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from windowing.errors import error_text
from windowing.timestamps import US_PER_SECOND

#: The column with the sign of a change, beside those of the table.
SIGN = "dataflow_sign"
#: Where the table is read by version, and where its changes are.
Position = tuple[bool, int, int, int, int]
#: A version, every which of its files from which on, and when the input was divided.
Split = tuple[int, int, int, int | None]


class LakeTable(ABC):
    """A table that is open, of one reader.

    Attributes:
        title: of the table, for messages.
    """

    title: str

    def close(self) -> None:  # noqa: B027 - most tables hold no connection
        """Let go of connections.  Idempotent."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Its columns."""

    @abstractmethod
    def newest(self) -> int:
        """The newest version, as the table has it now."""

    @abstractmethod
    def files(self, version: int) -> list[str]:
        """The files of a version, always in the same order.

        Raises:
            InputError: it is not there any more.
        """

    @abstractmethod
    def changed_files(self, done: int) -> tuple[int, list[str]] | None:
        """The version that follows one, and what to read for it, always in the same order; None: there is none yet.

        Raises:
            InputError: it is not there any more, or was no change that can be read.
        """

    @abstractmethod
    def rows(
        self, version: int, file: str, columns: Sequence[str], *, is_change: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, always in the same order; changes may have `SIGN`.

        Args:
            version: that has it.
            file: one of `files`, or of `changed_files`.
            columns: that are read.
            is_change: which of the two.
        """


def check_event_time(name: str, source: ParquetSource) -> None:
    """Check that a table that is followed says how far event time has come.

    Args:
        name: of the read, for messages.
        source: how rows are read.

    Raises:
        PipelineError: it does not.
    """
    if source.has_event_times and source.max_disorder_us is None:
        raise PipelineError(
            f"{name} does not know how far event time has come",
            detail="changes have no end to wait for",
            hint="give how far event times go back, e.g. max_disorder=timedelta(minutes=5)",
        )


@attrs.frozen(kw_only=True)
class LakeSource(ParquetSource):
    """Rows of a table of a lake.

    Attributes:
        version: which one; None: the newest.
        follows: whether what changes from there on is read too, without an end.
        has_signs: whether changes have signs.
        poll_us: how often a table is looked at that has nothing new, in microseconds.
        now_us: the clock, in microseconds.
    """

    version: int | None = None
    follows: bool = False
    has_signs: bool = False
    poll_us: int = 0
    now_us: Callable[[], int] = system_now_us

    @abstractmethod
    def opened(self, *, is_tried_again: bool = False) -> LakeTable:
        """The table.

        Args:
            is_tried_again: whether whoever opens it tries again, and other inputs are to be read meanwhile; so that a
                client need not.

        Raises:
            TableNotOpenedError: it is not there, or cannot be reached; the first has no cause.
        """

    @property
    def is_bounded(self) -> bool:
        """Whether it is read by version only."""
        return not self.follows

    @property
    def emits_retractions(self) -> bool:
        """Whether changes have signs."""
        return self.has_signs

    def check(self) -> None:
        """Check that the table is there, with the columns that are read, of types that fit."""
        with closing(self.opened()) as table:
            self.names(table.title, table.schema)
            if self.version is not None:
                table.files(self.version)

    def splits(self, desired: int) -> Sequence[Split]:
        """Each one of several files, or all of them."""
        with closing(self.opened()) as table:
            version = table.newest() if self.version is None else self.version
            parts = 1 if self.follows else max(1, min(desired, len(table.files(version))))
        began_us = self.began_us()
        return [(version, parts, part, began_us) for part in range(parts)]

    def estimate_size(self) -> int | None:
        """None: its files are those of a version, which is chosen when the input is divided."""
        return None

    def open(self, split: Split, position: Position | None, *, fence: int) -> SourceReader:
        """Read on."""
        return LakeReader(self, split, position)


class LakeReader(ArrowReader):
    """Reads a split.

    Args:
        source: the table.
        split: which part.
        position: where to go on; None: at its start.
    """

    def __init__(self, source: LakeSource, split: Split, position: Position | None) -> None:
        version, parts, part, began_us = split
        super().__init__(source, began_us)
        self._lake, self._every = source, slice(part, None, parts)
        self._title = source.input_name
        self._version = version
        self._opened_table: LakeTable | None = None
        self._names: Sequence[str] = ()
        is_change, done, current, file, row = position or (False, version, version, 0, 0)
        self._is_change, self._done, self._current = is_change, done, current
        self._file, self._row = file, row
        self._paths: list[str] = []
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rows: pa.RecordBatch | None = None
        self._looked_us: int | None = None
        self._has_ended = False
        self._outages = Outages(
            f"the table {source.input_name}", pause_max_s=source.poll_us / US_PER_SECOND
        )
        # One that is followed is opened by the first read, which may be tried again.
        if not source.follows:
            self._open_table()

    @property
    def _table(self) -> LakeTable:
        assert self._opened_table is not None
        return self._opened_table

    def _open_table(self) -> None:
        """Open the table, where it is not open; nothing is changed by an error."""
        if self._opened_table is not None:
            return
        table = self._lake.opened(is_tried_again=self._lake.follows)
        try:
            names = self._lake.names(table.title, table.schema)
            paths = self._paths if self._is_change else table.files(self._version)[self._every]
        except BaseException:
            table.close()
            raise
        self._opened_table, self._names, self._paths = table, names, paths
        if not self._is_change:
            self._end_files()

    def close(self) -> None:
        """Close the table."""
        self._batches = self._rows = None
        table, self._opened_table = self._opened_table, None
        if table is not None:
            table.close()

    @property
    def path(self) -> str:
        """The table, and the file in it."""
        is_there = self._file < len(self._paths)
        return f"{self._title}, {self._paths[self._file]}" if is_there else f"{self._title}"

    @property
    def names(self) -> Sequence[str]:
        """The columns that are elements."""
        return self._names

    @property
    def row_number(self) -> int:
        """The row in the file."""
        return self._row

    @property
    def is_at_end(self) -> bool:
        """Whether there never is more."""
        return self._has_ended

    @property
    def position(self) -> Position:
        """Where the next row is."""
        return self._is_change, self._done, self._current, self._file, self._row

    def signs(self, rows: pa.RecordBatch) -> list[int] | None:
        """Signs of changes; the table itself has none."""
        if not self._lake.has_signs:
            return None
        if SIGN not in rows.schema.names:
            return [1] * rows.num_rows
        found: list[int] = rows.column(SIGN).to_pylist()
        return found

    def take(self, max_records: int) -> pa.RecordBatch | None:
        """Rows of one file; none while the place of a table that is followed does not answer."""
        if self._outages.is_pausing:
            return None
        try:
            self._open_table()
            taken = self._taken(max_records)
        except Exception as error:  # noqa: BLE001 - it is raised there, unless another try may help
            self._failed(error)
            return None
        self._outages.over()
        return taken

    def _failed(self, error: Exception) -> None:
        """Try again later, where that may help; raise otherwise."""
        may_pass = not isinstance(error, InputError) or isinstance(
            error, TableNotOpenedError | TableFileError
        )
        if not self._lake.follows or not may_pass:
            raise error
        # What was begun of a file is begun anew behind the last row.
        self._batches = self._rows = None
        self._outages.failed(error, is_refused=is_refusal(error))

    def _taken(self, max_records: int) -> pa.RecordBatch | None:
        while self._has_file():
            rows = self._decoded()
            if rows is None:
                self._next_file()
                continue
            taken = rows.slice(0, max_records)
            self._rows = rows.slice(taken.num_rows)
            self._row += taken.num_rows
            return taken
        return None

    def batch(self, *parts: Any) -> SourceBatch:
        """A batch; of a table that has nothing new it says so."""
        found = super().batch(*parts)
        if self._outages.outage is not None:
            # Nobody knows whether there is more.
            return attrs.evolve(found, outage=self._outages.outage)
        if found.records or not self._lake.follows:
            return found
        return attrs.evolve(found, status=SplitStatus.IDLE)

    def _has_file(self) -> bool:
        """Whether a file is to be read on; of changes, looks for the next ones."""
        if self._file < len(self._paths):
            return True
        if self._has_ended or not self._is_to_look():
            return False
        found = self._table.changed_files(self._done)
        while found is not None and not found[1]:
            self._done = self._current = found[0]
            found = self._table.changed_files(self._done)
        if found is None:
            self._looked_us = self._lake.now_us()
            return False
        version, self._paths = found
        if self._current not in (self._done, version):
            raise InputError(
                f"{self._table.title}: version {self._current} is not there any more",
                detail=f"what follows {self._done} is now {version}",
                hint="keep versions for longer than the job may be away, or begin it anew with fresh=True",
            )
        self._looked_us, self._current = None, version
        return True

    def _is_to_look(self) -> bool:
        since_us = self._looked_us
        return since_us is None or not 0 <= self._lake.now_us() - since_us < self._lake.poll_us

    def _decoded(self) -> pa.RecordBatch | None:
        """What is next of the file; None: its end."""
        try:
            if self._batches is None:
                self._batches, skipped = self._opened(), self._row
                while skipped:
                    rows = next(self._batches)
                    self._rows = rows.slice(min(skipped, rows.num_rows))
                    skipped -= min(skipped, rows.num_rows)
            while self._rows is None or not self._rows.num_rows:
                self._rows = next(self._batches)
        except StopIteration:
            return None
        except InputError:
            raise
        except Exception as error:
            # If the place is away, this says so, and the file is not to blame.
            newest = self._table.newest()
            raise TableFileError(
                f"{self.path} cannot be read: version {self._current}",
                detail=f"{type(error).__name__}: {error_text(error)}; the newest version is {newest}",
                hint="were files removed that this version needs (vacuum, expiry of snapshots)? keep them for longer "
                "than the job may be away, or begin it anew with fresh=True",
            ) from error
        return self._rows

    def _opened(self) -> Iterator[pa.RecordBatch]:
        return self._table.rows(
            self._current,
            self._paths[self._file],
            self._lake.needed(self._names),
            is_change=self._is_change,
        )

    def _next_file(self) -> None:
        self._file, self._row = self._file + 1, 0
        self._batches = self._rows = None
        self._end_files()

    def _end_files(self) -> None:
        if self._file < len(self._paths):
            return
        if not self._lake.follows:
            self._has_ended = True
            return
        self._is_change, self._done, self._file, self._paths = True, self._current, 0, []
