"""Gathering loses nothing, combines early, and sends every key to the one target that owns it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.coders import encode_key, hash_key
from dataflow.combine_fn import ListCombineFn
from runners.batch import gather
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.core.ground.bundle import Bundle
from runners.core.partials import table as partial_table
from runners.core.partials.partial import Partial
from runners.core.stages.plan import plan
from runners.core.stages.stage_clocks import StageClocks
from runners.core.stages.stage_executor import StageExecutor
from runners.direct import DirectRunner
from runners.millwheel.model.key_range import even_ranges
from runners.stored.partials import decode_partials
from runners.stored.runs import decode_parts
from tests.ids import shown
from windowing.window import GLOBAL_WINDOW

LAYOUT = Layout(
    levels={"read": 0, "sum": 1},
    offsets={"sum": 10},
    counts={"sum": 4},
    wanted={"read": frozenset({0}), "sum": frozenset(range(4))},
)


def gatherer(
    layout: Layout = LAYOUT, window_fn: df.WindowFn | None = None, parts: int | None = None
) -> Gatherer:
    pipeline = df.Pipeline(DirectRunner())
    pairs: Any = pipeline | "read" >> df.Create([df.TimestampedValue(("k", 1), 1)])
    if window_fn is not None:
        pairs = pairs | df.WindowInto(window_fn)
    pairs | "sum" >> df.CombinePerKey(sum)
    execution = plan(pipeline.graph())
    (source,) = execution.sources()
    return Gatherer(execution, source, layout, parts)


def partials(*values: tuple[Any, int]) -> dict[str, list[Partial]]:
    return {"sum": [(key, GLOBAL_WINDOW, [value], 1) for key, value in values]}


def test_partials_of_many_bundles_become_one_per_key() -> None:
    gathering = gatherer()
    for _ in range(5):
        assert list(gathering.add(partials(("a", 1), ("b", 2)))) == []

    sent = [
        (target, partial)
        for target, blob in gathering.flush()
        for partial in decode_partials(blob, None)
    ]

    assert {key: (total, count) for _, (key, _, total, count) in sent} == {
        "a": ([5], 5),
        "b": ([10], 5),
    }
    for target, (key, *_) in sent:
        assert hash_key(encode_key(key)) in even_ranges(4)[target - 10]


def test_nothing_is_lost_whatever_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "RECORDS_FIRST", 7)
    monkeypatch.setattr(gather, "PACKED_BYTES", 200)
    monkeypatch.setattr(gather, "BLOB_PARTIALS_MAX", 2)
    gathering = gatherer()
    blobs: list[tuple[int, bytes]] = []
    for start in range(0, 300, 3):
        blobs += gathering.add(partials(*((number % 50, 1) for number in range(start, start + 3))))
    before_flush = len(blobs)
    blobs += gathering.flush()

    totals: Counter[int] = Counter()
    for _, blob in blobs:
        assert len(decode_partials(blob, None)) <= 2
        for key, _, (total,), _ in decode_partials(blob, None):
            totals[key] += total
    assert totals == dict.fromkeys(range(50), 6)
    assert before_flush > 0


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "RECORDS_FIRST", 10)
    monkeypatch.setattr(gather, "RECORDS_MAX", 40)
    monkeypatch.setattr(gather, "PARTIALS_MAX", 100)
    monkeypatch.setattr(partial_table, "WAITING_MAX", 20)


def partials_sent(pairs: Sequence[tuple[Any, Any]], combine_fn: Any) -> tuple[list[int], int]:
    """How many partials are in each blob before the end, and after it, of bundles of ten pairs."""
    pipeline = df.Pipeline(DirectRunner())
    (pipeline | "read" >> df.Create([("k", 1)]) | "sum" >> df.CombinePerKey(combine_fn))
    execution = plan(pipeline.graph())
    (source,) = execution.sources()
    layout = attrs.evolve(
        LAYOUT, counts={"sum": 1}, wanted={"read": frozenset({0}), "sum": frozenset({0})}
    )
    gathering, executor = Gatherer(execution, source, layout), StageExecutor(execution, source)
    sent: list[int] = []
    for start in range(0, len(pairs), 10):
        some = pairs[start : start + 10]
        outputs = executor.process(
            Bundle(some, [0] * len(some)), StageClocks.of_source(watermark_us=0, now_us=0)
        )
        sent += [len(decode_partials(blob, None)) for _, blob in gathering.add(outputs.groups)]
    return sent, sum(len(decode_partials(blob, None)) for _, blob in gathering.flush())


@pytest.mark.parametrize("combine_fn", [sum, df.SumCombineFn(), df.MeanCombineFn()], ids=shown)
@pytest.mark.usefixtures("small_bounds")
def test_what_does_not_grow_waits_for_the_end(combine_fn: Any) -> None:
    """One partial for a key of a whole split, however many records it has; but for the first, which shows the size."""
    assert partials_sent([("k", value) for value in range(1_000)], combine_fn) == ([1], 1)


@pytest.mark.parametrize(
    ("combine_fn", "of"),
    [
        (ListCombineFn(), int),
        (max, str),
        (df.associative(lambda sets: set().union(*sets)), lambda each: {each}),
        (len, int),
    ],
    ids=["list", "max of text", "union", "of the whole group"],
)
@pytest.mark.usefixtures("small_bounds")
def test_what_grows_is_sent_in_bounded_parts(combine_fn: Any, of: Callable[[int], Any]) -> None:
    pairs = [("k", of(value)) for value in range(1_000)]

    assert partials_sent(pairs, combine_fn) == ([1] * 25, 1)


@pytest.mark.usefixtures("small_bounds")
def test_very_many_keys_are_sent_in_bounded_parts() -> None:
    sent, last = partials_sent([(value, 1) for value in range(1_000)], df.SumCombineFn())

    assert sum(sent) + last == 1_000
    # What waits to be folded is not counted before.
    assert sent[0] == 10
    assert len(sent) == 10
    assert all(100 <= size <= 120 for size in sent[1:])


def test_what_is_for_a_target_is_divided_by_keys_if_it_asks_for_that() -> None:
    several = partials(*((number % 50, 1) for number in range(300)))
    whole, divided = gatherer(), gatherer(parts=7)
    sent = [*whole.add(several), *whole.flush()]
    found: list[tuple[int, Partial]] = []
    for target, blob in [*divided.add(several), *divided.flush()]:
        for part, records, content in decode_parts(blob):
            some = decode_partials(content, None)
            assert {hash_key(encode_key(key)) % 7 for key, *_ in some} == {part}
            assert records == sum(count for *_, count in some)
            found += [(target, each) for each in some]

    assert sorted(found) == sorted(
        (target, each) for target, blob in sent for each in decode_partials(blob, None)
    )
    assert len(found) == 50


def test_proto_sessions_of_several_bundles_merge() -> None:
    gathering = gatherer(window_fn=df.Sessions(10))
    windows = [df.Window(0, 10_000_000), df.Window(9_000_000, 19_000_000)]
    for window in windows:
        list(gathering.add({"sum": [("a", window, [1], 1)]}))

    ((_, blob),) = gathering.flush()

    assert decode_partials(blob, None) == [("a", df.Window(0, 19_000_000), [2], 2)]


def test_targets_that_are_done_get_nothing() -> None:
    keys = [(f"k{number}", 1) for number in range(100)]
    some = attrs.evolve(LAYOUT, wanted={"read": frozenset({0}), "sum": frozenset({1})})
    none = attrs.evolve(LAYOUT, wanted={"read": frozenset({0}), "sum": frozenset()})

    gathering = gatherer(some)
    list(gathering.add(partials(*keys)))
    assert {target for target, _ in gathering.flush()} == {11}
    assert gathering.is_needed

    assert not gatherer(none).is_needed
    assert list(gatherer(none).add(partials(*keys))) == []


def test_a_combine_fn_that_cannot_merge_is_named() -> None:
    gathering = gatherer()
    list(gathering.add({"sum": [("a", GLOBAL_WINDOW, [each], 1) for each in (1, "x")]}))

    with pytest.raises(df.TransformError, match=r"'sum'.*raised TypeError"):
        list(gathering.flush())
