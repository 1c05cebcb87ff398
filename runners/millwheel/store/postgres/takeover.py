"""Taking ranges over, and finding out what became of a commit: the two verbs that move tokens.

Both lock the fences first, in the order in which commits take them, and only then read
(MillWheel figure 12: a scan before the lock can miss what a delayed commit still adds).

**Invariant:** a token moves only under its lock and leaves a reign behind, so that "did bundle b of
token t land?" has an exact answer for ever.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from psycopg import Connection

from runners.errors import StoreError
from runners.millwheel.model.events import UNKNOWN, Cause
from runners.millwheel.model.ids import Channel, CommitMark, RangeId, Receipt
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.store.channel_ends import (
    ChannelEnds,
    check_channels,
    check_cuts,
    check_receivers,
)
from runners.millwheel.store.guards import check_version, escape_text
from runners.millwheel.store.port import (
    CommitOutcome,
    Committed,
    Fenced,
    StoredTimer,
    TakenRange,
)
from runners.millwheel.store.postgres.arrays import Int4Array, Int8Array
from runners.millwheel.store.postgres.catalog import JobIds, read_ranges, to_unsigned
from runners.millwheel.store.postgres.queries import QUERIES
from runners.millwheel.store.postgres.statements import unpacked_cut

#: The first two columns of each are the two ends of a channel.
_CHANNELS = (
    "read_deliveries",
    "read_acknowledgements",
    "read_productions",
    "read_deliveries_from",
    "read_acknowledgements_to",
)
_READS = ("read_timers", "read_journal", *_CHANNELS)


def take_over(
    connection: Connection[Any],
    ids: JobIds,
    range_ids: Sequence[RangeId],
    owner: str,
    version: int | None,
    cause: Cause,
) -> tuple[JobIds, Mapping[RangeId, TakenRange]] | None:
    """Lock, move the tokens, then read.  Inside a transaction.

    Args:
        connection: to the store; waits for commits in flight on these ranges.
        ids: the numbers of the job as they were known before.
        range_ids: the ranges; those in a handover with them are taken too.
        owner: the name of the worker.
        version: of the job that it was started for; None: any.
        cause: why, for people.

    Returns:
        The numbers of the job, with those of these ranges as of now, and what each range has; None: a range is not, or
        no longer, there, or the numbers are those of another version.

    Raises:
        JobMismatchError: the job has another version.
    """
    numbers = [ids.range(range_id).number for range_id in range_ids]
    if not _lock_families(connection, numbers):
        return None
    # An update locks all fences, so the version stays what it is from here on.
    for (stored,) in connection.execute(QUERIES["read_version"], {"job_id": ids.number}):
        check_version(ids.job, version, stored)
        if stored != ids.version:
            return None
    move_tokens(connection, numbers, owner, cause)
    return _read(connection, ids, numbers)


def _lock_families(connection: Connection[Any], numbers: list[int]) -> bool:
    """Lock ranges, and add and lock those in a handover with them; returns whether all of them are there.

    Handovers begin and end under the locks of their ranges only, so what is found when all are locked stays true.
    """
    while True:
        locked = lock_fences(connection, numbers)
        if len(locked) != len(set(numbers)):
            return False
        rows = connection.execute(QUERIES["read_in_handover"], {"range_ids": Int4Array.of(numbers)})
        missing = [number for (number,) in rows if number not in locked]
        if not missing:
            return True
        numbers += missing


def lock_fences(
    connection: Connection[Any], numbers: Sequence[int]
) -> Mapping[int, tuple[int, int]]:
    """Lock ranges, waiting for commits in flight.

    Args:
        connection: to the store, in the transaction that is to have the locks.
        numbers: of the ranges; locked in ascending order, as commits lock them too.

    Returns:
        Token and bundle of each range that exists, by its number.
    """
    rows = connection.execute(QUERIES["lock_fences"], {"range_ids": Int4Array.of(numbers)})
    return {number: (token, bundle) for number, token, bundle in rows}


def evict_holders(connection: Connection[Any], numbers: Sequence[int]) -> int:
    """End the sessions of this role that keep fences locked.

    Args:
        connection: to the store, not one of these sessions.
        numbers: of the ranges whose fences they are.

    Returns:
        How many sessions were ended.
    """
    parameters = {"range_ids": Int4Array.of(numbers)}
    return len(connection.execute(QUERIES["evict_fence_holders"], parameters).fetchall())


def compact(connection: Connection[Any], ids: JobIds, production: Production) -> CommitOutcome:
    """Find out whether the production landed; if not, make sure that it never will.  Inside a transaction.

    Ranges commit together, so they must agree; if they do not, the store is damaged.

    Args:
        connection: to the store; waits for the production, if it is still being committed.
        ids: the numbers of the job; ranges that it does not have are taken not to have landed.
        production: the one in doubt.

    Returns:
        `Committed` if it landed; `Fenced` if not, and then its tokens have been moved.

    Raises:
        StoreError: some ranges have the production and some have not.
    """
    fences = {
        ids.ranges[fence.range_id].number: fence
        for fence in production.fences
        if fence.range_id in ids.ranges
    }
    locked = lock_fences(connection, list(fences))
    reigns = connection.execute(
        QUERIES["read_reigns"],
        {
            "range_ids": Int4Array.of(list(fences)),
            "tokens": Int8Array.of([fence.token for fence in fences.values()]),
        },
    )
    last_bundles: dict[int, int] = {number: bundle for number, _, bundle in reigns}
    mine = []
    for number, fence in fences.items():
        token, bundle = locked.get(number, (None, 0))
        if token == fence.token:
            mine.append(number)
            last_bundles[number] = bundle
    landed = [last_bundles.get(number, -1) >= fence.bundle for number, fence in fences.items()]
    if landed and all(landed) and len(landed) == len(production.fences):
        return Committed()
    # Ranges that an update has created anew have no record of the token.
    is_known = len(fences) == len(production.fences) and last_bundles.keys() == fences.keys()
    if any(landed) and is_known:
        raise StoreError(
            f"the store has half a production of job {production.job}",
            detail=f"fences: {', '.join(map(str, production.fences))}; landed: {landed}",
            hint="this is a bug in dataflow-model: keep the database and report it",
        )
    move_tokens(connection, mine, None)
    return Fenced(production.fences[0].range_id)


def move_tokens(
    connection: Connection[Any],
    numbers: Sequence[int],
    owner: str | None,
    cause: Cause = UNKNOWN,
) -> None:
    """Move the tokens, so that every commit of an earlier owner fails.  Under the locks of the fences.

    Args:
        connection: to the store.
        numbers: of the ranges.
        owner: the name of the next worker; None: nobody owns them from here on.
        cause: why it takes them over.
    """
    range_ids = Int4Array.of(numbers)
    ended = {
        "range_ids": range_ids,
        "owner": owner,
        "kind": cause.kind,
        "reason": escape_text(cause.reason),
    }
    connection.execute(QUERIES["end_reigns"], ended)
    connection.execute(QUERIES["move_tokens"], {"range_ids": range_ids, "owner": owner})


def _read(
    connection: Connection[Any], known: JobIds, numbers: Sequence[int]
) -> tuple[JobIds, Mapping[RangeId, TakenRange]]:
    def rows(query: str) -> Sequence[tuple[Any, ...]]:
        cursor = connection.cursor(binary=True)
        return cursor.execute(known.queries[query], {"range_ids": Int4Array.of(numbers)}).fetchall()

    # All rows are fetched before any is processed: a session that idles inside a transaction, while
    # this side is busy with a large state, is ended by the server.
    fetched = {query: rows(query) for query in _READS}
    cuts = _read_cuts(connection, known, numbers)
    # Not by the numbers that were known before: a range may have been created since, and have sent something.  Not all
    # ranges of the job either: it may have thousands, each of which is taken over.
    ends = {end for query in _CHANNELS for row in fetched[query] for end in row[:2]}
    ends.update(keeper for keeper, _, _ in cuts)
    ranges, numbered = read_ranges(connection, known.number, ends.union(numbers))
    ids = known.with_ranges(numbered)
    names = {each.number: range_id for range_id, each in numbered.items()}
    on_their_way = [
        (names[sender], names.get(receiver, receiver))
        for sender, receiver, *_ in fetched["read_productions"]
    ]
    check_receivers(ids.job, on_their_way, ranges)
    delivered: dict[int, dict[Channel, int]] = {number: {} for number in numbers}
    sent: dict[int, dict[Channel, int]] = {number: {} for number in numbers}
    checkpoints: dict[int, list[Checkpoint]] = {number: [] for number in numbers}
    journal: dict[int, list[bytes]] = {number: [] for number in numbers}
    timers = _timers_of(fetched["read_timers"])
    for number, payload in fetched["read_journal"]:
        journal[number].append(payload)
    for receiver, sender, sequence in fetched["read_deliveries"]:
        # A worker that was asleep may have stored a delivery of a range that is deleted by now.
        if sender in names:
            delivered[receiver][Channel(names[sender], names[receiver])] = sequence
    for sender, receiver, sequence in fetched["read_acknowledgements"]:
        if receiver in names:
            sent[sender][Channel(names[sender], names[receiver])] = sequence
    for sender, receiver, sequence, min_timestamp_us, payload in fetched["read_productions"]:
        channel = Channel(names[sender], names[receiver])
        checkpoints[sender].append(Checkpoint(channel, sequence, min_timestamp_us, payload))
        sent[sender][channel] = max(sequence, sent[sender].get(channel, 0))
    channels = [
        *_outgoing(names, fetched["read_deliveries_from"], sent),
        *_incoming(names, fetched["read_acknowledgements_to"], delivered),
    ]
    _check_relied_on(connection, ids, channels, [(names[a], names[b], mark) for a, b, mark in cuts])
    for sender, receiver, sequence, *_ in fetched["read_deliveries_from"]:
        if receiver in names:
            channel = Channel(names[sender], names[receiver])
            sent[sender][channel] = max(sequence, sent[sender].get(channel, 0))
    return ids, {
        names[number]: TakenRange(
            row=ranges[names[number]],
            timers=timers.get(number, ()),
            delivered=delivered[number],
            sent=sent[number],
            checkpoints=checkpoints[number],
            journal=journal[number],
        )
        for number in numbers
    }


def _timers_of(rows: Iterable[tuple[Any, ...]]) -> Mapping[int, Sequence[StoredTimer]]:
    """The timers of ranges, by the numbers of these."""
    found = defaultdict[int, list[StoredTimer]](list)
    for number, key_hash, cell_key, tag, domain, fire_us in rows:
        found[number].append(
            StoredTimer(
                key_hash=to_unsigned(key_hash),
                cell_key=cell_key,
                tag=tag,
                domain=domain,
                fire_us=fire_us,
            )
        )
    return found


def _read_cuts(
    connection: Connection[Any], known: JobIds, numbers: Collection[int]
) -> Sequence[tuple[int, int, CommitMark]]:
    """How far some ranges had come by the cuts that ranges of the job keep: who keeps it, the range, and its commit."""
    stored = connection.cursor(binary=True).execute(QUERIES["read_cuts"], {"job_id": known.number})
    asked = frozenset(numbers)
    return [
        (keeper, number, mark)
        for keeper, cut in stored
        for number, mark in unpacked_cut(cut)
        if number in asked
    ]


def _check_relied_on(
    connection: Connection[Any],
    ids: JobIds,
    channels: Sequence[ChannelEnds],
    cuts: Sequence[tuple[RangeId, RangeId, CommitMark]],
) -> None:
    """Refuse ranges, whose tokens have just been moved, that lack a commit on which others rely."""
    relied_on = [(range_id, mark) for _, range_id, mark in cuts]
    relied_on += [each for ends in channels for each in _relied_on(ends)]
    has = _last_bundles(connection, ids, relied_on)
    check_channels(ids.job, channels, has)
    check_cuts(ids.job, cuts, has)


def _outgoing(
    names: Mapping[int, RangeId],
    rows: Iterable[tuple[Any, ...]],
    made: Mapping[int, Mapping[Channel, int]],
) -> Iterator[ChannelEnds]:
    """Channels out of ranges, with the commits of senders that receivers have stored; ``made``: by sender."""
    for sender, receiver, delivered, token, bundle in rows:
        if receiver in names and token is not None:
            channel = Channel(names[sender], names[receiver])
            yield ChannelEnds(
                channel=channel,
                made=made[sender].get(channel, 0),
                delivered=delivered,
                acknowledged=0,
                origin=CommitMark(token, bundle),
            )


def _incoming(
    names: Mapping[int, RangeId],
    rows: Iterable[tuple[Any, ...]],
    delivered: Mapping[int, Mapping[Channel, int]],
) -> Iterator[ChannelEnds]:
    """Channels into ranges, with the receipts of receivers that senders have stored; ``delivered``: by receiver."""
    for receiver, sender, acknowledged, token, bundle, is_remembered in rows:
        if sender in names:
            channel = Channel(names[sender], names[receiver])
            yield ChannelEnds(
                channel=channel,
                made=0,
                delivered=delivered[receiver].get(channel, 0),
                acknowledged=acknowledged,
                receipt=Receipt(CommitMark(token, bundle), is_remembered),
            )


def _relied_on(ends: ChannelEnds) -> Iterator[tuple[RangeId, CommitMark]]:
    """The commits that the two ends of a channel say to have been made."""
    sender, receiver = ends.channel
    if ends.origin is not None:
        yield sender, ends.origin
    if ends.receipt is not None:
        yield receiver, ends.receipt.mark


def _last_bundles(
    connection: Connection[Any], ids: JobIds, relied_on: Iterable[tuple[RangeId, CommitMark]]
) -> Callable[[RangeId, CommitMark], bool]:
    """Whether ranges, whose tokens have just been moved, have made the commits that other ranges rely on."""
    asked = {(ids.range(range_id).number, mark.token) for range_id, mark in relied_on}
    numbers = Int4Array.of([number for number, _ in asked])
    tokens = Int8Array.of([token for _, token in asked])
    reigns = connection.execute(QUERIES["read_reigns"], {"range_ids": numbers, "tokens": tokens})
    last_bundles: dict[tuple[int, int], int] = {
        (number, token): bundle for number, token, bundle in reigns
    }
    forgotten: dict[int, int] = {}
    if last_bundles.keys() != asked:
        forgotten.update(connection.execute(QUERIES["read_forgotten"], {"range_ids": numbers}))

    def has(range_id: RangeId, mark: CommitMark) -> bool:
        number = ids.range(range_id).number
        if mark.token <= forgotten.get(number, 0):
            return True
        return mark.bundle <= last_bundles.get((number, mark.token), -1)

    return has
