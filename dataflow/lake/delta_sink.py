"""WriteToDelta: rows into a table of Delta Lake, each exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dataflow.errors import PipelineError
from dataflow.io.extras import require
from dataflow.io.sinks import Write
from dataflow.lake.delta_table import DeltaPlace
from dataflow.lake.delta_writer import DeltaSink
from dataflow.lake.keyed import check_columns, checked_key
from dataflow.lake.table_format import LAKE_BATCHING, RowOf, table_format
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import Batching
from dataflow.table import ColumnType
from dataflow.transforms.par_do import Map


class WriteToDelta(PTransform[PCollection[Any], None]):
    """Mappings, or named tuples, as rows of a Delta table; needs deltalake.

    Elements go by way of an outbox, of which each batch becomes one commit of the table, with its number: after a
    retry, a failure or a restart each row is there once.  A table that is missing is created with these columns.

    Args:
        table_uri: a folder of this machine, or an address: ``s3://bucket/table``.
        columns: names with Python types, as for `WriteToParquet`, but no timedelta.
        key: columns of which there is one row each: a later row replaces the earlier one, and a retraction deletes it.
            Each batch then writes all files again that have such a row (``MERGE``).
        changelog: the name of a further column with the sign of a change, +1 or -1.  Without this and ``key``, input
            that retracts is refused.
        shards: how many lanes commit independently; 1 with a key.
        partition_by: columns by which files are divided, if the table is created.
        batching: how large commits are, and how long rows wait for that.
        storage_options: of the object store, as deltalake has them; None: the environment says.
        configuration: properties of the table, if it is created, e.g. ``{"delta.enableChangeDataFeed": "true"}``.

    Raises:
        PipelineError: columns, key, changelog and shards do not suit each other; a column has an unknown type; the
            input retracts, and there is neither key nor changelog; or deltalake is not installed.
    """

    def __init__(
        self,
        table_uri: str | Path,
        *,
        columns: Mapping[str, ColumnType],
        key: Sequence[str] = (),
        changelog: str | None = None,
        shards: int = 1,
        partition_by: Sequence[str] = (),
        batching: Batching = LAKE_BATCHING,
        storage_options: Mapping[str, str] | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        require("deltalake", "delta", "WriteToDelta")
        key = checked_key("WriteToDelta", key, columns, changelog)
        check_columns("WriteToDelta", "partition_by", partition_by, columns)
        _check_shards(shards, key)
        self._sink = DeltaSink(
            place=DeltaPlace(uri=str(table_uri), options=storage_options),
            file_format=table_format("WriteToDelta", columns, changelog),
            key=key,
            shards=shards,
            partition_by=tuple(partition_by),
            configuration=dict(configuration or {}),
            how_large=batching,
        )

    def default_label(self) -> str:
        """``WriteToDelta(address)``."""
        return f"WriteToDelta({self._sink.place.uri})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Make rows of elements, and write them.

        Raises:
            PipelineError: the input retracts, and there is neither key nor changelog.
        """
        rows = pcoll | "rows" >> Map(RowOf(self._sink.file_format))
        is_retracted = bool(pcoll.node.retracted_by)
        Write(attrs.evolve(self._sink, is_retracted=is_retracted)).expand(rows)


def _check_shards(shards: int, key: Sequence[str]) -> None:
    if shards < 1 or (key and shards > 1):
        raise PipelineError(
            f"WriteToDelta was given {shards} shards" + (" with a key" if key else ""),
            hint="a merge writes files again, so two of them at a time refuse each other: leave shards out"
            if key
            else "give it at least one",
        )
