"""Views and elements that do not fit into the memory of a batch task are in a file, and say the same."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import SideInputs
from dataflow.views import ViewEnd, ViewPart
from runners.batch.spill import spilled_groups
from runners.batch.spill.filed_cells import FiledCells, PageFile
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.ground.cells import PageId
from runners.core.side_inputs import arriving_views, side_inputs_machine
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.stored.partials import encode_partials
from runners.testing.scripted_source import ScriptedSource
from tests.effort import costly
from tests.property.test_spilled_groups import clock
from windowing.pane import NO_FIRING
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

Patch = pytest.MonkeyPatch
FORMS: dict[str, Any] = {
    "dict": df.AsDict,
    "multi-map": df.AsMultiMap,
    "iterable": df.AsIter,
    "sequence": df.AsList,
}
WINDOWS = [Window(0, 10), Window(10, 20)]
SHARDS = 3


def asked(x: int, view: Any) -> tuple[Any, ...]:
    if isinstance(view, list) or not hasattr(view, "keys"):
        return x, sum(1 for _ in view), sorted(map(repr, view))
    return x, repr(view.get(x)), len(view), x in view, sorted(map(repr, view.items()))


@attrs.frozen
class Arrivals:
    """What comes to the shards of a task.

    Attributes:
        views: by window.
        elements: with their windows.
        order: which of all these come first, as random numbers.
        together: how many come in one step.
        has_ends: whether an end says how many elements a view has, and not each part.
    """

    views: dict[Window, list[tuple[int, int]]]
    elements: list[tuple[Window, int]]
    order: list[int]
    together: int = 1
    has_ends: bool = False

    def blobs(self) -> Iterator[bytes]:
        """Views in parts, and elements, in any order."""
        came: list[Any] = []
        for window, pairs in self.views.items():
            for start in range(0, len(pairs), 4):
                count = None if self.has_ends else len(pairs)
                part = ViewPart(pairs[start : start + 4], count)
                came += [(shard, window, (0, part)) for shard in range(SHARDS)]
            if self.has_ends:
                end = ViewEnd(len(pairs))
                came += [(shard, window, (0, end)) for shard in range(SHARDS)]
        came += [(x % SHARDS, window, (None, x)) for window, x in self.elements]
        keys = itertools.cycle(self.order)
        placed = sorted(zip(keys, came, strict=False), key=lambda each: each[0])
        for start in range(0, len(placed), self.together):
            yield encode_partials(
                [
                    (shard, window, [(value, window.start_us, NO_FIRING, +1)], 1)
                    for _, (shard, window, value) in placed[start : start + self.together]
                ]
            )

    def answers(self, form: str) -> Counter[Any]:
        """What user code is to find, worked out from scratch."""
        found: Counter[Any] = Counter()
        for window, x in self.elements:
            pairs = self.views.get(window, [])
            view: Any = pairs
            if form == "dict":
                view = dict(pairs)
            elif form == "multi-map":
                view = {}
                for key, value in pairs:
                    view.setdefault(key, []).append(value)
            found[repr(asked(x, view))] += 1
        return found


def found_by(
    form: str, arrivals: Arrivals, spill_bytes: int, ask: Callable[..., Any] = asked
) -> tuple[Counter[Any], SpilledGroups]:
    """What user code has found in a task."""
    p = df.Pipeline()
    into = df.WindowInto(df.FixedWindows(10 / 1e6))
    sides: Any = p | "read" >> df.Read(ScriptedSource([])) | "side windows" >> into
    mains: Any = p | "main" >> df.Read(ScriptedSource([])) | "windows" >> into
    found: Counter[Any] = Counter()

    def look(x: int, view: Any) -> None:
        found[repr(ask(x, view))] += 1

    mains | "beside" >> df.Map(look, FORMS[form](sides, shards=SHARDS))
    planned = plan(p.graph())
    (stage,) = (each for each in planned.groupings() if isinstance(each.root.operation, SideInputs))
    grouping = GroupingStage(planned, stage, is_time_sorted=True)
    grouping.setup()
    ends = clock(MIN_TIMESTAMP_US), clock(MAX_TIMESTAMP_US)
    groups = SpilledGroups(grouping, *ends, spill_bytes=spill_bytes)
    with closing(groups):
        for step in groups.steps(arrivals.blobs()):
            assert not step.outputs.dead
    grouping.teardown()
    return found, groups


VIEWS = st.dictionaries(
    st.sampled_from(WINDOWS),
    st.dictionaries(st.integers(0, 40), st.integers(0, 9), min_size=1, max_size=40).map(
        lambda each: list(each.items())
    ),
)
ARRIVALS = st.builds(
    Arrivals,
    VIEWS,
    st.lists(st.tuples(st.sampled_from(WINDOWS), st.integers(0, 40)), max_size=30),
    st.lists(st.integers(0, 9), min_size=1, max_size=50),
    st.sampled_from([1, 4, 30]),
    st.booleans(),
)


@pytest.fixture(autouse=True)
def tiny_pages(monkeypatch: Patch) -> None:
    monkeypatch.setattr(spilled_groups, "PAGE_BYTES", 60)
    monkeypatch.setattr(side_inputs_machine, "FEW", 1)
    monkeypatch.setattr(arriving_views, "FEW", 1)
    monkeypatch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
    monkeypatch.setattr(side_inputs_machine, "DROPPED_PAGES", 3)
    monkeypatch.setattr(arriving_views, "MADE_PAGES", 1)
    monkeypatch.setattr(arriving_views, "BUCKET_PAGES", 1)


@costly(cells=len(FORMS))
@given(arrivals=ARRIVALS, spill_bytes=st.sampled_from([0, 500, 3_000]))
@pytest.mark.parametrize("form", FORMS)
def test_what_is_in_a_file_is_what_is_in_memory(
    form: str, arrivals: Arrivals, spill_bytes: int
) -> None:
    found, _ = found_by(form, arrivals, spill_bytes)
    assert found == arrivals.answers(form)


def arrivals_of_many(views: int = 2) -> Arrivals:
    pairs = [(each, each % 7) for each in range(300)]
    elements = [(window, x) for window in WINDOWS for x in range(0, 330, 11)]
    return Arrivals(dict.fromkeys(WINDOWS[:views], pairs), elements, [3, 1, 4, 1, 5, 9, 2, 6])


def check_all() -> None:
    for form, together, spill_bytes in itertools.product(
        ("dict", "iterable"), (1, 6, 60), (0, 100_000)
    ):
        arrivals = attrs.evolve(arrivals_of_many(), together=together)
        found, groups = found_by(form, arrivals, spill_bytes)
        # Not in the assertion itself: pytest would take half a minute to show the difference.
        is_right = found == arrivals.answers(form)
        assert is_right, form
        assert groups._pages.size_bytes, "nothing was in the file"


def free_all_places(patch: Patch) -> None:
    """A place is given to another page, and has this one still."""
    write = PageFile.write

    def freeing(file: PageFile, page_id: PageId, blob: bytes) -> None:
        write(file, page_id, blob)
        at, _, room = file._places[page_id]
        file._free[room].append(at)

    patch.setattr(PageFile, "write", freeing)


def go_with_the_first_part(patch: Patch) -> None:
    """A view is there when some of it is."""
    add = arriving_views.ArrivingView.add
    patch.setattr(
        arriving_views.ArrivingView,
        "add",
        lambda view, part: add(view, attrs.evolve(part, count=0)),
    )


def make_pages_of_all_buckets_but_one(patch: Patch) -> None:
    """What is in the last bucket of a view is nowhere."""
    make_some = arriving_views.ArrivingView._make_some

    def broken(view: arriving_views.ArrivingView, *args: Any) -> Any:
        view.buckets[-1].drop()
        view.buckets[-1].size, view.buckets[-1].last = 0, []
        return make_some(view, *args)

    patch.setattr(arriving_views.ArrivingView, "_make_some", broken)


MUTATIONS = [free_all_places, go_with_the_first_part, make_pages_of_all_buckets_but_one]


@pytest.mark.slow
def test_the_views_of_the_breakages_are_right() -> None:
    check_all()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_broken_is_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError, df.DataflowError)):
        check_all()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dict", "iterable"])
def test_in_memory_is_as_much_as_fits(form: str, monkeypatch: Patch) -> None:
    """Of a view of some 200 KB, in one shard, and of elements that wait."""
    most, changed = [0], FiledCells.changed

    def noting(cells: FiledCells, cell_ids: Sequence[Any]) -> None:
        changed(cells, cell_ids)
        most.append(cells.counts.bytes_buffered)

    monkeypatch.setattr(FiledCells, "changed", noting)
    monkeypatch.setattr(spilled_groups, "PAGE_BYTES", 4_000)
    pairs = [(each, f"{each:040}") for each in range(4_000)]
    arrivals = Arrivals({WINDOWS[0]: pairs}, [(WINDOWS[0], 3 * each) for each in range(9)], [1])  # type: ignore[dict-item]
    spill_bytes = 60_000

    found, groups = found_by(
        form,
        arrivals,
        spill_bytes,
        lambda x, view: (x, len(view)) if form == "dict" else (x, sum(1 for _ in view)),
    )
    assert found == Counter(repr((3 * each, 4_000)) for each in range(9))
    assert max(most) < spill_bytes
    assert 200_000 < groups._pages.size_bytes < 2_000_000
