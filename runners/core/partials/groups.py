"""Partials, and records, grouped by key and window, or by key and windows that overlap."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dataflow.canonical_keys import PLAIN_TYPES, canonical_key
from windowing.window import Window, windows_of

#: Key, window, and the items that belong to them.
Group = tuple[Any, Window, list[Any]]


def by_window_and_key(
    partials: Iterable[tuple[Any, Window, Any, int]],
) -> dict[Window, dict[Any, Any]]:
    """The partials by window and key: a partial, or a list where there are several of a key and window."""
    by_window: dict[Window, dict[Any, Any]] = defaultdict(dict)
    last: Window | None = None
    for partial in partials:
        window = partial[1]
        # Partials that were sent together share the very window.
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


def chains(keys: Sequence[Any], windows: Sequence[Window], items: Sequence[Any]) -> Iterator[Group]:
    """The items of each key in chains of windows that overlap, and the window over each chain.

    The keys given need not be canonical; those of the groups are.

    Args:
        keys: of the items.
        windows: of the items.
        items: as many as keys and windows.

    Raises:
        KeyEncodingError: something cannot be a key.
    """
    starts_us, ends_us = [window[0] for window in windows], [window[1] for window in windows]
    #: For each chain: its key, bounds and items; and for each key, the index of its latest chain.
    owners: list[Any] = []
    from_us: list[int] = []
    to_us: list[int] = []
    found: list[list[Any]] = []
    latest: dict[Any, int] = {}
    for index in sorted(range(len(starts_us)), key=starts_us.__getitem__):
        key, end_us = keys[index], ends_us[index]
        chain = latest.get(key)
        if chain is None and type(key) not in PLAIN_TYPES:
            key = canonical_key(key)
            chain = latest.get(key)
        if chain is None or starts_us[index] >= to_us[chain]:
            latest[key] = len(found)
            owners.append(key if chain is None else owners[chain])
            from_us.append(starts_us[index])
            to_us.append(end_us)
            found.append([items[index]])
        else:
            found[chain].append(items[index])
            to_us[chain] = max(to_us[chain], end_us)
    return zip(owners, windows_of(from_us, to_us), found, strict=True)
