"""The types of elements that flow through a transform from its input to its output, for type checkers.

``pcoll | df.Keys()`` has the type of the keys, with a label too: what a transform emits is read from its `expand`,
which is generic where it takes many types.  A transform that is given a function is generic itself.  Where nothing
tells the type, as of the parameter of a lambda under a label, it is Any: the default, which `typing` has from Python
3.13 on.

The bounds are for pyright, which looks at the body of a lambda before it knows what flows into it, and would find that
the type of its parameter has no methods.
"""

from collections.abc import Callable, Iterable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, Protocol, overload
from typing import TypeVar as TypingTypeVar
from uuid import UUID

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any, bound=Any)
    OutT = TypeVar("OutT", default=Any, bound=Any)
    ReturnT = TypeVar("ReturnT", default=Any, bound=Any)
    K = TypeVar("K", default=Any, bound=Any)
    V = TypeVar("V", default=Any, bound=Any)
    V2 = TypeVar("V2", default=Any, bound=Any)
    V3 = TypeVar("V3", default=Any, bound=Any)
    OutputsT = TypeVar("OutputsT", default=Any)
    AccumulatorT = TypeVar("AccumulatorT", default=Any)
    InT_contra = TypeVar("InT_contra", default=Any, contravariant=True)
    OutT_co = TypeVar("OutT_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T")
    OutT = TypeVar("OutT")
    ReturnT = TypeVar("ReturnT")
    K = TypeVar("K")
    V = TypeVar("V")
    V2 = TypeVar("V2")
    V3 = TypeVar("V3")
    OutputsT = TypeVar("OutputsT")
    AccumulatorT = TypeVar("AccumulatorT")
    InT_contra = TypeVar("InT_contra", contravariant=True)
    OutT_co = TypeVar("OutT_co", covariant=True)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Attrs(Protocol):
    __attrs_attrs__: ClassVar[Any]


_Time = date | time | timedelta
_Number = int | float | Decimal | np.generic
#: A key that is no function.
KeyT = TypingTypeVar(
    "KeyT",
    bound=_Number
    | _Time
    | str
    | bytes
    | UUID
    | Enum
    | tuple[Any, ...]
    | _Dataclass
    | _Attrs
    | None,
)

#: The parameters of a function behind the element.
P = ParamSpec("P")


class OfOutputs:
    """The results of a combining transform have the type that its function returns."""


class OfInputs:
    """The results of a combining transform have the type of its inputs, as those of ``sum`` and ``max``."""


if TYPE_CHECKING:
    ResultT = TypeVar("ResultT", default=OfOutputs)
else:
    ResultT = TypeVar("ResultT")


class _Sum(Protocol):
    @overload
    def __call__(self, values: Iterable[Decimal], /) -> Decimal | Literal[0]: ...
    @overload
    def __call__(self, values: Iterable[Decimal], /, start: Decimal) -> Decimal: ...


class _Extreme(Protocol):
    def __call__(
        self, values: Iterable[Decimal], /, *, key: Callable[[Decimal], float]
    ) -> Decimal: ...


#: ``sum``, ``min`` and ``max``, of whatever they are given: Decimals stand for that, and the further parameters tell
#: them from other functions.  Under a label a type checker could not know otherwise which of their types is meant.
SumOrExtreme = _Sum | _Extreme
