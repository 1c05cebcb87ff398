"""Python data sources of Spark (`pyspark.sql.datasource`) as input, and sources of ours as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrival import ArrivalTime
from dataflow.io.arrow_columns import arrow_fields
from dataflow.io.create import Read
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.serialization import dumps_code, loads_code
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from dataflow.spark.data_source_rows import SparkRows
from dataflow.spark.data_source_streams import SparkStreamSource, behind
from windowing.errors import error_text
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    DurationLike,
    TimestampLike,
    to_duration_us,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from dataflow.pipeline import Pipeline


class ReadFromSparkDataSource(OneOutput["Pipeline", Any]):
    """The rows of a Python data source of Spark, without Spark: mappings from column name to value, or typed rows.

    Its reader is asked for partitions once, in this process, and each is a split.  A position is the number of rows
    that were read of a partition: whoever goes on reads these again and passes them over.  So a partition must have
    the same rows in the same order whenever it is read, as Spark wants it too, for tasks that are run again.

    With ``stream=True`` the input has no end: a `DataSourceStreamReader` or `SimpleDataSourceStreamReader` is asked for
    one micro-batch after the other, as by ``spark.readStream``, by one process.  Its offsets are positions, together
    with the partitions and rows of a micro-batch that were read; it commits an offset when all before it is durable
    downstream, and what it has between two offsets must be the same until then.  Where it has nothing new it is idle.

    Args:
        data_source: a subclass of ``pyspark.sql.datasource.DataSource``, or an instance.
        options: of a subclass, as ``spark.read.options`` has them.
        schema: of the rows; None: that of the data source.  A text can be read only where Spark runs.
        rows: a row type whose fields are columns; None: elements are mappings.
        event_time: from an element to its event time; `ARRIVAL_TIME`: when it is read; None: elements are at the
            beginning of time.
        stream: whether it is read as by ``spark.readStream``, and not as by ``spark.read``.
        max_disorder: of a stream: how far rows may be behind the newest one, in event time.
        max_ahead: of a stream: as for `Read`.

    Raises:
        InputError: the data source cannot say its schema, its partitions, or where its stream begins; or, when it is
            read, it cannot be read on, has not the rows again that were read, or has one that does not fit.
        PipelineError: it is no data source, the schema has no such column, or ``max_disorder`` is negative or not of a
            stream.
    """

    def __init__(
        self,
        data_source: type[DataSource] | DataSource,
        options: Mapping[str, str] | None = None,
        *,
        schema: StructType | str | None = None,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | None = None,
        stream: bool = False,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
    ) -> None:
        from pyspark.sql.datasource import DataSource  # noqa: PLC0415 - takes long, and only these jobs need it

        name = type(self).__name__
        if isinstance(data_source, type) and issubclass(data_source, DataSource):
            data_source = data_source(dict(options or {}))
        elif options is not None or not isinstance(data_source, DataSource):
            raise PipelineError(
                f"{name} cannot read {data_source!r:.200}",
                hint="give it a subclass of pyspark.sql.datasource.DataSource, with its options; or an instance, which "
                "has them",
            )
        struct = _struct(data_source, schema)
        fields = () if rows is None else arrow_fields(rows, name)
        if missing := [field.name for field in fields if field.name not in struct.names]:
            raise PipelineError(
                f"{name} was given rows={rows!r}, but the data source has no column {missing[0]!r}",
                detail=f"its columns: {', '.join(struct.names)}",
                hint="name fields as columns are",
            )
        self._max_ahead = max_ahead
        self._arrival = event_time if isinstance(event_time, ArrivalTime) else None
        given: dict[str, Any] = {
            "data_source": data_source,
            "struct": struct,
            "row_type": rows,
            "fields": fields,
            "event_time": None if isinstance(event_time, ArrivalTime) else event_time,
        }
        disorder_us = _disorder_us(name, max_disorder, is_stream=stream)
        self._source: SparkRows = (
            SparkStreamSource(**given, max_disorder_us=disorder_us)
            if stream
            else SparkDataSourceSource(**given)
        )

    def default_label(self) -> str:
        """``ReadFromSparkDataSource(its name)``."""
        return f"ReadFromSparkDataSource({self._source.input_name})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Read it."""
        return pcoll | Read(self._source, event_time=self._arrival, max_ahead=self._max_ahead)


@attrs.frozen(kw_only=True)
class SparkDataSourceSource(SparkRows):
    """Rows of a data source in batch; see `ReadFromSparkDataSource` for the arguments."""

    def splits(self, desired: int) -> Sequence[bytes]:
        """Its partitions, each with the reader that has made it, as Spark sends them to its workers.

        Raises:
            InputError: it does not say them.
        """
        try:
            reader = self.data_source.reader(self.struct)
            partitions = list(reader.partitions())
        except Exception as error:
            raise InputError(
                f"{self.title} does not say its partitions",
                detail=f"{type(error).__name__}: {error_text(error)}",
                hint="can it be reached from here, and is it made for reading in batch? If it is made for "
                "spark.readStream, give stream=True",
            ) from error
        what = f"a partition of {self.input_name}"
        return [dumps_code((reader, each), what) for each in partitions] or [b""]

    def open(self, split: bytes, position: int | None, *, fence: int) -> SourceReader:
        """Read a partition, behind so many rows."""
        return _PartitionReader(self, split, position or 0)


class _PartitionReader(SourceReader):
    def __init__(self, source: SparkDataSourceSource, split: bytes, position: int) -> None:
        self._source, self.position = source, position
        self._rows: Iterator[Any] = iter(())
        if split:
            reader, partition = loads_code(split)
            self._rows = behind(source, source.single_rows(reader.read(partition)), position)

    def read(self, max_records: int) -> SourceBatch:
        rows = list(islice(self._rows, max_records))
        found = self._source.elements(rows)
        self.position += len(rows)
        is_over = len(rows) < max_records
        return SourceBatch(
            values=found.values,
            timestamps_us=found.times_us,
            set_aside=found.aside,
            position=self.position,
            watermark_us=MAX_TIMESTAMP_US if is_over else MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if is_over else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()


def _disorder_us(name: str, max_disorder: DurationLike | None, *, is_stream: bool) -> int:
    found_us = 0 if max_disorder is None else to_duration_us(max_disorder)
    if found_us < 0 or (max_disorder is not None and not is_stream):
        raise PipelineError(
            f"{name} was given max_disorder={max_disorder!r}"
            + ("" if is_stream else ", and is no stream"),
            hint="it is how far rows of a stream may be behind the newest one, zero or more; a batch has no watermark: "
            "leave it out there",
        )
    return found_us


def _struct(data_source: DataSource, schema: StructType | str | None) -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - takes long, and only these jobs need it

    try:
        found = data_source.schema() if schema is None else schema
        struct: Any = StructType.fromDDL(found) if isinstance(found, str) else found
    except Exception as error:
        raise InputError(
            f"the schema of the data source {data_source.name()} of Spark is not known",
            detail=f"{type(error).__name__}: {error_text(error)[:500]}",
            hint="give schema= a StructType; a text can be read only where Spark runs in this process",
        ) from error
    if not isinstance(struct, StructType):
        raise PipelineError(
            f"the schema of the data source {data_source.name()} of Spark is {struct!r:.200}",
            hint="give schema= a StructType",
        )
    return struct


def spark_data_source(
    source: Source, schema: StructType | str, *, name: str = "dataflow"
) -> type[DataSource]:
    """A data source of Spark that reads a source of ours: ``spark.dataSource.register(it)``, then ``format(name)``.

    With ``spark.read`` each split is a partition, if the source has an end; ``option("splits", n)`` says how many are
    wanted.  With ``spark.readStream`` one process of Spark's reads, as it does for all sources with simple readers: for
    input that one process can carry.  Offsets have positions, and where Spark repeats a micro-batch it has the same
    records, as long as the input has them.  Event times and watermarks are not handed over: give rows a column.

    Args:
        source: elements are mappings from the names of columns to values, or tuples in the order of the schema.
        schema: of the rows.
        name: for ``format``.

    Raises:
        PipelineError: the source retracts records, which Spark does not know.
    """
    from dataflow.spark.offered import Offered  # noqa: PLC0415 - imports PySpark

    if source.emits_retractions:
        raise PipelineError(
            f"{type(source).__name__} retracts records, which a data source of Spark cannot say",
            hint="have a pipeline write its changes, df.ToChangelog(), and read these",
        )
    members = {"source": source, "declared": schema, "format_name": name}
    return type("Offered", (Offered,), members)
