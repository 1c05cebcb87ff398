"""WriteToText, WriteToCsv, WriteToJsonLines, WriteToParquet, WriteToAvro: files, each record in them exactly once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from string import Formatter
from typing import Any

import attrs

from dataflow.do_fn import DoFn
from dataflow.errors import InputError, PipelineError
from dataflow.files.file_writer import FileWriter
from dataflow.files.formats import (
    NAME,
    AvroFormat,
    FileFormat,
    LineFormat,
    ParquetFormat,
    avro_schema,
    csv_line,
    end_of,
    json_line,
    signed_csv,
    signed_json,
    text_line,
)
from dataflow.files.places import place_of
from dataflow.io.extras import require
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import Batching, Lane, Sink, SinkWriter
from dataflow.table import COLUMN_TYPES, ColumnType, is_column_type
from dataflow.transforms.par_do import Map
from windowing.global_windows import GlobalWindows
from windowing.window import Window

#: How large files are by default: as readers like them, and a minute late at most.
FILE_BATCHING = Batching(max_delay_ms=60_000, max_bytes=64 << 20, max_rows=1_000_000)
#: What names may tell of a window.
_WINDOW_FIELDS = ("window_start", "window_end")
_HIDDEN = (".", "_")

#: The beginning of a file's name: a text, in which a window may be named, or a function of elements.
Naming = str | Callable[[Any], str]


@attrs.frozen(kw_only=True)
class FileSink(Sink[Any]):
    """Files of one format in one place.

    Attributes:
        path: of the folder, or the prefix.
        file_format: of the files.
        shards: how many parts each batch is written in.
        how_large: how large files are, and how long changes wait for that.
        store: an object store of obstore; None: what the path says.
    """

    path: str
    file_format: FileFormat
    shards: int = 1
    how_large: Batching = FILE_BATCHING
    store: Any = None

    @property
    def lanes(self) -> int:
        """The shards."""
        return self.shards

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The beginning of the file's name, and what the format needs."""
        return {NAME: str, **self.file_format.columns}

    @property
    def takes_retractions(self) -> bool:
        """Whether there is a column for signs."""
        return self.file_format.sign is not None

    @property
    def batching(self) -> Batching:
        """How large files are."""
        return self.how_large

    def check(self) -> None:
        """Look whether the place can be reached.

        Raises:
            InputError: it cannot.
        """
        try:
            place_of(self.path, self.store).check()
        except OSError as error:
            raise InputError(
                f"files cannot be written to {self.path!r}",
                detail=str(error),
                hint="check the path, and the credentials, where the pipeline runs",
            ) from error

    def open(self, lane: Lane) -> SinkWriter:
        """A writer of a lane."""
        return FileWriter(place_of(self.path, self.store), self.file_format, lane)


class WriteToFiles(PTransform[PCollection[Any], None]):
    """The base class of the transforms that write files.

    Elements go by way of an outbox, of which each batch becomes a file, or one for each name that its elements have.
    A file is hidden until it is complete and counts; after a retry, a failure or a restart each element is in one file.

    Args:
        path: a folder of this machine, ``s3://bucket/prefix`` or ``gs://bucket/prefix``.
        naming: how names of files begin; it may have folders, as in ``day={window_start:%Y-%m-%d}/clicks``, with
            ``window_start`` and ``window_end`` of the element's window, in UTC; or a function that is given an
            element.  Behind it are the number of the shard, that of the batch, and a text that no other run has.
        shards: how many files are written at a time; each has a part of the elements.
        batching: how large files are, and how long elements wait for that.
        store: an object store of obstore, in which the path is a prefix; None: what the path says.

    Raises:
        PipelineError: ``naming`` names something else, or there is less than one shard; the input retracts, and there
            is no column for signs; or what the path needs is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        naming: Naming = "part",
        shards: int = 1,
        batching: Batching = FILE_BATCHING,
        store: Any = None,
    ) -> None:
        name = type(self).__name__
        if shards < 1:
            raise PipelineError(f"{name} was given {shards} shards", hint="give it at least one")
        if isinstance(naming, str):
            _check_template(name, naming)
        place_of(str(path), store)
        self._path, self._naming, self._shards = str(path), naming, shards
        self._batching, self._store = batching, store

    @property
    @abstractmethod
    def file_format(self) -> FileFormat:
        """The format."""

    def default_label(self) -> str:
        """The name of the class, and the path."""
        return f"{type(self).__name__}({self._path})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Name the file of each element, and write it.

        Raises:
            PipelineError: the name is to have a window, and there is one window only.
        """
        naming = self._naming
        if (
            isinstance(naming, str)
            and _fields(naming)
            and isinstance(pcoll.node.strategy.window_fn, GlobalWindows)
        ):
            raise PipelineError(
                f"{pcoll.pipeline.here()} names files by windows, but its input is in the global window",
                hint="apply a df.WindowInto before, or name files by a function of the element",
            )
        named: Callable[..., dict[str, Any]] = _Named(self.file_format, naming)
        if isinstance(naming, str) and "{" in naming:
            named = _NamedByWindow(self.file_format, naming)
        rows = pcoll | "name" >> Map(named)
        sink = FileSink(
            path=self._path,
            file_format=self.file_format,
            shards=self._shards,
            how_large=self._batching,
            store=self._store,
        )
        Write(sink).expand(rows)


@attrs.frozen
class _Named:
    """From an element to its row: the beginning of its file's name, and its columns."""

    file_format: FileFormat
    naming: Naming

    def __call__(self, element: Any) -> dict[str, Any]:
        naming = self.naming
        name = naming if isinstance(naming, str) else _name_of_element(naming(element))
        return {**self.file_format.row_of(element), NAME: name}


@attrs.frozen
class _NamedByWindow:
    """From an element and its window to its row, as `_Named`."""

    file_format: FileFormat
    template: str

    def __call__(self, element: Any, window: Window = DoFn.WindowParam) -> dict[str, Any]:
        return {**self.file_format.row_of(element), NAME: _windowed_name(self.template, window)}


@lru_cache(maxsize=1_024)
def _windowed_name(template: str, window: Window) -> str:
    return _checked(template.format(window_start=window.start, window_end=window.end))


def _name_of_element(name: Any) -> str:
    return _known_name(name) if isinstance(name, str) else _checked(name)


@lru_cache(maxsize=1_024)
def _known_name(name: str) -> str:
    # Elements that follow each other have few names.
    return _checked(name)


def _checked(name: Any) -> str:
    if isinstance(name, str) and not any(
        not part or part.startswith(_HIDDEN) for part in name.split("/")
    ):
        return name
    raise InputError(
        f"a file cannot have a name that begins with {name!r}",
        hint="a name has parts that are divided by /; none is empty, or begins with a dot or an underscore, "
        "which are for files that are hidden",
    )


def _fields(template: str) -> list[str]:
    return [field for _, field, _, _ in Formatter().parse(template) if field is not None]


def _check_template(name: str, template: str) -> None:
    try:
        unknown = [each for each in _fields(template) if each not in _WINDOW_FIELDS]
    except ValueError as error:
        raise PipelineError(f"{name} was given naming={template!r}", detail=str(error)) from None
    if unknown:
        raise PipelineError(
            f"{name} was given naming={template!r}, which names {', '.join(map(repr, unknown))}",
            hint=f"it may name {' and '.join(_WINDOW_FIELDS)}; give a function for what is in elements",
        )
    if not _fields(template):
        _check_plain(name, template)


def _check_plain(name: str, template: str) -> None:
    try:
        _checked(template)
    except InputError as error:
        raise PipelineError(f"{name}: {error.fact}", hint=error.hint) from None


class WriteToText(WriteToFiles):
    """Texts as lines of files.

    Args:
        path: as for `WriteToFiles`.
        options: naming, shards, batching and store, as for `WriteToFiles`.
        suffix: what names end with, before that of the compression.
        compression: ``none``, ``gzip`` or ``zstd``.

    Raises:
        PipelineError: see `WriteToFiles`; or the compression is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        suffix: str = ".txt",
        compression: str = "none",
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self._format = LineFormat(
            suffix=suffix + end_of(compression), line_of=text_line, compression=compression
        )

    @property
    def file_format(self) -> FileFormat:
        """Lines."""
        return self._format


class WriteToJsonLines(WriteToFiles):
    """Values as lines of JSON; named tuples, dataclasses and mappings are objects.

    Times are texts as ISO 8601 has them, decimals texts with all their digits, bytes base64; what is no number (NaN) is
    null.

    Args:
        path: as for `WriteToFiles`.
        options: naming, shards, batching and store, as for `WriteToFiles`.
        compression: ``none``, ``gzip`` or ``zstd``.
        changelog: the name of a member with the sign of a change, +1 or -1; elements are objects then.  None: input
            that retracts is refused.

    Raises:
        PipelineError: see `WriteToFiles`; or the compression is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        compression: str = "none",
        changelog: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self._format = LineFormat(
            suffix=".jsonl" + end_of(compression),
            line_of=partial(json_line, is_object=changelog is not None),
            with_sign=None if changelog is None else signed_json(changelog),
            compression=compression,
            sign=changelog,
        )

    @property
    def file_format(self) -> FileFormat:
        """Lines of JSON."""
        return self._format


class WriteToCsv(WriteToFiles):
    """Mappings, or named tuples, as records of CSV; each file begins with the names of the columns.

    A missing value is an empty field; times are texts as ISO 8601 has them.

    Args:
        path: as for `WriteToFiles`.
        options: naming, shards, batching and store, as for `WriteToFiles`.
        columns: the names, in order; each element must have them.
        compression: ``none``, ``gzip`` or ``zstd``.
        changelog: the name of a further column with the sign of a change, +1 or -1.  None: input that retracts is
            refused.

    Raises:
        PipelineError: see `WriteToFiles`; or there are no columns, or the compression is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Sequence[str],
        compression: str = "none",
        changelog: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        names = _names("WriteToCsv", columns, changelog)
        self._format = LineFormat(
            suffix=".csv" + end_of(compression),
            line_of=partial(csv_line, tuple(columns)),
            header=csv_line(tuple(names), dict(zip(names, names, strict=True))),
            with_sign=None if changelog is None else signed_csv,
            compression=compression,
            sign=changelog,
        )

    @property
    def file_format(self) -> FileFormat:
        """Records of CSV."""
        return self._format


class WriteToParquet(WriteToFiles):
    """Mappings, or named tuples, as rows of Parquet files.

    Args:
        path: as for `WriteToFiles`.
        options: naming, shards, batching and store, as for `WriteToFiles`.
        columns: names with Python types, as for `WriteToPostgres`.  Decimals have 38 digits, 9 of them behind the
            point, and one that does not fit ends the run; dict and list are JSON, UUIDs and enums are texts.
        compression: of the pages, as Arrow names it.
        changelog: the name of a further column with the sign of a change, +1 or -1.  None: input that retracts is
            refused.

    Raises:
        PipelineError: see `WriteToFiles`; or a column has an unknown type.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Mapping[str, ColumnType],
        compression: str = "zstd",
        changelog: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        check_types("WriteToParquet", columns, changelog)
        self._format = ParquetFormat(
            suffix=".parquet", types=dict(columns), compression=compression, sign=changelog
        )

    @property
    def file_format(self) -> FileFormat:
        """Parquet."""
        return self._format


class WriteToAvro(WriteToFiles):
    """Mappings, or named tuples, as records of Avro files; needs fastavro.

    Args:
        path: as for `WriteToFiles`.
        options: naming, shards, batching and store, as for `WriteToFiles`.
        columns: names with Python types, as for `WriteToParquet`, but no timedelta.
        compression: of the blocks: ``deflate`` or ``null``.
        changelog: the name of a further column with the sign of a change, +1 or -1.  None: input that retracts is
            refused.

    Raises:
        PipelineError: see `WriteToFiles`; or a column has an unknown type, or a name that Avro has not; or fastavro is
            not installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Mapping[str, ColumnType],
        compression: str = "deflate",
        changelog: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        require("fastavro", "avro", "WriteToAvro")
        check_types("WriteToAvro", columns, changelog)
        self._format = AvroFormat(
            suffix=".avro", types=dict(columns), compression=compression, sign=changelog
        )
        avro_schema(self._format.written)

    @property
    def file_format(self) -> FileFormat:
        """Avro."""
        return self._format


def _names(name: str, columns: Sequence[str], changelog: str | None) -> list[str]:
    names = [*columns, *([] if changelog is None else [changelog])]
    if isinstance(columns, str) or not columns or len(set(names)) < len(names) or NAME in names:
        raise PipelineError(
            f"{name} was given columns={columns!r}"
            + (f", changelog={changelog!r}" if changelog else ""),
            hint="give the names of the columns, each once",
        )
    return names


def check_types(name: str, columns: Mapping[str, ColumnType], changelog: str | None) -> None:
    """Check typed columns of a transform that writes.

    Args:
        name: of the transform, for messages.
        columns: with their Python types.
        changelog: the name of the column for signs; None: there is none.

    Raises:
        PipelineError: there are none, a name comes twice, or a type is unknown.
    """
    _names(name, list(columns), changelog)
    for column, kind in columns.items():
        if not is_column_type(kind):
            raise PipelineError(
                f"{name}: column {column!r} has the type {kind!r}",
                hint=f"use one of {', '.join(each.__name__ for each in COLUMN_TYPES)}, an enum, "
                "or list[...] of one of them for an array",
            )
