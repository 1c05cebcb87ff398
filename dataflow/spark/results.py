"""collect_to_spark: the elements of a collection as a DataFrame of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from dataflow.collecting import collect
from dataflow.columns import ARROW_TYPES
from dataflow.errors import PipelineError
from dataflow.io.arrow_columns import arrow_fields
from dataflow.options import RunnerOptions
from dataflow.pipeline import PCollection
from dataflow.rows import is_row_type
from dataflow.runner import Runner
from dataflow.type_hints import bounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The column of elements that are no rows.
_VALUE = "value"


def collect_to_spark(
    pcoll: PCollection[Any],
    runner: str | Runner = "direct",
    *,
    session: SparkSession | None = None,
    schema: StructType | str | None = None,
    **options: Unpack[RunnerOptions],
) -> DataFrame:
    """The elements of a collection as a frame of Spark: runs what leads to it, as `df.collect` does.

    Named tuples and mappings are rows; of other tuples the columns are ``_1``, ``_2`` and so on; anything else is the
    only column, ``value``.  The elements go through the memory of this process, as columns; have large results written
    to files, and read these with Spark.

    Args:
        pcoll: with an end.
        runner: as for `df.collect`.
        session: of the frame; None: that which is active, or one on the Spark that the runner has started.
        schema: of the frame, as ``createDataFrame`` takes it; None: from the row type, or from the elements.
        **options: of the runner.

    Raises:
        PipelineError: the collection has no end; there is no session; or there are no elements, so that nobody knows
            which columns they have.
        DataflowError: what made the run fail.
    """
    elements = collect(pcoll, runner, **options)
    table = _table(elements, bounded(pcoll.element_type), has_schema=schema is not None)
    session = session or _session()
    # Its types know columns with a schema, and columns without one.
    make: Any = session.createDataFrame
    frame: DataFrame = make([] if table is None else table, schema=schema)
    return frame


def _table(elements: list[Any], element_type: Any, *, has_schema: bool) -> pa.Table | None:
    first = elements[0] if elements else None
    row_type = element_type if first is None else type(first)
    if isinstance(row_type, type) and is_row_type(row_type):
        return _table_of_rows(elements, row_type)
    if first is None:
        if has_schema:
            return None
        raise PipelineError(
            "there are no elements, so nobody knows which columns a frame of them has",
            hint="give schema=..., such as 'user string, score bigint'; or have the elements as named tuples",
        )
    if isinstance(first, dict):
        return pa.Table.from_pylist(elements)
    if isinstance(first, tuple):
        names = [f"_{number}" for number in range(1, len(first) + 1)]
        return pa.table(dict(zip(names, map(list, zip(*elements, strict=True)), strict=True)))
    return pa.table({_VALUE: elements})


def _table_of_rows(elements: list[Any], row_type: type) -> pa.Table:
    fields = arrow_fields(row_type, "collect_to_spark")
    columns = zip(*elements, strict=True) if elements else ((),) * len(fields)
    return pa.table(
        {
            field.name: pa.array(column, ARROW_TYPES.get(field.kind))
            for field, column in zip(fields, columns, strict=True)
        }
    )


def _session() -> SparkSession:
    from pyspark import SparkContext  # noqa: PLC0415 - takes long, and only these calls need it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - likewise

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public way to ask
        raise PipelineError(
            "there is no session of Spark for the frame",
            hint="give session=...; or run the collection with the runner 'batch', which starts Spark",
        )
    return SparkSession.builder.getOrCreate()
