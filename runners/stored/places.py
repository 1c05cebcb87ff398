"""The progress of ranges as bytes: splits of sources, positions in them, and marks of what goes over ranges once."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from dataflow.serialization import dumps, loads
from runners.stored.framing import frame, kind_of, unframed
from windowing.timestamps import MIN_TIMESTAMP_US

SPLIT, POSITION, BATCH_MARK, BACKFILL_MARK = "split", "position", "batch mark", "backfill mark"
RETRACTION_MARK = "retraction mark"
#: Stands in place of a target where records become dead letters.
_LETTERS = -1
#: Less the first target of a grouping: stands in place of a target for the packings of what is sent to that grouping.
_PACKINGS = -2


@attrs.frozen
class ReadSoFar:
    """The progress of the committed bundles of a batch's range: records, position, and number of dead letters.

    Attributes:
        sent: digests of what it had sent by then, by target; None: it sends nothing.
        run: the run of the job that sent it.
        letters: the digest of the dead letters; None: it is not known.
        packings: how what was sent is packed, as numbers (`runners.batch.pack_sizes`), by the first target of each
            grouping.
    """

    records: int = 0
    position: Any = None
    dead: int = 0
    sent: Mapping[int, int] | None = None
    run: int | None = None
    letters: int | None = 0
    packings: Mapping[int, Sequence[int]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class SplitMark:
    """The progress of the backfill in a split, or in a key range.

    Attributes:
        records: how many records it has read; for a key range, how many of its parts are loaded.
        position: of the next record; None: at the beginning.
        watermark_us: the watermark that the source has reported, in microseconds, before its end.
        is_source_finished: whether the source has reported that there will never be more.
        is_end: whether the split is read up to the point; for a key range, whether all of it is loaded.
        dead: how many dead letters are committed.
        until_us: the point up to which the backfill reads, an event time in microseconds; None: up to the last record
            there was.
        now_us: processing time in microseconds, which stands still during the whole backfill.
        sent: digests of what was sent to key ranges by then, by target; None: it sends nothing, or it is not known.
        letters: the digest of the dead letters; None: it is not known.
        packings: as in `ReadSoFar`.
    """

    records: int = 0
    position: Any = None
    watermark_us: int = MIN_TIMESTAMP_US
    is_source_finished: bool = False
    is_end: bool = False
    dead: int = 0
    until_us: int | None = None
    now_us: int = MIN_TIMESTAMP_US
    sent: Mapping[int, int] | None = None
    letters: int | None = 0
    packings: Mapping[int, Sequence[int]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class RetractionMark:
    """How far a key range has retracted its standing panes (ADR 0066).

    Attributes:
        version: of the job that retracts.
        next_hash: of the keys that are not retracted yet, the first hash; 0 before the beginning, and at the end.
        is_end: whether all of them are.
    """

    version: int
    next_hash: int = 0
    is_end: bool = False


def encode_split(split: Any) -> bytes:
    """A split as bytes; only its source understands it.

    Raises:
        PipelineError: it is not plain data.
    """
    return frame(SPLIT, dumps(split))


def decode_split(blob: bytes) -> Any:
    """The inverse of `encode_split`.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    return loads(unframed(SPLIT, blob)[0])


def encode_position(position: Any) -> bytes:
    """A position in a split as bytes; only its source understands it.

    Raises:
        PipelineError: it is not plain data.
    """
    return frame(POSITION, dumps(position))


def decode_position(blob: bytes) -> Any:
    """The inverse of `encode_position`.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    return loads(unframed(POSITION, blob)[0])


def encode_read_so_far(mark: ReadSoFar) -> bytes:
    """The progress of a batch's range as bytes, stored as its position.

    Raises:
        PipelineError: the position is not plain data.
    """
    digests = _digests(mark)
    return frame(BATCH_MARK, mark.records, dumps(mark.position), mark.dead, digests, mark.run)


def decode_read_so_far(blob: bytes) -> ReadSoFar:
    """The inverse of `encode_read_so_far`.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    records, position, dead, digests, run = unframed(BATCH_MARK, blob)
    sent, letters, packings = _by_target(digests, dead)
    return ReadSoFar(records, loads(position), dead, sent, run, letters, packings)


def encode_split_mark(mark: SplitMark) -> bytes:
    """The progress of a backfill's range as bytes, stored as its position.

    Raises:
        PipelineError: the position is not plain data.
    """
    return frame(
        BACKFILL_MARK,
        mark.records,
        dumps(mark.position),
        mark.watermark_us,
        mark.is_source_finished,
        mark.is_end,
        mark.dead,
        mark.until_us,
        mark.now_us,
        _digests(mark),
    )


def decode_split_mark(blob: bytes) -> SplitMark | None:
    """The inverse of `encode_split_mark`; None for a position that is not a mark.

    Raises:
        StoredFormatError: it is of a format that is not read.
    """
    if kind_of(blob) != BACKFILL_MARK:
        return None
    records, position, *fields, digests = unframed(BACKFILL_MARK, blob)
    names = ("watermark_us", "is_source_finished", "is_end", "dead", "until_us", "now_us")
    plain = dict(zip(names, fields, strict=True))
    sent, letters, packings = _by_target(digests, plain["dead"])
    return SplitMark(
        records=records,
        position=loads(position),
        sent=sent,
        letters=letters,
        packings=packings,
        **plain,
    )


def encode_retraction_mark(mark: RetractionMark) -> bytes:
    """The mark of a key range as bytes, stored as its position."""
    return frame(RETRACTION_MARK, mark.version, mark.next_hash, mark.is_end)


def decode_retraction_mark(blob: bytes | None, version: int) -> RetractionMark:
    """The mark of a key range; the first one where its position is another thing, or of another version.

    Args:
        blob: the position; None: there is none.
        version: of the job that retracts now.

    Raises:
        StoredFormatError: it is of a format that is not read.
    """
    if blob is not None and kind_of(blob) == RETRACTION_MARK:
        marked, next_hash, is_end = unframed(RETRACTION_MARK, blob)
        if marked == version:
            return RetractionMark(version=version, next_hash=next_hash, is_end=is_end)
    return RetractionMark(version=version)


def _digests(mark: ReadSoFar | SplitMark) -> list[tuple[int, int]] | None:
    digests = [] if mark.sent is None else list(mark.sent.items())
    if mark.dead and mark.letters is not None:
        digests.append((_LETTERS, mark.letters))
    for target, numbers in mark.packings.items():
        digests += [(_PACKINGS - target, number) for number in numbers]
    return digests or None


def _by_target(
    digests: list[tuple[int, int]] | None, dead: int
) -> tuple[dict[int, int] | None, int | None, dict[int, list[int]]]:
    """The digests of what was sent, that of the dead letters, and the packings."""
    packings: dict[int, list[int]] = {}
    by_target = {}
    for target, number in digests or ():
        if target <= _PACKINGS:
            packings.setdefault(_PACKINGS - target, []).append(number)
        else:
            by_target[target] = number
    # Without dead letters there is no digest of them.  Earlier versions stored none in any case: then it is not known.
    letters = by_target.pop(_LETTERS, None if dead else 0)
    return by_target or None, letters, packings
