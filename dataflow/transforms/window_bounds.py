"""WindowStart and WindowEnd: a bound of each row's window as one more field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dataflow.arrow_numbers import array_of
from dataflow.column_fn import ColumnFunction
from dataflow.columns import TIMESTAMP_TYPE, Rows, WindowColumn
from dataflow.do_fn import DoFn
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.rows import is_row_type, row_class
from dataflow.transforms.par_do import Map
from windowing.window import Window


class WindowStart(PTransform[PCollection[Any], PCollection[Any]]):
    """Add the first instant of its window, a datetime in UTC, to each row as one more field.

    Rows are named tuples, which get a field at their end, or mappings, which get a key.

    Args:
        name: of the field.

    Raises:
        PipelineError: ``name`` cannot be one.
    """

    _is_end = False

    def __init__(self, name: str) -> None:
        row_class((name,))
        self._name = name

    def default_label(self) -> str:
        """``WindowStart(name)``."""
        return f"{type(self).__name__}({self._name})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Add the field."""
        return pcoll | "add" >> Map(_WithBound(self._name, is_end=self._is_end))


class WindowEnd(WindowStart):
    """Add the first instant after its window to each row."""

    _is_end = True


@attrs.frozen
class _WithBound(ColumnFunction):
    name: str
    is_end: bool = attrs.field(kw_only=True)

    def __call__(self, element: Any, /, window: Window = DoFn.WindowParam) -> Any:
        bound = window.end if self.is_end else window.start
        if isinstance(element, Mapping):
            return {**element, self.name: bound}
        if not is_row_type(type(element)):
            raise TypeError("it is neither a row (a named tuple) nor a mapping")
        return row_class((*element._fields, self.name))(*element, bound)

    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        if not isinstance(values, Rows) or not isinstance(windows, WindowColumn):
            return None
        if self.name in values.batch.schema.names:
            return None
        names = (*values.batch.schema.names, self.name)
        bounds = array_of(windows.ends_us if self.is_end else windows.starts_us)
        return Rows.of(
            row_class(names), names, [*values.batch.columns, bounds.cast(TIMESTAMP_TYPE)]
        )
