"""Laws of records that come twice: each counts once, whatever the order, the batches and the watermark."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import MAIN, Read, TransformNode
from dataflow.io.memory import MemorySource
from dataflow.record_ids import RecordIds, record_digest
from runners.core.ground.bundle import Bundle
from runners.core.stages.deduplication import Deduplicator, NewId, SplitIds
from runners.direct import DirectRunner
from runners.millwheel.model.counts import IdCounts
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.dedup import seen_ids as paging
from runners.millwheel.worker.dedup.id_filter import IdFilter
from runners.millwheel.worker.dedup.seen_ids import SeenIds
from runners.testing.scripted_source import Batch, ScriptedSource

RANGE = RangeId("read", 0)
#: Batches of (id, event time); and how far the watermark is after each.
batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=8),
        st.integers(0, 120),
    ),
    max_size=12,
)
slacks = st.sampled_from([0, 7, 50, 1_000])


def deduplicate(slack_us: int, **changes: Any) -> Deduplicator:
    record_ids = RecordIds(
        **{"of": lambda record: record[0], "slack": slack_us / 1_000_000, **changes}
    )
    operation = Read(MemorySource([]), record_ids)
    return Deduplicator(
        TransformNode(label="read", location="", operation=operation, inputs=(), outputs={MAIN: 0})
    )


def bundle_of(records: Sequence[tuple[int, int]]) -> Bundle:
    return Bundle(records, [at for _, at in records])


def by_the_book(
    script: Sequence[tuple[Sequence[tuple[int, int]], int]], slack: int
) -> tuple[list[Any], list[Any]]:
    """New records and late ones, from scratch: an id is remembered at the time of its first record."""
    new, late, watermark = [], [], 0
    first: dict[int, int] = {}
    for records, after in script:
        horizon = watermark - slack
        first = {each: at for each, at in first.items() if at >= horizon}
        for record_id, at in records:
            if at < horizon:
                late.append((record_id, at))
            elif record_id not in first:
                first[record_id] = at
                new.append((record_id, at))
        watermark = max(watermark, after)
    return new, late


class Table:
    """The exact table as the store keeps it, and how often it was asked."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.asked = 0

    def known_record_ids(
        self, job: str, range_id: RangeId, digests: Sequence[bytes]
    ) -> Collection[bytes]:
        assert digests
        assert len(set(digests)) == len(digests)
        self.asked += 1
        return self.ids.keys() & set(digests)

    def read_record_ids(
        self, job: str, range_id: RangeId, after: bytes, count: int
    ) -> Sequence[tuple[bytes, int]]:
        return sorted(each for each in self.ids.items() if each[0] > after)[:count]


@given(script=batches, slack=slacks)
def test_in_memory_each_id_counts_once(script: Any, slack: int) -> None:
    ids, watermark = SplitIds(deduplicate(slack)), 0
    new: list[Any] = []
    late: list[Any] = []
    for records, after in script:
        deduplicated = ids.deduplicate(bundle_of(records), watermark)
        new += deduplicated.bundle.values
        late += [each.accumulator for each in deduplicated.late]
        assert deduplicated.duplicates == len(records) - len(deduplicated.bundle) - len(
            deduplicated.late
        )
        assert [at for _, at in deduplicated.bundle.values] == list(
            deduplicated.bundle.timestamps_us
        )
        watermark = max(watermark, after)

    assert (new, late) == by_the_book(script, slack)
    assert len(ids) <= len(new)


@given(script=batches, slack=slacks)
def test_the_direct_runner_counts_each_id_once(script: Any, slack: int) -> None:
    emitted: list[Any] = []
    source = ScriptedSource(
        [
            Batch([list(record) for record in records], [at for _, at in records], after)
            for records, after in script
        ]
    )
    p = df.Pipeline(DirectRunner())
    record_ids = df.RecordIds(of=lambda record: record[0], slack=slack / 1_000_000)
    p | "read" >> df.Read(source, record_ids=record_ids) | df.Map(emitted.append)
    result = p.run()
    new, late = by_the_book(script, slack)

    assert [tuple(each) for each in emitted] == new
    assert [tuple(each["element"].value) for each in result.late_records()] == late
    assert [each["window_start_us"] for each in result.late_records()] == [at for _, at in late]
    assert result.late_counts() == ({"read": len(late)} if late else {})


@given(
    script=batches,
    slack=slacks,
    deaths=st.sets(st.integers(0, 11)),
    lags=st.sets(st.integers(0, 11)),
    expected_ids=st.integers(1, 4),
    rate=st.sampled_from([0.01, 0.9]),
    page=st.integers(1, 5),
)
def test_behind_a_filter_that_is_lost_each_id_counts_once(
    script: Any,
    slack: int,
    deaths: set[int],
    lags: set[int],
    expected_ids: int,
    rate: float,
    page: int,
) -> None:
    """Like that in memory, but for a later copy of an id that is behind the horizon and not deleted yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "PAGE_IDS", page)
        table, watermark = Table(), 0
        settings = deduplicate(slack, expected_ids=expected_ids, false_positive_rate=rate)
        counts = IdCounts()
        seen = SeenIds(table, "job", RANGE, settings, counts)
        kept: dict[int, int] = {}
        waiting: list[tuple[Sequence[NewId], int]] = []
        for number, (records, after) in enumerate(script):
            if number in deaths and not waiting:
                seen.release()
                seen = SeenIds(table, "job", RANGE, settings, counts)
            deduplicated = seen.deduplicate(bundle_of(records), watermark_us=watermark)
            for record_id, at in deduplicated.bundle.values:
                assert kept.get(record_id, -1_000_000) < watermark - slack
                kept[record_id] = at
            dropped = set(records) - set(deduplicated.bundle.values)
            dropped -= {each.accumulator for each in deduplicated.late}
            assert {record_id for record_id, _ in dropped} <= kept.keys()
            watermark = max(watermark, after)
            waiting.append((deduplicated.ids, watermark))
            if number in lags:
                continue
            for ids, then in waiting:
                table.ids.update(seen.worth_keeping(ids, then))
                seen.note_committed(ids)
            waiting.clear()
            horizon = seen.collect(watermark)
            if horizon is not None:
                assert horizon <= watermark - slack
                table.ids = {each: at for each, at in table.ids.items() if at >= horizon}
        seen.release()
        assert counts.kept == 0
        assert counts.false_maybes <= counts.maybes


@given(
    ids=st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(-4, 4)), max_size=60),
    horizons=st.lists(st.integers(-5, 5), max_size=4),
    expected_ids=st.integers(1, 9),
    rate=st.floats(0.001, 0.99),
)
def test_a_filter_never_denies_what_is_in_it(
    ids: list[tuple[bytes, int]], horizons: list[int], expected_ids: int, rate: float
) -> None:
    """However full, and whatever was dropped behind the horizon."""
    id_filter = IdFilter(expected_ids, rate)
    for each in ids:
        id_filter.add([each])
        assert id_filter.maybes([each[0]]) == [each[0]]
    for horizon in sorted(horizons):
        id_filter.collect(horizon)
        alive = [digest for digest, at in ids if at >= horizon]
        assert set(id_filter.maybes(alive)) == set(alive)


@given(script=batches, slack=slacks)
def test_what_is_kept_in_memory_is_all_that_somebody_may_ask_for(script: Any, slack: int) -> None:
    """An id exactly at the horizon is kept: its record may come again, and is no later than it may be."""
    ids, watermark = SplitIds(deduplicate(slack)), 0
    for records, after in script:
        ids.deduplicate(bundle_of(records), watermark)
        watermark = max(watermark, after)
    # The book forgets what is behind the last horizon, and takes nothing more in.
    first: dict[int, int] = {}
    for (records, _), horizon in zip(script, horizons(script, slack), strict=True):
        first = {each: at for each, at in first.items() if at >= horizon}
        for record_id, at in records:
            if at >= horizon:
                first.setdefault(record_id, at)
    kept = {(record_digest(each), at) for each, at in first.items() if at >= watermark - slack}

    assert set(ids.kept(watermark)) == kept


def horizons(script: Sequence[tuple[Any, int]], slack: int) -> list[int]:
    """Where the horizon is before each batch."""
    return [
        max([0, *(after for _, after in script[:index])]) - slack for index in range(len(script))
    ]


@given(
    slack=slacks,
    at=st.integers(0, 100),
    behind=st.integers(-3, 3),
    is_lost=st.booleans(),
    expected_ids=st.integers(1, 3),
)
def test_a_copy_at_the_horizon_is_a_copy_and_one_behind_it_is_late(
    slack: int, at: int, behind: int, is_lost: bool, expected_ids: int
) -> None:
    """Whoever asks: the owner that has read the first, or the next one, who knows what was committed."""
    table, settings = Table(), deduplicate(slack, expected_ids=expected_ids)
    seen = SeenIds(table, "job", RANGE, settings, IdCounts())
    watermark = at + slack + behind
    first = seen.deduplicate(bundle_of([(1, at)]), watermark_us=min(watermark, at + slack))
    table.ids.update(seen.worth_keeping(first.ids, watermark))
    seen.note_committed(first.ids)
    horizon = seen.collect(watermark)
    assert horizon is not None
    table.ids = {each: then for each, then in table.ids.items() if then >= horizon}
    if is_lost:
        seen = SeenIds(table, "job", RANGE, settings, IdCounts())
    again = seen.deduplicate(bundle_of([(1, at)]), watermark_us=watermark)

    assert len(first.ids) == 1
    assert not again.ids
    assert (again.duplicates, len(again.late)) == ((1, 0) if behind <= 0 else (0, 1))


@given(
    times=st.lists(st.sampled_from([0, 1_000]), min_size=4, max_size=30),
    page=st.integers(1, 5),
)
def test_a_filter_that_is_built_anew_knows_what_is_not_committed(
    times: list[int], page: int
) -> None:
    """Where productions are weak that may be many ids, which no table has yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "PAGE_IDS", page)
        settings = deduplicate(0, expected_ids=1)
        seen = SeenIds(Table(), "job", RANGE, settings, IdCounts())
        for record_id, at in enumerate(times):
            seen.deduplicate(bundle_of([(record_id, at)]), watermark_us=0)
        alive = [(record_id, at) for record_id, at in enumerate(times) if at == 1_000]
        for watermark in (10, 11):
            again = seen.deduplicate(bundle_of(alive), watermark_us=watermark)

            assert (again.duplicates, list(again.ids)) == (len(alive), [])


@pytest.mark.parametrize("is_pinned", [False, True])
def test_of_a_long_stream_little_is_in_memory_and_little_is_read_again(*, is_pinned: bool) -> None:
    """Also where one record of each batch is far ahead, so that its generation of the filter is never dropped."""
    a_batch, slack_us, batches = 20, 10, 200
    settings = deduplicate(slack_us, expected_ids=50)
    table, counts, rows_read = Table(), IdCounts(), 0
    read = table.read_record_ids

    def counting(*arguments: Any) -> Sequence[tuple[bytes, int]]:
        nonlocal rows_read
        rows = read(*arguments)
        rows_read += len(rows)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "read_record_ids", counting)
        seen, largest = SeenIds(table, "job", RANGE, settings, counts), 0
        for now in range(batches):
            records = [(now * a_batch + index, now) for index in range(a_batch)]
            if is_pinned:
                records[0] = (records[0][0], 1_000_000)
            found = seen.deduplicate(bundle_of(records), watermark_us=now)
            assert len(found.ids) == a_batch
            table.ids.update(found.ids)
            seen.note_committed(found.ids)
            table.ids = {each: at for each, at in table.ids.items() if at >= now - slack_us}
            largest = max(largest, counts.kept)

    remembered = a_batch * slack_us + batches * is_pinned
    assert largest <= 3 * (remembered + 50)
    # To build a filter anew reads no more than was added since; and most filters only lose their oldest part.
    assert rows_read <= (a_batch * batches if is_pinned else a_batch * batches // 2)
