"""GroupBy: aggregates of fields, for elements that have fields.

It is made of a `Map` to keys and values, a `CombinePerKey`, and a `Map` back to rows; where elements are columns, so
are its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from dataflow.column_fn import ColumnFunction
from dataflow.columns import PairColumns, Rows
from dataflow.combine_fn import CombineFn, as_combine_fn
from dataflow.combiners import TupleCombineFn
from dataflow.errors import PipelineError
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.rows import row_class
from dataflow.transforms.fields import (
    Expression,
    Input,
    check_expression,
    check_input,
    field_column,
    field_value,
    is_field_or_expression,
)
from dataflow.transforms.group import CombinePerKey, GroupByKey
from dataflow.transforms.par_do import Map
from windowing.window import Window

#: The key of all elements where they are not grouped by any field.
_NO_KEY = 0


@attrs.frozen
class _Aggregate:
    field: Input
    combine_fn: CombineFn
    name: str


class GroupBy(OneOutput[PCollection[Any], Any]):
    """Group elements by some of their fields, and aggregate others.

    Elements are typed rows, any objects with these attributes, or mappings with these keys.
    Each `aggregate_field` adds a field to the results, which are rows: a named tuple with the key's fields and these,
    for each key, window and firing, as `CombinePerKey` gives them.
    Without any the results are ``(key, elements)``, as those of `GroupByKey`; the key is the field's value, or where
    there are several a tuple.  Without any field the aggregates are of all elements of a window, and there is a row
    where there is an element.

    Examples::

        events | df.GroupBy("user_id").aggregate_field("amount", sum, "total")
        events | df.GroupBy().aggregate_field(df.col("price") * df.col("pieces"), sum, "turnover")

    Args:
        *fields: names of fields.
        **computed: further fields of the key by their names: the name of a field, an expression (`df.col`), or a
            function of the element.

    Raises:
        PipelineError: a name is no possible one or given twice; when applied, there is neither a field nor an
            aggregate.
    """

    def __init__(self, *fields: str, **computed: Expression) -> None:
        self._keys: dict[str, Expression] = {**{name: name for name in fields}, **computed}
        self._aggregates: tuple[_Aggregate, ...] = ()
        if len(self._keys) < len(fields) + len(computed):
            raise PipelineError(
                f"GroupBy needs fields to group by, each once, not {[*fields, *computed]}",
                hint='e.g. df.GroupBy("user_id")',
            )
        for each in self._keys.values():
            check_expression(each, "GroupBy")
        row_class(tuple(self._keys))

    def aggregate_field(
        self, field: Input, combine_fn: CombineFn | Callable[[list[Any]], Any], name: str
    ) -> GroupBy:
        """Add an aggregate.

        Args:
            field: the name of a field, an expression (`df.col`), or a function of the element; or several of these,
                and the input is a tuple.
            combine_fn: as for `CombinePerKey`: ``sum``, ``min``, ``max``, ``df.CountCombineFn()``, ...; any other
                function is called on all values of the group.
            name: of the field with the result.
        """
        check_input(field, "GroupBy")
        more = GroupBy(**self._keys)
        more.label, more.declared_types = self.label, self.declared_types
        more._aggregates = (*self._aggregates, _Aggregate(field, as_combine_fn(combine_fn), name))
        row_class(more._names)
        return more

    def default_label(self) -> str:
        """``GroupBy(names)``."""
        return f"GroupBy({', '.join(self._keys)})"

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        """Keys and values, the grouping, and rows.

        Raises:
            PipelineError: there is neither a field nor an aggregate.
        """
        keys = tuple(self._keys.values())
        if not self._aggregates and not keys:
            raise PipelineError(
                f"{pcoll.pipeline.here()} has neither a field to group by nor an aggregate",
                hint='df.GroupBy("user_id"), or df.GroupBy().aggregate_field("amount", sum, "total") of all elements',
            )
        if not self._aggregates:
            return pcoll | "key" >> Map(_WithKey(keys)) | "group" >> GroupByKey()
        combine_fn = TupleCombineFn(*(each.combine_fn for each in self._aggregates))
        values = tuple(each.field for each in self._aggregates)
        return (
            pcoll
            | "key" >> Map(_ToPair(keys, values))
            | "combine" >> CombinePerKey(combine_fn)
            | "rows" >> Map(_ToRow(self._names, len(keys)))
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self._keys, *(each.name for each in self._aggregates))


def _key(element: Any, keys: tuple[Expression, ...]) -> Any:
    if not keys:
        return _NO_KEY
    if len(keys) == 1:
        return field_value(element, keys[0])
    return tuple([field_value(element, each) for each in keys])


@attrs.frozen
class _WithKey:
    keys: tuple[Expression, ...]

    def __call__(self, element: Any) -> tuple[Any, Any]:
        return _key(element, self.keys), element


@attrs.frozen
class _ToPair(ColumnFunction):
    keys: tuple[Expression, ...]
    values: tuple[Input, ...]

    @property
    def ignores_windows(self) -> bool:
        return all(map(is_field_or_expression, (*self.keys, *self.values)))

    def __call__(self, element: Any, /) -> tuple[Any, Any]:
        values = tuple([field_value(element, each) for each in self.values])
        return _key(element, self.keys), values

    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        if not isinstance(values, Rows):
            return None
        keys, parts = (
            [field_column(values, each) for each in expressions]
            for expressions in (self.keys, self.values)
        )
        if any(each is None for each in (*keys, *parts)):
            return None
        keys = keys or [pa.repeat(_NO_KEY, len(values))]
        return PairColumns(tuple(keys), tuple(parts), is_single=len(keys) == 1)


@attrs.frozen
class _ToRow(ColumnFunction):
    names: tuple[str, ...]
    keys: int

    def __call__(self, element: tuple[Any, tuple[Any, ...]], /) -> Any:
        key, results = element
        row_type = row_class(self.names)
        if not self.keys:
            return row_type(*results)
        return row_type(key, *results) if self.keys == 1 else row_type(*key, *results)

    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        if not isinstance(values, PairColumns):
            return None
        keys = values.keys if self.keys else ()
        return Rows.of(row_class(self.names), self.names, [*keys, *values.values])
