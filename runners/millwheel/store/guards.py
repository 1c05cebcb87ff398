"""What both adapters check and say alike; above all, that a production stays inside its fences.

A write outside the fenced ranges would be durable although another worker owns the range, which is
exactly what the fence exists to prevent.  So it is always checked, on the side that writes.

MillWheel, section 6.2 (single writer).
"""

from collections.abc import Collection, Iterable, Mapping

import attrs

from runners.core.signals import unheard_signal
from runners.errors import JobMismatchError, SignalError, StoreError
from runners.millwheel.ids import RangeId
from runners.millwheel.key_range import KeyRange
from runners.millwheel.production import CellWrite, DeadLetter, LateRecord, Production, TimerWrite
from runners.millwheel.store.port import JobSpec

#: What `Store.statistics` counts.
STATISTICS = ("cells", "timers", "checkpoints", "channels", "late", "dead", "open_ranges")


def check_fences(production: Production) -> None:
    """Refuse a production without a fence, or with two on one range.

    Raises:
        StoreError: anyone could commit it, or nobody.
    """
    if not production.fences:
        raise _outside("could be committed by anyone, at any time", production)
    if len({fence.range_id for fence in production.fences}) != len(production.fences):
        raise _outside("fences the same range twice", production)


def check_fenced(production: Production, keys: Mapping[RangeId, KeyRange | None]) -> None:
    """Refuse a production that touches a range which it does not fence.

    Args:
        production: what is about to be committed.
        keys: the key range of every fenced range; None for a range without keys (a source
            split), which owns neither cells nor timers.

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
        *(channel.receiver for channel in production.delivered),
        *(channel.sender for channel in production.acknowledged),
        *(checkpoint.channel.sender for checkpoint in production.checkpoints),
    }
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
            # The common case, and the one on the hot path: one range, so its ends decide.
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
        hint="this is a bug in the runner: fence every range that a production touches",
    )


def escape_text(text: str) -> str:
    """Text that every store can keep, for rows that must never fail a commit (late records).

    NUL and lone surrogates, which Postgres does not count as text, become backslash escapes.
    """
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def escaped_late(record: LateRecord) -> LateRecord:
    """A late record with text that every store can keep."""
    transform, key = escape_text(record.transform), escape_text(record.key)
    return attrs.evolve(record, transform=transform, key=key)


def escaped_dead(letter: DeadLetter) -> DeadLetter:
    """A dead letter with text that every store can keep."""
    return attrs.evolve(
        letter,
        stage=escape_text(letter.stage),
        error=escape_text(letter.error),
        traceback=escape_text(letter.traceback),
    )


def check_names(spec: JobSpec) -> None:
    """Refuse names that a store could not keep.

    Raises:
        StoreError: a name contains NUL or a lone surrogate.
    """
    ranges = (r.range_id.computation for r in spec.ranges)
    for name in (spec.job, spec.mode, spec.fingerprint, *ranges, *spec.signals):
        if escape_text(name) != name:
            raise StoreError(
                f"{name!a} is not a name",
                detail="it contains a NUL character or a lone surrogate, so it is no Unicode text",
                hint="choose another name for the job, transform or signal",
            )


def check_same_job(spec: JobSpec, *, mode: str, fingerprint: str) -> None:
    """Refuse to open a job under a name that a different pipeline has.

    Raises:
        JobMismatchError: mode or fingerprint differ from the stored ones (the keywords).
    """
    if (spec.mode, spec.fingerprint) != (mode, fingerprint):
        raise JobMismatchError(
            f"the job name {spec.job} is taken by a different pipeline",
            detail=f"stored: {mode} job with fingerprint {fingerprint}; "
            f"this one: {spec.mode} job with fingerprint {spec.fingerprint}",
            hint="choose another job name, or reset the job to start over",
        )


def check_is_heard(
    job: str, name: str, *, mode: str, is_finished: bool, known: Collection[str]
) -> None:
    """Refuse a signal that nobody would hear.

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
            detail="all that its windows had to say is said",
        )
    if mode != "streaming":
        raise SignalError(
            f"job {job} runs in {mode}, so it hears no signals",
            detail="while input is replayed there is nobody to ask; everything is said at the end",
        )
    if name not in known:
        raise unheard_signal(name, known).located(f"job {job}")


def unknown_job(job: str) -> StoreError:
    """The error for a verb on a job that is not in the store."""
    return StoreError(f"there is no job {job} in the store", hint="open the job first")


def unknown_range(job: str, range_id: RangeId) -> StoreError:
    """The error for a verb on a range that the job does not have."""
    return StoreError(
        f"job {job} has no range {range_id}", hint="acquire ranges that open_job returned"
    )
