"""Targets, levels, and which ranges still have something to do."""

from types import SimpleNamespace
from typing import Any

import attrs

import dataflow as df
from runners.batch.layout import Layout, layout
from runners.batch.tasks import GroupingWave
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import RangeRow

#: Ranges per stage in the store.
COUNTS = {"a/Read(MemorySource)": 2, "b/Read(MemorySource)": 1, "one": 3, "two": 2, "leaf": 1}


def laid_out(*finished: RangeId) -> Layout:
    """Source a feeds "one", which feeds "two" together with source b; "leaf" has no table."""
    pipeline = df.Pipeline(DirectRunner())
    first = pipeline | "a" >> df.Create([("k", 1)])
    second = (
        pipeline
        | "b" >> df.Create([df.TimestampedValue(("k", 1), 1)])
        | df.WindowInto(df.FixedWindows(60))
    )
    table = df.WriteToPostgres("ones", columns={"n": int})
    one = first | "one" >> df.CombinePerKey(sum)
    one | "row" >> df.Map(lambda pair: {"n": pair[1]}) | table
    rewindowed = one | "again" >> df.WindowInto(df.FixedWindows(60))
    two = (rewindowed, second) | df.Flatten() | "two" >> df.CombinePerKey(sum)
    (
        two
        | "rows" >> df.Map(lambda pair: {"n": pair[1]})
        | df.WriteToPostgres("twos", columns={"n": int})
    )
    first | "leaf" >> df.CombinePerKey(sum) | "effect" >> df.Map(print)
    row = RangeRow(
        range_id=RangeId("", 0),
        keys=None,
        split=None,
        token=0,
        bundle=0,
        owner=None,
        position=None,
        watermark_us=None,
        is_finished=False,
    )
    ids = [RangeId(name, index) for name, count in COUNTS.items() for index in range(count)]
    return layout(
        plan(pipeline.graph()),
        {each: attrs.evolve(row, range_id=each, is_finished=each in finished) for each in ids},
    )


def test_levels_count_the_groupings_in_front() -> None:
    levels = laid_out().levels

    assert (levels["a/Read(MemorySource)"], levels["b/Read(MemorySource)"]) == (0, 0)
    assert (levels["one"], levels["leaf"], levels["two"]) == (1, 1, 2)


def test_targets_are_numbered_earlier_levels_first() -> None:
    found = laid_out()

    assert found.targets(1) == range(6)
    assert [found.range_of(target) for target in found.targets(2)] == [
        RangeId("two", 0),
        RangeId("two", 1),
    ]
    assert {found.range_of(target).computation for target in range(4)} == {"one", "leaf"}
    assert found.targets(3) == range(6, 6)


def test_everything_is_wanted_at_first() -> None:
    assert {name: len(indexes) for name, indexes in laid_out().wanted.items()} == COUNTS


def test_a_finished_range_is_wanted_while_somebody_needs_its_outputs() -> None:
    ones = [RangeId("one", index) for index in range(3)]

    assert laid_out(*ones).wanted["one"] == {0, 1, 2}
    assert laid_out(*ones, RangeId("two", 0)).wanted["two"] == {1}


def test_what_nobody_needs_is_not_wanted() -> None:
    twos = [RangeId("two", index) for index in range(2)]

    found = laid_out(*twos, RangeId("one", 1))

    assert found.wanted["one"] == {0, 2}
    assert found.wanted["b/Read(MemorySource)"] == frozenset()
    assert found.level_max == 1


def test_effects_without_a_table_are_always_wanted() -> None:
    everything = [RangeId(name, index) for name, count in COUNTS.items() for index in range(count)]

    found = laid_out(*everything)

    assert found.wanted["leaf"] == {0}
    assert found.wanted["a/Read(MemorySource)"] == {0, 1}
    assert found.wanted["one"] == frozenset()


def test_a_wave_passes_on_what_is_for_later_ones() -> None:
    """Before the last input of a later level has come, none of its ranges is worked off."""
    work: Any = SimpleNamespace(settings=SimpleNamespace(layout=laid_out()))
    layout = work.settings.layout
    later = [target for target in layout.targets(1) if layout.range_of(target).computation == "two"]
    for target in later:
        shipments = [(target, b"one"), (target, b"other")]
        wave = GroupingWave(work, level=1)

        assert shipments == list(wave(layout.targets(1).index(target), iter(shipments)))
    assert later
