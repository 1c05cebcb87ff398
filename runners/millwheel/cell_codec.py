"""Names of cells and timers of the semantic core as the store's bytes; cells themselves are `runners.stored.cells`.

A cell key is the window's bounds (nothing where windows merge, because the cell is per key) followed by the encoded
key; a timer's tag is the bounds of its window.  The key of a page of a cell is a mark that no cell key begins with,
which state and which page it is, and the cell key.
"""

import struct
from hashlib import blake2b
from typing import Any

from dataflow.coders import decode_key
from runners.core.ground.cells import CellId, PageId, TimerId
from runners.millwheel.store.port import PAGE_MARK, StoredTimer
from windowing.time_domain import TimeDomain
from windowing.window import Window

_BOUNDS = struct.Struct(">qq")
_PAGE = struct.Struct(">c8sQ")


def encode_window(window: Window) -> bytes:
    """Encode a window's bounds; the bytes do not sort as windows do, and need not."""
    return _BOUNDS.pack(window.start_us, window.end_us)


def decode_window(encoded: bytes) -> Window:
    """The inverse of `encode_window`."""
    return Window(*_BOUNDS.unpack(encoded))


def encode_cell_key(window: Window | None, encoded_key: bytes) -> bytes:
    """The store's key of a cell.

    Args:
        window: of the cell; None: the cell has all windows of its key.
        encoded_key: the key, as `encode_key` makes it.
    """
    return encoded_key if window is None else encode_window(window) + encoded_key


def stored_cell_key(cell_id: CellId, encoded_key: bytes) -> bytes:
    """The store's key of a cell, or of a page.

    Args:
        cell_id: as the core names it.
        encoded_key: its key, as `encode_key` makes it.
    """
    cell_key = encode_cell_key(cell_id[1], encoded_key)
    if isinstance(cell_id, PageId):
        return encode_page_key(cell_id.state, cell_id.number, cell_key)
    return cell_key


def decode_cell_id(cell_key: bytes, *, is_merging: bool) -> CellId:
    """The inverse of `encode_cell_key`, as the core names the cell.

    Args:
        cell_key: as `encode_cell_key` makes it.
        is_merging: whether cells have all windows of their key.

    Returns:
        The cell; if it is the key of a page, the cell that this is of.
    """
    if cell_key.startswith(PAGE_MARK):
        cell_key = cell_key[_PAGE.size :]
    if is_merging:
        return decode_key(cell_key), None
    bounds, encoded_key = cell_key[: _BOUNDS.size], cell_key[_BOUNDS.size :]
    return decode_key(encoded_key), decode_window(bounds)


def encode_page_key(state: Any, number: int, cell_key: bytes) -> bytes:
    """The store's key of a page.

    Args:
        state: the name of the state, or a tuple of the names and numbers that it is made of.
        number: of the page.
        cell_key: of the cell that the state is of.
    """
    name = state if isinstance(state, str) else "\0".join(map(str, state))
    # Names have any length, and the key of a row must not.
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return _PAGE.pack(PAGE_MARK, digest, number) + cell_key


def decode_timer(timer: StoredTimer, *, is_merging: bool) -> TimerId:
    """A timer as the core names it.

    Args:
        timer: as the store has it.
        is_merging: whether cells have all windows of their key.
    """
    cell_id = decode_cell_id(timer.cell_key, is_merging=is_merging)
    return cell_id, decode_window(timer.tag), TimeDomain(timer.domain)
