"""State in pages over the real master and workers: what is emitted is what the direct runner emits, and no page stays.

Pages are so small that state of a few entries has several, and memory so small that most are read again and again.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.paged_state import PagedBag, PagedList, PagedMap
from dataflow.transforms import side_inputs
from runners.core.ground.cells import PageId
from runners.core.panes import group_also_by_window
from runners.core.side_inputs import arriving_views, side_inputs_machine
from runners.core.side_inputs.arriving_views import ArrivingView
from runners.core.stateful import stateful_do_fn
from runners.core.stateful.cell_pages import CellPages
from runners.core.stateful.keyed_state import KeyedState
from runners.direct import DirectRunner
from runners.millwheel.worker.state.cell_cache import CellCache
from runners.testing.simulator import SimulationError, dice, simulate
from tests.effort import by_profile
from tests.simulation.test_stateful_do_fns import never_late
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, batches, row

Patch = pytest.MonkeyPatch
PAGE_BYTES = 40
BAG, SET = df.BagStateSpec("bag"), df.SetStateSpec("set", ttl=200)
MAP, LIST = df.MapStateSpec("map", merge=max), df.OrderedListStateSpec("list")


@pytest.fixture(autouse=True)
def tiny_pages(monkeypatch: Patch) -> None:
    steps = [attrs.evolve(each, page_bytes=PAGE_BYTES, compacted=2) for each in dice.STEPS]
    monkeypatch.setattr(dice, "STEPS", tuple(steps))
    monkeypatch.setattr(dice, "CACHES_BYTES", (0, 0, 4_000, None))
    monkeypatch.setattr(stateful_do_fn, "FEW", 1)


def tiny_parts(patch: Patch) -> None:
    """Have side inputs go in parts of a few elements, be in pages as soon as they come, and be made in steps."""
    patch.setattr(side_inputs, "PART_VALUES", 1)
    patch.setattr(group_also_by_window, "PASSED_VALUES", 3)
    for module in (side_inputs_machine, arriving_views):
        patch.setattr(module, "FEW", 1)
    patch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)
    patch.setattr(side_inputs_machine, "DROPPED_PAGES", 3)
    # With 4 rows are right too, but each version of a view takes so many steps that jobs do not end in time.
    patch.setattr(arriving_views, "MADE_PAGES", 16)
    patch.setattr(arriving_views, "BUCKET_PAGES", 1)
    # So few that some have more pages than are made in one step, and are divided once more.
    patch.setattr(arriving_views, "BUCKETS_MAX", 2)


class Gathering(df.DoFn):
    """Keeps values in every way, and says now and then what it has."""

    requires_time_sorted_input = True

    def process(
        self,
        element: tuple[int, int],
        /,
        at: Any = df.DoFn.TimestampParam,
        bag: Any = df.DoFn.StateParam(BAG),
        set_: Any = df.DoFn.StateParam(SET),
        map_: Any = df.DoFn.StateParam(MAP),
        list_: Any = df.DoFn.StateParam(LIST),
    ) -> Iterator[Any]:
        key, value = element
        bag.add(value)
        is_new = set_.add(value % 40)
        before = map_.get(value % 30, 0)
        map_.put(value % 30, value)
        list_.add((at, value))
        if value % 7 == 0:
            set_.remove(value % 11)
            map_.remove(value % 13)
            list_.clear_range(at - timedelta(seconds=90), at - timedelta(seconds=40))
        if value % 31 == 0:
            bag.clear()
        recent = [each for _, each in list_.read_range(at - timedelta(seconds=20), at)]
        yield key, hash((is_new, before, *recent)) % 1_000_003

    @df.on_window_expiration
    def last(
        self,
        key: Any = df.DoFn.KeyParam,
        bag: Any = df.DoFn.StateParam(BAG),
        set_: Any = df.DoFn.StateParam(SET),
        map_: Any = df.DoFn.StateParam(MAP),
        list_: Any = df.DoFn.StateParam(LIST),
    ) -> Iterator[Any]:
        everything = (*bag.read(), *set_.read(), *map_.items(), *(each for _, each in list_.read()))
        yield key, hash(everything) % 1_000_003


def build(p: df.Pipeline, source: df.Source) -> None:
    pairs: Any = (
        p
        | "read" >> df.Read(source)
        | "pair" >> df.Map(lambda v: (v % 2, v))
        | "long" >> df.WindowInto(df.FixedWindows(300))
    )
    (
        pairs
        | "gather" >> df.ParDo(Gathering())
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )


def check(
    script: list[list[tuple[int, int]]],
    seed: int,
    crash_rate: float,
    build: Callable[[df.Pipeline, df.Source], None] = build,
) -> None:
    direct = df.Pipeline(DirectRunner())
    build(direct, never_late(script))
    expected = direct.run()
    cluster = Cluster(direct.graph(), seed, crash_rate)
    cluster.run()

    for spec in direct.graph().tables():
        rows = sorted(tuple(each.values()) for each in expected.read_table(spec.name))
        assert rows == sorted(cluster.store.read_table(spec)), f"seed={seed}"
    statistics = cluster.store.statistics("sim")
    found = tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))
    assert found == (0, 0, 0), f"seed={seed}: cells, timers and checkpoints are left"


@pytest.mark.slow
@settings(max_examples=by_profile(3, nightly=2_500))
@given(batches=batches, seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_rows_equal_the_direct_runners_and_no_page_stays(
    crash_rate: float, batches: list[list[tuple[int, int]]], seed: int
) -> None:
    check(batches, seed, crash_rate)


def build_sessions(p: df.Pipeline, source: df.Source) -> None:
    """State of windows that merge: of long ones, and of short ones beside them."""
    values: Any = p | "read" >> df.Read(source)
    (
        values
        | "pair" >> df.Map(lambda v: (v % 2, v))
        | "sessions" >> df.WindowInto(df.Sessions(9))
        | "gather" >> df.ParDo(Gathering())
        | "windows" >> df.WindowInto(df.FixedWindows(300))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )


@pytest.mark.slow
@settings(max_examples=by_profile(4, nightly=2_500))
@given(batches=batches, seed=st.integers(0, 2**32))
def test_sessions_merge_with_their_pages_whoever_dies(
    batches: list[list[tuple[int, int]]], seed: int
) -> None:
    check(batches, seed, 0.1, build_sessions)


@pytest.mark.slow
def test_pages_of_long_sessions_are_read_again(monkeypatch: Patch) -> None:
    read, need = set[Any](), CellCache.need_pages

    def reading(cache: CellCache, page_ids: Any, **how: Any) -> None:
        read.update(each.state[0] for each in page_ids if type(each.state) is tuple)
        need(cache, page_ids, **how)

    monkeypatch.setattr(CellCache, "need_pages", reading)
    for seed in range(by_profile(4, nightly=1_000)):
        check(SCRIPT, seed, 0.1, build_sessions)

    assert read == {"bag", "set", "map", "list"}


def build_views(p: df.Pipeline, source: df.Source) -> None:
    """Views that grow pane by pane, and elements for which it does not matter which of them they are given."""
    values: Any = p | "read" >> df.Read(source)
    thirds = (
        values
        | "thirds" >> df.Filter(lambda value: value % 3 == 0)
        | "side windows"
        >> df.WindowInto(
            df.FixedWindows(300),
            trigger=df.AfterWatermark(early=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING,
        )
    )
    (
        values
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "see" >> df.Map(seen, df.AsList(thirds, shards=2, retracts=False))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )


def seen(value: int, view: list[int]) -> tuple[int, int]:
    assert all(each % 3 == 0 for each in view)
    return value % 5, value


@pytest.mark.slow
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_elements_that_wait_and_views_are_in_pages(crash_rate: float, monkeypatch: Patch) -> None:
    """Pages of what a shard has are read again, whoever takes it over, and go with it."""
    tiny_parts(monkeypatch)
    read, need = set[str](), CellCache.need_pages

    def reading(cache: CellCache, page_ids: Any, *how: Any) -> None:
        read.update(each.state[0] for each in page_ids)
        need(cache, page_ids, *how)

    monkeypatch.setattr(CellCache, "need_pages", reading)
    for seed in range(by_profile(2, nightly=1_000)):
        check(SCRIPT, seed, crash_rate, build_views)
    simulate("sides", seeds=by_profile(1, nightly=2_000))

    assert {side_inputs_machine.WAITING, side_inputs_machine.VIEWS} <= read


def build_retracted(p: df.Pipeline, source: df.Source) -> None:
    """Elements that are retracted, beside two views that they follow, and one of which each keeps its version.

    The elements of one view are retracted themselves.
    """
    values: Any = p | "read" >> df.Read(source)
    windowed = [
        values
        | f"windows {mode.name}"
        >> df.WindowInto(
            df.FixedWindows(300),
            trigger=df.AfterWatermark(early=df.AfterCount(3)),
            allowed_lateness=300,
            accumulation_mode=mode,
        )
        for mode in (RETRACTING, df.AccumulationMode.ACCUMULATING)
    ]
    sums = windowed[0] | "pair" >> df.Map(lambda v: (v % 23, v)) | "totals" >> df.CombinePerKey(sum)
    by_six = (
        windowed[0] | "sixth" >> df.Map(lambda v: (v % 6, v)) | "by six" >> df.CombinePerKey(sum)
    )
    thirds, fifths = [
        each | f"every {n}" >> df.Filter(lambda value, n=n: value % n == 0)
        for each, n in zip(windowed, (3, 5), strict=True)
    ]
    (
        sums
        | "beside"
        >> df.Map(
            seen_now, df.AsIter(thirds, shards=2), df.AsList(fifths, shards=2), df.AsDict(by_six)
        )
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS, key=["key", "start"])
    )


RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING


def seen_now(
    total: tuple[int, int], thirds: Any, fifths: list[int], by_six: Any
) -> tuple[int, int]:
    """Of the second view only what is the same in all versions: that whoever retracts it has the same one."""
    assert all(each % 5 == 0 for each in fifths)
    key, value = total
    return key % 5, hash((value, *sorted(thirds), *sorted(by_six.items()))) % 1_000_003


@pytest.mark.slow
@pytest.mark.parametrize("crash_rate", [pytest.param(0.0, marks=pytest.mark.nightly), 0.1])
def test_elements_that_are_retracted_are_in_pages(crash_rate: float, monkeypatch: Patch) -> None:
    """What was emitted is read again by whoever takes a shard over, and goes with its window."""
    tiny_parts(monkeypatch)
    read, need = set[str](), CellCache.need_pages

    def reading(cache: CellCache, page_ids: Any, *how: Any) -> None:
        read.update(each.state[0] for each in page_ids)
        need(cache, page_ids, *how)

    monkeypatch.setattr(CellCache, "need_pages", reading)
    for seed in range(by_profile(2, nightly=1_000)):
        check(SCRIPT, seed, crash_rate, build_retracted)

    assert {side_inputs_machine.KEPT, side_inputs_machine.VIEWS} <= read


def build_lookups(p: df.Pipeline, source: df.Source) -> None:
    """Views that are complete when they are seen, so that each element has one answer."""
    values: Any = p | "read" >> df.Read(source)
    pairs = (
        values
        | "pairs" >> df.Map(lambda value: (value % 11, value))
        | "side windows" >> df.WindowInto(df.FixedWindows(300))
    )
    sums = pairs | "side sums" >> df.CombinePerKey(sum)
    (
        values
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "look up"
        >> df.Map(looked_up, df.AsDict(sums, shards=2), df.AsMultiMap(pairs), df.AsIter(pairs))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(row)
        | "sums" >> df.WriteToPostgres("sums", columns=COLUMNS)
    )


def looked_up(value: int, sums: Any, pairs: Any, every: Any) -> tuple[int, int]:
    key = value % 11
    assert sums[key] == sum(pairs[key]) == sum(each for other, each in every if other == key)
    found = (sums[key], sums.get(key + 1), len(pairs), sorted(pairs.items()) == [])
    return value % 5, hash((*found, *sorted(pairs[key]))) % 1_000_003


@pytest.mark.slow
@pytest.mark.parametrize("crash_rate", [pytest.param(0.0, marks=pytest.mark.nightly), 0.1])
def test_what_is_looked_up_is_what_the_direct_runner_finds(
    crash_rate: float, monkeypatch: Patch
) -> None:
    tiny_parts(monkeypatch)
    read, forms, need = set[str](), set[type](), CellCache.need_pages

    def reading(cache: CellCache, page_ids: Any, *how: Any) -> None:
        if how:
            read.update(each.state[0] for each in page_ids)
        need(cache, page_ids, *how)

    whole = ArrivingView.whole

    def making(*args: Any) -> Any:
        made = whole(*args)
        forms.add(type(made))
        return made

    monkeypatch.setattr(CellCache, "need_pages", reading)
    monkeypatch.setattr(ArrivingView, "whole", making)
    for seed in range(by_profile(2, nightly=1_000)):
        # Each element looks at all of three views: twice as long costs four times as much.
        check(SCRIPT[:13], seed, crash_rate, build_lookups)

    assert read == {side_inputs_machine.VIEWS}
    # And a map that is being made is none yet.
    assert {PagedBag, PagedMap, type(None)} <= forms


#: Long enough that state of every kind is in pages.
SCRIPT = [[(7 * number % 97, 3 * number + 2 * each) for each in range(4)] for number in range(25)]
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 60


@pytest.mark.slow
def test_state_of_every_kind_is_in_pages_and_read_again(monkeypatch: Patch) -> None:
    made, read = set[str](), list[PageId]()
    for kind in (PagedBag, PagedMap, PagedList):
        of = kind.of.__func__  # type: ignore[attr-defined]

        def noting(cls: Any, entries: Any, pages: Any, state: str, *args: Any, of: Any = of) -> Any:
            made.add(state)
            return of(cls, entries, pages, state, *args)

        monkeypatch.setattr(kind, "of", classmethod(noting))
    need = CellCache.need_pages

    def reading(cache: CellCache, page_ids: Any, *how: Any) -> None:
        read.extend(page_ids)
        need(cache, page_ids, *how)

    monkeypatch.setattr(CellCache, "need_pages", reading)
    check_all(range(6))

    assert made == {"bag", "set", "map", "list"} == {each.state for each in read}


def check_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        check(SCRIPT, seed, 0.1)


def leave_pages_behind(patch: Patch) -> None:
    """The window goes, its pages stay."""
    patch.setattr(KeyedState, "drop_pages", lambda _: None)


def delete_only_what_is_in_memory(patch: Patch) -> None:
    """A page that was never read is not known to be stored."""
    patch.setattr(CellCache, "is_stored", lambda cache, cell_id: cell_id in cache._stored)


def write_the_state_and_not_its_pages(patch: Patch) -> None:
    """What has changed in a page is in memory alone."""
    patch.setattr(CellPages, "take_touched", lambda _: {})


def split_no_page(patch: Patch) -> None:
    """What moves to a new page is in neither."""
    put = CellPages.put

    def broken(pages: CellPages, state: Any, number: int, entries: Any) -> None:
        put(pages, state, number, {} if isinstance(entries, dict) else entries)

    patch.setattr(CellPages, "put", broken)


MUTATIONS: list[Callable[[Patch], None]] = [
    leave_pages_behind,
    delete_only_what_is_in_memory,
    write_the_state_and_not_its_pages,
    split_no_page,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_broken_pages_are_found(mutation: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutation(monkeypatch)

    with pytest.raises((AssertionError, KeyError, SimulationError, df.DataflowError)):
        check_all(range(SEEDS_MAX))
