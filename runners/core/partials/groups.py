"""Partials grouped by window and key."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from runners.core.partials.partial import Partial
from windowing.window import Window

#: Key, window, and the items that belong to them.
Group = tuple[Any, Window, list[Any]]


def by_window_and_key(
    partials: Iterable[Partial],
) -> dict[Window, dict[Any, Any]]:
    """The partials by window and key: a partial, or a list where there are several of a key and window."""
    by_window: dict[Window, dict[Any, Any]] = defaultdict(dict)
    last: Window | None = None
    for partial in partials:
        window = partial[1]
        # Partials that were sent together share one window object.
        if window is not last:
            last, by_key = window, by_window[window]
        key = partial[0]
        known = by_key.get(key)
        if known is None:
            by_key[key] = partial
        elif type(known) is list:
            known.append(partial)
        else:
            by_key[key] = [known, partial]
    return by_window
