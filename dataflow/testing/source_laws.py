"""Laws of a source, read by any schedule: what `dataflow.testing.source_contract.SourceContract` checks.

A schedule says how many records each read asks for, before which reads the reader is closed and another one opened
where it was, and before which it is notified of a position that is durable.  Whatever the schedule, the records of a
split are the same, each once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, NoReturn

import attrs

from dataflow.serialization import dumps, loads
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus, open_split
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: An input without an end is read until so many reads in a row have found nothing.
QUIET_READS = 3
#: So many reads of one split are more than any test has records for.
READS_MAX = 20_000


@attrs.frozen
class ReadStep:
    """One read of a schedule.

    Attributes:
        max_records: how many records are asked for.
        reopens: whether another reader is opened before, at the position where this one is.
        acknowledged: whether the reader is notified before: 0 of the newest position that it has given, 1 of the one
            before, and so on; None: not at all.
    """

    max_records: int = 1_000
    reopens: bool = False
    acknowledged: int | None = None


@attrs.frozen
class SplitRecords:
    """All that was read of a split, in order.

    Attributes:
        records: value, event time in microseconds, and sign, of each record; values as text, which can be compared.
        aside: what was set aside, as text.
    """

    records: Sequence[tuple[str, int, int]]
    aside: Sequence[str]


class BrokenRuleError(AssertionError):
    """A source does not keep a rule."""


def broken(rule: str, detail: str = "") -> NoReturn:
    """Raise the one error of all rules.

    Args:
        rule: what is not so, as a sentence.
        detail: what was seen.

    Raises:
        BrokenRuleError: always.
    """
    raise BrokenRuleError(f"{rule}\n  {detail}" if detail else rule)


class SplitReading:
    """Reads one split by a schedule, and checks each batch on the way.

    Args:
        source: of the split.
        split: of the source.
        late_us: how far behind its watermark a record may be, in microseconds.
        is_static: whether nothing is added to the input while it is read.
    """

    def __init__(self, source: Source, split: Any, *, late_us: int, is_static: bool) -> None:
        self._source, self._split = source, split
        self._late_us, self._is_static = late_us, is_static
        self._reader: SourceReader | None = None
        self._positions: list[Any] = []
        self._records: list[tuple[str, int, int]] = []
        self._aside: list[str] = []
        self._standing = Counter[tuple[str, int]]()
        #: What this reader, and any reader, has reported.
        self._reader_watermark_us = self._watermark_us = MIN_TIMESTAMP_US
        self._was_idle = self._had_all = False

    def read(self, schedule: Sequence[ReadStep] = ()) -> SplitRecords:
        """Read to the end; behind the schedule many records at a time.

        Args:
            schedule: the first reads.

        Raises:
            BrokenRuleError: a rule is not kept.
        """
        try:
            self._read(schedule)
        except BaseException:
            # What is broken in the closing as well is not what was found first.
            with suppress(Exception):
                assert self._reader is not None
                self._reader.close()
            raise
        self._close()
        return SplitRecords(self._records, self._aside)

    def _read(self, schedule: Sequence[ReadStep]) -> None:
        quiet = 0
        self._open()
        for number in range(READS_MAX):
            step = schedule[number] if number < len(schedule) else ReadStep()
            batch = self._step(step)
            if batch.status is SplitStatus.FINISHED:
                self._check_end()
                break
            quiet = 0 if batch.records else quiet + 1
            if quiet >= QUIET_READS and number >= len(schedule) and not self._source.is_bounded:
                break
        else:
            broken("a split of a bounded source must come to its end", f"not in {READS_MAX} reads")

    @property
    def position(self) -> Any:
        """Of the last batch."""
        return self._positions[-1]

    def _step(self, step: ReadStep) -> SourceBatch:
        if step.reopens:
            self._close()
            self._open()
        if step.acknowledged is not None and self._positions and self._source.acknowledges:
            newest_first = self._positions[::-1]
            self._notify(newest_first[min(step.acknowledged, len(newest_first) - 1)])
        batch = self._batch(step.max_records)
        self._take(batch)
        return batch

    def _open(self) -> None:
        position = self._positions[-1] if self._positions else None
        try:
            position = loads(dumps(position))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no plain data
            broken("a position must be plain data that can be pickled", f"{position!r}: {error}")
        self._reader = open_split(self._source, self._split, position)
        self._reader_watermark_us = MIN_TIMESTAMP_US
        if position is not None and self._source.acknowledges:
            self._notify(position)

    def _close(self) -> None:
        assert self._reader is not None
        for _ in range(2):
            try:
                self._reader.close()
            except Exception as error:  # noqa: BLE001 - no error is allowed
                broken("close must be idempotent", f"{type(error).__name__}: {error}")

    def _notify(self, position: Any) -> None:
        assert self._reader is not None
        try:
            self._reader.committed(position)
        except Exception as error:  # noqa: BLE001 - no error is allowed
            broken(
                "committed must accept any position that a batch had, and any number of times",
                f"{position!r}: {type(error).__name__}: {error}",
            )

    def _batch(self, max_records: int) -> SourceBatch:
        assert self._reader is not None
        batch: object = self._reader.read(max_records)
        if not isinstance(batch, SourceBatch):
            broken("read must return a SourceBatch", f"it returned {batch!r:.200}")
        if batch.records > max_records:
            broken(
                "read must return at most max_records records",
                f"{batch.records} where {max_records} were asked for",
            )
        lengths = {len(batch.values), len(batch.timestamps_us)}
        if batch.signs is not None:
            lengths.add(len(batch.signs))
        if len(lengths) > 1:
            broken(
                "a batch must have an event time, and a sign if any, for each record", f"{batch}"
            )
        times_us = [*batch.timestamps_us, batch.watermark_us]
        if not all(
            isinstance(each, int) and MIN_TIMESTAMP_US <= each <= MAX_TIMESTAMP_US
            for each in times_us
        ):
            broken("times must be integers of microseconds between the ends of time", f"{batch}")
        return batch

    def _take(self, batch: SourceBatch) -> None:
        self._check_status(batch)
        self._check_backlog(batch)
        self._check_watermark(batch)
        signs = batch.signs or [+1] * len(batch.values)
        for value, time_us, sign in zip(batch.values, batch.timestamps_us, signs, strict=True):
            record = repr(value), time_us
            self._check_sign(record, sign)
            self._records.append((*record, sign))
        self._aside += [f"{each.error}" for each in batch.set_aside]
        self._positions.append(batch.position)

    def _check_status(self, batch: SourceBatch) -> None:
        if batch.status is SplitStatus.IDLE and batch.records:
            broken("a batch with records is not idle", f"{batch}")
        if batch.records and self._was_idle and self._is_static:
            broken("a split that reports that it is idle must have nothing to read", f"{batch}")
        self._was_idle |= batch.status is SplitStatus.IDLE

    def _check_backlog(self, batch: SourceBatch) -> None:
        if batch.records and self._had_all and self._is_static:
            broken("a split whose backlog is 0 must have nothing to read", f"{batch}")
        backlog = batch.backlog
        if backlog is None:
            return
        numbers = [each for each in attrs.astuple(backlog) if each is not None]
        if batch.status is not SplitStatus.ACTIVE and any(numbers):
            broken("a split that is idle or finished must have a backlog of 0, or None", f"{batch}")
        self._had_all |= 0 in {backlog.records, backlog.size_bytes}

    def _check_watermark(self, batch: SourceBatch) -> None:
        earliest_us = min(batch.timestamps_us, default=MAX_TIMESTAMP_US)
        if earliest_us < self._watermark_us - self._late_us:
            broken(
                "no record may be behind the watermark that its split has reported",
                f"a record at {earliest_us} us, and a watermark of {self._watermark_us} us before",
            )
        if batch.watermark_us < self._reader_watermark_us:
            broken(
                "the watermark of a reader must not go back",
                f"from {self._reader_watermark_us} us to {batch.watermark_us} us",
            )
        self._reader_watermark_us = batch.watermark_us
        self._watermark_us = max(self._watermark_us, batch.watermark_us)

    def _check_sign(self, record: tuple[str, int], sign: int) -> None:
        if sign not in {+1, -1}:
            broken("a sign must be +1 or -1", f"{sign!r} of {record[0]}")
        if sign < 0 and not self._source.emits_retractions:
            broken("a source that retracts records must say so", "emits_retractions is False")
        self._standing[record] += sign
        if self._standing[record] < 0:
            broken(
                "a retraction must be of an equal record, at the same event time, that the split has handed over",
                f"{record[0]} at {record[1]} us",
            )

    def _check_end(self) -> None:
        """A split that is finished stays so, for this reader and the next."""
        for reopens in (False, False, True):
            if reopens:
                self._close()
                self._open()
            batch = self._batch(ReadStep().max_records)
            if batch.records or batch.status is not SplitStatus.FINISHED:
                broken("a split that is finished must stay so, and have nothing more", f"{batch}")
            self._check_backlog(batch)


def check_splits(
    make_source: Callable[[], Source],
    expected: Iterable[Any] | None,
    desired: int,
    schedule: Sequence[ReadStep],
    *,
    late_us: int = 0,
    is_static: bool = True,
) -> None:
    """Check a source that is divided into about so many splits, each of which is read by a schedule.

    Args:
        make_source: makes the source, with the same content each time.
        expected: the values that are there in the end, in any order; None: they are not compared.
        desired: the number of splits that is asked for.
        schedule: the first reads of each split.
        late_us: how far behind its watermark a record may be, in microseconds.
        is_static: whether nothing is added to the input while it is read.

    Raises:
        BrokenRuleError: a rule is not kept.
    """

    def reading(source: Source, split: Any) -> SplitReading:
        return SplitReading(source, split, late_us=late_us, is_static=is_static)

    source = make_source()
    source.check()
    splits = list(source.splits(desired))
    if not splits:
        broken("a source must have at least one split", f"where {desired} are desired")
    left, ends = Counter[str](), list[tuple[Any, Any]]()
    for split in splits:
        try:
            shipped = loads(dumps(split))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no plain data
            broken("a split must be plain data that can be pickled", f"{split!r}: {error}")
        first = reading(source, split)
        plainly = first.read()
        ends.append((split, first.position))
        by_schedule = reading(make_source(), shipped).read(schedule)
        if plainly != by_schedule:
            broken(
                "a split must have the same records in the same order, however it is read",
                f"all at once: {plainly}\n  by {list(schedule)}: {by_schedule}",
            )
        for value, _, sign in plainly.records:
            left[value] += sign
    _check_release(source, ends, is_static=is_static)
    if expected is not None and left != Counter(map(repr, expected)):
        wanted = Counter(map(repr, expected))
        broken(
            "the splits together must have each record once",
            f"divided into {len(splits)}; missing: {dict(wanted - left)}, too many: {dict(left - wanted)}",
        )


def _check_release(source: Source, ends: Sequence[tuple[Any, Any]], *, is_static: bool) -> None:
    """A source that has let go of what it held for its splits can be read on where they were read to."""
    for _ in range(2):
        try:
            source.release()
        except Exception as error:  # noqa: BLE001 - no error is allowed
            broken("release must be idempotent", f"{type(error).__name__}: {error}")
    if type(source).release is Source.release:
        return
    for split, position in ends:
        try:
            with closing(open_split(source, split, position)) as reader:
                batch = reader.read(1)
        except Exception as error:  # noqa: BLE001 - likewise
            rule = "a split must be read on when its source was released"
            broken(rule, f"{type(error).__name__}: {error}")
        if batch.records and is_static:
            broken("a split that was read to its end must have nothing more", f"{batch}")
