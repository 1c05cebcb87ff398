"""CoGroupByKey: a join, as one grouping of several collections.  Dataflow Model, section 2.1."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import attrs

from dataflow.co_group_fn import CoGroupFn, Tagged
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.same_windows import check_several, common_strategy
from dataflow.transforms.flatten import Flatten
from dataflow.transforms.group import CombinePerKey
from dataflow.transforms.pairs import not_a_pair
from dataflow.transforms.par_do import Map
from dataflow.type_hints import fields_of, pair_type, union_of
from dataflow.type_vars import V2, K, V

#: Collections by name, or in an order.
_Several = Mapping[str, PCollection[Any]] | Sequence[PCollection[Any]]


class CoGroupByKey(PTransform[Any, Any]):
    """``{"left": a, "right": b} | df.CoGroupByKey()``: ``(key, {"left": [values], "right": [values]})``.

    ``(a, b) | df.CoGroupByKey()``, of a tuple or a list: ``(key, ([values], [values]))``.

    Inputs are collections of ``(key, value)`` pairs, windowed alike; where windows do not merge, some of them may have
    been grouped and others not, e.g. to join each element with the result of its window.  The result has a group for
    every key and window that any of them has, with an empty list where an input has nothing.  An inner join keeps the
    groups in which no list is empty.  Where an input may be retracted, so may the groups be.
    They are lists however large they are; what does not fit can be tagged and grouped with `GroupByKey`.
    Each pane is the whole group: where a trigger fires for every few elements in a window that lasts, a key with many
    elements costs the square of their number.  `Join` emits only the changed pairs of two collections.

    Raises:
        PipelineError: no input, something else than PCollections, or inputs that are windowed differently.
    """

    @overload
    def __ror__(
        self, pcolls: Mapping[str, PCollection[tuple[K, Any]]]
    ) -> PCollection[tuple[K, dict[str, list[Any]]]]: ...
    @overload
    def __ror__(
        self, pcolls: tuple[PCollection[tuple[K, V]], PCollection[tuple[K, V2]]]
    ) -> PCollection[tuple[K, tuple[list[V], list[V2]]]]: ...
    @overload
    def __ror__(
        self, pcolls: Sequence[PCollection[tuple[K, Any]]]
    ) -> PCollection[tuple[K, tuple[list[Any], ...]]]: ...
    def __ror__(self, pcolls: _Several) -> PCollection[Any]:
        parts = pcolls.values() if isinstance(pcolls, Mapping) else pcolls
        are_several = isinstance(pcolls, Mapping | tuple | list) and bool(pcolls)
        if not are_several or not all(isinstance(each, PCollection) for each in parts):
            raise PipelineError(
                f"CoGroupByKey needs several PCollections, by name or in a tuple, not {pcolls!r}",
                hint='e.g. {"orders": orders, "payments": payments} | df.CoGroupByKey()',
            )
        found: PCollection[Any] = next(iter(parts)).pipeline.apply(self, pcolls)
        return found

    def expand(self, pcoll: _Several) -> PCollection[Any]:
        """Tag, flatten, group by tag.

        Raises:
            PipelineError: it is applied to one collection.
        """
        check_several(pcoll, "(orders, payments) | df.CoGroupByKey()")
        is_named = isinstance(pcoll, Mapping)
        by_name = (
            pcoll
            if isinstance(pcoll, Mapping)
            else dict(zip(map(str, range(len(pcoll))), pcoll, strict=True))
        )
        names = tuple(by_name)
        tagged = together(by_name)
        with tagged.pipeline.without_handling():
            groups = tagged | "group" >> CombinePerKey(CoGroupFn(names))
        key, values = parts_of_pairs(by_name.values())
        lists = [types.GenericAlias(list, (each,)) for each in values]
        if is_named:
            by_tag = types.GenericAlias(dict, (str, union_of(lists)))
            return (groups | "by tag" >> Map(_ByTag(names))).of_type(pair_type(key, by_tag))
        in_order = types.GenericAlias(tuple, tuple(lists))
        return (groups | "by tag" >> Map(_in_order)).of_type(pair_type(key, in_order))


def parts_of_pairs(pcolls: Iterable[PCollection[Any]]) -> tuple[Any, list[Any]]:
    """The type of the keys of collections of pairs, and the types of the values of each."""
    parts = [fields_of(each.element_type) or (Any, Any) for each in pcolls]
    return union_of(key for key, _ in parts), [value for _, value in parts]


def together(pcolls: Mapping[str, PCollection[Any]]) -> PCollection[Any]:
    """Collections of pairs as one, each value with the name of the collection that it comes from.

    Raises:
        PipelineError: they are windowed differently.
    """
    common_strategy({repr(name): each for name, each in pcolls.items()}, "joins", is_join=True)
    return [each | f"tag {name}" >> Map(_Tag(name)) for name, each in pcolls.items()] | Flatten()


@attrs.frozen
class _Tag:
    name: str

    def __call__(self, pair: tuple[Any, Any]) -> tuple[Any, Tagged]:
        try:
            key, value = pair
        except (TypeError, ValueError):
            raise not_a_pair(pair) from None
        return key, (self.name, value)


@attrs.frozen
class _ByTag:
    names: tuple[str, ...]

    def __call__(self, group: tuple[Any, Sequence[list[Any]]]) -> tuple[Any, dict[str, list[Any]]]:
        key, lists = group
        # Copies: the lists are kept to be retracted, and user code may change these.
        return key, {name: list(values) for name, values in zip(self.names, lists, strict=True)}


def _in_order(group: tuple[Any, Sequence[list[Any]]]) -> tuple[Any, tuple[list[Any], ...]]:
    key, lists = group
    return key, tuple([list(values) for values in lists])
