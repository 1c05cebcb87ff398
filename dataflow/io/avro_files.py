"""ReadFromAvro, and the source behind it: records of Avro object container files, by fastavro.

A file is one split.  A position is the number of a block and of a record in it; whoever goes on passes over the blocks
before without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, BinaryIO

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.extras import require
from dataflow.io.files import FileSource, Paths, ReadFromFiles
from dataflow.io.record_reader import RecordReader, event_times_us
from dataflow.io.text_files import FileSplit
from dataflow.rows import is_row_type
from dataflow.set_aside import SetAside
from dataflow.source import SourceBatch, SourceReader
from dataflow.type_vars import T
from windowing.errors import error_text


@attrs.frozen(kw_only=True)
class AvroSource(FileSource):
    """Records of Avro files, as rows of ``row_type``, or as mappings if that is None."""

    row_type: Any = None

    @property
    def element_type(self) -> Any:
        """The row type, or mappings from name to value."""
        return dict[str, Any] if self.row_type is None else self.row_type

    def check_head(self, path: str) -> None:
        """Check that it is an Avro file whose schema has what rows need."""
        with closing(self.storage.open(path)) as file:
            self.blocks(path, file)

    def split_file(self, path: str, parts: int) -> list[FileSplit]:
        """All of it."""
        return [FileSplit(path, 0, self.storage.size(path), self.began_us())]

    def open(
        self, split: FileSplit, position: tuple[int, int] | None, *, fence: int
    ) -> SourceReader:
        """Read from a block, and a record in it, on."""
        return _AvroReader(self, split, position or (0, 0))

    def blocks(self, path: str, file: BinaryIO) -> Iterator[Any]:
        """The blocks of a file.

        Args:
            path: for messages.
            file: at its start.

        Raises:
            InputError: it is no Avro file, or its records have not what rows need.
        """
        import fastavro  # noqa: PLC0415 - an extra

        try:
            found = fastavro.block_reader(file)
        except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
            raise InputError(
                f"{path} is no Avro file that can be read",
                detail=error_text(error),
                hint="check that it is an object container file, and complete",
            ) from None
        schema = found.writer_schema
        if self.row_type is not None:
            names = (
                [field["name"] for field in schema["fields"]]
                if isinstance(schema, Mapping) and schema.get("type") == "record"
                else []
            )
            if missing := [each for each in self.row_type._fields if each not in names]:
                raise InputError(
                    f"{path} has no fields {', '.join(map(repr, missing))}",
                    detail=f"its fields: {', '.join(names)}",
                    hint="name fields as they are in the file",
                )
        return iter(found)

    def element(self, record: Any) -> Any:
        """A record as an element.

        Args:
            record: as it is in the file.
        """
        if self.row_type is None:
            return record
        return self.row_type._make(record[name] for name in self.row_type._fields)


class _AvroReader(RecordReader):
    def __init__(self, source: AvroSource, split: FileSplit, position: tuple[int, int]) -> None:
        super().__init__(source, split.began_us)
        self._source, self._split = source, split
        if source.storage.size(split.path) != split.end_bytes:
            raise InputError(
                f"{split.path} has changed since the job began",
                detail=f"it had {split.end_bytes} bytes",
                hint="do not change files while they are read; new records go into new files",
            )
        self._file = source.storage.open(split.path)
        self._block, self._record = -1, 0
        self._records: Sequence[Any] | None = ()
        try:
            self._blocks = source.blocks(split.path, self._file)
            while self._block < position[0] and self._records is not None:
                self._begin_block(is_read=self._block + 1 == position[0])
        except InputError:
            self.close()
            raise
        self._record = position[1]

    @property
    def is_at_end(self) -> bool:
        return self._records is None

    @property
    def position(self) -> tuple[int, int]:
        return self._block, self._record

    def read(self, max_records: int) -> SourceBatch:
        records, first = self._take(max_records)
        try:
            elements = list(map(self._source.element, records))
            times_us = event_times_us(self._split.path, self._source.event_time, elements)
            newest_us = self.newest_us(times_us)
        except Exception:  # noqa: BLE001 - which record it was is found one by one
            return self._read_one_by_one(records, first)
        if newest_us is not None and self.is_ahead(newest_us):
            return self._read_one_by_one(records, first)
        return self.batch(elements, times_us)

    def close(self) -> None:
        self._file.close()

    def _begin_block(self, *, is_read: bool = True) -> None:
        self._block, self._record = self._block + 1, 0
        try:
            block = next(self._blocks, None)
            self._records = None if block is None else list(block) if is_read else ()
        except Exception as error:  # noqa: BLE001 - fastavro raises what it likes
            raise InputError(
                f"{self._split.path} cannot be read on",
                detail=f"block {self._block}: {error_text(error)}",
                hint="the file is damaged, or not complete; write it again",
            ) from None

    def _take(self, max_records: int) -> tuple[Sequence[Any], str]:
        if self._records is None:
            return (), ""
        first = f"block {self._block + 1}, record {self._record + 1}"
        taken = self._records[self._record : self._record + max_records]
        self._record += len(taken)
        while self._records is not None and self._record >= len(self._records):
            self._begin_block()
        return taken, first

    def _read_one_by_one(self, records: Sequence[Any], first: str) -> SourceBatch:
        values, times_us, set_aside = list[Any](), list[int](), list[SetAside]()
        path = self._split.path
        for index, record in enumerate(records):
            element = None
            try:
                element = self._source.element(record)
                (time_us,) = event_times_us(path, self._source.event_time, [element])
            except InputError as error:
                placed = InputError(
                    f"{error.fact}, {index} behind {first}",
                    detail=error.detail,
                    hint=f"{error.hint}; or go on without such records: df.Pipeline(..., tries_per_record=1) keeps "
                    "them as dead letters",
                )
                set_aside.append(
                    SetAside(error=placed, cause=error.__cause__ or error, element=element)
                )
                continue
            if self.ahead is not None and self.is_ahead(time_us):
                set_aside.append(self.ahead.set_aside(path, None, element, time_us))
                continue
            values.append(element)
            times_us.append(time_us)
        return self.batch(values, times_us, set_aside)


class ReadFromAvro(ReadFromFiles[T]):
    """Records of Avro object container files, as mappings or typed rows; needs fastavro.

    Args:
        path: as for `ReadFromCsv`.
        rows: a named tuple class; elements are its instances, with the fields of these names.
        options: event_time, max_disorder, max_ahead, record_ids and filesystem, as for `ReadFromCsv`.

    Raises:
        InputError: a file is missing or no Avro file, or has not the fields, when the pipeline is built; or it is
            damaged, when it is read.  With ``tries_per_record`` a record without an event time is a dead letter.
        PipelineError: ``rows`` is no row type; or fastavro is not installed.
    """

    source_class = AvroSource

    def __init__(self, path: Paths, *, rows: type[T] | None = None, **options: Any) -> None:
        require("fastavro", "avro", "ReadFromAvro")
        if rows is not None and not (isinstance(rows, type) and is_row_type(rows)):
            raise PipelineError(
                f"ReadFromAvro needs a row type, not {rows!r}",
                hint="class Event(typing.NamedTuple): with a field and its type on each line",
            )
        super().__init__(path, **options)
        assert isinstance(self._source, AvroSource)
        self._source = attrs.evolve(self._source, row_type=rows)
