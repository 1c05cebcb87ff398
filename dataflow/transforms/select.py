"""Select: some fields of each element, as a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from dataflow.column_fn import ColumnFunction
from dataflow.columns import Rows
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.rows import row_class
from dataflow.transforms.fields import Expression, check_expression, field_column, field_value
from dataflow.transforms.par_do import Map
from windowing.window import Window


class Select(PTransform[PCollection[Any], PCollection[Any]]):
    """A row, which is a named tuple, with some fields of each element: ``df.Select("user", total=add)``.

    Elements are typed rows, any objects with these attributes, or mappings with these keys.  Where they are columns,
    and fields are names or expressions (`df.col`), so are the rows.

    Args:
        *fields: names of fields.
        **computed: further fields of the row by their names: the name of a field, an expression (`df.col`), or a
            function of the element.

    Raises:
        PipelineError: there is no field, or a name is no possible one or given twice.
    """

    def __init__(self, *fields: str, **computed: Expression) -> None:
        for each in fields:
            if not isinstance(each, str):
                raise PipelineError(
                    f"Select needs names of fields, not {each!r}",
                    hint='a function is given with a name: df.Select("user", total=lambda element: ...)',
                )
        self._fields: dict[str, Expression] = {**{name: name for name in fields}, **computed}
        if not self._fields or len(self._fields) < len(fields) + len(computed):
            raise PipelineError(
                f"Select needs fields, each once, not {[*fields, *computed]}",
                hint='e.g. df.Select("user", "amount")',
            )
        for expression in self._fields.values():
            check_expression(expression, "Select")
        row_class(tuple(self._fields))

    def default_label(self) -> str:
        """``Select(names)``."""
        return f"Select({', '.join(self._fields)})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Map to rows."""
        to_row = _ToRow(tuple(self._fields), tuple(self._fields.values()))
        return pcoll | "row" >> Map(to_row)


@attrs.frozen
class _ToRow(ColumnFunction):
    names: tuple[str, ...]
    expressions: tuple[Expression, ...]

    def __call__(self, element: Any, /) -> Any:
        return row_class(self.names)(*[field_value(element, each) for each in self.expressions])

    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        if not isinstance(values, Rows):
            return None
        columns = [field_column(values, each) for each in self.expressions]
        if any(each is None for each in columns):
            return None
        return Rows.of(row_class(self.names), self.names, columns)
