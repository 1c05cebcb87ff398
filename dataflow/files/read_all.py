"""ReadAllFrom...: the records of files that elements name, in every format that is read.

A name stands for its files as in the other transforms.  Files are divided first, and the parts distributed; a part is
read in one bundle, so a worker holds the records of some of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar, Generic

import attrs

from dataflow.errors import PipelineError
from dataflow.io.avro_files import ReadFromAvro
from dataflow.io.csv_files import ReadFromCsv
from dataflow.io.files import FileSource, ReadFromFiles
from dataflow.io.json_lines import ReadFromJsonLines
from dataflow.io.parquet_files import ReadFromParquet
from dataflow.io.storage import Storage, not_opened
from dataflow.io.text_lines import ReadFromText
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.source import SplitStatus
from dataflow.transforms.par_do import FlatMap
from dataflow.transforms.reshuffle import Reshuffle
from dataflow.type_vars import T

#: What is read in one go: parts of about so many bytes, and so many records at a time.
_PART_BYTES = 16 << 20
_RECORDS = 10_000


class MatchAll(PTransform[PCollection[Any], PCollection[str]]):
    """The files that elements name: paths, folders and patterns; one that is named again comes again.

    Args:
        filesystem: an Arrow file system, in which they are; None: this machine, or what an address says.

    Raises:
        InputError: there is none for an element, when it is processed.
    """

    def __init__(self, *, filesystem: Any = None) -> None:
        self._find = _Find(Storage(filesystem))

    def expand(self, pcoll: PCollection[Any]) -> PCollection[str]:
        """Find them."""
        return pcoll | "find" >> FlatMap(self._find)


@attrs.frozen
class _Find:
    storage: Storage

    def __call__(self, pattern: Any) -> Iterator[str]:
        yield from self.storage.find(str(pattern))


class ReadAllFromFiles(PTransform[PCollection[Any], PCollection[T]], Generic[T]):
    """The base class of the transforms that read the files that elements name.

    Records have the event times and the windows of the elements that name them.

    Args:
        options: as for the transform that reads such files, without what is about event times.

    Raises:
        PipelineError: an option is about event times, or unknown.
        InputError: a file is missing or malformed, when it is read.
    """

    read_class: ClassVar[type[ReadFromFiles[Any]]]

    def __init__(self, **options: Any) -> None:
        if wrong := {"event_time", "max_disorder", "record_ids"} & set(options):
            raise PipelineError(
                f"{type(self).__name__} was given {', '.join(sorted(wrong))}",
                detail="records have the event times of the elements that name their files",
                hint="give them others with df.WithTimestamps, which may make them late",
            )
        self._source = self.read_class("named by elements", **options).source

    def expand(self, pcoll: PCollection[Any]) -> PCollection[T]:
        """Find the files, divide them, and read the parts."""
        files = pcoll | "match" >> MatchAll(filesystem=self._source.filesystem)
        parts = files | "divide" >> FlatMap(_Divide(self._source)) | "distribute" >> Reshuffle()
        return parts | "read" >> FlatMap(_ReadPart(self._source))


@attrs.frozen
class _Divide:
    source: FileSource

    def __call__(self, path: str) -> Iterator[tuple[str, Any]]:
        try:
            parts = 1 + self.source.storage.size(path) // _PART_BYTES
            splits = self.source.split_file(path, parts)
        except OSError as error:
            raise not_opened(path, error) from None
        for split in splits:
            yield path, split


@attrs.frozen
class _ReadPart:
    source: FileSource

    def __call__(self, part: tuple[str, Any]) -> Iterator[Any]:
        path, split = part
        try:
            with closing(self.source.open(split, None, fence=0)) as reader:
                status = SplitStatus.ACTIVE
                while status is not SplitStatus.FINISHED:
                    batch = reader.read(_RECORDS)
                    status = batch.status
                    for each in batch.set_aside:
                        raise each.error
                    yield from batch.values
        except OSError as error:
            raise not_opened(path, error) from None


class ReadAllFromText(ReadAllFromFiles[str]):
    """Lines of the files that elements name; arguments as for `ReadFromText`."""

    read_class = ReadFromText


class ReadAllFromCsv(ReadAllFromFiles[dict[str, str]]):
    """Rows of the CSV files that elements name; arguments as for `ReadFromCsv`."""

    read_class = ReadFromCsv


class ReadAllFromJsonLines(ReadAllFromFiles[Any]):
    """Values of the files of JSON lines that elements name; arguments as for `ReadFromJsonLines`."""

    read_class = ReadFromJsonLines


class ReadAllFromParquet(ReadAllFromFiles[Any]):
    """Rows of the Parquet files that elements name; arguments as for `ReadFromParquet`."""

    read_class = ReadFromParquet


class ReadAllFromAvro(ReadAllFromFiles[Any]):
    """Records of the Avro files that elements name; arguments as for `ReadFromAvro`."""

    read_class = ReadFromAvro
