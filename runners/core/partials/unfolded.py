"""UnfoldedPartials: the partials of a bundle before anything was sorted or folded.

Whoever folds many bundles at once takes the records; everybody else the sequence of partials that it is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from windowing.window import Window

#: As `runners.core.partials.lifting.Partial`, which builds upon this.
_Partial = tuple[Any, Any, Any, int]
Pairs = Sequence[tuple[Any, Any]]
#: None: all in the global window.
Windows = Sequence[Window] | None


class UnfoldedPartials(Sequence[_Partial]):
    """Partials that are made when one is asked for, and kept from then on.

    Args:
        pairs: key and input of each record, as its grouping folds it.
        windows: theirs.
        make: the partials of both; raises what the user's code raises.
    """

    def __init__(
        self, pairs: Pairs, windows: Windows, make: Callable[[Pairs, Windows], Sequence[_Partial]]
    ) -> None:
        self.pairs, self.windows = pairs, windows
        self._make = make
        self._made: Sequence[_Partial] | None = None

    @property
    def records(self) -> int:
        """How many they are made of."""
        return len(self.pairs)

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[_Partial]:
        return iter(self._items())

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def _items(self) -> Sequence[_Partial]:
        if self._made is None:
            self._made = self._make(self.pairs, self.windows)
        return self._made
