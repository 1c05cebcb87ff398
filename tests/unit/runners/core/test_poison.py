"""Poison records: left out one by one, whatever is around them, with everything they would have caused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.ground.element_text import shown
from runners.direct import DirectRunner
from tests.poisonous import LONGEST, POISON, build


class Unreliable:
    """Fails for some values always, for others the first times that it sees them."""

    def __init__(self, poison: frozenset[int], moody: dict[int, int]) -> None:
        self.poison, self.moody = poison, dict(moody)

    def __call__(self, value: int) -> int:
        if value in self.poison:
            raise ValueError(f"{value} is poison")
        if self.moody.get(value, 0) > 0:
            self.moody[value] -= 1
            raise ValueError(f"{value} is moody")
        return value * 10


@given(
    values=st.lists(st.integers(0, 30), max_size=40, unique=True),
    poison=st.frozensets(st.integers(0, 30)),
    moody=st.dictionaries(st.integers(0, 30), st.integers(0, 1)),
    bundle=st.integers(1, 50),
)
def test_the_others_are_as_if_it_had_not_been_there(
    values: list[int], poison: frozenset[int], moody: dict[int, int], bundle: int
) -> None:
    """Their order too; and what fails once is tried again."""
    seen: list[int] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=bundle, tries_per_record=2))
    (
        pipeline
        | "read" >> df.Create(values)
        | "unreliable" >> df.Map(Unreliable(poison, moody))
        | "pair" >> df.Map(lambda value: ("all", value))
        | "list" >> df.GroupByKey()
        | "see" >> df.Map(lambda pair: seen.extend(pair[1]))
    )
    result = pipeline.run()
    letters = result.dead_letters()

    assert [value * 10 for value in values if value not in poison] == seen
    assert [value for value in values if value in poison] == [
        letter["element"].value for letter in letters
    ]
    assert all(letter["tries"] == 2 for letter in letters)


def dead(*transforms: Any, values: list[Any]) -> list[Any]:
    """The dead letters of a pipeline that nothing stops."""
    pipeline = df.Pipeline(DirectRunner(tries_per_record=1))
    collection: Any = pipeline | "read" >> df.Create(values)
    for transform in transforms:
        collection = collection | transform
    return list(pipeline.run().dead_letters())


TABLE = df.WriteToPostgres("rows", columns={"n": int}, key=["n"])


@pytest.mark.parametrize(
    ("transforms", "poison", "error"),
    [
        ([df.Map(lambda value: 1 // value)], 0, "ZeroDivisionError"),
        ([df.FlatMap(lambda value: [1 // value])], 0, "ZeroDivisionError"),
        ([df.Filter(lambda value: 1 // value)], 0, "ZeroDivisionError"),
        ([df.GroupByKey()], 7, "needs (key, value) pairs"),
        ([df.GroupByKey()], ([], 1), "cannot be hashed"),
        ([df.GroupByKey()], (math.nan, 1), "NaN"),
        ([df.CombinePerKey(df.SumCombineFn())], ("k", "text"), "TypeError"),
        ([df.Map(lambda pair: {"n": pair}), TABLE], "text", "rows"),
        ([df.WindowInto(df.Sessions(lambda value: value))], -1, "Sessions"),
    ],
)
def test_whatever_fails_in_a_stage(transforms: list[Any], poison: Any, error: str) -> None:
    """User code, what a grouping cannot take, and what a table cannot."""
    good = ("k", 1) if isinstance(transforms[0], df.GroupByKey | df.CombinePerKey) else 5
    values = [df.TimestampedValue(each, 1) for each in (good, poison, good)]
    (letter,) = dead(*transforms, values=values)

    assert repr(letter["element"].value) == repr(poison) == letter["text"]
    assert error in letter["error"]
    assert letter["stage"].startswith("read")
    assert "Traceback" in letter["traceback"]


def test_poison_of_many_kinds_leaves_what_is_only_strange() -> None:
    """Numbers that are none, times that are none, text that is none, and what is huge (fault F17)."""
    pipeline = df.Pipeline(DirectRunner(bundle_records=30, tries_per_record=2))
    build(pipeline)
    result = pipeline.run()
    read = {
        letter["text"]: letter["error"]
        for letter in result.dead_letters()
        if letter["stage"].startswith("read")
    }

    assert len(POISON) == len(read)
    for record, error in POISON:
        assert error in read[shown(record)]
    behind = {letter["text"] for letter in result.dead_letters()} - read.keys()
    assert {
        "('huge', 1000000000000000000000000000000)",
        "('zero', 0.0)",
        "('nul \\x00', 1)",
    } < behind
    kept = {each["key"]: each["total"] for each in result.read_table("sums")}
    assert {"far": 1, LONGEST: 1, "key 0": 30, "key 1": 30, "key 3": 29} == {
        key: kept[key] for key in ("far", LONGEST, "key 0", "key 1", "key 3")
    }


def test_behind_a_grouping_the_record_is_what_the_grouping_emitted() -> None:
    """With its window and time, and its sign when it is retracted."""
    retracting = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    letters = dead(
        df.WindowInto(
            df.FixedWindows(60),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=retracting,
        ),
        "sum" >> df.CombinePerKey(sum),
        df.Map(lambda pair: 1 // (pair[1] - 3)),
        values=[df.TimestampedValue(("k", 3), 5)],
    )

    (letter,) = letters
    assert ("sum", ("k", 3), 1) == (letter["stage"], letter["element"].value, letter["sign"])
    assert (0, 60_000_000) == (letter["window_start_us"], letter["window_end_us"])


def test_what_is_remembered_for_retractions_is_not_remembered_twice() -> None:
    """A neighbour fails, so non-deterministic code runs again; it is retracted as it was emitted last."""
    counter = iter(range(1_000))

    @df.nondeterministic
    def number(pair: tuple[str, int]) -> tuple[str, int]:
        return pair[0], next(counter)

    def careful(pair: tuple[str, int], pane: df.PaneInfo = df.DoFn.PaneParam) -> tuple[str, int]:
        if pair[0] == "bad":
            raise ValueError
        return pair

    changes: list[tuple[int, Any]] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=4, tries_per_record=2))
    (
        pipeline
        | df.Create([("good", 1), ("bad", 1), ("good", 2), ("bad", 2), ("good", 3)])
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING,
        )
        | df.CombinePerKey(sum)
        | "number" >> df.Map(number)
        | "careful" >> df.Map(careful)
        | df.ToChangelog()
        | df.Map(lambda change: changes.append((change.sign, change.value)))
    )
    pipeline.run()
    standing: list[Any] = []
    for sign, value in changes:
        if sign > 0:
            standing.append(value)
        else:
            standing.remove(value)  # it retracts what was emitted

    assert len(standing) == 1


def test_without_tries_the_first_failure_is_raised() -> None:
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Create([0]) | df.Map(lambda value: 1 // value)
    with pytest.raises(df.TransformError, match="ZeroDivisionError"):
        pipeline.run()
    assert [] == list(df.Pipeline(DirectRunner()).run().dead_letters())


@pytest.mark.parametrize("tries", [0, -1, 1.5, "3"])
def test_tries_are_counted_from_one(tries: Any) -> None:
    with pytest.raises(df.PipelineError, match="tries_per_record"):
        DirectRunner(tries_per_record=tries)


class Total(df.DoFn):
    """A running total; the element and the timer can be poison, after state and timers have been changed."""

    TOTAL = df.CombiningValueStateSpec("total", df.SumCombineFn())
    SEEN = df.BagStateSpec("seen")
    END = df.TimerSpec("end", df.TimeDomain.EVENT)

    def process(
        self,
        element: tuple[str, int],
        /,
        total: Any = df.DoFn.StateParam(TOTAL),
        seen: Any = df.DoFn.StateParam(SEEN),
        end: Any = df.DoFn.TimerParam(END),
    ) -> Any:
        seen.add(element[1])
        total.add(element[1])
        end.set(50 if element[1] < 0 else 20)
        if element[1] < 0:
            raise ValueError("poison")
        yield element[0], total.read()

    @df.on_timer(END)
    def ended(
        self,
        key: Any = df.DoFn.KeyParam,
        seen: Any = df.DoFn.StateParam(SEEN),
        at: Any = df.DoFn.TimestampParam,
    ) -> Any:
        if key == "bad":
            seen.clear()
            raise ValueError("poison")
        yield key, seen.read(), at.timestamp()


def test_a_stateful_do_fn_is_as_if_it_had_not_been_called() -> None:
    """Its state and timers too, whether an element or a timer fails."""
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner(bundle_records=2, tries_per_record=3))
    values = [("good", 1), ("good", -5), ("bad", 2), ("good", 3)]
    (
        pipeline
        | df.Create([df.TimestampedValue(value, 10) for value in values])
        | df.WindowInto(df.FixedWindows(60))
        | "total" >> df.ParDo(Total())
        | df.Map(seen.append)
    )
    letters = pipeline.run().dead_letters()

    assert [("good", 1), ("bad", 2), ("good", 4), ("good", [1, 3], 20.0)] == seen
    assert [("good", -5), ("bad", "end")] == [letter["element"].value for letter in letters]
    assert {("total", 3)} == {(letter["stage"], letter["tries"]) for letter in letters}
    assert "timer 'end' of key 'bad'" in letters[1]["error"]
