"""ColumnFunction: a function of an element that can also take a whole column of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from windowing.window import Window


class ColumnFunction(ABC):
    """A function for a ``Shape.MAP`` call: one output for each element."""

    @abstractmethod
    def __call__(self, element: Any, /) -> Any:
        """The output for one element."""

    @property
    def ignores_windows(self) -> bool:
        """Whether outputs depend on the element alone, and no code of the user's is called for them.

        Then it is not asked once for each window of an element, where it need not be.
        """
        return False

    @abstractmethod
    def on_columns(
        self, values: Sequence[Any], windows: Sequence[Window] | None
    ) -> Sequence[Any] | None:
        """The outputs for all elements; None where they have to be called one by one.

        **Law**: they are those of the calls, or None.  So what would be an error is None here, and the call raises it.

        Args:
            values: the elements.
            windows: the window of each; None: all in the global window.
        """
