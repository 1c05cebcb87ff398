"""Side inputs: which view an element sees and when, what a later pane does, and what is refused."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner

MODE = df.AccumulationMode
EARLY = df.AfterWatermark(early=df.AfterCount(1))
#: A change: sign, value, seconds.
Seen = tuple[int, Any, float]


def at(second: float, value: Any) -> df.TimestampedValue:
    return df.TimestampedValue(value, second)


def windows(mode: MODE = MODE.ACCUMULATING, late: int = 0, **more: Any) -> df.WindowInto:
    return df.WindowInto(df.FixedWindows(60), accumulation_mode=mode, allowed_lateness=late, **more)


def changes_of(elements: TestStream, side: TestStream, into: Any, **more: Any) -> list[Seen]:
    """What is emitted and retracted, in order, of elements with the sorted list of a side input."""
    found: list[Seen] = []
    late = more.pop("late", 0)
    with df.Pipeline(DirectRunner()) as p:
        numbers = p | "side" >> side | "side windows" >> into
        (
            p
            | "elements" >> elements
            | "windows" >> windows(late=late)
            | df.Map(lambda x, all_of_it: (x, sorted(all_of_it)), df.AsList(numbers, **more))
            | df.ToChangelog()
            | df.Map(lambda each: found.append((each.sign, each.value, each.timestamp.timestamp())))
        )
    return found


ELEMENTS = (
    TestStream()
    .add_elements([at(1, "a")])
    .advance_watermark_to(2)
    .add_elements([at(10, "b")])
    .advance_watermark_to(30)
    .add_elements([at(40, "c")])
    .advance_watermark_to(70)
    .add_elements([at(50, "late")])
)
NUMBERS = (
    TestStream()
    .advance_watermark_to(1)
    .add_elements([at(5, 1)])
    .advance_watermark_to(20)
    .add_elements([at(25, 2)])
    .advance_watermark_to(75)
)


def test_an_element_waits_for_the_first_pane_and_later_ones_see_the_newest() -> None:
    found = changes_of(ELEMENTS, NUMBERS, windows(trigger=EARLY), late=100)

    assert [
        (+1, ("a", [1]), 1.0),
        (+1, ("b", [1]), 10.0),
        (+1, ("c", [1, 2]), 40.0),
        (+1, ("late", [1, 2]), 50.0),
    ] == found


def test_panes_of_a_discarding_side_input_replace_each_other_unless_they_are_empty() -> None:
    found = changes_of(ELEMENTS, NUMBERS, windows(MODE.DISCARDING, trigger=EARLY), late=100)

    assert [("a", [1]), ("b", [1]), ("c", [2]), ("late", [2])] == [value for _, value, _ in found]


def test_a_side_input_that_retracts_retracts_what_depended_on_it() -> None:
    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, trigger=EARLY)

    found = changes_of(ELEMENTS, NUMBERS, retracting, late=100)

    before = [(+1, ("a", [1]), 1.0), (+1, ("b", [1]), 10.0)]
    assert before == found[:2]
    assert sorted(
        [
            (-1, ("a", [1]), 1.0),
            (+1, ("a", [1, 2]), 1.0),
            (-1, ("b", [1]), 10.0),
            (+1, ("b", [1, 2]), 10.0),
        ]
    ) == sorted(found[2:6])
    # The pane at the end of the window says the same again, and nothing follows from it.
    assert [(+1, ("c", [1, 2]), 40.0), (+1, ("late", [1, 2]), 50.0)] == found[6:]


def test_what_was_emitted_stays_if_the_user_wants_that() -> None:
    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, trigger=EARLY)

    found = changes_of(ELEMENTS, NUMBERS, retracting, late=100, retracts=False)

    assert [+1] * 4 == [sign for sign, _, _ in found]


def test_nothing_is_retracted_of_a_window_that_has_expired() -> None:
    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, late=1_000)
    elements = TestStream().add_elements([at(1, "a")]).advance_watermark_to(500)
    side = (
        TestStream()
        .add_elements([at(5, 1)])
        .advance_watermark_to(100)
        .add_elements([at(6, 2)])
        .advance_watermark_to(300)
        .add_elements([at(7, 3)])
    )

    found = changes_of(elements, side, retracting, late=200)

    values = [(sign, value) for sign, value, _ in found]
    assert [(+1, ("a", [1])), (-1, ("a", [1])), (+1, ("a", [1, 2]))] == values


def test_what_waits_holds_the_watermark() -> None:
    """The side input is slower, so the window behind it must not fire before its elements have come."""
    found: list[Any] = []
    elements = TestStream().add_elements([at(1, "a")]).advance_watermark_to(500)
    side = TestStream().advance_watermark_to(50).add_elements([at(55, 1)])
    with df.Pipeline(DirectRunner()) as p:
        numbers = p | "side" >> side | "side windows" >> df.WindowInto(df.FixedWindows(60))
        result = (
            p
            | "elements" >> elements
            | "windows" >> df.WindowInto(df.FixedWindows(10))
            | df.Map(lambda x, n: (x, n), df.AsSingleton(numbers))
            | df.GroupByKey()
        )
        result | df.Map(lambda pair, pane=df.DoFn.PaneParam: found.append((pair, pane.timing)))

    assert [(("a", [1]), df.PaneTiming.ON_TIME)] == found
    assert p.result is not None
    assert {} == p.result.late_counts()


def test_what_may_be_retracted_is_retracted_with_what_it_had_seen() -> None:
    """The side input changes between an emission and its retraction, and does not retract itself."""
    found: list[Any] = []
    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, trigger=EARLY)
    words = (
        TestStream()
        .advance_watermark_to(3)
        .add_elements([at(5, ("w", 1))])
        .advance_watermark_to(30)
        .add_elements([at(35, ("w", 1))])
    )
    with df.Pipeline(DirectRunner()) as p:
        numbers = p | "side" >> NUMBERS | "side windows" >> windows(trigger=EARLY)
        counts = p | "words" >> words | "windows" >> retracting | df.CombinePerKey(sum)
        changes = counts | df.Map(lambda pair, n: (pair[1], sorted(n)), df.AsList(numbers))
        changes | df.ToChangelog() | df.Map(lambda each: found.append((each.sign, each.value)))

    assert [(+1, (1, [1])), (-1, (1, [1])), (+1, (2, [1, 2]))] == found[:3]
    emitted = [repr(value) for sign, value in found if sign > 0]
    retracted = [repr(value) for sign, value in found if sign < 0]
    assert ["(2, [1, 2])"] == list((Counter(emitted) - Counter(retracted)).elements())


def test_code_that_does_not_return_the_same_twice_is_retracted_as_it_was() -> None:
    calls = iter(range(100))
    found: list[Seen] = []

    @df.nondeterministic
    def numbered(x: str, n: list[int]) -> Any:
        return x, n, next(calls)

    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, trigger=EARLY)
    with df.Pipeline(DirectRunner()) as p:
        numbers = p | "side" >> NUMBERS | "side windows" >> retracting
        elements = p | "elements" >> ELEMENTS | "windows" >> windows(late=100)
        seen = elements | df.Map(numbered, df.AsList(numbers))
        seen | df.ToChangelog() | df.Map(lambda each: found.append((each.sign, each.value, 0)))

    emitted = [value for sign, value, _ in found if sign > 0]
    assert all(value in emitted for sign, value, _ in found if sign < 0)
    assert 2 == sum(sign < 0 for sign, _, _ in found)


def test_an_empty_side_input_that_ends_is_there_for_elements_that_do_not_end() -> None:
    found: list[Any] = []
    with df.Pipeline(DirectRunner()) as p:
        nothing: df.PCollection[int] = p | "nothing" >> df.Create([])
        elements = p | "elements" >> df.PeriodicImpulse(0, 3, 1)
        elements | df.Map(lambda x, n: found.append((x.timestamp(), n)), df.AsSingleton(nothing, 0))

    assert [(0.0, 0), (1.0, 0), (2.0, 0)] == sorted(found)


@pytest.mark.parametrize("mode", [MODE.DISCARDING, MODE.ACCUMULATING])
def test_a_single_value_that_is_read_again_is_what_it_was_last(mode: MODE) -> None:
    """Also where several values are in one pane, and where panes of a total follow each other."""
    found: list[Any] = []
    newest = df.WindowInto(
        df.GlobalWindows(), trigger=df.Repeatedly(df.AfterCount(1)), accumulation_mode=mode
    )
    elements = TestStream().add_elements(["a"]).advance_watermark_to(50).add_elements(["b"])
    side = TestStream().add_elements([at(2, 2), at(1, 1)]).advance_watermark_to(9)
    with df.Pipeline(DirectRunner()) as p:
        values = p | "side" >> side.add_elements([at(10, 10)]) | "side windows" >> newest
        total = values | df.CombineGlobally(sum).without_defaults()
        seen = (
            p
            | "elements" >> elements
            | df.Map(
                lambda x, value, total: (x, value, total),
                df.AsSingleton(values),
                df.AsSingleton(total),
            )
        )
        seen | df.Map(found.append)

    after = 10 if mode is MODE.DISCARDING else 13
    assert [("a", 2, 3), ("b", 10, after)] == found


def test_elements_wait_on_the_end_of_the_windows_of_signals() -> None:
    """Not on the panes before, nor on windows that are not theirs."""
    found: list[Any] = []
    elements = (
        TestStream()
        .add_elements([at(1, "a"), at(61, "b")])
        .advance_watermark_to(62)
        .add_elements([at(63, "c")])
    )
    signals = (
        TestStream()
        .add_elements([at(5, 1)])
        .advance_watermark_to(6)
        .add_elements([at(7, 1)])
        .advance_watermark_to(60)
        .add_elements([at(65, "seen")])
    )
    with df.Pipeline(DirectRunner()) as p:
        early = p | "signals" >> signals | "early" >> windows(trigger=EARLY)
        early | df.Map(found.append)
        waiting = p | "elements" >> elements | windows() | df.WaitOn(early)
        waiting | df.Map(lambda x, at=df.DoFn.TimestampParam: found.append((x, at.timestamp())))

    assert [1, 1, ("a", 1.0), "seen"] == found[:4]
    assert [("b", 61.0), ("c", 63.0)] == sorted(found[4:])


def test_elements_without_an_end_wait_on_what_ends() -> None:
    found: list[Any] = []
    with df.Pipeline(DirectRunner()) as p:
        nothing: df.PCollection[int] = p | "nothing" >> df.Create([])
        p | df.PeriodicImpulse(0, 2, 1) | df.WaitOn(nothing) | df.Map(found.append)

    assert 2 == len(found)


def test_what_is_waited_on_is_a_collection() -> None:
    with pytest.raises(df.PipelineError, match="WaitOn needs PCollections to wait for, not 5"):
        df.WaitOn(5)  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="WaitOn needs at least one PCollection"):
        df.WaitOn()


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (df.CombineGlobally(sum), [("a", 3), ("b", 0)]),
        (df.CombineGlobally(sum).with_fanout(2), [("a", 3), ("b", 0)]),
        (df.CombineGlobally(max), "is empty, and has no default"),
        (df.CombineGlobally(sum).without_defaults(), "is empty, and has no default"),
    ],
)
def test_a_result_as_a_view_is_that_of_nothing_where_there_is_nothing(
    combine: Any, expected: Any
) -> None:
    p, found = df.Pipeline(DirectRunner()), list[Any]()
    elements = p | df.Create([at(1, "a"), at(61, "b")]) | "windows" >> windows()
    numbers = (
        p
        | "numbers" >> df.Create([at(2, 1), at(3, 2)])
        | "side" >> df.WindowInto(df.FixedWindows(60))
    )
    view = numbers | "view" >> combine.as_singleton_view()
    elements | df.Map(lambda x, total: found.append((x, total)), view)

    if isinstance(expected, str):
        with pytest.raises(df.TransformError, match=expected):
            p.run().wait_until_finish()
    else:
        p.run().wait_until_finish()
        assert expected == sorted(found)


class Priced(df.DoFn):
    """Has a side input, another argument, and two outputs."""

    def process(
        self, element: str, /, prices: dict[str, int], least: int, window: Any = df.DoFn.WindowParam
    ) -> Iterable[Any]:
        price = prices.get(element)
        if price is None:
            yield df.TaggedOutput("unknown", element)
        elif price >= least:
            yield element, price, window.start_us


def test_a_do_fn_has_side_inputs_beside_other_arguments_and_outputs() -> None:
    found: dict[str, list[Any]] = {"priced": [], "unknown": []}
    with df.Pipeline(DirectRunner()) as p:
        prices = p | "prices" >> df.Create([("pen", 2), ("cup", 5)])
        words = p | df.Create(["pen", "cup", "hat"])
        transform = df.ParDo(Priced(), df.AsDict(prices), least=3).with_outputs("unknown")
        priced, unknown = words | transform
        priced | "see priced" >> df.Map(found["priced"].append)
        unknown | "see unknown" >> df.Map(found["unknown"].append)

    assert {"priced": [("cup", 5, df.Window(*window()).start_us)], "unknown": ["hat"]} == found


def window() -> tuple[int, int]:
    return df.GlobalWindows().assign_windows(0, None)[0][:2]


def test_the_same_goes_for_functions_of_the_parts_of_an_element() -> None:
    found: list[Any] = []
    with df.Pipeline(DirectRunner()) as p:
        factor = p | "factor" >> df.Create([10])
        pairs = p | df.Create([("a", 1)])
        scaled = pairs | df.MapTuple(lambda k, v, by: (k, v * by), df.AsSingleton(factor))
        scaled | df.Map(found.append)

    assert [("a", 10)] == found


def run_with(transform: Any, *, side: list[Any]) -> None:
    with df.Pipeline(DirectRunner()) as p:
        collection = p | "side" >> df.Create(side)
        p | "elements" >> df.Create(["x"]) | "look" >> transform(collection)


@pytest.mark.parametrize(
    ("kind", "side", "fact"),
    [
        (df.AsSingleton, [1, 2], "an AsSingleton, has 2 elements, and not one"),
        (df.AsSingleton, [], "an AsSingleton, is empty, and has no default"),
        (df.AsDict, [("k", 1), ("k", 2)], "an AsDict, has two values for the key 'k'"),
        (df.AsDict, [5], "an AsDict, has an element that is not a pair"),
        (df.AsMultiMap, ["abc"], "an AsMultiMap, has an element that is not a pair"),
    ],
)
def test_a_view_that_cannot_be_made_names_the_side_input(kind: Any, side: Any, fact: str) -> None:
    with pytest.raises(
        df.TransformError, match=r"side input 1 of transform 'look' \(.*:\d+\)"
    ) as e:
        run_with(lambda collection: df.Map(lambda x, n: n, kind(collection)), side=side)

    assert fact in e.value.fact


def test_an_error_shows_the_element_as_the_user_knows_it() -> None:
    with pytest.raises(df.TransformError, match=r"'look'.* raised ZeroDivisionError") as caught:
        run_with(lambda side: df.Map(lambda x, n: 1 / n, df.AsSingleton(side)), side=[0])

    assert "element: 'x'" in (caught.value.detail or "")


def test_a_dead_letter_is_the_element_without_its_views() -> None:
    found: list[Any] = []
    with df.Pipeline(DirectRunner(tries_per_record=2)) as p:
        side = p | "side" >> df.Create([1])
        good = p | df.Create([1, 2]) | df.Map(lambda x, n: 2 / (x - n), df.AsSingleton(side))
        good | df.Map(found.append)

    assert [2.0] == found
    assert p.result is not None
    assert [1] == [letter["element"].value for letter in p.result.dead_letters()]


def test_an_element_is_late_when_the_window_of_the_side_input_has_expired() -> None:
    """And not before: the side input may take longer than the elements."""
    found: list[Any] = []
    elements = TestStream().advance_watermark_to(100).add_elements([at(1, "late"), at(61, "b")])
    with df.Pipeline(DirectRunner()) as p:
        hours = p | "side" >> df.Create([at(1, 5)]) | df.WindowInto(df.FixedWindows(3_600))
        minutes = p | "minutes" >> df.Create([at(1, 5)]) | "by minute" >> windows()
        into = p | "elements" >> elements | "windows" >> windows()
        for name, side in (("hour", hours), ("minute", minutes)):
            seen = into | name >> df.Map(lambda x, n, name: (name, x), df.AsList(side), name)
            seen | f"see {name}" >> df.Map(found.append)

    assert [("hour", "b"), ("hour", "late"), ("minute", "b")] == sorted(found)
    assert p.result is not None
    assert [1] == list(p.result.late_counts().values())


def test_what_is_no_collection_is_refused() -> None:
    with pytest.raises(df.PipelineError, match=r"AsDict needs a PCollection, not \{\}"):
        df.AsDict({})  # type: ignore[arg-type]
    with pytest.raises(df.PipelineError, match="positive number of shards, not 0"):
        df.AsList(df.Pipeline() | df.Create([1]), shards=0)


@pytest.mark.parametrize(
    ("main", "side", "fact"),
    [
        (df.FixedWindows(60), df.Sessions(60), "has windows that merge"),
        (df.GlobalWindows(), df.FixedWindows(60), "are in the global one"),
    ],
)
def test_windows_that_do_not_fit_are_refused(main: Any, side: Any, fact: str) -> None:
    p = df.Pipeline()
    elements = p | df.Create([at(1, "a")]) | df.WindowInto(main)
    other = p | "side" >> df.Create([at(1, "b")]) | "side windows" >> df.WindowInto(side)

    with pytest.raises(df.PipelineError, match=rf"side input 1 of .*{fact}"):
        elements | df.Map(lambda x, n: n, df.AsList(other))


def test_an_element_that_waits_for_another_view_sees_one_whose_window_has_expired() -> None:
    """The hour ends long after the minute that the element sees too."""
    found: list[Any] = []
    with df.Pipeline(runner="direct") as p:
        read = p | TestStream().add_elements(
            [df.TimestampedValue(each, 5) for each in ("x", "minute", "hour")]
        ).advance_watermark_to(61).advance_watermark_to(3_000).advance_watermark_to(3_601)
        minutes = read | "minutes" >> df.WindowInto(df.FixedWindows(60))
        hours = read | "hours" >> df.WindowInto(df.FixedWindows(3_600))
        (
            minutes
            | "elements" >> df.Filter(lambda each: each == "x")
            | df.Map(
                lambda each, one, other: found.append((each, *one, *other)),
                df.AsList(minutes | "of minute" >> df.Filter(lambda each: each == "minute")),
                df.AsList(hours | "of hour" >> df.Filter(lambda each: each == "hour")),
            )
        )

    assert found == [("x", "minute", "hour")]


def test_collections_of_two_pipelines_are_refused() -> None:
    other = df.Pipeline() | df.Create([1])
    with pytest.raises(df.PipelineError, match=r"side input 1 of .* of another pipeline"):
        df.Pipeline() | df.Create([1]) | df.Map(lambda x, n: n, df.AsList(other))


BAG = df.BagStateSpec("seen")


class Counting(df.DoFn):
    """Keeps state."""

    def process(
        self,
        element: Any,
        /,
        side: Any,
        seen: Any = df.DoFn.StateParam(BAG),
    ) -> Iterable[Any]:
        yield side


def test_a_stateful_do_fn_has_no_side_input() -> None:
    p = df.Pipeline()
    side = p | "side" >> df.Create([1])
    with pytest.raises(df.PipelineError, match="keeps state and has a side input"):
        p | df.Create([("k", 1)]) | df.ParDo(Counting(), df.AsList(side))


def test_what_is_grouped_behind_a_side_input_that_retracts_must_retract_too() -> None:
    p = df.Pipeline()
    retracting = windows(MODE.ACCUMULATING_AND_RETRACTING, trigger=EARLY)
    side = p | "side" >> df.Create([at(1, "b")]) | "side windows" >> retracting
    pairs = p | df.Create([at(1, "a")]) | windows()

    seen = pairs | df.Map(lambda x, n: (x, n), df.AsList(side))

    with pytest.raises(df.PipelineError, match="may be retracted, but cannot retract"):
        seen | df.GroupByKey()
    stays = pairs | "stays" >> df.Map(lambda x, n: (x, n), df.AsList(side, retracts=False))
    stays | "group what stays" >> df.GroupByKey()
