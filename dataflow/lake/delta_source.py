"""ReadFromDelta: rows of a version of a Delta table, or of a table and its changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload
from urllib.parse import unquote

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError, TableFileError, TableNotOpenedError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.extras import require
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.io.parquet_files import ReadFromParquet
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.reading import SIGN, LakeSource, LakeTable, check_event_time
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us

#: What `load_cdf` has beside the columns of the table.
_CHANGE = "_change_type"
_MORE = (_CHANGE, "_commit_version", "_commit_timestamp")
_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
#: Of a table that has a change feed: all changes of a version.
_FEED = "changes"
#: How often a table is looked at.
POLL = 10


class DeltaTableReader(LakeTable):
    """A Delta table that is open.

    Args:
        place: of the table.

    Raises:
        TableNotOpenedError: it is not there, or is not reached.
    """

    def __init__(self, place: DeltaPlace) -> None:
        self._place, self.title = place, place.uri
        found = place.checked("ReadFromDelta")
        if found is None:
            raise TableNotOpenedError(
                f"there is no Delta table at {place.uri!r}",
                hint="check the address; a table is a folder with a folder _delta_log in it",
            )
        self._newest = found
        self._dataset = lru_cache(maxsize=2)(self._dataset_of)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest version."""
        return self._place.schema(self._newest)

    @property
    def has_feed(self) -> bool:
        """Whether changes have signs."""
        configuration: Mapping[str, str] = self._newest.metadata().configuration
        return configuration.get("delta.enableChangeDataFeed", "").lower() == "true"

    def newest(self) -> int:
        """The newest version."""
        self._newest.update_incremental()
        return int(self._newest.version())

    def files(self, version: int) -> list[str]:
        """By name."""
        return sorted(self._dataset(version))

    def changed_files(self, done: int) -> tuple[int, list[str]] | None:
        """The whole feed of a version, or the files that it adds."""
        version = done + 1
        if version > self._newest.version() and version > self.newest():
            return None
        return version, [_FEED] if self.has_feed else self._added(version)

    def rows(
        self, version: int, file: str, columns: Sequence[str], *, is_change: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, or the changes of a version."""
        if is_change and self.has_feed:
            return iter(self._feed(version, columns))
        dataset, fragment = self._dataset(version)[file]
        found: Iterator[pa.RecordBatch] = fragment.to_batches(
            schema=dataset.schema, columns=list(columns), use_threads=False
        )
        return found

    def _feed(self, version: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        """What was retracted, and then what was added; in an order that is the same each time."""
        self._log(version)
        reader = self._newest.load_cdf(starting_version=version, ending_version=version)
        table = pa.table(reader).select([*columns, _CHANGE])
        signs = pa.array([_SIGNS[each] for each in table.column(_CHANGE).to_pylist()], pa.int8())
        table = _without_views(table.drop_columns([_CHANGE]))
        values = table.to_pylist()
        order = sorted(
            range(table.num_rows), key=lambda at: (signs[at].as_py(), repr(values[at].values()))
        )
        batches: list[pa.RecordBatch] = (
            table.append_column(SIGN, signs)
            .take(pa.array(order, pa.int64()))
            .combine_chunks()
            .to_batches()
        )
        return batches

    def _added(self, version: int) -> list[str]:
        actions = self._log(version)
        changed = [
            (kind, action[kind])
            for action in actions
            for kind in ("add", "remove")
            if kind in action and action[kind].get("dataChange", True)
        ]
        if any(kind == "remove" for kind, _ in changed):
            raise InputError(
                f"{self.title}: version {version} takes rows away, and the table has no change feed",
                detail="only what is appended can be read",
                hint="set its property delta.enableChangeDataFeed to true before it is changed, and begin the job anew",
            )
        return sorted(unquote(action["path"]) for _, action in changed)

    def _log(self, version: int) -> list[dict[str, Any]]:
        """The actions of a version."""
        filesystem, name = self._filesystem(), f"_delta_log/{version:020}.json"
        try:
            with filesystem.open_input_file(name) as file:
                return [json.loads(line) for line in file.read().splitlines() if line]
        except FileNotFoundError:
            raise self._gone(version) from None

    def _gone(self, version: int) -> InputError:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - few read tables

        names = [
            each.base_name for each in self._filesystem().get_file_info(FileSelector("_delta_log"))
        ]
        kept = [int(each[:20]) for each in names if each.endswith(".json") and each[:20].isdigit()]
        return InputError(
            f"{self.title}: version {version} is not there any more",
            detail=f"the oldest version in its log is {min(kept, default='none')}",
            hint="keep the log for longer than the job may be away (delta.logRetentionDuration), or begin it anew with "
            "fresh=True",
        )

    def _filesystem(self) -> Any:
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - an extra
        from pyarrow.fs import PyFileSystem  # noqa: PLC0415 - few read tables

        options = self._place.storage_options
        return PyFileSystem(DeltaStorageHandler(self._newest.table_uri, options))

    def _dataset_of(self, version: int) -> dict[str, tuple[Any, Any]]:
        """The files of a version, by name."""
        try:
            dataset = self._place.opened(version).to_pyarrow_dataset()
        except Exception as error:
            raise TableFileError(
                f"{self.title} cannot be read: version {version}",
                detail=f"{error}; the newest version is {self.newest()}",
                hint="it may not be there yet, or not any more; or it has features that deltalake does not read as "
                "files, such as deletion vectors: rewrite it without them",
            ) from error
        return {fragment.path: (dataset, fragment) for fragment in dataset.get_fragments()}


def _without_views(table: pa.Table) -> pa.Table:
    """Texts and bytes in the form that can be put in order."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


@attrs.frozen(kw_only=True)
class DeltaSource(LakeSource):
    """A Delta table.

    Attributes:
        options: of the object store.
    """

    options: Mapping[str, str] | None = attrs.field(default=None, repr=False)

    def opened(self, *, is_tried_again: bool = False) -> DeltaTableReader:
        """The table."""
        place = DeltaPlace(uri=self.input_name, options=self.options, is_tried_again=is_tried_again)
        return DeltaTableReader(place)


class ReadFromDelta(ReadFromParquet[T]):
    """Rows of a Delta table, as typed rows or as mappings from column name to value; needs deltalake.

    Args:
        table_uri: a folder of this machine, or an address: ``s3://bucket/table``.
        version: which one; None: the newest when the job begins.
        changes: whether the input has no end: the rows that are there when the job begins, and then what changes.
            With a change feed (``delta.enableChangeDataFeed``) rows that are deleted or replaced are retracted; without
            one files that are appended are read, and a version that takes rows away is an error.
        poll: how often the table is looked at that has nothing new.
        storage_options: of the object store, as deltalake has them; None: the environment says.
        max_ahead: as for `ReadFromParquet`.
        options: rows, columns, event_time, event_time_unit, time_zone and max_disorder, as for `ReadFromParquet`.

    Raises:
        InputError: there is no such table or version, or no such column, or one of a type that does not fit: when the
            pipeline is built.  When it is read, a version that is not there any more.
        PipelineError: an argument does not suit the others; or deltalake is not installed.
    """

    source_class = DeltaSource

    @overload
    def __init__(
        self: ReadFromDelta[dict[str, Any]],
        table_uri: str | Path,
        *,
        version: int | None = ...,
        changes: bool = ...,
        poll: DurationLike = ...,
        storage_options: Mapping[str, str] | None = ...,
        rows: None = ...,
        columns: Sequence[str] | None = ...,
        event_time: Callable[[dict[str, Any]], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        table_uri: str | Path,
        *,
        rows: type[T],
        version: int | None = ...,
        changes: bool = ...,
        poll: DurationLike = ...,
        storage_options: Mapping[str, str] | None = ...,
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        time_zone: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table_uri: str | Path,
        *,
        version: int | None = None,
        changes: bool = False,
        poll: DurationLike = POLL,
        storage_options: Mapping[str, str] | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        **options: Any,
    ) -> None:
        require("deltalake", "delta", "ReadFromDelta")
        super().__init__(table_uri, max_ahead=max_ahead, **options)
        assert isinstance(self._source, DeltaSource)
        if version is not None and changes:
            raise PipelineError(
                "ReadFromDelta was given a version and changes",
                hint="changes begin with the newest version: leave the version out",
            )
        if changes:
            check_event_time("ReadFromDelta", self._source)
        source = attrs.evolve(
            self._source,
            version=version,
            follows=changes,
            poll_us=to_duration_us(poll),
            options=None if storage_options is None else dict(storage_options),
        )
        self._source = attrs.evolve(source, has_signs=changes and source.opened().has_feed)
