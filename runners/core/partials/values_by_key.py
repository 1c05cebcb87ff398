"""ValuesByKey: values grouped by window and canonical key.

Most keys are canonical as they come (`dataflow.canonical_keys`), which the types of all keys of a bundle tell at once.
A look at new keys alone would not do: to Python ``Decimal(1)`` is the key ``1`` that is there already.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dataflow.canonical_keys import CanonicalKeys, are_canonical
from windowing.window import GLOBAL_WINDOW, Window

_Pairs = Sequence[tuple[Any, Any]]
_Windows = Sequence[Window] | None


class ValuesByKey(dict[Window, dict[Any, list[Any]]]):
    """The values by window and canonical key, in the order in which they were added."""

    def __missing__(self, window: Window) -> dict[Any, list[Any]]:
        found = self[window] = defaultdict(list)
        return found

    def add(self, pairs: _Pairs, windows: _Windows) -> None:
        """Add each value to the others of its key and window.

        Args:
            pairs: keys and values.
            windows: of the pairs; None where all are in the global window.

        Raises:
            KeyEncodingError: something cannot be a key.
            TypeError: a key cannot be hashed, or something is not a pair.
            ValueError: something is not a pair.
        """
        if not are_canonical([key for key, _ in pairs]):
            for key, _ in pairs:
                hash(key)  # Raises what says more of it than that it has no encoding.
            keys = CanonicalKeys()
            pairs = [(keys[key], value) for key, value in pairs]
        self._add(pairs, windows)

    def _add(self, pairs: _Pairs, windows: _Windows) -> None:
        if windows is None:
            groups = self[GLOBAL_WINDOW]
            for key, value in pairs:
                groups[key].append(value)
            return
        last: Window | None = None
        for (key, value), window in zip(pairs, windows, strict=True):
            # Records that follow each other mostly share one window object: then only the key is hashed.
            if window is not last:
                last, groups = window, self[window]
            groups[key].append(value)
