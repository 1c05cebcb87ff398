"""The types of elements that flow through a transform from its input to its output.

``pcoll | df.Keys()`` has the type of the keys.  With a label, ``"keys" >> df.Keys()``, a type checker looks at the
transform before it knows the input, and the type is Any: the default, which `typing` has from Python 3.13 on.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    K = TypeVar("K")
    V = TypeVar("V")
