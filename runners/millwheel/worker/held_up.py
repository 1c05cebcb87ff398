"""Why a worker neither reads nor works although there is something to do, for people: back pressure, and skew."""

from collections.abc import Iterable
from math import ceil

from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.reading_pace import Hindrance

#: A wait without any progress is reported after so long; a slow receiver lets its senders go on sooner, now and then.
HELD_UP_REPORTED_AFTER_MS = 10_000


def why_not_read(hindrance: Hindrance, owned: OwnedRange, sources: Iterable[OwnedRange]) -> str:
    """The reason, for people, why a split is not read.

    Args:
        hindrance: why this worker does not read it.
        owned: the split.
        sources: all splits of its worker.
    """
    if hindrance is Hindrance.SKEW:
        return f"{hindrance.value} allows"
    is_of_all = hindrance is Hindrance.RECEIVERS_OF_ALL
    return unacknowledged(sources if is_of_all else [owned], hindrance)


def unacknowledged(
    senders: Iterable[OwnedRange], hindrance: Hindrance = Hindrance.RECEIVERS
) -> str:
    """The receiver with the most unacknowledged bytes, for people.

    Args:
        senders: the ranges that wait; at least one has sent something that is not acknowledged.
        hindrance: which wait it is, for the text.
    """
    found: dict[RangeId, int] = {}
    for owned in senders:
        for receiver, size in owned.outbox.open_bytes_by_receiver().items():
            found[receiver] = found.get(receiver, 0) + size
    most = max(found, key=found.__getitem__)
    mine, all_of_it = (ceil(size / 1_000) for size in (found[most], sum(found.values())))
    return (
        f"{hindrance.value}, most of it by {most}\n"
        f"{mine:,} kB of {all_of_it:,} kB are for {most}: its worker is slow, waits itself, or is not there"
    )
