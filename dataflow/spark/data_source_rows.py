"""SparkRows: what sources of Python data sources of Spark have in common: rows as elements, with event times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from dataflow.errors import InputError
from dataflow.io.arrow_columns import ArrowField, Columns
from dataflow.io.record_reader import event_times_us
from dataflow.set_aside import SetAside
from dataflow.source import Source
from windowing.timestamps import TimestampLike

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType


@attrs.frozen
class ReadRows:
    """Rows as elements.

    Attributes:
        values: the elements.
        times_us: the event time of each, in microseconds.
        aside: rows among them that are none.
    """

    values: Sequence[Any]
    times_us: Sequence[int]
    aside: Sequence[SetAside] = ()


@attrs.frozen(kw_only=True)
class SparkRows(Source):
    """A source of the rows of a data source; see `ReadFromSparkDataSource` for the arguments."""

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

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"the data source {self.input_name} of Spark"

    def single_rows(self, found: Any) -> Iterator[Any]:
        """Rows, also of those that come as Arrow.

        Args:
            found: what a reader of Spark has read.
        """
        for each in found:
            if isinstance(each, pa.RecordBatch):
                columns = Columns(self.title, None)
                pairs = zip(each.schema.names, each.columns, strict=True)
                yield from zip(*(columns.values(*pair) for pair in pairs), strict=True)
            else:
                yield each

    def elements(self, rows: Sequence[Any]) -> ReadRows:
        """Rows as elements; one that is malformed, or has no event time, is set aside.

        Args:
            rows: as the data source has them.
        """
        try:
            values = list(map(self._element, rows))
            return ReadRows(values, event_times_us(self.title, self.event_time, values))
        except Exception:  # noqa: BLE001 - which row it is, and in which words, is found one by one
            return self._one_by_one(rows)

    def _one_by_one(self, rows: Sequence[Any]) -> ReadRows:
        values, times_us, aside = list[Any](), list[int](), list[SetAside]()
        for row in rows:
            try:
                value = self._element(row)
                (time_us,) = event_times_us(self.title, self.event_time, [value])
            except InputError as error:
                aside.append(SetAside(error=error, cause=error.__cause__, element=row))
            else:
                values.append(value)
                times_us.append(time_us)
        return ReadRows(values, times_us, aside)

    def _element(self, row: Any) -> Any:
        names = self.struct.names
        values = tuple(row) if isinstance(row, tuple | list) else ()
        if len(values) != len(names):
            raise InputError(
                f"{self.title} has a row that is not of its schema",
                detail=f"{row!r:.500}; the columns are {', '.join(names)}",
                hint="correct the data source, or its schema; or go on without such rows: "
                "df.Pipeline(..., tries_per_record=1) keeps them as dead letters",
            )
        found = dict(zip(names, values, strict=True))
        if self.row_type is None:
            return found
        return self.row_type(**{field.name: found[field.name] for field in self.fields})
