"""Reshaping: steps by which the owner of key ranges gives them other bounds (`runners.millwheel.control.shapes`)."""

from collections.abc import Iterable, Mapping

from runners.millwheel.control.shapes import MergeKeys, SplitKeys
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import Reshape
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.worker_step import WorkerStep

Ranges = Mapping[RangeId, OwnedRange]


def split(ranges: Ranges, asked: SplitKeys, hashes: Iterable[int]) -> WorkerStep:
    """Give the upper keys of a range to a new one.

    Args:
        ranges: those that the worker owns; has the range that is divided.
        asked: by the master; where it names no hash, the keys are divided so that each side has half of the state.
        hashes: of the keys with state, as far as they are known.

    Returns:
        A step to be committed alone; nothing changes in memory before both ranges are acquired again.
    """
    keys = ranges[asked.range_id].keys
    assert keys is not None
    at = asked.at or _middle(keys, hashes)
    bounds = {asked.range_id: KeyRange(keys.low, at), asked.born: KeyRange(at, keys.high)}
    return _reshaped(
        ranges, Reshape(keys=bounds, handover_with=asked.range_id, reason=asked.reason)
    )


def merge(ranges: Ranges, asked: MergeKeys) -> WorkerStep:
    """Give all keys of a range to its neighbour.

    Args:
        ranges: those that the worker owns; has both.
        asked: by the master: two ranges that are next to each other.

    Returns:
        A step to be committed alone; nothing changes in memory before both ranges are acquired again.
    """
    keys, others = ranges[asked.range_id].keys, ranges[asked.gone].keys
    assert keys is not None
    assert others is not None
    both = KeyRange(min(keys.low, others.low), max(keys.high, others.high))
    bounds = {asked.range_id: both, asked.gone: None}
    return _reshaped(
        ranges, Reshape(keys=bounds, handover_with=asked.range_id, reason=asked.reason)
    )


def _reshaped(ranges: Ranges, reshape: Reshape) -> WorkerStep:
    touched = {range_id: ranges[range_id] for range_id in reshape.keys if range_id in ranges}
    return WorkerStep(ranges=touched, reshape=reshape)


def _middle(keys: KeyRange, hashes: Iterable[int]) -> int:
    """The hash with half of the state on either side; the middle of the keys where too few hashes are known."""
    inside = sorted(key_hash for key_hash in hashes if key_hash in keys)
    middle = inside[len(inside) // 2] if inside else keys.low
    return middle if middle > keys.low else (keys.low + keys.high) // 2
