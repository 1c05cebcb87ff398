"""UnfoldedPartials: the partials of a bundle before anything was sorted or folded.

Code that folds many bundles at once reads the records; all other code reads the sequence of partials.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from runners.core.partials.partial import Partial
from windowing.window import Window

Pairs = Sequence[tuple[Any, Any]]
#: None: all records are in the global window.
Windows = Sequence[Window] | None


class UnfoldedPartials(Sequence[Partial]):
    """Partials that are made when one is read for the first time, and kept from then on.

    Args:
        pairs: key and input of each record, as its grouping folds it.
        windows: of the records.
        make: makes the partials of pairs and windows; raises what the user's code raises.
    """

    def __init__(
        self, pairs: Pairs, windows: Windows, make: Callable[[Pairs, Windows], Sequence[Partial]]
    ) -> None:
        self.pairs, self.windows = pairs, windows
        self._make = make
        self._made: Sequence[Partial] | None = None

    @property
    def records(self) -> int:
        """The number of records that the partials are made of."""
        return len(self.pairs)

    @property
    def is_made(self) -> bool:
        """Whether the partials have been read; the user's code has folded the records then, and must not again."""
        return self._made is not None

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Partial]:
        return iter(self._items())

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def _items(self) -> Sequence[Partial]:
        if self._made is None:
            self._made = self._make(self.pairs, self.windows)
        return self._made
