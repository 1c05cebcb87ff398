"""Python data sources of Spark (`pyspark.sql.datasource`) as input, and sources of ours as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError, PipelineError
from dataflow.io.arrow_columns import ArrowField, Columns, arrow_fields
from dataflow.io.create import Read
from dataflow.io.record_reader import event_times_us
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.serialization import dumps_code, loads_code
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from windowing.errors import error_text
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, TimestampLike

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    from dataflow.pipeline import Pipeline


class ReadFromSparkDataSource(OneOutput["Pipeline", Any]):
    """The rows of a Python data source of Spark, without Spark: mappings from column name to value, or typed rows.

    Its reader is asked for partitions once, in this process, and each is a split.  A position is the number of rows
    that were read of a partition: whoever goes on reads these again and passes them over.  So a partition must have
    the same rows in the same order whenever it is read, as Spark wants it too, for tasks that are run again.

    Args:
        data_source: a subclass of ``pyspark.sql.datasource.DataSource``, or an instance.
        options: of a subclass, as ``spark.read.options`` has them.
        schema: of the rows; None: that of the data source.  A text can be read only where Spark runs.
        rows: a row type whose fields are columns; None: elements are mappings.
        event_time: from an element to its event time; None: elements are at the beginning of time.

    Raises:
        InputError: the data source cannot say its schema or its partitions; or, when it is read, has a row that does
            not fit.
        PipelineError: it is no data source, or the schema has no such column.
    """

    def __init__(
        self,
        data_source: type[DataSource] | DataSource,
        options: Mapping[str, str] | None = None,
        *,
        schema: StructType | str | None = None,
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | None = None,
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
        self._source = SparkDataSourceSource(
            data_source=data_source,
            struct=struct,
            row_type=rows,
            fields=fields,
            event_time=event_time,
        )

    def default_label(self) -> str:
        """``ReadFromSparkDataSource(its name)``."""
        return f"ReadFromSparkDataSource({self._source.input_name})"

    def expand(self, pcoll: Pipeline) -> PCollection[Any]:
        """Read it."""
        return pcoll | Read(self._source)


@attrs.frozen(kw_only=True)
class SparkDataSourceSource(Source):
    """Rows of a data source; see `ReadFromSparkDataSource` for the arguments."""

    data_source: DataSource
    struct: StructType
    row_type: type | None = None
    fields: tuple[ArrowField, ...] = ()
    event_time: Callable[[Any], TimestampLike] | None = None

    @property
    def element_type(self) -> Any:
        """The row type, or mappings."""
        return dict[str, Any] if self.row_type is None else self.row_type

    @property
    def has_event_times(self) -> bool:
        """Whether there is a function of them."""
        return self.event_time is not None

    @property
    def input_name(self) -> str:
        """The name of the data source."""
        return self.data_source.name()

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
                f"the data source {self.input_name} of Spark does not say its partitions",
                detail=f"{type(error).__name__}: {error_text(error)}",
                hint="is it made for reading in batch, and can it be reached from here?",
            ) from error
        what = f"a partition of {self.input_name}"
        return [dumps_code((reader, each), what) for each in partitions] or [b""]

    def open(self, split: bytes, position: int | None, *, fence: int) -> SourceReader:
        """Read a partition, behind so many rows."""
        return _PartitionReader(self, split, position or 0)

    def element(self, row: Any) -> Any:
        """A row as an element.

        Args:
            row: as the data source has it.

        Raises:
            InputError: it has another number of columns.
        """
        names = self.struct.names
        values = tuple(row)
        if len(values) != len(names):
            raise InputError(
                f"the data source {self.input_name} of Spark has a row that is not of its schema",
                detail=f"{row!r:.500}; the columns are {', '.join(names)}",
                hint="correct the data source, or its schema",
            )
        found = dict(zip(names, values, strict=True))
        if self.row_type is None:
            return found
        return self.row_type(**{field.name: found[field.name] for field in self.fields})


class _PartitionReader(SourceReader):
    def __init__(self, source: SparkDataSourceSource, split: bytes, position: int) -> None:
        self._source, self.position = source, position
        self._rows: Iterator[Any] = iter(())
        if split:
            reader, partition = loads_code(split)
            self._rows = _single_rows(source.input_name, reader.read(partition))
        for _ in islice(self._rows, position):
            pass

    def read(self, max_records: int) -> SourceBatch:
        elements = [self._source.element(row) for row in islice(self._rows, max_records)]
        self.position += len(elements)
        is_over = len(elements) < max_records
        name = f"the data source {self._source.input_name} of Spark"
        return SourceBatch(
            values=elements,
            timestamps_us=event_times_us(name, self._source.event_time, elements),
            position=self.position,
            watermark_us=MAX_TIMESTAMP_US if is_over else MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if is_over else SplitStatus.ACTIVE,
        )

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()


def _single_rows(name: str, found: Any) -> Iterator[Any]:
    """Rows, also of those that come as Arrow."""
    for each in found:
        if isinstance(each, pa.RecordBatch):
            columns = Columns(f"the data source {name} of Spark", None)
            pairs = zip(each.schema.names, each.columns, strict=True)
            yield from zip(*(columns.values(*pair) for pair in pairs), strict=True)
        else:
            yield each


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
