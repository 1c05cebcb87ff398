"""ReadFromCsv, and the source behind it."""

import copy
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import attrs

from dataflow.errors import InputError
from dataflow.io.csv_quotes import QuoteScan
from dataflow.io.file_reader import FileReader
from dataflow.io.files import ReadFromFiles
from dataflow.io.text_files import (
    BOM,
    PIECE_BYTES,
    FileSplit,
    RecordBytes,
    TextFileSource,
    text_of,
)
from dataflow.source import SourceReader

#: A character has at most so many bytes.
_CHARACTER_BYTES_MAX = 4


@attrs.frozen(kw_only=True)
class CsvSource(TextFileSource):
    """Rows of CSV files (RFC 4180) with a header line, as mappings from column name to text."""

    @property
    def element_type(self) -> Any:
        """Mappings from column name to text."""
        return dict[str, str]

    def check_head(self, path: str) -> None:
        """Check that a header has at least one name, none twice, and no binary bytes.

        Raises:
            InputError: it is not so, or the header is no CSV or no UTF-8.
        """
        header = self._header(path)
        if not header.removeprefix(BOM).strip() or b"\0" in header:
            raise InputError(
                f"{path} has no CSV header",
                detail="the first line is empty or binary" if header else "the file is empty",
                hint="the first line must name the columns, separated by commas",
            )
        names = self.names(path)
        if len(set(names)) != len(names):
            raise InputError(f"{path} names a column twice", detail=f"header: {names}")

    def check_format(self, path: str) -> None:
        """Check the header, without which the columns of the rows are unknown."""
        self.check_head(path)

    def open(self, split: FileSplit, position: int | None, *, fence: int) -> SourceReader:
        """Read from a byte offset on."""
        return _RowReader(self, split, position)

    def records_of(self, path: str, raw: bytes) -> Sequence[Mapping[str, str]]:
        """The row in some bytes.

        Raises:
            InputError: it has another number of fields than the header, or is no CSV.
        """
        names = self.names(path)
        lines = [text_of(path, line) for line in raw.splitlines(keepends=True)]
        try:
            rows = [row for row in csv.reader(lines, strict=True) if row]
        except csv.Error as error:
            raise InputError(
                f"{path} is not well-formed CSV",
                detail=str(error),
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from error
        for row in rows:
            if len(row) != len(names):
                raise InputError(
                    f"{path} has a row with {_fields(len(row))}, its header has {len(names)}",
                    detail=f"row: {row!r}",
                    hint="correct the row; a field with a comma or a line break must be quoted",
                )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def units(self, lines: Iterable[bytes]) -> Iterator[RecordBytes]:
        """Records from lines: a line with a line end in a quoted field is one with the next."""
        scan, raw, size, field_bytes = QuoteScan(), list[bytes](), 0, 0
        for line in lines:
            scan.pass_over(line)
            size += len(line)
            field_bytes = len(line) if b'"' in line else field_bytes + len(line)
            # What is larger than any field may be is malformed, and not kept in memory.
            if field_bytes <= csv.field_size_limit() * _CHARACTER_BYTES_MAX or not raw:
                raw.append(line)
            if not scan.is_in_quotes:
                yield RecordBytes(b"".join(raw), size)
                scan, raw, size, field_bytes = QuoteScan(), [], 0, 0
        if raw:
            yield RecordBytes(b"".join(raw), size)

    def head_bytes(self, path: str) -> int:
        """How many bytes the header line has."""
        return len(self._header(path))

    def record_starts(
        self, path: str, start: int, wanted: Sequence[int], size: int
    ) -> Iterator[int]:
        """Looks at quotes from the start of the file, as only that shows which line ends are in a quoted field."""
        scan = QuoteScan()
        with closing(self.open_file(path)) as file:
            for offset in wanted:
                file.seek(start)
                while start < offset and (piece := file.read(min(offset - start, PIECE_BYTES))):
                    scan.pass_over(piece)
                    start += len(piece)
                with closing(self.lines(path, start, size)) as lines:
                    for line in lines:
                        scan.pass_over(line)
                        start += len(line)
                        if not scan.is_in_quotes:
                            break
                yield start

    def record_end(self, path: str, start: int, end: int) -> int:
        """The last line end that is not in a quoted field.

        Args:
            path: for messages.
            start: a byte offset at which a record begins.
            end: the number of bytes that the file has now.
        """
        scan, found = QuoteScan(), start
        with closing(self.lines(path, start, end, is_growing=True)) as lines:
            for piece in lines.pieces(PIECE_BYTES):
                before, at = copy.copy(scan), start
                start += len(piece)
                scan.pass_over(piece)
                if not scan.is_in_quotes:
                    found = start
                    continue
                for line in piece.splitlines(keepends=True):
                    before.pass_over(line)
                    at += len(line)
                    found = found if before.is_in_quotes else at
        return found

    def names(self, path: str) -> list[str]:
        """Read the names of the columns from the header of a file.

        Raises:
            InputError: the header is no CSV or no UTF-8.
        """
        lines = self._header(path).removeprefix(BOM).splitlines(keepends=True)
        try:
            return next(csv.reader([text_of(path, line) for line in lines], strict=True))
        except csv.Error as error:
            raise InputError(
                f"{path} has a header that is not well-formed CSV",
                detail=str(error),
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from None

    def _header(self, path: str) -> bytes:
        """The first line, or lines where a quoted name spans several."""
        scan, header = QuoteScan(), b""
        with closing(self.lines(path, 0)) as lines:
            for line in lines:
                scan.pass_over(line if header else line.removeprefix(BOM))
                header += line
                if not scan.is_in_quotes:
                    break
        return header


class _RowReader(FileReader):
    def __init__(self, source: CsvSource, split: FileSplit, position: int | None) -> None:
        self._names = source.names(split.path)
        super().__init__(source, split, position)

    def begin(self) -> None:
        self._rows = csv.reader(self._texts(), strict=True)

    def take(self, max_records: int) -> Sequence[Mapping[str, str]]:
        names, rows = self._names, list[list[str]]()
        while not rows and not self.is_at_end:
            rows = list(filter(None, islice(self._rows, max_records)))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _texts(self) -> Iterator[str]:
        for line in self.lines:
            self.offset += len(line)
            yield line.decode("utf-8")


class ReadFromCsv(ReadFromFiles[dict[str, str]]):
    """Rows of CSV files as mappings from column name to text.

    Args:
        path: a file, a folder (all files in it, but for names that begin with a dot or an underscore), a pattern such
            as ``data/*.csv`` or ``data/**/*.csv``, or a list of these.  What begins with ``s3://`` or ``gs://`` is read
            from there, with the credentials that Arrow finds.
        event_time: gives a row's event time (an aware datetime, text, or seconds since 1970).
            `ARRIVAL_TIME`: a row happens when it is read.  Without it every row is at the beginning of time.
        max_disorder: how far event times go back behind the newest one seen so far, at most, as
            you expect; the watermark
            follows at this distance, and a row further behind is late.  Without it, the watermark
            waits for the end of the file.
        max_ahead: with ``max_disorder``, how far an event time may be ahead of the clock where it is read (a day).  A
            row further ahead is a dead letter, whether or not these are switched on, and the watermark does not follow
            it: what is right would be late behind it.  In batch, the clock is that when the job began.  None: every
            event time is taken, as for records of things that are planned.
        record_ids: how rows are known that are in a file more than once; as for `Read`.
        filesystem: an Arrow file system (`pyarrow.fs`), in which the paths are, for places or options that an address
            cannot name.  It is sent to workers as it is, with credentials that were given to it.
        compression: ``gzip``, ``zstd``, ``none``; ``auto``: files whose names end in ``.gz`` or ``.zst`` are packed.  A
            packed file is read by one worker, and one that goes on within it unpacks again what is before.

    Raises:
        InputError: a file is missing or malformed: when the pipeline is built if its header shows that, else when it
            is read, with the file, the line and its bytes.  With ``tries_per_record`` a malformed
            row, or one without an event time, is a dead letter instead.
    """

    source_class = CsvSource


def _fields(number: int) -> str:
    return "1 field" if number == 1 else f"{number} fields"
