"""ValuesByKey: values grouped by window and canonical key.

Most keys are canonical as they come (`dataflow.canonical_keys`), and finding a known key costs only the lookup: the
type of a key is checked only when the key comes for the first time, and for all new keys at once.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import islice, repeat
from typing import Any

from dataflow.canonical_keys import CanonicalKeys, are_canonical
from windowing.window import GLOBAL_WINDOW, Window

#: With more windows than this, all keys of a bundle are checked, instead of only the new keys of each window.
_FEW_WINDOWS = 64

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
        if len(self) > _FEW_WINDOWS:
            if not are_canonical([key for key, _ in pairs]):
                keys = CanonicalKeys()
                pairs = [(keys[key], value) for key, value in pairs]
            self._add(pairs, windows)
            return
        before = {window: len(groups) for window, groups in self.items()}
        self._add(pairs, windows)
        # A dict keeps its keys in the order in which they came.
        new = {
            window: list(islice(reversed(groups), len(groups) - before.get(window, 0)))
            for window, groups in self.items()
            if len(groups) > before.get(window, 0)
        }
        if are_canonical([key for keys in new.values() for key in keys]):
            return
        for window in [each for each, keys in new.items() if not are_canonical(keys)]:
            self._add_again(window, new[window], pairs, windows)

    def _add_again(
        self, window: Window, new: Collection[Any], pairs: _Pairs, windows: _Windows
    ) -> None:
        """Add what new keys have added to a window again, by canonical keys, which distinguish more keys."""
        keys, groups = CanonicalKeys(), self[window]
        raw = {key: groups.pop(key) for key in new}
        for (key, value), home in zip(pairs, windows or repeat(window), strict=windows is not None):
            if home == window and key in raw:
                groups[keys[key]].append(value)

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
