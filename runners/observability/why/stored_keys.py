"""The windows of a key, from what is stored of it: cells, timers and the journal of its range, as owners read them."""

from collections.abc import Callable, Iterable
from typing import Any

from dataflow.canonical_keys import canonical_key
from runners.millwheel.cell_codec import decode_cell_id, decode_timer
from runners.millwheel.store.port import StoredKey
from runners.observability.why.key_state import Grouping, KeyState
from runners.stored.cells import decode_cell
from runners.stored.columns import Own
from runners.stored.journal import decode_entry


def key_state_of(
    stored: StoredKey,
    journal: Iterable[bytes],
    key: Any,
    grouping: Grouping,
    read_own: Callable[[bytes], Own],
) -> KeyState:
    """The state of a key, as the last commit has left it.

    Args:
        stored: what is stored of the keys with its hash.
        journal: the entries of its range, oldest first; one at a time, as there may be many.
        key: the key.
        grouping: that has it.
        read_own: reads users' values.

    Raises:
        StoredFormatError: it is of a format, or of columns, that cannot be read without the pipeline.
    """
    state = KeyState(canonical_key(key))
    for cell_key, value in stored.cells.items():
        found, window = decode_cell_id(cell_key, is_merging=grouping.is_merging)[:2]
        if found == state.key:
            state.set_cell(window, decode_cell(value, read_own))
    for timer in stored.timers:
        cell_id, window, domain = decode_timer(timer, is_merging=grouping.is_merging)
        if cell_id[0] == state.key:
            state.set_timer(window, domain, timer.fire_us)
    for payload in journal:
        state.apply(decode_entry(payload, grouping.combiners, read_own))
    if stored.watermark_us is not None:
        state.forget_fired(stored.watermark_us)
    return state
