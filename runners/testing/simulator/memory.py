"""Memory: what a worker has in memory of its ranges, compared with the ranges that it owns and with the store.

A range that was merged into another is owned, with no keys, until all that it has sent is acknowledged and deleted;
then its owner retires it, and forgets it in the same step.  A worker may be given one that is retired already: the
former owner has died before the master was notified.  It has the range until the master asks it to end the handover.
"""

from collections.abc import Collection
from typing import Any

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.owned_state import OwnedState
from runners.millwheel.worker.worker import Worker
from runners.testing.simulator.errors import InvariantError


def retired_of(ranges: Collection[RangeId], store: MemoryStore, job: str) -> frozenset[RangeId]:
    """Ranges, of those that are given, that are retired in the store.

    Args:
        ranges: of the job.
        store: what is durable.
        job: its name.
    """
    stored = store.read_job(job)
    rows = {} if stored is None else stored.ranges
    return frozenset(each for each in ranges if each in rows and rows[each].is_retired)


def check_memory(
    worker: Worker, store: MemoryStore, job: str, taken_retired: Collection[RangeId]
) -> None:
    """Check that a worker has forgotten what it has released, and knows the bounds of what it owns.

    Args:
        worker: between two of its steps.
        store: what is durable.
        job: its name.
        taken_retired: ranges that were retired before the worker took them over.

    Raises:
        InvariantError: it has something of a range that it does not own, or bounds that the store does not have.
    """
    owned = worker._ranges  # noqa: SLF001 - the simulator sees everything
    inbox = worker._courier.inbox  # noqa: SLF001 - as above
    waiting = [each for queue in inbox._waiting.values() for each in queue]  # noqa: SLF001 - as above
    left = {each.channel.receiver for each in waiting}
    left |= {channel.receiver for channel in inbox._last}  # noqa: SLF001 - as above
    for computation in worker._computations.values():  # noqa: SLF001 - as above
        if isinstance(computation, GroupingComputation):
            windows: Any = computation.state.windows
            left |= computation.state.ranges.keys() | vars(windows).get("_buffered", {}).keys()
            _check_keys(computation.state)
    if not left <= owned.keys():
        names = ", ".join(map(str, sorted(left - owned.keys())))
        raise InvariantError(f"I10: a worker has something of {names}, which it does not own")
    stored = store.read_job(job)
    for range_id, mine in {} if stored is None else owned.items():
        row = stored.ranges.get(range_id) if stored is not None else None
        if row is None or (row.token, row.bundle) != mine.mark:
            continue  # another worker owns it by now
        if row.is_retired and range_id not in taken_retired:
            raise InvariantError(f"I10: a worker owns {range_id}, which it has retired")
        if (row.keys, row.handover_with) != (mine.keys, mine.handover_with):
            raise InvariantError(
                f"I10: {range_id} has {row.keys} and is in handover with {row.handover_with}, but its owner has "
                f"{mine.keys} and {mine.handover_with}"
            )


def _check_keys(state: OwnedState) -> None:
    """Check that each cell, timer and hold in memory has a key of an owned range, and that the first hold is right."""
    windows: Any = state.windows
    holds_us = {owned.window_hold_us for owned in state.ranges.values()}
    if holds_us | {state.time.window_hold_us} != {windows.hold_us}:
        raise InvariantError(
            f"I10: the first hold of open windows is at {windows.hold_us} us, and ranges are held at {holds_us}, the "
            f"clocks at {state.time.window_hold_us}"
        )
    cell_ids = [*state.cells, *(timer[0] for timer in windows.timers)]
    cell_ids += [cell_id for cell_id, _ in windows.holds]
    for key in dict.fromkeys(cell_id[0] for cell_id in cell_ids):
        if state._map.find(state.hash_of(key)) is None:  # noqa: SLF001 - the simulator sees everything
            raise InvariantError(
                f"I10: a worker has state of key {key!r}, which is in none of its ranges"
            )
