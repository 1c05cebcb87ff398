"""Batches of parts of a key range are as small as they may be, and know their size."""

from hypothesis import given
from hypothesis import strategies as st

from runners.batch.backfill.key_parts import PARTS, KeyParts


@given(
    counts=st.dictionaries(st.integers(0, PARTS - 1), st.integers(1, 9), max_size=30),
    records=st.integers(1, 20),
    cut=st.integers(1, PARTS),
    first=st.integers(0, PARTS - 1),
)
def test_a_batch_ends_where_it_has_enough_or_is_cut(
    counts: dict[int, int], records: int, cut: int, first: int
) -> None:
    parts = KeyParts(first=first, spill_bytes=1 << 20)
    parts._records.update(counts)
    parts._sizes.update({part: 100 * count for part, count in counts.items()})
    begin = first
    for batch in parts.batches(records, cut):
        end = batch.end
        found = [counts.get(part, 0) for part in range(begin, end)]

        assert sum(found) >= records or end in (cut, PARTS)
        assert sum(found[:-1]) < records
        assert not begin < cut < end
        assert batch.size_bytes == 100 * sum(found)
        begin = end
    assert begin == PARTS
