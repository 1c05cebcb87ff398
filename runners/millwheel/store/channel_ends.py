"""Channel ends: what sender and receiver of a channel have of it, and whether the two can belong to one history.

A channel has three numbers: up to which its productions are *acknowledged* (known to the sender), *delivered* (known to
the receiver), and *made* (known to the sender).  A receiver acknowledges only what it has committed, and a sender sends
only what it has committed, so acknowledged <= delivered <= made in a store that has lost nothing.  If one end has lost
commits, this does not hold, or the end uses the lost numbers again for something else.  So each number is stored with
the *commit* of the other end that it relies on, which must be in that end's history.  All channels of a range that is
taken over are checked, and each commit checks what it relies on itself, so there is no moment at which a loss goes
unseen.

Where a computation does without a guarantee, so that a production or the number of a delivery is not durable, there is
no such commit and no check: so it does not matter which guarantees a job had before.

A receiver that was merged into another range is retired, and later deleted, when whatever was on its way to it has been
deleted by its senders.  So a production that is on its way to a range that is no more shows that its sender has gone
back, though all numbers may fit: it would be sent for ever, and nobody would take it in.

What a commit takes from one of its ranges to another has no number, and is on no channel.  With such a commit each of
its ranges keeps how far all ranges of the job had come (a *cut*), and a range that is taken over must have come as far
as any of them says (ADR 0112).

With several stores, one of them could go back by itself; within one store that takes a part of the database that is
older than the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from runners.errors import LostCommitsError
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.store.port import RangeRow, TakenRange

#: Channels that an error names.
_NAMED_MAX = 8

HINT = (
    "was a table or a part of the database restored by itself, or damaged? What is in memory is gone now: run the job "
    "again, and it goes on if all that is in the store fits together. If it ends like this again, take the whole "
    "database, result tables too, back to one moment (docs/how-to/fail-over-and-restore.md)"
)


@attrs.frozen(kw_only=True)
class ChannelEnds:
    """The two ends of one channel.

    Attributes:
        made: the highest number of a production that the sender has made durable.
        origin: the sender's commit by which production ``delivered`` was durable; None: it was sent before that.
        receipt: the receipt for ``acknowledged``; None: there was none, as in old versions.
    """

    channel: Channel
    made: int
    delivered: int
    acknowledged: int
    origin: CommitMark | None = None
    receipt: Receipt | None = None


def check_channels(
    job: str, ends: Iterable[ChannelEnds], has: Callable[[RangeId, CommitMark], bool]
) -> None:
    """Refuse ranges whose channels show that the store has lost something.

    Args:
        job: its name.
        ends: of the channels of ranges that are being taken over.
        has: whether a range has made a commit.

    Raises:
        LostCommitsError: that is so; names channels, numbers and commits.
    """
    _refuse(job, [words for each in ends for words in _contradictions(each, has)])


def check_receivers(
    job: str,
    productions: Iterable[tuple[RangeId, RangeId | int]],
    ranges: Mapping[RangeId, RangeRow],
) -> None:
    """Refuse ranges that have productions on their way to ranges which are retired, or are not there.

    Args:
        job: its name.
        productions: sender and receiver of each that ranges which are being taken over have not deleted; a receiver
            that is not there may be the number of its row.
        ranges: of the job.

    Raises:
        LostCommitsError: that is so; names senders and receivers.
    """
    found = []
    for sender, receiver in dict.fromkeys(productions):
        row = ranges.get(receiver) if isinstance(receiver, RangeId) else None
        if row is None or row.is_retired:
            fate = "is not there" if row is None else "is retired"
            name = receiver if isinstance(receiver, RangeId) else f"range number {receiver}"
            found.append(
                f"{sender} -> {name}: productions are on their way, and {name} {fate}, so {sender} had deleted them"
            )
    _refuse(job, found)


def check_cuts(
    job: str,
    cuts: Iterable[tuple[RangeId, RangeId, CommitMark]],
    has: Callable[[RangeId, CommitMark], bool],
) -> None:
    """Refuse ranges that had come further by the cut that another range keeps.

    Args:
        job: its name.
        cuts: who keeps it, a range that is being taken over, and the commit that this one had made.
        has: whether a range has made a commit.

    Raises:
        LostCommitsError: that is so; names ranges and commits.
    """
    _refuse(
        job,
        [
            f"{keeper}: {range_id} had committed {mark}, which is gone"
            for keeper, range_id, mark in cuts
            if not has(range_id, mark)
        ],
    )


def _refuse(job: str, found: Sequence[str]) -> None:
    if found:
        more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
        raise LostCommitsError(
            f"the store has lost commits in a part of job {job!r}: its ranges are as of different moments",
            detail="; ".join(sorted(found)[:_NAMED_MAX]) + more,
            hint=HINT,
        )


def _contradictions(ends: ChannelEnds, has: Callable[[RangeId, CommitMark], bool]) -> Iterable[str]:
    sender, receiver = ends.channel
    where = f"{sender} -> {receiver}"
    if ends.origin is not None:
        if ends.delivered > ends.made:
            yield f"{where}: {ends.delivered} were delivered, and {ends.made} are made"
        if not has(sender, ends.origin):
            yield f"{where}: {sender} had committed {ends.origin}, which is gone"
    if ends.receipt is not None:
        if ends.receipt.is_remembered and ends.acknowledged > ends.delivered:
            yield f"{where}: {ends.acknowledged} were acknowledged, and {ends.delivered} are delivered"
        if not has(receiver, ends.receipt.mark):
            yield f"{where}: {receiver} had committed {ends.receipt.mark}, which is gone"


def lost_by(job: str, range_id: RangeId, mark: CommitMark | None = None) -> LostCommitsError:
    """The error for a commit that relies on a commit of another range which is not there.

    ``mark``: of that missing commit, as far as it is known.

    Args:
        job: its name.
        range_id: that has lost the commit.
        mark: of that commit, as far as it is known.
    """
    return LostCommitsError(
        f"the store has lost commits of {range_id} of job {job!r}: that range is at an earlier moment than others",
        detail=f"it had committed {mark or 'something'}, on which another range has built, and that commit is gone",
        hint=HINT,
    )


def check_not_older(
    job: str, taken: Mapping[RangeId, TakenRange], reported: Mapping[RangeId, CommitMark]
) -> None:
    """Refuse ranges that have been taken over, and had committed more by the last report on them.

    Args:
        job: its name.
        taken: the ranges, as they are now.
        reported: how far ranges had committed, by the last report on them.

    Raises:
        LostCommitsError: that is so.
    """
    for range_id, mark in reported.items():
        row = taken[range_id].row if range_id in taken else None
        if row is not None and not (mark.token < row.token and mark.bundle <= row.bundle):
            raise lost_by(job, range_id, mark)
