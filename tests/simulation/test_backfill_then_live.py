"""A job whose backfill is loaded by the batch engine and that then goes live ends as one that was a stream all along.

The shipped pipelines (sessions, chains of groupings, state, timers of both kinds, signals, percentiles, ids of records,
sources that break their word) with a cut anywhere; backfills and workers that die.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.graph import PipelineGraph
from runners.batch.backfill import end as backfill_end
from runners.batch.backfill import key_parts
from runners.batch.backfill.end import GroupsInParts
from runners.batch.backfill.key_parts import PARTS, KeyParts
from runners.batch.backfill.left_state import LeftState
from runners.batch.backfill.split_reader import SplitReader
from runners.batch.backfill.writer import BackfillWriter
from runners.batch.range_writer import RangeWriter
from runners.batch.spill.filed_cells import FiledCells
from runners.core.ground.cells import PageId
from runners.core.side_inputs import arriving_views, side_inputs_machine
from runners.core.stages.deduplication import SplitIds
from runners.millwheel.control import backfill_progress
from runners.millwheel.control.backfill_progress import BackfillState, backfill_state
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.commit_or_resolve import CommitResult
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Indeterminate, RangeRow
from runners.stored.places import ReadSoFar, SplitMark
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator import ALL_FAULTS
from runners.testing.simulator.cluster import SimulatedCluster
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.pipelines import LATENESS, PIPELINES, TRIGGERS, NamedPipeline
from runners.testing.simulator.scripts import SECONDS, truthful
from runners.testing.simulator.simulation import Simulation
from tests.backfill_jobs import LocalBackfill
from tests.effort import by_profile, each_third
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Of each pipeline, with crashes and without.
SEEDS = by_profile(4, nightly=5_000)
US_PER_SECOND = 1_000_000
#: Far more than any of the mutations needs to be found.
SEEDS_MAX = 300
#: Of the pipeline with side inputs: two with which several pages are left, some of them committed alone.
LEAVE_PAGES = (33, 71)


def _with_holds(p: df.Pipeline, random: Random) -> None:
    """Two sources, and a grouping of panes that are as early as their first record: what is open holds time back."""
    sources = (
        p | "one" >> df.Read(truthful(random)),
        p | "two" >> df.Read(truthful(random)),
    )
    first = (
        sources
        | df.Flatten()
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            timestamp_combiner=df.TimestampCombiner.EARLIEST,
        )
        | "first" >> df.GroupByKey()
    )
    (
        first
        | "flatten" >> df.FlatMap(lambda pair: [(pair[0] % 2, value) for value in pair[1]])
        | "again" >> df.WindowInto(df.FixedWindows(20))
        | "second" >> df.GroupByKey()
    )


class _Growing(df.Source):
    """A script of which more is there whenever the backfill is begun again."""

    there = 0

    def __init__(self, script: Sequence[Batch]) -> None:
        self._inner = ScriptedSource(script)

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _GrowingReader(self._inner.open(split, position, fence=fence), position or 0)


class _GrowingReader(df.SourceReader):
    def __init__(self, inner: df.SourceReader, position: int) -> None:
        self._inner, self._position = inner, position

    def read(self, max_records: int) -> df.SourceBatch:
        if self._position >= _Growing.there:
            return df.SourceBatch(
                values=[],
                timestamps_us=[],
                position=self._position,
                watermark_us=MIN_TIMESTAMP_US,
                status=df.SplitStatus.IDLE,
            )
        batch = self._inner.read(max_records)
        self._position = batch.position
        return batch


def _growing(p: df.Pipeline, random: Random) -> None:
    """Two groupings of input that has become more when it is read again."""
    script = [
        Batch([(random.randrange(9), number)], [number * US_PER_SECOND], number * US_PER_SECOND)
        for number in range(12)
    ]
    records = p | "read" >> df.Read(_Growing(script))
    for name in ("group", "other"):
        (
            records
            | f"windows of {name}"
            >> df.WindowInto(
                df.Sessions(3),
                trigger=random.choice(TRIGGERS),
                accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
                allowed_lateness=LATENESS,
            )
            | name >> df.GroupByKey()
        )


MORE = [
    NamedPipeline(name="with holds", build=_with_holds),
    NamedPipeline(name="growing", build=_growing, whole="group"),
]
ALL = {each.name: each for each in [*PIPELINES.values(), *MORE]}


class _Backfill(LocalBackfill):
    def run_once(self) -> None:
        _Growing.there += 1
        super().run_once()


class _Loaded:
    """Makes a store with the backfill of a pipeline in it, up to a point that the seed decides."""

    def __init__(self, seed: int, crash_rate: float) -> None:
        self._seed, self._crash_rate = seed, crash_rate
        self.crashes = 0
        #: What there was when it had been loaded, by kind.
        self.found: Counter[str] = Counter()

    def __call__(self, graph: PipelineGraph) -> MemoryStore:
        random = Random(f"cut {self._seed}")
        until_us = random.choice([None, random.randrange(SECONDS) * US_PER_SECOND])
        store = MemoryStore()
        _Growing.there = 0
        backfill = _Backfill(
            graph, store, self._seed, until_us=until_us, crash_rate=self._crash_rate
        )
        backfill.run()
        _Growing.there = 1 << 40
        self.crashes = backfill.crashes
        self.found.update({name for name, count in store.statistics("sim").items() if count})
        self.found["rows"] += any(store.read_table(table) for table in graph.tables())
        job = store.read_job("sim")
        assert job is not None
        assert backfill_state(job) is BackfillState.LOADED
        self.found["finished sources"] += any(row.is_finished for row in job.ranges.values())
        assert not store.statistics("sim")["late"]
        return store


def run(pipeline: str, seed: int, crash_rate: float) -> _Loaded:
    """The backfill, with crashes of its own; then live, with all faults; and look at all of it."""
    named, loaded = ALL[pipeline], _Loaded(seed, crash_rate)
    try:
        Simulation(
            named.build,
            seed,
            faults=ALL_FAULTS,
            tables=named.tables,
            whole=named.whole,
            store=loaded,
        ).run()
    except BaseException as error:
        error.add_note(f"pipeline {pipeline}, crash_rate {crash_rate}, seed {seed}")
        raise
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("crash_rate", [0.0, 0.05])
@pytest.mark.parametrize("pipeline", each_third(ALL, 1))
def test_the_fold_of_backfill_and_live_is_that_of_one_run(pipeline: str, crash_rate: float) -> None:
    crashes, found = 0, Counter[str]()
    for seed in range(SEEDS):
        loaded = run(pipeline, seed, crash_rate)
        crashes += loaded.crashes
        found += loaded.found

    assert (crashes > 0) == (crash_rate > 0)
    # Of these tests: most cuts are somewhere in the middle.
    assert min(found[kind] for kind in ("cells", "timers", "rows")) >= SEEDS / 8, found
    assert found["record_ids"] > 0 or pipeline != "retries"


Patch = pytest.MonkeyPatch


def in_tiny_pages(patch: Patch) -> None:
    """All that a shard with side inputs has is in pages."""
    patch.setattr(backfill_end, "PAGE_BYTES", 60)
    patch.setattr(backfill_end, "STEP_BYTES", 200)
    patch.setattr(side_inputs_machine, "FEW", 1)
    patch.setattr(arriving_views, "FEW", 1)
    patch.setattr(side_inputs_machine, "RELEASED_PAGES", 1)


def check_sides_in_pages() -> tuple[int, int]:
    """Views and elements in pages, with crashes; how many pages were left, and how often some were committed alone."""
    left, alone = [0], [0]
    add_page, commit_pages = LeftState.add_page, BackfillWriter.commit_pages

    def leaving(state: LeftState, page_id: PageId, value: bytes) -> None:
        left[0] += 1
        add_page(state, page_id, value)

    def committing(writer: BackfillWriter, pages: Sequence[CellWrite]) -> None:
        alone[0] += 1
        commit_pages(writer, pages)

    with pytest.MonkeyPatch.context() as patch:
        in_tiny_pages(patch)
        patch.setattr(LeftState, "add_page", leaving)
        patch.setattr(BackfillWriter, "commit_pages", committing)
        for seed in [*LEAVE_PAGES, *range(by_profile(2, nightly=5_000))]:
            run("sides", seed, 0.05 * (seed % 2))
    return left[0], alone[0]


@pytest.mark.slow
def test_views_that_a_backfill_leaves_in_pages_are_what_a_stream_would_have() -> None:
    left, alone = check_sides_in_pages()
    assert left > alone > 2


def forget_pages_in_the_file(patch: Patch) -> None:
    """A stream comes to a page that is not there."""
    patch.setattr(FiledCells, "evicted", lambda _: ())


def name_pages_like_their_cells(patch: Patch) -> None:
    """Each page replaces the one before, and the cell."""
    key = LeftState._key
    patch.setattr(LeftState, "_key", lambda left, cell_id: key(left, cell_id[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [forget_pages_in_the_file, name_pages_like_their_cells])
def test_pages_that_are_left_wrongly_are_found(
    mutation: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((InvariantError, AssertionError, df.DataflowError, TypeError)):
        check_sides_in_pages()


def _leave(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        take = LeftState.take
        patch.setattr(LeftState, "take", lambda left: change(take(left)))

    return mutate


def forget_ids(patch: Patch) -> None:
    """A copy behind the cut counts."""
    patch.setattr(SplitIds, "kept", lambda *_: [])


def go_to_the_end_of_time(patch: Patch) -> None:
    """What is live is late."""
    patch.setattr(backfill_end, "input_watermark_us", lambda _: MAX_TIMESTAMP_US)


def report_the_furthest(patch: Patch) -> None:
    """One split does not wait for the others."""
    patch.setattr(
        backfill_end,
        "input_watermark_us",
        lambda several: max(each.watermark_us for each in several),
    )


def hold_nothing_back(patch: Patch) -> None:
    """What a window is still to emit is late behind it."""
    patch.setattr(
        GroupsInParts,
        "reports",
        lambda range_: backfill_end._reports(range_._task, range_._watermark_us),
    )


def read_from_the_beginning(patch: Patch) -> None:
    """The stream reads once more what the backfill has read."""
    promotion = backfill_progress._promotion

    def promoted(*arguments: Any) -> Production:
        return attrs.evolve(promotion(*arguments), positions={})

    patch.setattr(backfill_progress, "_promotion", promoted)
    patch.setattr(
        backfill_progress, "mark_of", lambda row: SplitMark(is_end=True) if row.bundle else None
    )


def _compare_nothing(patch: Patch) -> None:
    """Or the comparison with what was there finds it first, and the law is not asked."""
    patch.setattr(RangeWriter, "check_sent", lambda *_: None)
    patch.setattr(RangeWriter, "_check_end", lambda *_: None)


def read_on_when_read_again(patch: Patch) -> None:
    """Ranges that were loaded before a crash do not have what the others have."""
    reader = SplitReader
    _compare_nothing(patch)
    patch.setattr(
        backfill_end,
        "SplitReader",
        lambda *arguments, **more: reader(*arguments, **{**more, "end": None}),
    )


def take_in_as_it_comes(patch: Patch) -> None:
    """An attempt sends the same in another order, so its blobs are others."""
    as_it_comes = lambda several, **_: list(several)  # noqa: E731 - a name for what replaces it
    patch.setattr(key_parts, "sorted", as_it_comes, raising=False)
    patch.setattr(key_parts, "merge", itertools.chain)


def divide_when_memory_is_short(patch: Patch) -> None:
    """Without a file the keys are in the order of what was sent."""
    batches = KeyParts.batches

    def divided(parts: KeyParts, records: int, cut: int) -> Any:
        return batches(parts, records if parts.has_spilled else 1 << 40, cut)

    patch.setattr(KeyParts, "batches", divided)


def forget_parts(patch: Patch) -> None:
    """What was committed before a crash is written again."""
    so_far = BackfillWriter._so_far_of

    def nothing(writer: BackfillWriter, row: RangeRow) -> ReadSoFar:
        found = so_far(writer, row)
        return found if row.split is not None else attrs.evolve(found, records=0)

    patch.setattr(BackfillWriter, "_so_far_of", nothing)
    _compare_nothing(patch)


def count_parts_too_early(patch: Patch) -> None:
    """What is left of a part is not in the commit that counts it."""
    leave = GroupsInParts._leave

    def left(groups: GroupsInParts, parts: int, **at_last: Any) -> None:
        leave(groups, PARTS if at_last else parts + 20, **at_last)

    patch.setattr(GroupsInParts, "_leave", left)


def send_again_what_was_not_answered(patch: Patch) -> None:
    """The job has gone live, and is taken for somebody else's."""

    def sent_again(store: Any, production: Production) -> CommitResult:
        answer = store.commit(production)
        is_lost = isinstance(answer, Indeterminate)
        return CommitResult(store.commit(production) if is_lost else answer, answer)

    patch.setattr(backfill_progress, "commit_or_resolve", sent_again)


MUTATIONS: list[tuple[str, Callable[[Patch], None]]] = [
    ("sessions", _leave(lambda left: {**left, "cells": []})),
    ("sums", _leave(lambda left: {**left, "timers": []})),
    ("clocks", _leave(lambda left: {**left, "timers": []})),
    ("retries", forget_ids),
    ("chain", go_to_the_end_of_time),
    ("with holds", report_the_furthest),
    ("with holds", hold_nothing_back),
    ("sums", read_from_the_beginning),
    ("growing", read_on_when_read_again),
    ("sessions", take_in_as_it_comes),
    ("chain", divide_when_memory_is_short),
    ("chain", forget_parts),
    ("sessions", count_parts_too_early),
    ("sums", send_again_what_was_not_answered),
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "mutate"), MUTATIONS)
def test_a_backfill_that_is_broken_on_purpose_is_found(
    pipeline: str, mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(SimulatedCluster, "live_ms", 20_000)
    with pytest.raises((AssertionError, InvariantError, df.TableConflictError)):  # noqa: PT012 - the block is what is tested
        for seed in range(SEEDS_MAX):
            run(pipeline, seed, 0.1)
