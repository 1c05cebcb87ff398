"""StoredJob and StoredTable: what the memory store keeps of a job and of a result table."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

import attrs

from dataflow.table import TableSpec
from runners.core.tables.changelog import Rows
from runners.errors import TableMismatchError
from runners.millwheel.model.events import StoredEvent
from runners.millwheel.model.ids import Channel, CommitMark, Fence, RangeId, Receipt
from runners.millwheel.model.production import (
    Checkpoint,
    Counted,
    JournalEntry,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
)
from runners.millwheel.model.requests import StoredRequest
from runners.millwheel.model.signals import Signal
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.channel_ends import ChannelEnds, lost_by
from runners.millwheel.store.guards import table_of_others
from runners.millwheel.store.port import (
    JOURNAL_PAGE,
    PAGE_MARK,
    CellKey,
    JobRow,
    JobSpec,
    JobUpdate,
    JournalPlace,
    KeptKind,
    PurgedKind,
    RangeRow,
    RangeSpec,
    ResultTable,
    SplitsChange,
    StoredKey,
    StoredLineage,
    StoredTimer,
    TakenRange,
)

_R = TypeVar("_R", LateRecord, StoredDeadLetter, StoredLineage)
_S = TypeVar("_S", CommitMark, Receipt)


@attrs.frozen
class Kept(Generic[_R]):
    """A late record, dead letter or entry of lineage, with its number and when it was recorded."""

    number: int
    recorded_ms: int
    row: _R

    def fields(self) -> Mapping[str, Any]:
        """The fields of the row and its number, as the port returns them."""
        return {"number": self.number, **attrs.asdict(self.row)}


@attrs.define
class StoredJob:
    """Everything of one job; protected by the store's lock.

    Attributes:
        journal: the entries of each range, oldest first, with the bundles that they came with.
        origins, receipts: the commit or receipt of the other end that came with the numbers delivered and acknowledged,
            where one came.
        cuts: the cut that each range keeps, of those that keep one.
        record_ids: event times by digest, for each range.
        metrics: what user code has counted, oldest first.
        lineage: where rows and panes come from, oldest first.
        purged_late: how many late records were purged, by transform.
        replays: the number of the last row of each replay that has begun.
        retired_ms: when ranges that were merged into others had nothing left to do, on the store's clock.
        sent_ms, answered_ms: when signals were sent and requests answered, by their numbers, on the store's clock.
        last_bundles: last bundle committed under each token that was taken away, which makes `resolve` exact.
        ended_ms: when the reign of each such token ended, on the store's clock.
        forgotten_tokens: the last token of each range of which the reign is forgotten.
        polls: the last poll of each split, as its driver has noted it.
        requested_us: when requests were sent, by their numbers, in microseconds since 1970.
        events: what has happened, oldest first, without requests.
        checkpointed_us: when productions were committed, by channel and sequence, in microseconds since 1970.
        snapshot: what the driver knows, when it was taken, and when it was written, in microseconds since 1970.
    """

    spec: JobSpec
    ranges: dict[RangeId, RangeRow]
    version: int = 0
    is_finished: bool = False
    is_drained: bool = False
    cells: dict[str, dict[tuple[int, bytes], bytes]] = attrs.field(factory=dict)
    timers: dict[str, dict[tuple[int, bytes, bytes, str], int]] = attrs.field(factory=dict)
    journal: dict[RangeId, list[tuple[int, JournalEntry]]] = attrs.field(factory=dict)
    checkpoints: dict[Channel, dict[int, Checkpoint]] = attrs.field(factory=dict)
    delivered: dict[Channel, int] = attrs.field(factory=dict)
    acknowledged: dict[Channel, int] = attrs.field(factory=dict)
    origins: dict[Channel, CommitMark] = attrs.field(factory=dict)
    receipts: dict[Channel, Receipt] = attrs.field(factory=dict)
    cuts: dict[RangeId, dict[RangeId, CommitMark]] = attrs.field(factory=dict)
    record_ids: dict[RangeId, dict[bytes, int]] = attrs.field(factory=dict)
    late: list["Kept[LateRecord]"] = attrs.field(factory=list)
    dead: list["Kept[StoredDeadLetter]"] = attrs.field(factory=list)
    metrics: list[Counted] = attrs.field(factory=list)
    lineage: list["Kept[StoredLineage]"] = attrs.field(factory=list)
    purged_late: dict[str, int] = attrs.field(factory=dict)
    replays: dict[KeptKind, int] = attrs.field(factory=dict)
    retired_ms: dict[RangeId, int] = attrs.field(factory=dict)
    signals: list[Signal] = attrs.field(factory=list)
    sent_ms: dict[int, int] = attrs.field(factory=dict)
    answered_ms: dict[int, int] = attrs.field(factory=dict)
    requests: list[StoredRequest] = attrs.field(factory=list)
    last_bundles: dict[tuple[RangeId, int], int] = attrs.field(factory=dict)
    ended_ms: dict[tuple[RangeId, int], int] = attrs.field(factory=dict)
    forgotten_tokens: dict[RangeId, int] = attrs.field(factory=dict)
    polls: Mapping[RangeId, SplitPoll] = attrs.field(factory=dict)
    requested_us: dict[int, int] = attrs.field(factory=dict)
    events: list[StoredEvent] = attrs.field(factory=list)
    checkpointed_us: dict[Channel, dict[int, int]] = attrs.field(factory=dict)
    snapshot: tuple[bytes, int, int] | None = None


@attrs.define
class StoredTable:
    """A result table.

    Attributes:
        creator: the job whose reset drops it.
    """

    spec: TableSpec
    creator: str | None
    users: set[str]
    rows: Rows = attrs.field(factory=dict)


def job_row(job: StoredJob) -> JobRow:
    """The job as others see it."""
    names = {range_id.computation for range_id in job.ranges}
    return JobRow(
        job=job.spec.job,
        mode=job.spec.mode,
        fingerprint=job.spec.fingerprint,
        is_finished=job.is_finished,
        is_drained=job.is_drained,
        ranges=dict(job.ranges),
        signals=job.spec.signals,
        computations={name: job.spec.computations.get(name) for name in names},
        version=job.version,
        stored_format=job.spec.stored_format,
    )


def new_range(spec: RangeSpec, token: int) -> RangeRow:
    """A range of a job that has just been created.

    Args:
        spec: the range as the job's spec declares it.
        token: unlike that of any other range of the store, ever.
    """
    return RangeRow(
        range_id=spec.range_id,
        keys=spec.keys,
        split=spec.split,
        token=token,
        bundle=0,
        owner=None,
        position=None,
        watermark_us=None,
        is_finished=False,
    )


def changed_splits(
    job: StoredJob, change: SplitsChange, tokens: Iterator[int]
) -> Sequence[RangeRow]:
    """Note which splits a source has got and lost; returns the rows of those that the driver does not know.

    Args:
        job: changed in place.
        change: what the driver has found.
        tokens: new ones.
    """
    name, known = change.computation, change.known
    for range_id in change.removed:
        job.ranges[range_id] = attrs.evolve(job.ranges[range_id], is_removed=True)
    if RangeId(name, known) not in job.ranges:
        for index, split in enumerate(change.added, known):
            spec = RangeSpec(range_id=RangeId(name, index), split=split)
            row = new_range(spec, next(tokens))
            job.ranges[row.range_id] = attrs.evolve(row, watermark_us=change.watermark_us)
    return [
        row
        for range_id, row in sorted(job.ranges.items())
        if range_id.computation == name and range_id.index >= known
    ]


def family(job: StoredJob, range_ids: Sequence[RangeId]) -> list[RangeId]:
    """The ranges, and those that must have the same owner, each once.

    Args:
        job: has all of them.
        range_ids: ranges that are there; each is in the result even where it is in no handover.
    """
    heads = {job.ranges[each].handover_with or each for each in range_ids}
    together = [each for each, row in job.ranges.items() if row.handover_with in heads]
    return list(dict.fromkeys([*range_ids, *sorted(heads), *together]))


def apply_reshape(job: StoredJob, reshape: Reshape, token: int) -> None:
    """Give ranges their new bounds.

    Args:
        job: changed in place.
        reshape: ranges that it names and that are not there are created, in a handover with its head.
        token: that of the range that is created, if one is.
    """
    head = job.ranges[reshape.handover_with]
    for range_id, keys in reshape.keys.items():
        row = job.ranges.get(range_id)
        if row is None:
            row = attrs.evolve(
                head, range_id=range_id, token=token, bundle=0, handover_with=head.range_id
            )
        elif range_id != head.range_id:
            row = attrs.evolve(row, handover_with=head.range_id)
        job.ranges[range_id] = attrs.evolve(row, keys=keys)


def read_range(job: StoredJob, range_id: RangeId) -> TakenRange:
    """The stored state that a new owner of a range begins with.

    Args:
        job: has the range.
        range_id: of key ranges, the timers of their keys are read; a source split has none.
    """
    row = job.ranges[range_id]
    keys = row.keys
    timers = job.timers.get(range_id.computation, {}) if keys else {}
    sent = {c: n for c, n in job.acknowledged.items() if c.sender == range_id}
    for channel, delivered in job.delivered.items():
        if channel.sender == range_id:
            sent[channel] = max(delivered, sent.get(channel, 0))
    checkpoints: list[Checkpoint] = []
    for channel, pending in job.checkpoints.items():
        if channel.sender == range_id and pending:
            sent[channel] = max(*pending, sent.get(channel, 0))
            checkpoints.extend(pending.values())
    return TakenRange(
        row=row,
        timers=[
            StoredTimer(key_hash=key[0], cell_key=key[1], tag=key[2], domain=key[3], fire_us=us)
            for key, us in timers.items()
            if keys and key[0] in keys
        ],
        delivered={c: n for c, n in job.delivered.items() if c.receiver == range_id},
        sent=sent,
        checkpoints=sorted(checkpoints, key=itemgetter(0, 1)),
        journal=[entry.payload for _, entry in job.journal.get(range_id, ())],
    )


def read_key(job: StoredJob, computation: str, key_hash: int) -> StoredKey | None:
    """What is stored of the keys with a hash; None: no range has it.

    Args:
        job: has them.
        computation: that has the keys.
        key_hash: of the keys.
    """
    mine = (row for each, row in job.ranges.items() if each.computation == computation)
    row = next((each for each in mine if each.keys and key_hash in each.keys), None)
    if row is None:
        return None
    taken = read_range(job, row.range_id)
    return StoredKey(
        range_id=row.range_id,
        watermark_us=row.watermark_us,
        cells={
            key: value
            for (hashed, key), value in job.cells.get(computation, {}).items()
            if hashed == key_hash and not key.startswith(PAGE_MARK)
        },
        timers=[each for each in taken.timers if each.key_hash == key_hash],
    )


def state_sizes(job: StoredJob) -> Mapping[RangeId, int]:
    """How many bytes of state each key range has.

    Args:
        job: has the ranges.
    """
    sizes = {}
    for range_id, row in job.ranges.items():
        if row.keys is not None:
            cells = job.cells.get(range_id.computation, {}).items()
            sizes[range_id] = sum(
                len(key) + len(value) for (hashed, key), value in cells if hashed in row.keys
            ) + sum(len(entry.payload) for _, entry in job.journal.get(range_id, ()))
    return sizes


def read_journal(
    job: StoredJob, range_id: RangeId, after: JournalPlace
) -> Sequence[tuple[JournalPlace, bytes]]:
    """The next entries of a range's journal.

    Args:
        job: has the range.
        range_id: the range; one that is not there has none.
        after: the place of the last one that was read.
    """
    places = Counter[int]()
    found = []
    for bundle, entry in job.journal.get(range_id, ()):
        places[bundle] += 1
        place = JournalPlace(bundle, places[bundle])
        if place > after:
            found.append((place, entry.payload))
    return found[:JOURNAL_PAGE]


def read_page(
    job: StoredJob, range_id: RangeId, first_hash: int, cells: int
) -> Mapping[CellKey, bytes]:
    """The cells of a range from a key hash on, about so many, without pages; those of one hash are not divided.

    Args:
        job: has the range.
        range_id: a range without keys (a source split, or one that was merged into another) has no cells.
        first_hash: of the keys; those below are left out.
        cells: how many to return; more, if the last ones have the same hash.

    Returns:
        The cells by hash and key, in that order.
    """
    keys = job.ranges[range_id].keys
    if keys is None:
        return {}
    stored = job.cells.get(range_id.computation, {})
    found = sorted(
        key
        for key in stored
        if key[0] >= first_hash and key[0] in keys and not key[1].startswith(PAGE_MARK)
    )
    if len(found) > cells:
        last_hash = found[cells - 1][0]
        found = [key for key in found if key[0] <= last_hash]
    return {key: stored[key] for key in found}


def apply_journal(job: StoredJob, production: Production) -> None:
    """Delete entries that are compacted, and keep new ones.

    Args:
        job: changed in place.
        production: being committed; its new entries belong to the bundles of its fences.
    """
    for range_id, bundle in production.compacted.items():
        kept = [each for each in job.journal.get(range_id, ()) if each[0] > bundle]
        job.journal[range_id] = kept
    bundles = {fence.range_id: fence.bundle for fence in production.fences}
    for entry in production.journal:
        job.journal.setdefault(entry.range_id, []).append((bundles[entry.range_id], entry))


def apply_metrics(job: StoredJob, counted: Counted) -> None:
    """Keep what user code has counted.

    Args:
        job: changed in place.
        counted: of the production that is being committed.
    """
    if counted.is_anew:
        job.metrics = [each for each in job.metrics if each.range_id != counted.range_id]
    job.metrics.append(counted)


def apply_deliveries(job: StoredJob, production: Production, now_us: int) -> None:
    """Note what was delivered and acknowledged, keep what is sent, and delete what has arrived.

    Args:
        job: changed in place.
        production: being committed; sequences that are not above those already noted change nothing.
        now_us: by the store's clock, in microseconds since 1970.
    """
    for channel, sequence in production.delivered.items():
        if sequence > job.delivered.get(channel, 0):
            job.delivered[channel] = sequence
            _note(job.origins, channel, production.origins)
    for checkpoint in production.checkpoints:
        job.checkpoints.setdefault(checkpoint.channel, {})[checkpoint.sequence] = checkpoint
        job.checkpointed_us.setdefault(checkpoint.channel, {})[checkpoint.sequence] = now_us
    for channel, acknowledged in production.acknowledged.items():
        pending = job.checkpoints.get(channel, {})
        for sequence in [number for number in pending if number <= acknowledged]:
            del pending[sequence], job.checkpointed_us[channel][sequence]
        if acknowledged > job.acknowledged.get(channel, 0):
            job.acknowledged[channel] = acknowledged
            _note(job.receipts, channel, production.receipts)


def _note(notes: dict[Channel, _S], channel: Channel, now: Mapping[Channel, _S]) -> None:
    notes.pop(channel, None)
    if channel in now:
        notes[channel] = now[channel]


def has_committed(job: StoredJob, range_id: RangeId, mark: CommitMark) -> bool:
    """Whether a range has made a commit, as far as is known.

    Args:
        job: need not have the range.
        range_id: the range.
        mark: token and bundle of the commit; of a token that was forgotten, all commits count as made.
    """
    row = job.ranges.get(range_id)
    if row is None:
        return False
    if row.token == mark.token:
        return mark.bundle <= row.bundle
    if mark.token <= job.forgotten_tokens.get(range_id, 0):
        return True
    return mark.bundle <= job.last_bundles.get((range_id, mark.token), -1)


def check_ends(job: StoredJob, production: Production) -> None:
    """Refuse what relies on a commit of another range that is not there.

    Args:
        job: is not changed.
        production: about to be committed; its origins and receipts name the commits.

    Raises:
        LostCommitsError: a commit that it relies on is gone, so the store has gone back.
    """
    relied_on = [(channel.sender, origin) for channel, origin in production.origins.items()]
    relied_on += [(channel.receiver, each.mark) for channel, each in production.receipts.items()]
    own = {(fence.range_id, CommitMark(fence.token, fence.bundle)) for fence in production.fences}
    for range_id, mark in relied_on:
        if (range_id, mark) not in own and not has_committed(job, range_id, mark):
            raise lost_by(job.spec.job, range_id, mark)


def ends_of(job: StoredJob, range_ids: Collection[RangeId]) -> list[ChannelEnds]:
    """The ends of the channels to and from some ranges.

    Args:
        job: has the channels.
        range_ids: senders or receivers; a channel whose other end is not there any more is left out.
    """
    channels = {*job.delivered, *job.acknowledged, *job.checkpoints}
    return [
        ChannelEnds(
            channel=channel,
            made=max([*job.checkpoints.get(channel, ()), job.acknowledged.get(channel, 0)]),
            delivered=job.delivered.get(channel, 0),
            acknowledged=job.acknowledged.get(channel, 0),
            origin=job.origins.get(channel),
            receipt=job.receipts.get(channel),
        )
        for channel in channels
        if not set(channel).isdisjoint(range_ids) and job.ranges.keys() >= set(channel)
    ]


def cuts_of(
    job: StoredJob, range_ids: Collection[RangeId]
) -> list[tuple[RangeId, RangeId, CommitMark]]:
    """Find the commits of some ranges in the cuts that ranges keep, as `check_cuts` takes them.

    Args:
        job: has the cuts.
        range_ids: that are asked about; they are there.
    """
    return [
        (keeper, range_id, cut[range_id])
        for keeper, cut in job.cuts.items()
        for range_id in range_ids
        if range_id in cut
    ]


def apply_record_ids(job: StoredJob, production: Production) -> None:
    """Remember ids, and forget those behind a horizon.

    Args:
        job: changed in place.
        production: being committed; has new ids with their event times, and for some ranges the event time before which
            ids go.
    """
    for range_id, ids in production.record_ids.items():
        job.record_ids.setdefault(range_id, {}).update(ids)
    for range_id, horizon_us in production.record_id_horizons_us.items():
        kept = job.record_ids.get(range_id, {})
        for digest in [digest for digest, at_us in kept.items() if at_us < horizon_us]:
            del kept[digest]


def has_landed(job: StoredJob, fence: Fence) -> bool:
    """Whether the bundle was committed under the fence's token, however many owners came since.

    Args:
        job: need not have the range.
        fence: the range, and the token and bundle of the commit in doubt; where its token was forgotten, it counts as
            not landed.
    """
    row = job.ranges.get(fence.range_id)
    if row is None:
        return False
    if row.token == fence.token:
        return row.bundle >= fence.bundle
    return job.last_bundles.get((fence.range_id, fence.token), -1) >= fence.bundle


def add_tables(tables: dict[str, StoredTable], spec: JobSpec) -> None:
    """Create the tables of a job that are not there.

    Args:
        tables: all of the store, by name; changed in place.
        spec: the job, which becomes a user of its tables, and the creator of those that are new.

    Raises:
        TableMismatchError: one is there, with other columns or key; nothing was created.
        TableOwnedError: one is another job's; nothing was created.
    """
    for table in spec.tables:
        existing = tables.get(table.name)
        if existing is not None and not is_same_table(existing.spec, table):
            raise TableMismatchError(
                f"table {table.name} exists with other columns or another key",
                detail=f"it has {existing.spec}, the pipeline writes {table}",
                hint="write to another table, or reset the job that created it",
            )
        if existing is not None and not table.is_shared:
            others = existing.users - {spec.job}
            if others and spec.job not in existing.users:
                raise table_of_others(table.name, others)
    for table in spec.tables:
        tables.setdefault(table.name, StoredTable(table, spec.job, set())).users.add(spec.job)


def empty_tables(tables: dict[str, StoredTable], update: JobUpdate) -> None:
    """Delete the rows of tables that an update empties, and those that its pipeline does not have.

    Args:
        tables: all of the store, by name; changed in place.
        update: the update.
    """
    written = {each.name for each in update.spec.tables}
    for table in update.emptied:
        tables[table.name].rows.clear()
        if table.name not in written:
            del tables[table.name]


def purge(job: StoredJob, kind: PurgedKind, until_ms: int, up_to: int | None) -> int:
    """Delete late records, dead letters or lineage that are old enough.

    Args:
        job: changed in place; goes on counting the late records that are gone.
        kind: which of them.
        until_ms: those recorded then or before go, by the store's clock.
        up_to: the number of the last row that may go; None: there is no such bound.

    Returns:
        How many rows were deleted.
    """

    def is_kept(kept: Kept[Any]) -> bool:
        return kept.recorded_ms > until_ms or (up_to is not None and kept.number > up_to)

    of_kind: dict[PurgedKind, list[Any]] = {
        "late": job.late,
        "dead": job.dead,
        "lineage": job.lineage,
    }
    rows = of_kind[kind]
    gone = [kept.row for kept in rows if not is_kept(kept)]
    rows[:] = [kept for kept in rows if is_kept(kept)]
    if kind == "late":
        for row in gone:
            job.purged_late[row.transform] = job.purged_late.get(row.transform, 0) + row.count
    return len(gone)


def delete_retired(job: StoredJob, until_ms: int, known: Collection[RangeId]) -> int:
    """Delete those of some ranges that were merged into others long ago.

    The last index of a computation stays, so that no other range is ever given it.

    Args:
        job: changed in place.
        until_ms: ranges that had nothing left to do then may go, by the store's clock.
        known: the ranges that the master knows to be retired; others stay, and so do those with productions on their
            way.

    Returns:
        How many ranges were deleted.
    """
    last = {each.computation: each.index for each in sorted(job.ranges)}
    open_channels = [channel for channel, pending in job.checkpoints.items() if pending]
    gone = {
        range_id
        for range_id, at_ms in job.retired_ms.items()
        if at_ms <= until_ms
        and range_id in known
        and range_id.index < last[range_id.computation]
        and not any(range_id in channel for channel in open_channels)
    }
    for range_id in gone:
        del job.ranges[range_id], job.retired_ms[range_id]
    for channels in (
        job.delivered, job.acknowledged, job.checkpoints, job.checkpointed_us, job.origins, job.receipts
    ):  # fmt: skip
        for channel in [each for each in channels if not gone.isdisjoint(each)]:
            del channels[channel]
    for key in [key for key in job.last_bundles if key[0] in gone]:
        del job.last_bundles[key]
        job.ended_ms.pop(key, None)
    for range_id in gone:
        for owned in (job.journal, job.record_ids, job.forgotten_tokens, job.cuts):
            owned.pop(range_id, None)
    return len(gone)


def forget_owners(job: StoredJob, until_ms: int) -> int:
    """Forget owners that lost their ranges so long ago that no commit of them can be in doubt.

    Args:
        job: changed in place; keeps the last forgotten token of each range.
        until_ms: owners that lost their range then or before are forgotten, by the store's clock.

    Returns:
        How many owners were forgotten.
    """
    gone = [each for each, at_ms in job.ended_ms.items() if at_ms <= until_ms]
    for range_id, token in gone:
        del job.last_bundles[range_id, token], job.ended_ms[range_id, token]
        job.forgotten_tokens[range_id] = max(token, job.forgotten_tokens.get(range_id, 0))
    return len(gone)


def forget_signals(job: StoredJob, until_ms: int, up_to: int) -> int:
    """Forget signals that all ranges have processed.  The last stays, to number the next after it.

    Args:
        job: changed in place.
        until_ms: signals sent later stay, by the store's clock.
        up_to: the number of the last signal that all ranges have processed.

    Returns:
        How many signals were forgotten.
    """
    gone = {
        each.number
        for each in job.signals[:-1]
        if each.number <= up_to and job.sent_ms[each.number] <= until_ms
    }
    job.signals[:] = [each for each in job.signals if each.number not in gone]
    for number in gone:
        del job.sent_ms[number]
    return len(gone)


def forget_requests(job: StoredJob, until_ms: int) -> int:
    """Forget requests that were answered.  The last one stays, to number the next after it.

    Args:
        job: changed in place.
        until_ms: requests that were answered later stay, by the store's clock.

    Returns:
        How many requests were forgotten.
    """
    gone = {
        each.number
        for each in job.requests[:-1]
        if job.answered_ms.get(each.number, until_ms + 1) <= until_ms
    }
    job.requests[:] = [each for each in job.requests if each.number not in gone]
    for number in gone:
        del job.answered_ms[number], job.requested_us[number]
    return len(gone)


def tables_of(tables: Mapping[str, StoredTable], job: str) -> list[ResultTable]:
    """The tables that a job writes to.

    Args:
        tables: all of the store, by name.
        job: its name.
    """
    return [
        ResultTable(
            name=name,
            is_created=table.creator == job,
            others=sorted(table.users - {job}),
            has_rows=bool(table.rows),
        )
        for name, table in sorted(tables.items())
        if job in table.users
    ]


def count_rows(job: StoredJob) -> Mapping[str, int]:
    """How many rows there are of each kind (`runners.millwheel.store.guards.STATISTICS`)."""
    return {
        "cells": sum(map(len, job.cells.values())),
        "timers": sum(map(len, job.timers.values())),
        "journal": sum(map(len, job.journal.values())),
        "checkpoints": sum(map(len, job.checkpoints.values())),
        "channels": len({*job.delivered, *job.acknowledged, *job.checkpoints}),
        "record_ids": sum(map(len, job.record_ids.values())),
        "late": len(job.late),
        "dead": len(job.dead),
        "open_ranges": sum(not row.is_finished for row in job.ranges.values()),
    }


def is_same_table(one: TableSpec, other: TableSpec) -> bool:
    """Whether two specs agree on columns, their order, and the key.

    Args:
        one: that of a table.
        other: that of another, or of the same table in another pipeline; names are not compared.
    """
    return list(one.columns.items()) == list(other.columns.items()) and set(one.key) == set(
        other.key
    )
