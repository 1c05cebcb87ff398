"""StoredCells: page after page, all cells of a range in the order of their hashes, and none of one hash divided."""

from hypothesis import given
from hypothesis import strategies as st

from runners.core.ground.cells import CellId
from runners.core.ground.key_codec import KeyCodec
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.state.stored_cells import StoredCells
from windowing.window import Window

LOW, HIGH = RangeId("count", 0), RangeId("count", 1)
CELLS = st.tuples(st.integers(0, 9), st.integers(0, 3).map(lambda start: Window(start, start + 1)))


@given(cells=st.sets(CELLS), cells_max=st.integers(1, 7))
def test_pages_are_all_cells_in_order(cells: set[tuple[int, Window]], cells_max: int) -> None:
    """The hash that goes with a page shows exactly which cells have had their turn."""
    store = MemoryStore()
    ranges = [
        RangeSpec(range_id=each, keys=keys)
        for each, keys in zip((LOW, HIGH), even_ranges(2), strict=True)
    ]
    store.open_job(JobSpec(job="job", mode="streaming", fingerprint="f", ranges=ranges))
    taken = store.acquire("job", [LOW, HIGH], "me")
    owned = {range_id: OwnedRange.taken(each) for range_id, each in taken.items()}
    stored = StoredCells(store, "job", "count", KeyCodec("test"), is_merging=False, owned=owned)
    fences = [Fence(range_id=each, token=taken[each].row.token, bundle=1) for each in (LOW, HIGH)]
    values: dict[CellId, bytes] = {cell_id: repr(cell_id).encode() for cell_id in cells}
    writes = [
        CellWrite("count", *stored.key_of(cell_id), value) for cell_id, value in values.items()
    ]
    assert store.commit(Production(job="job", fences=fences, cells=writes)) == Committed()

    seen: dict[CellId, bytes] = {}
    for each in owned.values():
        first_hash = 0
        pages = list(stored.pages(each, cells=cells_max))
        for page, next_hash in pages:
            hashes = [stored.key_of(cell_id)[0] for cell_id in page]
            assert hashes == sorted(hashes)
            assert all(first_hash <= key_hash for key_hash in hashes)
            assert not next_hash or all(key_hash < next_hash for key_hash in hashes)
            assert len(page) <= cells_max + 3
            assert not seen.keys() & page.keys()
            seen |= page
            first_hash = next_hash
        assert [bool(next_hash) for _, next_hash in pages] == [True] * (len(pages) - 1) + [False]
    assert seen == values
    assert dict(stored.read([*cells, (99, Window(0, 1))])) == values
