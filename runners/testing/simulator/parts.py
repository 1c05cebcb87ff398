"""Parts: what a store has of one computation, restored to an earlier moment while the rest stays.

It simulates a part of a database that is restored by itself, or a store of its own that goes back alone.  Of a channel
the sender has the productions on their way and the acknowledgements, and the receiver the delivered marks.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping
from typing import Any, TypeVar

from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.store.memory.job import StoredJob
from runners.millwheel.store.memory.store import MemoryStore

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def go_back(
    store: MemoryStore, then: Mapping[str, Any], name: str, tables: Collection[str]
) -> bool:
    """Restore a computation, and some result tables, to an earlier moment; returns whether that is possible.

    Args:
        store: now.
        then: the contents of the store at that moment; not shared.
        name: of the computation.
        tables: that only it writes to.
    """
    for job, now in store._jobs.items():  # noqa: SLF001 - the simulator sees everything
        before = then["_jobs"].get(job)
        if before is None:
            return False
        _go_back_job(now, before, name)
    for table in tables:
        store._tables[table].rows = dict(then["_tables"][table].rows)  # noqa: SLF001 - as above
    return True


def replace(
    now: MutableMapping[_K, _V], then: Mapping[_K, _V], is_of: Callable[[_K], bool]
) -> None:
    """Restore the entries whose keys belong to the part.

    Args:
        now: changed in place.
        then: the entries at the earlier moment.
        is_of: whether a key belongs to the part.
    """
    for key in [each for each in now if is_of(each)]:
        del now[key]
    now.update({key: value for key, value in then.items() if is_of(key)})


def _go_back_job(now: StoredJob, then: StoredJob, name: str) -> None:
    def is_range(range_id: RangeId) -> bool:
        return range_id.computation == name

    def is_owner(key: tuple[RangeId, int]) -> bool:
        return is_range(key[0])

    def is_sent(channel: Channel) -> bool:
        return is_range(channel.sender)

    def is_received(channel: Channel) -> bool:
        return is_range(channel.receiver)

    replace(now.ranges, then.ranges, is_range)
    for state in ("journal", "record_ids", "retired_ms", "forgotten_tokens", "cuts"):
        replace(vars_of(now, state), vars_of(then, state), is_range)
    for state in ("cells", "timers"):
        replace(vars_of(now, state), vars_of(then, state), name.__eq__)
    for state in ("last_bundles", "ended_ms"):
        replace(vars_of(now, state), vars_of(then, state), is_owner)
    for state in ("checkpoints", "checkpointed_us", "acknowledged", "receipts"):
        replace(vars_of(now, state), vars_of(then, state), is_sent)
    for state in ("delivered", "origins"):
        replace(vars_of(now, state), vars_of(then, state), is_received)
    now.late[:] = [
        *(each for each in now.late if each.row.transform != name),
        *(each for each in then.late if each.row.transform == name),
    ]
    now.dead[:] = [
        *(each for each in now.dead if each.row.stage != name),
        *(each for each in then.dead if each.row.stage == name),
    ]


def vars_of(job: StoredJob, field: str) -> dict[Any, Any]:
    """A dictionary of a job, by the name of its field.

    Args:
        job: the job.
        field: one of the fields of `StoredJob` that are dictionaries.
    """
    found: dict[Any, Any] = getattr(job, field)
    return found
