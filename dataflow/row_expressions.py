"""Functions of a row that are given as expressions: ``df.col("price") * df.col("pieces")``.

An expression is the function of one element that Python's operators make of it, wherever a function or the name of a
field is taken.  Where elements are columns it is computed for a whole bundle by Arrow and numpy, and no row is made.

**Law**: what it gives for columns is what it gives for each of their rows, to the last bit and in the same types; where
that is not certain (a null in an operand, an integer beyond 64 bits, a division by zero) the rows are asked one by one.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Never

import attrs
import numpy as np
import pyarrow as pa

from dataflow.arrow_numbers import array_of, numbers_of
from dataflow.column_fn import ColumnFunction
from dataflow.columns import TIMESTAMP_TYPE, IntColumn, Rows, column_values
from dataflow.errors import PipelineError
from windowing.window import Window

#: Every integer up to here is a float, too.
_EXACT_MAX = 1 << 53
_KINDS: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: TIMESTAMP_TYPE,
}
#: Kinds whose values can be compared with `<`, and are compared by Arrow as by Python.
_ORDERED = (pa.int64(), pa.float64(), pa.string(), TIMESTAMP_TYPE)


class RowExpression(ColumnFunction):
    """A function of an element, made of its fields by operators; see the module.

    Operators: ``+ - * / // %``, the comparisons, and ``& | ~``, which are *and*, *or* and *not*.
    Two expressions that are compared with ``==`` make a third, so use ``is`` to tell them apart.
    """

    @abstractmethod
    def __call__(self, element: Any, /) -> Any:
        """The value for one element.

        Args:
            element: a typed row, any object with these attributes, or a mapping with these keys.
        """

    @abstractmethod
    def column(self, rows: Rows) -> pa.Array | None:
        """The values for all rows; None where they have to be asked one by one.

        Args:
            rows: the elements.
        """

    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        """The values for all elements, if they are columns; see `ColumnFunction`."""
        array = self.column(values) if isinstance(values, Rows) else None
        if array is None:
            return None
        if array.type == pa.int64() and not array.null_count:
            return IntColumn(numbers_of(array))
        return column_values(array)

    def is_null(self) -> RowExpression:
        """Whether the value is None."""
        return _Unary(_IS_NULL, self)

    def is_in(self, values: Collection[Any]) -> RowExpression:
        """Whether the value is one of some.

        Args:
            values: int, str or bool.

        Raises:
            PipelineError: they are a text, or cannot be compared quickly.
        """
        if isinstance(values, str):
            raise PipelineError(f"is_in needs a list or a set, not {values!r}")
        try:
            return _IsIn(self, frozenset(values))
        except TypeError as error:
            raise PipelineError(
                f"is_in needs values that are hashable, not {values!r}", detail=str(error)
            ) from error

    def __add__(self, other: object) -> RowExpression:
        return _operation("+", self, other)

    def __radd__(self, other: object) -> RowExpression:
        return _operation("+", other, self)

    def __sub__(self, other: object) -> RowExpression:
        return _operation("-", self, other)

    def __rsub__(self, other: object) -> RowExpression:
        return _operation("-", other, self)

    def __mul__(self, other: object) -> RowExpression:
        return _operation("*", self, other)

    def __rmul__(self, other: object) -> RowExpression:
        return _operation("*", other, self)

    def __truediv__(self, other: object) -> RowExpression:
        return _operation("/", self, other)

    def __rtruediv__(self, other: object) -> RowExpression:
        return _operation("/", other, self)

    def __floordiv__(self, other: object) -> RowExpression:
        return _operation("//", self, other)

    def __rfloordiv__(self, other: object) -> RowExpression:
        return _operation("//", other, self)

    def __mod__(self, other: object) -> RowExpression:
        return _operation("%", self, other)

    def __rmod__(self, other: object) -> RowExpression:
        return _operation("%", other, self)

    def __and__(self, other: object) -> RowExpression:
        return _Logic("&", self, _expression(other))

    def __rand__(self, other: object) -> RowExpression:
        return _Logic("&", _expression(other), self)

    def __or__(self, other: object) -> RowExpression:
        return _Logic("|", self, _expression(other))

    def __ror__(self, other: object) -> RowExpression:
        return _Logic("|", _expression(other), self)

    def __eq__(self, other: object) -> RowExpression:  # type: ignore[override]
        # A class is no value of a field, and whoever looks a function up among classes, as inspect does, compares them.
        return NotImplemented if isinstance(other, type) else _operation("==", self, other)

    def __ne__(self, other: object) -> RowExpression:  # type: ignore[override]
        return _operation("!=", self, other)

    def __lt__(self, other: object) -> RowExpression:
        return _operation("<", self, other)

    def __le__(self, other: object) -> RowExpression:
        return _operation("<=", self, other)

    def __gt__(self, other: object) -> RowExpression:
        return _operation(">", self, other)

    def __ge__(self, other: object) -> RowExpression:
        return _operation(">=", self, other)

    def __invert__(self) -> RowExpression:
        return _Unary(_NOT, self)

    def __neg__(self) -> RowExpression:
        return _Unary(_NEGATED, self)

    __hash__ = object.__hash__
    __name__ = "expression"

    def __bool__(self) -> Never:
        raise PipelineError(
            f"{self!r} is true or false only for an element",
            hint="combine expressions with & | ~ and brackets, not with and, or, not, in, or a < b < c",
        )


def col(name: str) -> RowExpression:
    """The field of an element, as an expression: ``df.Filter(df.col("amount") > 10)``.

    It can be computed with (``+ - * / // %``), compared, and combined (``& | ~``); a number, a text or an aware
    datetime beside it stands for itself.  It is taken by `Map` and `Filter`, and wherever a field is: by `Select`,
    `GroupBy` and ``aggregate_field``.  For one element it is the function that it reads as, so
    ``df.col("a") / df.col("b")`` fails where ``b`` is 0; typed rows are not taken out of their columns for it
    (docs/how-to/work-in-columns.md).

    Args:
        name: of the field: an attribute of elements, or a key of mappings.

    Raises:
        PipelineError: it is no name.
    """
    if not isinstance(name, str) or not name:
        raise PipelineError(f"col needs the name of a field, not {name!r}", hint='df.col("amount")')
    return _Field(name)


@attrs.frozen(eq=False, repr=False)
class _Field(RowExpression):
    name: str

    def __call__(self, element: Any, /) -> Any:
        if isinstance(element, Mapping):
            return element[self.name]
        return getattr(element, self.name)

    def column(self, rows: Rows) -> pa.Array | None:
        return rows.column(self.name)

    def __repr__(self) -> str:
        return f"col({self.name!r})"


@attrs.frozen(eq=False, repr=False)
class _Literal(RowExpression):
    value: Any

    def __call__(self, element: Any, /) -> Any:
        return self.value

    def column(self, rows: Rows) -> pa.Array | None:
        kind = _KINDS.get(type(self.value))
        if kind is None or (type(self.value) is datetime and self.value.tzinfo is None):
            return None
        try:
            return pa.repeat(pa.scalar(self.value, kind), len(rows))
        except (pa.ArrowInvalid, OverflowError):
            return None

    def __repr__(self) -> str:
        return repr(self.value)


@attrs.frozen(eq=False, repr=False)
class _Unary(RowExpression):
    text: str
    operand: RowExpression

    def __call__(self, element: Any, /) -> Any:
        return _UNARY[self.text].of_value(self.operand(element))

    def column(self, rows: Rows) -> pa.Array | None:
        array = self.operand.column(rows)
        try:
            return None if array is None else _UNARY[self.text].of_column(array)
        except pa.ArrowInvalid:
            return None

    def __repr__(self) -> str:
        return self.text.format(repr(self.operand))


@attrs.frozen(eq=False, repr=False)
class _IsIn(RowExpression):
    operand: RowExpression
    values: frozenset[Any]

    def __call__(self, element: Any, /) -> Any:
        return self.operand(element) in self.values

    def column(self, rows: Rows) -> pa.Array | None:
        array = self.operand.column(rows)
        kinds = {_KINDS.get(type(each)) for each in self.values}
        if array is None or array.null_count or kinds != {array.type}:
            return None
        if array.type not in (pa.int64(), pa.string(), pa.bool_()):
            return None
        try:
            wanted = pa.array(list(self.values), array.type)
        except (pa.ArrowInvalid, OverflowError):
            return None
        return _computed("is_in", array, wanted)

    def __repr__(self) -> str:
        return f"{self.operand!r}.is_in({sorted(self.values, key=repr)!r})"


@attrs.frozen(eq=False, repr=False)
class _Operation(RowExpression):
    name: str
    left: RowExpression
    right: RowExpression

    def __call__(self, element: Any, /) -> Any:
        return _OPERATORS[self.name].of_values(self.left(element), self.right(element))

    def column(self, rows: Rows) -> pa.Array | None:
        left, right = self.left.column(rows), self.right.column(rows)
        if left is None or right is None or left.null_count or right.null_count:
            return None
        try:
            return _OPERATORS[self.name].of_columns(left, right)
        except pa.ArrowInvalid:
            return None

    def __repr__(self) -> str:
        return f"({self.left!r} {self.name} {self.right!r})"


@attrs.frozen(eq=False, repr=False)
class _Logic(RowExpression):
    """And, or: as Python's own, the right side is not asked where the left one decides."""

    name: str
    left: RowExpression
    right: RowExpression

    def __call__(self, element: Any, /) -> bool:
        if self.name == "&":
            return bool(self.left(element) and self.right(element))
        return bool(self.left(element) or self.right(element))

    def column(self, rows: Rows) -> pa.Array | None:
        left, right = self.left.column(rows), self.right.column(rows)
        if not _is_whole(left, pa.bool_()) or not _is_whole(right, pa.bool_()):
            return None
        return _computed("and_" if self.name == "&" else "or_", left, right)

    def __repr__(self) -> str:
        return f"({self.left!r} {self.name} {self.right!r})"


def _operation(name: str, left: object, right: object) -> RowExpression:
    return _Operation(name, _expression(left), _expression(right))


def _expression(given: object) -> RowExpression:
    return given if isinstance(given, RowExpression) else _Literal(given)


@attrs.frozen
class _Operator:
    """An operator between its operands: of two values, and of two columns without nulls, None if not for them."""

    of_values: Callable[[Any, Any], Any]
    of_columns: Callable[[pa.Array, pa.Array], pa.Array | None]


def _computed(kernel: str, *operands: Any) -> pa.Array:
    """What a function of Arrow makes of columns; raises `pyarrow.ArrowInvalid` where it cannot."""
    import pyarrow.compute as pc  # noqa: PLC0415 - a pipeline without expressions starts sooner

    return getattr(pc, kernel)(*operands)


def _is_whole(array: pa.Array | None, kind: pa.DataType) -> bool:
    return array is not None and array.type == kind and not array.null_count


def _as_floats(array: pa.Array) -> pa.Array | None:
    """Numbers as floats, where each of them is one."""
    if array.type == pa.float64():
        return array
    if array.type != pa.int64():
        return None
    numbers = numbers_of(array)
    if len(numbers) and max(-int(numbers.min()), int(numbers.max())) > _EXACT_MAX:
        return None
    return array_of(numbers.astype(np.float64))


def _alike(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Two columns of one type: both as they are, or numbers as floats."""
    if left.type == right.type:
        return left, right
    floats = _as_floats(left), _as_floats(right)
    return None if floats[0] is None or floats[1] is None else (floats[0], floats[1])


def _arithmetic(kernel: str) -> Callable[[pa.Array, pa.Array], pa.Array | None]:
    def of_columns(left: pa.Array, right: pa.Array) -> pa.Array | None:
        both = _alike(left, right)
        if both is None or both[0].type not in (pa.int64(), pa.float64()):
            return None
        return _computed(f"{kernel}_checked" if both[0].type == pa.int64() else kernel, *both)

    return of_columns


def _sum(left: pa.Array, right: pa.Array) -> pa.Array | None:
    if left.type == right.type == pa.string():
        return _computed("binary_join_element_wise", left, right, "")
    return _numeric_sum(left, right)


_numeric_sum = _arithmetic("add")


def _quotient(left: pa.Array, right: pa.Array) -> pa.Array | None:
    floats = _as_floats(left), _as_floats(right)
    if floats[0] is None or floats[1] is None or not numbers_of(floats[1]).all():
        return None
    return _computed("divide", *floats)


def _of_integers(ufunc: np.ufunc) -> Callable[[pa.Array, pa.Array], pa.Array | None]:
    def of_columns(left: pa.Array, right: pa.Array) -> pa.Array | None:
        if not left.type == right.type == pa.int64():
            return None
        divisors = numbers_of(right)
        # The least integer divided by -1 is beyond 64 bits.
        if not divisors.all() or (divisors == -1).any():
            return None
        return array_of(ufunc(numbers_of(left), divisors))

    return of_columns


def _comparison(kernel: str) -> Callable[[pa.Array, pa.Array], pa.Array | None]:
    kinds = (*_ORDERED, pa.bool_()) if kernel in ("equal", "not_equal") else _ORDERED

    def of_columns(left: pa.Array, right: pa.Array) -> pa.Array | None:
        both = _alike(left, right)
        return _computed(kernel, *both) if both is not None and both[0].type in kinds else None

    return of_columns


@attrs.frozen
class _UnaryOperator:
    """An operator in front of its operand: of a value, and of a column, None if that is not for it."""

    of_value: Callable[[Any], Any]
    of_column: Callable[[pa.Array], pa.Array | None]


def _negated(array: pa.Array) -> pa.Array | None:
    if _is_whole(array, pa.int64()):
        return _computed("negate_checked", array)
    return _computed("negate", array) if _is_whole(array, pa.float64()) else None


_NOT, _NEGATED, _IS_NULL = "~{}", "-{}", "{}.is_null()"
_UNARY = {
    _NOT: _UnaryOperator(
        operator.not_,
        lambda array: _computed("invert", array) if _is_whole(array, pa.bool_()) else None,
    ),
    _NEGATED: _UnaryOperator(operator.neg, _negated),
    _IS_NULL: _UnaryOperator(
        lambda value: value is None, lambda array: _computed("is_null", array)
    ),
}
_OPERATORS = {
    "+": _Operator(operator.add, _sum),
    "-": _Operator(operator.sub, _arithmetic("subtract")),
    "*": _Operator(operator.mul, _arithmetic("multiply")),
    "/": _Operator(operator.truediv, _quotient),
    "//": _Operator(operator.floordiv, _of_integers(np.floor_divide)),
    "%": _Operator(operator.mod, _of_integers(np.remainder)),
    "==": _Operator(operator.eq, _comparison("equal")),
    "!=": _Operator(operator.ne, _comparison("not_equal")),
    "<": _Operator(operator.lt, _comparison("less")),
    "<=": _Operator(operator.le, _comparison("less_equal")),
    ">": _Operator(operator.gt, _comparison("greater")),
    ">=": _Operator(operator.ge, _comparison("greater_equal")),
}
