"""What both adapters check, with the same errors; above all, that a production stays inside its fences.

A write outside the fenced ranges would be durable although another worker owns the range, which is
exactly what the fence exists to prevent.  So it is always checked, on the side that writes.

MillWheel, section 6.2 (single writer).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from dataflow.table import TableSpec
from runners.core.ground.lineage import LineageEntry, origin_fields, origin_of_fields
from runners.core.panes.signal_delivery import unknown_signal
from runners.errors import (
    JobMismatchError,
    LostCommitsError,
    RequestError,
    SignalError,
    StoreError,
    StoreRestartedError,
    TableMissingError,
    TableOwnedError,
)
from runners.millwheel.model.events import JobEvent
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange
from runners.millwheel.model.production import (
    CellWrite,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.model.requests import Request
from runners.millwheel.store.channel_ends import HINT
from runners.millwheel.store.port import (
    JobRow,
    JobSpec,
    JobUpdate,
    ResultTable,
    SplitsChange,
    StateCounts,
)
from runners.stored.framing import unreadable

#: What `Store.statistics` counts.
STATISTICS = (
    "cells",
    "timers",
    "journal",
    "checkpoints",
    "channels",
    "record_ids",
    "late",
    "dead",
    "open_ranges",
)


def check_fences(production: Production) -> None:
    """Refuse a production without a fence, or with two on one range.

    Raises:
        StoreError: without a fence any worker could commit it, with two of them none.
    """
    if not production.fences:
        raise _outside("could be committed by anyone, at any time", production)
    if len({fence.range_id for fence in production.fences}) != len(production.fences):
        raise _outside("fences the same range twice", production)


def check_sizes(production: Production, value_bytes_max: int) -> None:
    """Refuse a production with a value that is larger than a store takes; all of them together may have any size.

    Args:
        production: about to be committed.
        value_bytes_max: the size of one value, in bytes.

    Raises:
        StoreError: a value is too large; names it and its size.
    """
    values: Sequence[tuple[str, Iterable[bytes | None]]] = (
        ("a cell", (write.value for write in production.cells)),
        ("an entry of the journal", (entry.payload for entry in production.journal)),
        ("what is sent", (checkpoint.payload for checkpoint in production.checkpoints)),
        ("a position", production.positions.values()),
        ("a late record", (record.payload for record in production.late)),
        ("a dead letter", (letter.payload for letter in production.dead)),
        ("what was counted", () if production.metrics is None else (production.metrics.payload,)),
    )
    for what, payloads in values:
        size = max((len(payload) for payload in payloads if payload is not None), default=0)
        if size > value_bytes_max:
            raise StoreError(
                f"{what} of {size:,} bytes is too large for the store",
                detail=f"a value may have {value_bytes_max:,}; it is of job {production.job!r}, "
                f"{', '.join(str(fence.range_id) for fence in production.fences)}",
                hint="nothing was written; keep less in one value, e.g. the names of large records instead "
                "of the records",
            )


def check_fenced(
    production: Production,
    keys: Mapping[RangeId, KeyRange | None],
    known: Collection[RangeId],
) -> None:
    """Refuse a production that touches a range which it does not fence.

    Args:
        production: what is about to be committed.
        keys: the key range of every fenced range; None for a range without keys (a source
            split), which owns neither cells nor timers.
        known: every range of the job.

    Raises:
        StoreError: the production names a range or a key outside its fences.
    """
    fenced = {fence.range_id for fence in production.fences}
    touched = {
        *production.positions,
        *production.watermarks_us,
        *production.finished,
        *production.signal_marks,
        *production.percentiles_us,
        *production.firing_us,
        *production.record_ids,
        *production.record_id_horizons_us,
        *production.ended_handovers,
        *production.compacted,
        *(entry.range_id for entry in production.journal),
        *(channel.receiver for channel in production.delivered),
        *(channel.sender for channel in production.acknowledged),
        *(checkpoint.channel.sender for checkpoint in production.checkpoints),
    }
    if production.metrics is not None and production.metrics.range_id is not None:
        touched.add(production.metrics.range_id)
    if not touched <= fenced:
        names = ", ".join(sorted(str(range_id) for range_id in touched - fenced))
        raise _outside(f"writes to {names}", production)
    owned: dict[str, list[KeyRange]] = {}
    for range_id in fenced:
        key_range = keys.get(range_id)
        if key_range is not None:
            owned.setdefault(range_id.computation, []).append(key_range)
    _check_keys(production, production.cells, owned)
    _check_keys(production, production.timers, owned)
    if production.reshape is not None:
        _check_reshape(production, production.reshape, keys, known)


def _check_reshape(
    production: Production,
    reshape: Reshape,
    keys: Mapping[RangeId, KeyRange | None],
    known: Collection[RangeId],
) -> None:
    """Refuse new bounds that leave out a key, have one twice, or are of ranges that the production does not fence."""
    before = [each for range_id in reshape.keys if (each := keys.get(range_id)) is not None]
    after = [each for each in reshape.keys.values() if each is not None]
    strangers = {each for each in reshape.keys if each in known} - keys.keys()
    if strangers or reshape.handover_with not in keys or _union(before) != _union(after):
        raise _outside(
            f"gives {', '.join(map(str, reshape.keys))} other keys than they have", production
        )


def _union(ranges: Iterable[KeyRange]) -> list[tuple[int, int]]:
    """The union of ranges, in as few pieces as possible; ranges that overlap stay separate pieces."""
    pieces: list[tuple[int, int]] = []
    for each in sorted(ranges, key=lambda keys: keys.low):
        if pieces and pieces[-1][1] == each.low:
            pieces[-1] = pieces[-1][0], each.high
        else:
            pieces.append((each.low, each.high))
    return pieces


def _check_keys(
    production: Production,
    writes: Iterable[CellWrite | TimerWrite],
    owned: Mapping[str, Collection[KeyRange]],
) -> None:
    hashes: dict[str, set[int]] = {}
    for write in writes:
        hashes.setdefault(write.computation, set()).add(write.key_hash)
    for computation, key_hashes in hashes.items():
        ranges = owned.get(computation, ())
        if len(ranges) == 1:
            # The common case on the hot path: with one range, the smallest and the largest hash decide.
            (key_range,) = ranges
            stray = {end for end in (min(key_hashes), max(key_hashes)) if end not in key_range}
        else:
            stray = {
                key_hash
                for key_hash in key_hashes
                if not any(key_hash in key_range for key_range in ranges)
            }
        if stray:
            raise _outside(f"writes key hash {min(stray)} of {computation}", production)


def _outside(what: str, production: Production) -> StoreError:
    fences = ", ".join(str(fence.range_id) for fence in production.fences)
    return StoreError(
        f"a production of job {production.job} leaves its fences",
        detail=f"it {what}, but fences {fences or 'nothing'}",
        hint="this is a bug in dataflow-model: fence every range that a production touches",
    )


def escape_text(text: str) -> str:
    """Text that every store can keep, for rows that must never fail a commit (late records).

    NUL and lone surrogates, which Postgres does not count as text, become backslash escapes.
    """
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def escaped_late(record: LateRecord) -> LateRecord:
    """A late record with text that every store can keep."""
    return attrs.evolve(
        record,
        transform=escape_text(record.transform),
        key=escape_text(record.key),
        contents=escape_text(record.contents),
    )


def escaped_lineage(entry: LineageEntry) -> LineageEntry:
    """An entry of lineage with text that every store can keep."""
    return attrs.evolve(
        entry,
        transform=escape_text(entry.transform),
        key=escape_text(entry.key),
        reason=escape_text(entry.reason),
        origin=origin_of_fields(_escaped_fields(origin_fields(entry.origin))),
        elements=tuple(map(escape_text, entry.elements)),
    )


def _escaped_fields(fields: Sequence[Any]) -> Sequence[Any]:
    return [
        escape_text(each)
        if isinstance(each, str)
        else _escaped_fields(each)
        if isinstance(each, tuple)
        else each
        for each in fields
    ]


def escaped_dead(letter: StoredDeadLetter) -> StoredDeadLetter:
    """A dead letter with text that every store can keep."""
    return attrs.evolve(
        letter,
        stage=escape_text(letter.stage),
        error=escape_text(letter.error),
        traceback=escape_text(letter.traceback),
        contents=escape_text(letter.contents),
    )


def escaped_event(event: JobEvent) -> JobEvent:
    """An event with text that every store can keep."""
    return attrs.evolve(
        event,
        who=None if event.who is None else escape_text(event.who),
        subject=None if event.subject is None else escape_text(event.subject),
        reason=escape_text(event.reason),
        details=_escaped(event.details),
    )


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, Mapping):
        return {escape_text(str(name)): _escaped(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(each) for each in value]
    return value


def check_names(spec: JobSpec) -> None:
    """Refuse names that a store could not keep.

    Raises:
        StoreError: a name contains NUL or a lone surrogate.
    """
    ranges = (r.range_id.computation for r in spec.ranges)
    for name in (
        spec.job, spec.mode, spec.fingerprint, *ranges, *spec.signals, *spec.computations.values()
    ):  # fmt: skip
        if escape_text(name) != name:
            raise StoreError(
                f"{name!a} is not a name",
                detail="it contains a NUL character or a lone surrogate, so it is no Unicode text",
                hint="choose another name for the job, transform or signal",
            )


def check_same_job(
    spec: JobSpec,
    *,
    mode: str,
    fingerprint: str,
    computations: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Refuse to open a job under a name that a different pipeline has.

    Args:
        spec: as the caller would create it.
        mode: of the job in the store.
        fingerprint: of its pipeline.
        computations: what the store knows of the state of each.

    Raises:
        JobMismatchError: mode, fingerprint or what is known of state differ from the stored ones (the keywords).
    """
    others = [
        name for name, shape in spec.computations.items() if computations.get(name) not in (None, shape)
    ]  # fmt: skip
    if (spec.mode, spec.fingerprint) != (mode, fingerprint) or others:
        detail = (
            f"stored: {mode} job with fingerprint {fingerprint}; "
            f"this one: {spec.mode} job with fingerprint {spec.fingerprint}"
        )
        if others:
            detail += f"; with other state: {', '.join(others)}"
        raise JobMismatchError(
            f"the job name {spec.job} is taken by a different pipeline",
            detail=detail,
            hint="choose another job name, or reset the job to start over",
        )


def check_format(spec: JobSpec, stored_format: int) -> None:
    """Refuse to open a job whose stored bytes this code does not read.

    Args:
        spec: of the job.
        stored_format: the number of the format in the store.

    Raises:
        StoredFormatError: they are in another format than those that it reads.
    """
    if stored_format not in spec.readable_formats:
        reads = spec.readable_formats
        raise unreadable(stored_format, f"job {spec.job}", writes=spec.stored_format, reads=reads)


def is_carried_out(update: JobUpdate, job: JobRow) -> bool:
    """Whether a job has had an update already, and only the answer was lost.

    Args:
        update: that was sent.
        job: as the store has it.
    """
    return (job.version, job.fingerprint) == (update.version + 1, update.spec.fingerprint) and all(
        update.spec.computations.get(name) == shape for name, shape in job.computations.items()
    )


def check_update(update: JobUpdate, job: JobRow, counts: StateCounts) -> None:
    """Refuse an update if the job is not the one for which it was planned.

    Args:
        update: what is about to be carried out.
        job: as it is.
        counts: what it has.

    Raises:
        JobMismatchError: the job has another mode.
        StoreError: it has another version, or other state, or not the computations that are to be kept.
    """
    if job.mode != update.spec.mode:
        check_same_job(update.spec, mode=job.mode, fingerprint=job.fingerprint)
    names = {range_id.computation for range_id in job.ranges}
    described = {spec.range_id.computation for spec in update.spec.ranges} | {
        *update.spec.computations
    }
    is_possible = update.kept.keys() <= names and len({*update.kept.values()}) == len(update.kept)
    if not is_possible or not described.issuperset(update.kept.values()):
        raise StoreError(
            f"an update of job {job.job} keeps computations that do not exist, or the same one twice",
            detail=f"computations: {sorted(names)}, then {sorted(described)}; kept: {dict(update.kept)}",
            hint="this is a bug in dataflow-model: plan the update by what the store has",
        )
    check_format(update.spec, job.stored_format)
    if job.version != update.version or counts != update.counts:
        raise StoreError(
            f"job {job.job} is not as it was when its update was planned",
            detail=f"version {update.version} then and {job.version} now; {update.counts}, and now {counts}",
            hint="plan it again",
        )


def check_incarnation(bound_to: str | None, found: str, place: str) -> None:
    """Refuse to go on with a store that may have lost commits that this process, or another one, relies on.

    Args:
        bound_to: the incarnation of the store that the process began with (`Store.incarnation`); None: any.
        found: that of the store that is there now.
        place: where it is, for the message.

    Raises:
        StoreRestartedError: they differ.
    """
    if bound_to is not None and found != bound_to:
        raise StoreRestartedError(
            "the store is not the one that this run began with",
            detail=f"{place}: then it was the server started at {bound_to}, now it is that of {found}",
            hint="run the job again: it goes on from what is in the store now",
        )


def check_splits_change(
    change: SplitsChange, *, version: int, is_finished: bool, computations: Collection[str]
) -> None:
    """Refuse a change of splits by a driver that does not have the job as it is.

    Args:
        change: what the driver has found.
        version: the version that the job is at.
        is_finished: whether the job is done.
        computations: the names of those that the job has.

    Raises:
        JobMismatchError: the versions differ.
        StoreError: the job is finished, or does not have the computation.
    """
    check_version(change.job, change.version, version)
    if is_finished:
        raise StoreError(f"job {change.job} is finished, and gets no splits any more")
    if change.computation not in computations:
        raise StoreError(f"job {change.job} has no computation {change.computation}")


def check_version(job: str, known: int | None, stored: int) -> None:
    """Refuse ranges of a job to a worker that runs another version of it.

    Args:
        job: its name.
        known: the version that the worker runs; None: any.
        stored: the version that the job is at.

    Raises:
        JobMismatchError: the versions differ.
    """
    if known is not None and known != stored:
        raise JobMismatchError(
            f"job {job} has been updated",
            detail=f"its version is {stored}, and this process has version {known}",
            hint="run the new version of the pipeline",
        )


def check_is_listening(
    job: str, name: str, *, mode: str, is_finished: bool, known: Collection[str]
) -> None:
    """Refuse a signal that no window would receive.

    Args:
        job: the job that it is for.
        name: of the signal.
        mode: of the job, as stored, and so on.
        is_finished: whether the job is.
        known: the names that its triggers listen to.

    Raises:
        SignalError: the job is finished, or runs in batch, or does not listen to the name.
    """
    if is_finished:
        raise SignalError(
            f"job {job} is finished, so the signal {name!r} comes too late",
            detail="all of its windows have fired for the last time",
        )
    if mode != "streaming":
        raise SignalError(
            f"job {job} runs in {mode}, so it takes no signals",
            detail="a batch replays its input, and emits all results at the end: no window is open in between",
        )
    if name not in known:
        raise unknown_signal(name, known).located(f"job {job}")


def check_is_served(job: str, request: Request, *, mode: str, is_finished: bool) -> None:
    """Refuse a request that no driver would carry out, or that a store could not keep.

    Args:
        job: its name.
        request: that somebody wants to send.
        mode: of the job.
        is_finished: whether the job has ended.

    Raises:
        RequestError: the job is finished, or runs in batch, or an argument is no text.
    """
    if is_finished:
        raise RequestError(f"job {job} is finished, so there is nothing to {request.verb}")
    if mode != "streaming":
        raise RequestError(
            f"job {job} runs in {mode}, so there is nothing to {request.verb} in it",
            detail="a batch ends by itself, and its ranges stay as they are",
            hint="to stop it, interrupt its program; running it again continues it",
        )
    if any(escape_text(each) != each for each in request.arguments):
        raise RequestError(f"{request!r} has an argument that is no text")


def no_result_table(table: str, others: Collection[str]) -> StoreError:
    """The error for a table that no job writes to.

    Args:
        table: its name.
        others: the names of the tables that jobs write to.
    """
    return StoreError(
        f"no job of this store writes to a table {table!r}",
        detail=f"its result tables are: {', '.join(sorted(others))}" if others else "it has none",
        hint="write its name as the pipeline does",
    )


def table_of_others(table: str, others: Collection[str]) -> TableOwnedError:
    """The error for a table that other jobs write to.

    Args:
        table: its name.
        others: the names of the jobs that write to it.
    """
    return TableOwnedError(
        f"table {table} belongs to another job",
        detail=f"written by: {', '.join(sorted(others))}",
        hint="write to another table; or give WriteToPostgres(..., shared=True), and the table has the rows of both; "
        "or forget the other job (dataflow forget)",
    )


def missing_table(job: str, table: str) -> TableMissingError:
    """The error for a table that was dropped under its job.

    Args:
        job: its name.
        table: its name.
    """
    return TableMissingError(
        f"the result table {table} of job {job} is not there any more",
        detail="its rows are gone, and the job would not write them again: it goes on where it was",
        hint="restore the table, or start over with fresh=True",
    )


def check_can_start_over(job: str, tables: Iterable[ResultTable]) -> None:
    """Refuse to forget a job in order to run it again, if rows would stay to which it would then add others.

    Args:
        job: its name.
        tables: that it writes to, as they would be left.

    Raises:
        TableOwnedError: there is such a table.
    """
    for table in tables:
        if table.is_own or not table.has_rows:
            continue
        why = f"written by {', '.join(table.others)} too" if table.others else "it was there before"
        raise TableOwnedError(
            f"job {job} cannot start over, because table {table.name} is not its own",
            detail=f"{why}; it is not known which of its rows are the job's, and the job would write them once more",
            hint="empty the table first, or write to another one; dataflow forget forgets the job and leaves the rows",
        )


def check_own(job: str, emptied: Iterable[TableSpec], own: Collection[str]) -> None:
    """Refuse an update that would delete rows of others.

    Args:
        job: its name.
        emptied: the tables that the update empties.
        own: the names of those that are the job's own.

    Raises:
        StoreError: one is not.
    """
    for table in emptied:
        if table.name not in own:
            raise StoreError(
                f"table {table.name} is not job {job}'s own any more, and cannot be emptied",
                detail="when its update was planned no other job wrote to it, and it was there",
                hint="plan it again",
            )


def unknown_job(job: str) -> StoreError:
    """The error for a verb on a job that is not in the store."""
    return StoreError(f"there is no job {job} in the store", hint="open the job first")


def unknown_range(job: str, range_id: RangeId) -> LostCommitsError:
    """The error for a verb on a range that the job does not have.

    Who names a range has it from the store, or from the worker that made it, by a commit, when it divided another one;
    and one that was merged away is deleted when nobody has anything for it any more.  So this is a loss: the part of
    the store that has the range has gone back behind the split that made it.

    Args:
        job: its name.
        range_id: that was asked for.
    """
    return LostCommitsError(
        f"the store has lost commits: job {job} has no range {range_id}",
        detail="ranges that workers know of are made by commits, and the commit that made this one is gone",
        hint=HINT,
    )
