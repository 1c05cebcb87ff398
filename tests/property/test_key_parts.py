"""What is sent to a key range is given back whole, in one order, whatever came first and whatever was in a file."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from random import Random

import attrs
from hypothesis import given
from hypothesis import strategies as st

from dataflow.coders import encode_key, hash_key
from runners.batch.backfill.key_parts import PARTS, KeyParts, PartBatch
from runners.core.partials.partial import Partial
from runners.millwheel.model.ids import RangeId
from runners.stored.partials import decode_partials, encode_partials
from runners.stored.runs import PartBlob, encode_parts
from windowing.window import Window

#: Enough for several keys in one part.
KEYS = st.integers(0, 1_000)
Blob = tuple[RangeId, int, bytes]
PARTIALS = st.builds(
    lambda key, at, values: (key, Window(at, at + 10), values, len(values)),
    KEYS,
    st.integers(0, 30),
    st.lists(st.text(max_size=5), min_size=1, max_size=4),
)
BLOBS = st.lists(st.lists(PARTIALS, min_size=1, max_size=30), max_size=12)
SPILLS = st.sampled_from([0, 500, 2_000, 1 << 40])


def sent(blobs: Sequence[Sequence[Partial]]) -> list[Blob]:
    """By three senders, each with numbers of its own."""
    found = []
    for index, blob in enumerate(blobs):
        by_part: dict[int, list[Partial]] = {}
        for partial in blob:
            by_part.setdefault(part_of(partial), []).append(partial)
        divided = [
            PartBlob(part, sum(each[3] for each in some), encode_partials(some))
            for part, some in by_part.items()
        ]
        found.append((RangeId("read", index % 3), index // 3, encode_parts(divided)))
    return found


def batches(
    blobs: Sequence[Blob], *, spill_bytes: int, records: int, first: int = 0, cut: int = 0
) -> list["Read"]:
    parts = KeyParts(first=first, spill_bytes=spill_bytes)
    with closing(parts):
        for blob in blobs:
            parts.take(*blob)
        assert parts.has_spilled or spill_bytes > 0 or not blobs or first > 0
        return [Read.of(batch) for batch in parts.batches(records, cut)]


@attrs.frozen
class Read:
    """A batch that has been read."""

    end: int
    blobs: list[bytes]

    @classmethod
    def of(cls, batch: PartBatch) -> "Read":
        blobs = list(batch.blobs)
        assert batch.size_bytes == sum(map(len, blobs))
        return cls(batch.end, blobs)


def partials(several: Sequence[Read]) -> Iterator[Partial]:
    for batch in several:
        for blob in batch.blobs:
            yield from decode_partials(blob, None)


def part_of(partial: Partial) -> int:
    return hash_key(encode_key(partial[0])) % PARTS


@given(blobs=BLOBS, spill_bytes=SPILLS, records=st.integers(1, 60), chance=st.randoms())
def test_neither_memory_nor_the_order_of_arrival_changes_anything(
    blobs: list[list[Partial]], spill_bytes: int, records: int, chance: Random
) -> None:
    those = sent(blobs)
    in_memory = batches(those, spill_bytes=1 << 40, records=records)
    chance.shuffle(those)

    assert batches(those, spill_bytes=spill_bytes, records=records) == in_memory


@given(blobs=BLOBS, spill_bytes=SPILLS, records=st.integers(1, 60))
def test_all_of_it_comes_part_by_part_and_within_a_part_as_it_was_sent(
    blobs: list[list[Partial]], spill_bytes: int, records: int
) -> None:
    found = batches(sent(blobs), spill_bytes=spill_bytes, records=records)

    by_sender = [each for sender in range(3) for each in blobs[sender::3]]
    in_order = [partial for each in by_sender for partial in each]
    assert list(partials(found)) == sorted(in_order, key=part_of)
    ends = [0, *(batch.end for batch in found)]
    assert ends[-1] == PARTS
    for batch, (start, end) in zip(found, pairwise(ends), strict=True):
        kept = list(partials([batch]))
        assert {part_of(each) for each in kept} <= set(range(start, end))
        assert sum(each[3] for each in kept) >= records or end == PARTS
        # Without its last part it would have been too few.
        assert sum(each[3] for each in kept if part_of(each) < end - 1) < records


@given(
    blobs=BLOBS,
    spill_bytes=SPILLS,
    records=st.integers(1, 60),
    cut=st.integers(1, PARTS - 1),
)
def test_what_is_done_is_left_out_or_cut_off(
    blobs: list[list[Partial]], spill_bytes: int, records: int, cut: int
) -> None:
    those = sent(blobs)
    whole = list(partials(batches(those, spill_bytes=spill_bytes, records=records)))
    cut_off = batches(those, spill_bytes=spill_bytes, records=records, cut=cut)
    rest = batches(those, spill_bytes=spill_bytes, records=records, first=cut, cut=cut)

    assert list(partials(cut_off)) == whole
    assert cut in {batch.end for batch in cut_off}
    assert list(partials(rest)) == [each for each in whole if part_of(each) >= cut]
    assert rest == [batch for batch in cut_off if batch.end > cut]
