"""ReadFromCsv, and the source behind it."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import attrs

from dataflow.errors import InputError
from dataflow.io.files import BOM, FileReader, FileSource, FileSplit, ReadFromFiles, texts_of
from dataflow.io.source import SourceReader


@attrs.frozen(kw_only=True)
class CsvSource(FileSource):
    """Rows of CSV files (RFC 4180) with a header line, as mappings from column name to text."""

    def check_head(self, path: str) -> None:
        """A header has at least one name, none twice, and no binary bytes."""
        header = _header(path)
        if not header.removeprefix(BOM).strip() or b"\0" in header:
            raise InputError(
                f"{path} has no CSV header",
                detail="the first line is empty or binary" if header else "the file is empty",
                hint="the first line must name the columns, separated by commas",
            )
        names = self._names(path, header)
        if len(set(names)) != len(names):
            raise InputError(f"{path} names a column twice", detail=f"header: {names}")

    def open(self, split: FileSplit, position: int | None) -> SourceReader:
        """Read from a byte offset on."""
        return _RowReader(self, split, position)

    def rows(self, path: str, lines: Iterator[str]) -> Iterator[Mapping[str, str]]:
        """One mapping per row, taking no line before the row that needs it is asked for.

        Raises:
            InputError: a row has another number of fields than the header, or is no CSV.
        """
        names = self._names(path, _header(path))
        width = len(names)
        rows = csv.reader(lines, strict=True)
        try:
            for row in rows:
                if len(row) != width:
                    if not row:
                        continue
                    raise InputError(
                        f"{path} has a row with {len(row)} fields, its header has {width}",
                        detail=f"row: {row!r}",
                        hint="correct the row; a field with a comma or a line break must be quoted",
                    )
                yield dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise InputError(
                f"{path} is not well-formed CSV",
                detail=f"line {rows.line_num} of the part being read: {error}",
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from error

    def head_bytes(self, path: str) -> int:
        """Those of the header line."""
        return len(_header(path))

    def is_boundary(self, prefix_quotes: int) -> bool:
        """A line end inside quotes belongs to a field."""
        return prefix_quotes % 2 == 0

    def _names(self, path: str, header: bytes) -> list[str]:
        lines = header.removeprefix(BOM).splitlines(keepends=True)
        try:
            return next(csv.reader([line.decode("utf-8") for line in lines], strict=True))
        except csv.Error as error:
            raise InputError(
                f"{path} has a header that is not well-formed CSV",
                detail=str(error),
                hint="correct the file; quotes inside a quoted field are doubled",
            ) from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not UTF-8 text", detail=str(error), hint="convert the file to UTF-8"
            ) from None


def _header(path: str) -> bytes:
    """The first line, or lines where a quoted name spans several."""
    with Path(path).open("rb") as file:
        header = file.readline()
        while header.count(b'"') % 2 and (line := file.readline()):
            header += line
    return header


class _RowReader(FileReader):
    def __init__(self, source: CsvSource, split: FileSplit, position: int | None) -> None:
        super().__init__(source, split, position)
        self._rows = source.rows(split.path, self._lines())

    def take(self, max_records: int) -> Sequence[Mapping[str, str]]:
        rows = list(islice(self._rows, max_records))
        if len(rows) < max_records and not self.is_at_end:
            raise self.cut_short()
        return rows

    def _lines(self) -> Iterator[str]:
        for line in self.file:
            if self.is_at_end:
                return
            (text,) = texts_of(self.split.path, [line], self.offset)
            self.offset += len(line)
            yield text


class ReadFromCsv(ReadFromFiles):
    """Rows of CSV files as mappings from column name to text.

    Args:
        path: a file, or a pattern such as ``data/*.csv``.
        event_time: gives a row's event time (an aware datetime, or seconds since 1970).
            `ARRIVAL_TIME`: a row happens when it is read.  Without it every row is at the beginning of time.
        max_disorder: how far event times go back behind the newest one seen so far, at most, as
            you expect; the watermark
            follows at this distance, and a row further behind is late.  Without it, the watermark
            waits for the end of the file.
        record_ids: how rows are known that are in a file more than once; as for `Read`.

    Raises:
        InputError: a file is missing or malformed: when the pipeline is built as far as the header
            tells, else when it is read.
    """

    source_class = CsvSource
