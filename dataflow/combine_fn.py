"""CombineFn: aggregation as a commutative monoid, so that it can run before, during and after the shuffle.

**Laws**, for accumulators with the same output: merging is associative and commutative, `create_accumulator` is
neutral, and adding an input to an accumulator equals merging one made of that input alone.

Dataflow Model, section 2.2 (lifted combines as in FlumeJava).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Generic

import attrs

from dataflow.column_combine_fn import ColumnCombineFn
from dataflow.combiner_columns import columns_of_callable
from dataflow.errors import PipelineError
from dataflow.ptransform import PTransform, called
from dataflow.signatures import signature_of
from dataflow.type_vars import AccumulatorT, InT_contra, OutT_co
from dataflow.views import ViewPart
from windowing.location import user_location
from windowing.overriding import stands_for

#: A `CallableCombineFn` folds its buffer when it has grown to this many values.
_BUFFER_VALUES_MAX = 64
#: Built-in functions whose result over results of parts is their result over all the values.
_ASSOCIATIVE_BUILTINS = (sum, min, max, any, all)
#: The methods that say how single values are folded.
ROW_METHODS = (
    "create_accumulator",
    "add_input",
    "add_inputs",
    "merge_accumulators",
    "extract_output",
)


class CombineFn(ABC, Generic[InT_contra, AccumulatorT, OutT_co]):
    """Aggregates the values of one key and window.

    ``class Mean(df.CombineFn[float, tuple[float, int], float])`` names the types of values, accumulators and results
    for type checkers; ``df.CombineFn`` has any.

    An accumulator is pickled between processes and into the store.
    ``add_input`` and ``merge_accumulators`` may change and return their first argument;
    ``extract_output`` may be called many times on a growing accumulator; it must not change it, nor return a part of it
    that goes on changing, because what was emitted is kept to be retracted.
    """

    @abstractmethod
    def create_accumulator(self) -> AccumulatorT:
        """An accumulator of nothing."""

    @abstractmethod
    def add_input(self, accumulator: AccumulatorT, value: InT_contra) -> AccumulatorT:
        """The accumulator with one more value.

        Args:
            accumulator: may be changed and returned.
            value: one of the values of the group.
        """

    def add_inputs(self, accumulator: AccumulatorT, values: Iterable[InT_contra]) -> AccumulatorT:
        """The accumulator with more values; override where a whole list is cheaper.

        Args:
            accumulator: may be changed and returned.
            values: of the group, in any order; iterated once.
        """
        add = self.add_input
        for value in values:
            accumulator = add(accumulator, value)
        return accumulator

    @abstractmethod
    def merge_accumulators(self, accumulators: Iterable[AccumulatorT]) -> AccumulatorT:
        """One accumulator that has the inputs of all of them."""

    @abstractmethod
    def extract_output(self, accumulator: AccumulatorT) -> OutT_co:
        """The result so far."""

    def retract_input(self, accumulator: AccumulatorT, value: InT_contra) -> AccumulatorT:
        """The accumulator without a value: the inverse of `add_input`, the paper's "uncombine".

        Optional.  Without it, where values may be retracted they are all kept, and folded anew for each pane.
        With it only the accumulator is kept.  A value may be removed before it is added, also from an empty
        accumulator: both orders must have the same outcome.

        Args:
            accumulator: may be changed and returned.
            value: equal to one that was added, or is still to be.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define retract_input")

    @staticmethod
    def from_callable(fn: "CombineFn | Callable[[list[Any]], Any]") -> "CombineFn":
        """A function from a list of values to a value as a `CombineFn`; what takes one takes the function as well.

        Args:
            fn: as for `CombinePerKey`.

        Raises:
            PipelineError: it is neither a function of a list nor a `CombineFn`.
        """
        return as_combine_fn(fn)

    def columns(self) -> ColumnCombineFn | None:
        """How columns of values are folded, for `GroupBy` over typed rows; None: as they are, one by one.

        Optional.  It is not used where a subclass overrides one of the methods above and not this.
        """
        return None


class ChangingCombineFn(CombineFn):
    """A `CombineFn` whose result is many elements, each of which is used by itself behind the grouping.

    So a retracting window need not retract all of them: it retracts those that are gone from the result, and emits
    those that are new.  A result is false if it is empty.
    """

    @abstractmethod
    def changes(self, accumulator: Any, more: Any) -> tuple[Any, Any]:
        """The changes of the result when another accumulator is merged into one.

        Changes neither, and what it returns does not change with them.

        Args:
            accumulator: of what the window has combined so far.
            more: of what is new.

        Returns:
            The elements that go from the result, and those that are new.
        """


class CompositeCombineFn(CombineFn):
    """A `CombineFn` made of others; it can retract if all of them can.

    Args:
        combine_fns: the others, or functions as for `as_combine_fn`.

    Raises:
        PipelineError: one of them is neither.
    """

    def __init__(self, *combine_fns: CombineFn | Callable[[list[Any]], Any]) -> None:
        self.combine_fns = tuple(map(as_combine_fn, combine_fns))


class CombinerFamily:
    """A name for transforms that combine alike, such as `Count` for ``Count.Globally`` and ``Count.PerKey``.

    Args:
        *args: of no account: it cannot be made.
        **kwargs: likewise.

    Raises:
        PipelineError: it is called itself.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        name = type(self).__name__
        raise PipelineError(
            f"{name} is not a transform, but has some",
            hint=f"one of {', '.join(f'df.{each}(...)' for each in _transforms_of(type(self)))}",
        )


class PassingCombineFn(CombineFn[InT_contra, AccumulatorT, OutT_co]):
    """A `CombineFn` whose values may go on before the result: an engine sends them on when they are many, each once.

    They go on as `ViewPart`, with the number of the pane that they belong to.  Windows do not merge.
    """

    @abstractmethod
    def passed_on(self, accumulator: AccumulatorT) -> tuple[ViewPart, AccumulatorT]:
        """The values that have not gone on, and the accumulator when they have.

        Args:
            accumulator: not to be used afterwards, if they do go on.
        """

    @abstractmethod
    def gone(self, accumulator: AccumulatorT) -> int:
        """How many values have gone on.

        Args:
            accumulator: not changed.
        """


class PassOnFn(PassingCombineFn[Any, tuple[int, list[Any]], Any]):
    """All values, which need not stay together.

    An accumulator is how many have gone on, and those that have not; so is the result.
    """

    def create_accumulator(self) -> tuple[int, list[Any]]:
        """Nothing."""
        return 0, []

    def add_input(self, accumulator: tuple[int, list[Any]], value: Any) -> tuple[int, list[Any]]:
        """Append."""
        accumulator[1].append(value)
        return accumulator

    def add_inputs(
        self, accumulator: tuple[int, list[Any]], values: Iterable[Any]
    ) -> tuple[int, list[Any]]:
        """Extend."""
        accumulator[1].extend(values)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[tuple[int, list[Any]]]
    ) -> tuple[int, list[Any]]:
        """Concatenate."""
        count, values = 0, list[Any]()
        for gone, left in accumulators:
            count += gone
            values += left
        return count, values

    def extract_output(self, accumulator: tuple[int, list[Any]]) -> tuple[int, list[Any]]:
        """The number, and a copy of the others."""
        return accumulator[0], list(accumulator[1])

    def passed_on(
        self, accumulator: tuple[int, list[Any]]
    ) -> tuple[ViewPart, tuple[int, list[Any]]]:
        """The values that have not gone on, and the accumulator when they have."""
        count, values = accumulator
        return ViewPart(values), (count + len(values), [])

    def gone(self, accumulator: tuple[int, list[Any]]) -> int:
        """How many values have gone on."""
        return accumulator[0]


class ListCombineFn(CombineFn):
    """All values in a list: what `GroupByKey` combines with."""

    def create_accumulator(self) -> list[Any]:
        """An empty list."""
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Append."""
        accumulator.append(value)
        return accumulator

    def add_inputs(self, accumulator: list[Any], values: Iterable[Any]) -> list[Any]:
        """Extend."""
        accumulator.extend(values)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        """Concatenate."""
        iterator = iter(accumulators)
        merged = next(iterator, [])
        for other in iterator:
            merged.extend(other)
        return merged

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        """A copy: the accumulator goes on growing after the pane is emitted."""
        return list(accumulator)


@attrs.frozen
class CallableCombineFn(CombineFn):
    """A function from values to a value, such as ``sum`` or ``max``, that is associative and commutative.

    It is called on parts of a group, and then on its own results for these parts.
    """

    function: Callable[[list[Any]], Any]

    def create_accumulator(self) -> list[Any]:
        """An empty buffer."""
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Buffer, and fold when the buffer is full."""
        accumulator.append(value)
        if len(accumulator) >= _BUFFER_VALUES_MAX:
            accumulator[:] = [self.function(accumulator)]
        return accumulator

    def add_inputs(self, accumulator: list[Any], values: Iterable[Any]) -> list[Any]:
        """Fold the whole list at once."""
        folded = [*accumulator, *values]
        return [self.function(folded)] if folded else folded

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        """Fold the folded."""
        merged = [value for accumulator in accumulators for value in accumulator]
        return [self.function(merged)] if len(merged) > 1 else merged

    def extract_output(self, accumulator: list[Any]) -> Any:
        """Fold what is left."""
        return self.function(accumulator)

    def columns(self) -> ColumnCombineFn | None:
        """Columns of ``sum``, ``min`` and ``max``; None of other functions."""
        return columns_of_callable(self.function)


@attrs.frozen
class WholeGroupCombineFn(ListCombineFn):
    """A function from all values of a group to its result; it is not called on its own results.

    It may be any function of the multiset of values; the order in which it gets them means nothing.
    """

    function: Callable[[list[Any]], Any]

    def extract_output(self, accumulator: list[Any]) -> Any:
        """The result of the function, called with a copy, which it may change."""
        return self.function(list(accumulator))


def can_retract_input(combine_fn: CombineFn) -> bool:
    """Whether the class defines `CombineFn.retract_input`, and what it is made of can do that as well."""
    if type(combine_fn).retract_input is CombineFn.retract_input:
        return False
    return not isinstance(combine_fn, CompositeCombineFn) or all(
        map(can_retract_input, combine_fn.combine_fns)
    )


def columns_of(combine_fn: CombineFn) -> ColumnCombineFn | None:
    """How a combine function folds columns; None where it does not, or a subclass has changed how it folds rows."""
    return combine_fn.columns() if stands_for(combine_fn, "columns", ROW_METHODS) else None


def associative(fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Declare that a function from values to a value may be called on parts of a group, and then on its results.

    ``fn([fn(some), fn(others)])`` must be ``fn([*some, *others])``, and ``fn([fn(some)])`` be ``fn(some)``, whatever
    the order; `dataflow.testing.laws.check_combine_fn` checks that.
    A group then costs its sender and its owner one value.  Without it all values of a group are sent and kept, and
    folded for each pane, except for ``sum``, ``min``, ``max``, ``any`` and ``all``, which are known.

    Example::

        @df.associative
        def union(sets):
            return frozenset().union(*sets)

    Raises:
        PipelineError: ``fn`` is no function; a `CombineFn` needs no declaration.
    """
    if isinstance(fn, CombineFn) or not callable(fn):
        raise PipelineError(
            f"df.associative is for a function of values that returns a value, not {fn!r}",
            hint="a CombineFn merges parts itself: pass it as it is",
        )

    # A function of its own: not every callable takes an attribute, and not every one is the user's to mark.
    @wraps(fn)
    def declared(values: list[Any]) -> Any:
        return fn(values)

    declared.__dataflow_associative__ = True  # type: ignore[attr-defined]
    return declared


def as_combine_fn(fn: CombineFn | Callable[[list[Any]], Any]) -> CombineFn:
    """``fn`` itself, or a plain function as one: of parts where that is known to be right, else of the whole group.

    Raises:
        PipelineError: it is neither.
    """
    if isinstance(fn, CombineFn):
        return fn
    if not callable(fn) or _is_mistaken(fn):
        raise PipelineError(
            f"values cannot be combined with {_named(fn)} ({user_location()})", hint=_hint_for(fn)
        )
    _check_takes_a_list(fn)
    is_associative = getattr(fn, "__dataflow_associative__", False)
    if is_associative or any(fn is known for known in _ASSOCIATIVE_BUILTINS):
        return CallableCombineFn(fn)
    return WholeGroupCombineFn(fn)


def combined(combine_fn: CombineFn, values: Iterable[Any]) -> Any:
    """The result of values that are all there.

    Args:
        combine_fn: combines them.
        values: in any order; iterated once.
    """
    return combine_fn.extract_output(
        combine_fn.add_inputs(combine_fn.create_accumulator(), list(values))
    )


def _is_mistaken(fn: object) -> bool:
    """Whether a callable is a class of this package, which would be called with values in place of its arguments."""
    return isinstance(fn, type) and issubclass(fn, CombineFn | PTransform | CombinerFamily)


def _named(fn: object) -> str:
    return f"the class {fn.__name__}" if isinstance(fn, type) else repr(fn)


def _check_takes_a_list(fn: Callable[..., Any]) -> None:
    signature = signature_of(fn)
    if signature is None:
        return  # a built-in: it does not say what it takes
    try:
        signature.bind([])
    except TypeError as error:
        name = getattr(fn, "__name__", repr(fn))
        raise PipelineError(
            f"values cannot be combined with {name}, which does not take a list ({user_location()})",
            detail=f"it is called with one argument, the list of the values; its signature is {signature}: {error}",
            hint="for a function of two values: df.associative(lambda values: functools.reduce(f, values))",
        ) from None


def _hint_for(fn: object) -> str:
    if isinstance(fn, type) and issubclass(fn, CombineFn):
        return f"call it: {called(fn)}"
    if isinstance(fn, type) and issubclass(fn, CombinerFamily):
        return f"it has transforms: {', '.join(f'df.{each}(...)' for each in _transforms_of(fn))}"
    if isinstance(fn, PTransform) or (isinstance(fn, type) and issubclass(fn, PTransform)):
        return "it is a transform: apply it to a PCollection, pcoll | transform"
    return (
        "give a function of values that returns a value, such as sum, or a CombineFn, e.g. "
        "df.MeanCombineFn()"
    )


def _transforms_of(family: type) -> list[str]:
    return [f"{family.__name__}.{name}" for name in vars(family) if not name.startswith("_")]
