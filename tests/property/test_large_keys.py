"""A key with more values, or more windows, than fit into memory: what is emitted is what is emitted in memory."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self
from unittest.mock import patch

import attrs
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import dataflow as df
from dataflow.columns import PairColumns
from runners.batch.spill import spilled_groups
from runners.batch.spill.file_values import FileValues
from runners.batch.spill.large_key import PIECE_BYTES, LargeKey
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.ground.bundle import Bundle
from runners.core.partials.merging import PartialMerging
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from tests.columnar import note_bundles
from tests.property.test_spilled_groups import blobs, clock, plain
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window
from windowing.window_fn import Merge, MergingWindowFn

US = 1_000_000
FOR_EVER = 1 << 40

#: Key, value, and seconds of event time; mostly of one key, in chunks, as blobs bring them.
KEYS = st.sampled_from([0, 0, 0, 0, 1, 2])
RECORDS = st.tuples(KEYS, st.integers(0, 999), st.integers(0, 300))
CHUNKS = st.lists(st.lists(RECORDS, min_size=1, max_size=30), min_size=1, max_size=12)
Chunks = Sequence[Sequence[tuple[int, int, int]]]


class Parity(Window):
    """A window that differs from another one in more than its bounds."""

    # Tuples compare by content: a third field makes it another window.
    def __new__(cls, start_us: int, end_us: int, parity: int = 0) -> Self:
        return tuple.__new__(cls, (start_us, end_us, parity))

    def __getnewargs__(self) -> Any:
        return tuple(self)


@attrs.frozen
class Parities(df.WindowFn):
    """Windows of a minute, of even and odd seconds."""

    def assign_windows(self, timestamp_us: int, element: Any) -> Sequence[Window]:
        start_us = timestamp_us // (60 * US) * 60 * US
        return [Parity(start_us, start_us + 60 * US, timestamp_us // US % 2)]


@attrs.frozen
class Touching(MergingWindowFn):
    """Half minutes of which those that touch merge as well: user code decides, and has to see all windows."""

    def assign_windows(self, timestamp_us: int, element: Any) -> Sequence[Window]:
        start_us = timestamp_us // (30 * US) * 30 * US
        return [Window(start_us, start_us + 30 * US)]

    def merge_windows(self, windows: Iterable[Window]) -> Sequence[Merge]:
        chains: list[list[Window]] = []
        for window in sorted(windows):
            if chains and window.start_us <= max(each.end_us for each in chains[-1]):
                chains[-1].append(window)
            else:
                chains.append([window])
        return [
            Merge(Window(chain[0].start_us, max(each.end_us for each in chain)), tuple(chain))
            for chain in chains
            if len(chain) > 1
        ]


class Distinct(df.CombineFn):
    """A user's own, whose accumulators are as large as their outputs."""

    def create_accumulator(self) -> set[int]:
        return set()

    def add_input(self, accumulator: set[int], value: int) -> set[int]:
        return accumulator | {value}

    def merge_accumulators(self, accumulators: Iterable[set[int]]) -> set[int]:
        return set().union(*accumulators)

    def extract_output(self, accumulator: set[int]) -> set[int]:
        return set(accumulator)


WINDOW_FNS = [
    df.GlobalWindows(),
    df.FixedWindows(20),
    df.SlidingWindows(60, period=30),
    df.Sessions(2),
    df.Sessions(20),
    Parities(),
    Touching(),
]
GROUPINGS: dict[str, df.PTransform[Any, Any]] = {
    "list": df.GroupByKey(),
    "sum": df.CombinePerKey(sum),
    "distinct": df.CombinePerKey(Distinct()),
}


class Run:
    """A key range, replayed."""

    def __init__(
        self,
        chunks: Chunks,
        kind: str,
        window_fn: df.WindowFn,
        spill_bytes: int = FOR_EVER,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        p = df.Pipeline()
        records = [
            df.TimestampedValue((key, value), at) for part in chunks for key, value, at in part
        ]
        windowed = p | df.Create(records) | df.WindowInto(window_fn)
        windowed | GROUPINGS[kind] | df.Map(lambda pair: pair)
        planned = plan(p.graph())
        (stage,) = planned.groupings()
        grouping = GroupingStage(planned, stage, is_time_sorted=True)
        self.groups = SpilledGroups(
            grouping, clock(MIN_TIMESTAMP_US), clock(MAX_TIMESTAMP_US), spill_bytes
        )
        self.bundles: list[Bundle] = []
        note_bundles(grouping.executor, self.bundles)
        #: How many accumulators were merged in one go, each time.
        self.merged: list[int] = []
        merge = PartialMerging.accumulator

        def merged(merging: PartialMerging, accumulators: Sequence[Any]) -> Any:
            self.merged.append(len(accumulators))
            return merge(merging, accumulators)

        small = partial(LargeKey, piece_bytes=piece_bytes)
        with (
            patch.object(spilled_groups, "LargeKey", small),
            patch.object(PartialMerging, "accumulator", merged),
        ):
            for _ in self.groups.steps(blobs(planned, chunks)):
                pass

    @property
    def emitted(self) -> Iterator[tuple[Any, Window, Any]]:
        for bundle in self.bundles:
            assert not isinstance(bundle.values, PairColumns)
            for (key, value), window in zip(bundle.values, bundle.windows or [], strict=True):
                yield key, window, value

    @property
    def in_files(self) -> int:
        return sum(isinstance(value, FileValues) for _, _, value in self.emitted)


def by_window(run: Run, window_fn: df.WindowFn) -> dict[Any, Any]:
    """What is emitted for each key and window; each is emitted once."""
    found: dict[Any, Any] = {}
    for key, window, value in run.emitted:
        assert (key, window) not in found
        found[key, window] = plain(value, window_fn)
        if isinstance(value, FileValues):
            assert len(value) == len(list(value))
            assert [value[at] for at in range(len(value))] == list(value)
    return found


@given(
    chunks=CHUNKS,
    kind=st.sampled_from(list(GROUPINGS)),
    window_fn=st.sampled_from(WINDOW_FNS),
    spill_bytes=st.integers(0, 2_000),
    piece_bytes=st.sampled_from([1, 60, PIECE_BYTES]),
)
def test_a_large_key_emits_what_it_emits_in_memory(
    chunks: Chunks, kind: str, window_fn: df.WindowFn, spill_bytes: int, piece_bytes: int
) -> None:
    in_memory = Run(chunks, kind, window_fn)
    spilled = Run(chunks, kind, window_fn, spill_bytes, piece_bytes)
    event(f"files were needed: {spilled.groups.spills > 0}; groups in them: {spilled.in_files > 0}")

    assert by_window(in_memory, window_fn) == by_window(spilled, window_fn)
    ends: dict[Any, list[int]] = defaultdict(list)
    for key, window, _ in spilled.emitted:
        ends[key].append(window.end_us)
    assert all(each == sorted(each) for each in ends.values())


@pytest.mark.slow
@pytest.mark.parametrize("piece_bytes", [60, PIECE_BYTES])
@pytest.mark.parametrize("window_fn", WINDOW_FNS[:-1], ids=str)
def test_a_group_that_does_not_fit_is_a_sequence_over_a_file(
    window_fn: df.WindowFn, piece_bytes: int
) -> None:
    chunks = [[(0, at, at % 7) for at in range(start, start + 50)] for start in range(0, 2_000, 50)]

    run = Run(chunks, "list", window_fn, 2_000, piece_bytes)

    assert run.in_files == len(list(run.emitted)) > 0
    assert {len(bundle) for bundle in run.bundles} == {1}
    assert by_window(run, window_fn) == by_window(Run(chunks, "list", window_fn), window_fn)


def test_many_small_windows_of_a_key_are_lists_and_emitted_in_parts() -> None:
    chunks = [
        [(0, at, 20 * at) for at in range(start, start + 50)] for start in range(0, 2_000, 50)
    ]

    run = Run(chunks, "list", df.FixedWindows(20), spill_bytes=20_000)

    assert run.in_files == 0
    assert len(run.bundles) > 10
    assert [value for _, _, value in run.emitted] == [[at] for at in range(2_000)]


def test_accumulators_of_a_large_key_are_merged_a_few_at_a_time() -> None:
    """Only so many are in memory as it may hold, and not all that there are."""
    chunks = [[(0, at, 0) for at in range(start, start + 50)] for start in range(0, 5_000, 50)]

    run = Run(chunks, "distinct", df.GlobalWindows(), spill_bytes=2_000)

    assert run.groups.spills > 0
    assert sum(run.merged) >= len(chunks)
    assert max(run.merged) < len(chunks) / 4
    assert [value for _, _, value in run.emitted] == [set(range(5_000))]


@pytest.mark.parametrize("kind", list(GROUPINGS))
def test_what_only_memory_can_keep_is_kept(kind: str) -> None:
    """User code that merges windows has to see all of them."""
    chunks = [
        [(0, at, at % 300) for at in range(start, start + 50)] for start in range(0, 1_000, 50)
    ]

    run = Run(chunks, kind, Touching(), spill_bytes=500)

    assert run.groups.spills == 0
    assert by_window(run, Touching()) == by_window(Run(chunks, kind, Touching()), Touching())


@pytest.mark.slow
def test_a_large_key_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of all records on one key, and the rest on many: it does not go through one bucket after the other."""
    written: dict[Any, int] = defaultdict(int)
    add = LargeKey.add

    def counting(large: LargeKey, partial: Any) -> None:
        written[large.key] += partial[3]
        add(large, partial)

    monkeypatch.setattr(LargeKey, "add", counting)
    chunks = [
        [(at % 2 * (1 + at // 2 % 997), at, 0) for at in range(start, start + 1_000)]
        for start in range(0, 30_000, 1_000)
    ]

    run = Run(chunks, "list", df.GlobalWindows(), spill_bytes=20_000)

    assert written[0] == 15_000
    assert sum(written.values()) < 16_000
    assert by_window(run, df.GlobalWindows()) == by_window(
        Run(chunks, "list", df.GlobalWindows()), df.GlobalWindows()
    )


def test_files_go_when_groups_are_read_and_for_certain_at_the_end() -> None:
    chunks = [[(key, at, 0) for at in range(200)] for key in (0, 1) for _ in range(20)]
    run = Run(chunks, "list", df.GlobalWindows(), spill_bytes=2_000)
    kept = [value for _, _, value in run.emitted]
    assert run.in_files == 2
    run.bundles.clear()

    del kept[0]
    assert len(run.groups._files) == 1
    run.groups.close()
    with pytest.raises(df.TransformError, match="the task that grouped them had ended"):
        list(kept[0])
