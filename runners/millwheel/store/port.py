"""The store: where the exactly-once core keeps its truth, in verbs of the domain.

Two adapters implement it, memory and Postgres, and one conformance suite holds for both (`runners.testing`).
Rules that every adapter keeps:

* **The fence is a lock, not a check.**  `Store.commit` takes the row of every fenced range inside its transaction and
  writes only when token and bundle number both match; `Store.acquire` takes the same rows first
  and moves the token, and only
  then reads (DESIGN section 6; MillWheel figure 12).
* **Losing a race is a result**, not an exception: `Fenced`.
* **Not knowing is a result of its own**: `Indeterminate`, when the connection died around the
  commit.  It is resolved by
  `Store.resolve`, which reads the bundle number back, and never by sending the commit again.
* A store error that certainly changed nothing is retried inside the adapter or raised as `StoreError`.

MillWheel, section 6; DESIGN section 6.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from dataflow.io.table import Row, TableSpec
from runners.millwheel.ids import Channel, RangeId
from runners.millwheel.key_range import KeyRange
from runners.millwheel.production import Checkpoint, Production
from runners.millwheel.signals import NO_SIGNALS, Signal, SignalMark


@attrs.frozen
class Committed:
    """All of the production is durable."""


@attrs.frozen
class Fenced:
    """None of the production happened, and none of it ever will: another owner holds one of its ranges."""

    range_id: RangeId


@attrs.frozen
class Indeterminate:
    """The production is either wholly durable or wholly absent; ask `Store.resolve`."""

    reason: str


CommitOutcome = Committed | Fenced | Indeterminate


@attrs.frozen(kw_only=True)
class RangeSpec:
    """A range as the job is created with it: a key range, or a source split (opaque bytes)."""

    range_id: RangeId
    keys: KeyRange | None = None
    split: bytes | None = None


@attrs.frozen(kw_only=True)
class JobSpec:
    """What a job is made of.

    ``fingerprint`` identifies the shape of the pipeline, to refuse a different one under the same name.
    ``signals``: the names of the signals that its triggers listen to.
    """

    job: str
    mode: str
    fingerprint: str
    ranges: Sequence[RangeSpec]
    tables: Sequence[TableSpec] = ()
    signals: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class RangeRow:
    """A range as the store has it."""

    range_id: RangeId
    keys: KeyRange | None
    split: bytes | None
    token: int
    bundle: int
    owner: str | None
    position: bytes | None
    #: None until the range's first commit.
    watermark_us: int | None
    is_finished: bool
    signal_mark: SignalMark = NO_SIGNALS
    #: None until a range whose triggers follow a percentile has acted on one.
    percentile_us: int | None = None


@attrs.frozen(kw_only=True)
class JobRow:
    """A job as the store has it."""

    job: str
    mode: str
    fingerprint: str
    is_finished: bool
    ranges: Mapping[RangeId, RangeRow]
    signals: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class JobSummary:
    """A job in a list of jobs.

    ``ranges`` counts them, ``open_ranges`` those that are not finished.  ``watermark_us`` is the lowest that a range
    has committed; None while there is a range without one.
    """

    job: str
    mode: str
    is_finished: bool
    signals: frozenset[str]
    ranges: int
    open_ranges: int
    watermark_us: int | None

    @classmethod
    def of(cls, job: JobRow) -> "JobSummary":
        """That of a job."""
        rows = job.ranges.values()
        known_us = [row.watermark_us for row in rows if row.watermark_us is not None]
        return cls(
            job=job.job,
            mode=job.mode,
            is_finished=job.is_finished,
            signals=job.signals,
            ranges=len(rows),
            open_ranges=sum(not row.is_finished for row in rows),
            watermark_us=min(known_us) if known_us and len(known_us) == len(rows) else None,
        )


@attrs.frozen(kw_only=True)
class StoredTimer:
    """A timer as scanned at takeover."""

    key_hash: int
    cell_key: bytes
    tag: bytes
    domain: str
    fire_us: int


@attrs.frozen(kw_only=True)
class TakenRange:
    """Everything a new owner needs, read after the token moved, so no earlier owner can add to it.

    ``checkpoints`` are this range's productions not yet acknowledged, ordered per channel; ``delivered`` the highest
    sequence it has seen per channel into it; ``sent`` the highest sequence ever given out per channel out of it.
    """

    row: RangeRow
    cells: Mapping[tuple[int, bytes], bytes]
    timers: Sequence[StoredTimer]
    delivered: Mapping[Channel, int]
    sent: Mapping[Channel, int]
    checkpoints: Sequence[Checkpoint]


class Store(Protocol):
    """Durable truth of jobs.  Not thread-safe: one instance per thread (an adapter may hold one connection)."""

    def open_job(self, spec: JobSpec) -> JobRow:
        """Create the job, its ranges and its result tables, or return them if they exist.

        Existing ranges (and splits) win over those of ``spec``, so that positions keep their meaning.
        Idempotent, and safe when two drivers call it at once.

        Raises:
            JobMismatchError: the name is taken by a job with another fingerprint or mode.
            TableMismatchError: a result table exists with other columns or key.
        """

    def reset_job(self, job: str) -> None:
        """Forget the job and drop the result tables that it created; no error if there is no such job.

        Whoever still owns a range of it is fenced from then on.
        """

    def read_job(self, job: str) -> JobRow | None:
        """The job as it stands, or None."""

    def read_jobs(self) -> Sequence[JobSummary]:
        """All jobs, by name."""

    def send_signal(self, job: str, name: str) -> int:
        """Keep a signal for the job, and say its number: from 1 without a gap, in the order of sending.

        Once it returns, every range will act on it, exactly once (`runners.millwheel.signals`).

        Raises:
            SignalError: nobody would hear it: the job is finished, or runs in batch, or does not listen to the name.
            StoreError: there is no such job.
        """

    def read_signals(self, job: str, after: int) -> Sequence[Signal]:
        """The job's signals with numbers above ``after``, in their order; none of an unknown job.

        A signal that is not among them yet has a higher number than all that are.
        """

    def acquire(
        self, job: str, range_ids: Sequence[RangeId], owner: str
    ) -> Mapping[RangeId, TakenRange]:
        """Take ranges over from whoever has them: move every token first, then read.

        Waits for a commit in flight on these ranges to end.  After a failure it may simply be
        called again (the token moves once more).
        """

    def commit(self, production: Production) -> CommitOutcome:
        """Make the production durable, whole, if every fence holds."""

    def resolve(self, production: Production) -> CommitOutcome:
        """After `Indeterminate`: find out what became of a production.

        `Committed` or `Fenced` by reading bundle numbers, `Indeterminate` if the store is still out of reach.
        A production whose fences still match the store was not applied: that is reported as `Fenced` too, after the
        adapter made sure that it can no longer land; the owner takes the range over again and repeats the work.
        """

    def finish_job(self, job: str) -> None:
        """Mark the job as done.  Idempotent."""

    def read_table(self, table: TableSpec) -> Sequence[Row]:
        """All rows of a result table, columns in the order of the spec, in no particular order."""

    def read_late(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's late records: transform, key, window_start_us, window_end_us, watermark_us, payload, count."""

    def read_dead_letters(self, job: str) -> Sequence[Mapping[str, Any]]:
        """The job's dead letters, oldest first: stage, error, traceback, tries, timestamp_us, payload."""

    def read_late_counts(self, job: str) -> Mapping[str, int]:
        """How many records of the job came too late (the sum of their counts), by transform; without zeros."""

    def statistics(self, job: str) -> Mapping[str, int]:
        """Row counts of the job by kind: cells, timers, checkpoints, channels, late, dead, plus open_ranges."""

    def close(self) -> None:
        """Release the connection.  Idempotent."""
