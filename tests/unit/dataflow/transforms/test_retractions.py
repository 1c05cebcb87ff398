"""What may be retracted, through user code, joins and further groupings."""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from tests.oracle.evaluator import Arrivals, Windowing, evaluate
from tests.oracle.hard_streams import arrivals_of
from tests.oracle.laws import Mode, windowed
from tests.strategies import sessions, streams, triggers

RETRACTING = df.AccumulationMode.ACCUMULATING_AND_RETRACTING
BRIDGED = arrivals_of(([("a", 0), ("a", 15)], 50), ([("a", 8)], 50))
SESSIONS = Windowing("sessions", 10, 0, 100)


def emitted_sessions(pipeline: df.Pipeline, arrivals: list[Arrivals] = BRIDGED) -> Any:
    """Two sessions that are emitted, then bridged by a late record."""
    return windowed(pipeline, SESSIONS, arrivals, RETRACTING) | "sessions" >> df.GroupByKey()


def changes(collection: Any, pipeline: df.Pipeline) -> list[df.Change[Any]]:
    seen: list[df.Change[Any]] = []
    collection | df.ToChangelog() | "see" >> df.Map(seen.append)
    pipeline.run()
    return seen


def net(seen: Iterable[df.Change[Any]]) -> Counter[Any]:
    """What is left of all changes."""
    left: Counter[Any] = Counter()
    for change in seen:
        left[repr(change.value)] += change.sign
    return +left if min(left.values(), default=0) >= 0 else left


def test_a_mode_that_cannot_retract_is_refused() -> None:
    """Both groupings are named, and what to do."""
    pipeline = df.Pipeline(DirectRunner())
    totals = emitted_sessions(pipeline) | df.WindowInto(
        df.FixedWindows(60), accumulation_mode=df.AccumulationMode.ACCUMULATING
    )
    with pytest.raises(df.PipelineError) as caught:
        totals | "again" >> df.GroupByKey()
    assert "'again'" in caught.value.fact
    assert "test_retractions.py" in caught.value.fact
    assert "'sessions'" in caught.value.detail
    assert "ACCUMULATING_AND_RETRACTING" in caught.value.hint


def test_a_value_that_cannot_be_found_again_is_an_error() -> None:
    """A list in a multiset."""
    pipeline = df.Pipeline(DirectRunner())
    emitted_sessions(pipeline) | "again" >> df.GroupByKey()
    with pytest.raises(df.TransformError) as caught:
        pipeline.run()
    assert "'again'" in caught.value.fact
    assert "unhashable type: 'list'" in caught.value.fact
    assert "tuples" in caught.value.hint


def test_the_changelog_can_be_grouped_in_any_mode() -> None:
    """It is made of ordinary elements."""
    pipeline = df.Pipeline(DirectRunner())
    seen: list[Any] = []
    (
        emitted_sessions(pipeline)
        | df.ToChangelog()
        | df.Map(lambda change: (change.value[0], change.sign))
        | df.WindowInto(df.GlobalWindows())
        | "count" >> df.CombinePerKey(sum)
        | df.Map(seen.append)
    )
    pipeline.run()

    assert [("a", 1)] == seen


@pytest.mark.parametrize("values", [[float("nan"), 2.0], [1, 1, 1], ["x", None]])
def test_a_multiset_finds_again_what_it_was_given(values: list[Any]) -> None:
    pipeline = df.Pipeline(DirectRunner())
    arrivals = arrivals_of(([("a", at) for at in range(len(values))], 50), ([("a", 8)], 50))
    numbered = dict(enumerate(values, start=1))
    first = (
        emitted_sessions(pipeline, arrivals)
        | df.FlatMap(lambda group: [("k", numbered.get(each, "late")) for each in group[1]])
        | df.WindowInto(df.GlobalWindows(), allowed_lateness=1, accumulation_mode=RETRACTING)
        | "again" >> df.GroupByKey()
    )
    seen = changes(first, pipeline)

    assert net(seen) == Counter([repr(("k", [*values, "late"]))])


class Guess(df.DoFn):
    """Returns something else every time."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def process(self, element: Any, /) -> Any:
        for _ in range(1 + next(self._numbers) % 3):
            yield element[0], next(self._numbers)


NUMBERS = itertools.count()


@st.composite
def guesses(draw: st.DrawFn) -> Any:
    """Non-deterministic user code of every shape, also behind a FlatMap that makes several of one."""
    guess = draw(
        st.sampled_from(
            [
                df.Map(df.nondeterministic(lambda pair: (pair[0], next(NUMBERS)))),
                df.Filter(df.nondeterministic(lambda _: next(NUMBERS) % 2)),
                df.FlatMap(df.nondeterministic(lambda pair: [(pair[0], next(NUMBERS))] * 2)),
                df.ParDo(df.nondeterministic(Guess)()),
            ]
        )
    )
    several = draw(st.integers(1, 3))
    # Each at an event time of its own.
    apart = df.FlatMap(
        lambda pair: [df.TimestampedValue((pair[0], n), n + 1) for n in range(several)]
    )
    return apart, guess


@given(windowing=sessions(), arrivals=streams(), trigger=triggers(), guess=guesses())
def test_what_cannot_be_made_again_is_remembered(
    windowing: Windowing, arrivals: list[Arrivals], trigger: df.Trigger, guess: Any
) -> None:
    """Every retraction of a guess retracts a guess that was made, and what is left was made of what is left."""
    several, unsure = guess
    pipeline = df.Pipeline(DirectRunner())
    results = windowed(pipeline, windowing, arrivals, Mode.ACCUMULATING_AND_RETRACTING, trigger)
    collection = results | "first" >> df.GroupByKey() | several | unsure
    emitted: Counter[Any] = Counter()
    windows: Counter[Any] = Counter()
    for change in changes(collection, pipeline):
        emission = change.value, change.window, change.timestamp_us
        emitted[emission] += change.sign
        windows[change.value[0], change.window] += change.sign

        assert emitted[emission] >= 0, "what is retracted was emitted"
    places = {(g.key, g.start_us, g.end_us) for g in evaluate(windowing, arrivals).groups}

    assert {(key, *window) for (key, window), count in windows.items() if count} <= places


def test_a_join_retracts_what_it_emitted() -> None:
    """A late record of one side changes the groups of both."""
    pipeline = df.Pipeline(DirectRunner())
    left = emitted_sessions(pipeline) | df.Map(lambda group: (group[0], len(group[1])))
    right = left | df.Map(lambda pair: (pair[0], -pair[1]))
    joined = {"left": left, "right": right} | df.CoGroupByKey()
    seen = changes(joined, pipeline)

    assert net(seen) == Counter([repr(("a", {"left": [3], "right": [-3]}))])
    assert [1, 1, -1, -1, 1] == [change.sign for change in seen]


def test_a_join_has_a_group_where_any_input_has() -> None:
    seen: list[Any] = []
    with df.Pipeline() as p:
        people = p | "people" >> df.Create([("ann", 1), ("bob", 2)])
        pets = p | "pets" >> df.Create([("ann", "cat"), ("ann", "dog"), ("cid", "emu")])
        joined = {"people": people, "pets": pets} | df.CoGroupByKey()
        joined | df.Map(seen.append)

    assert dict(seen) == {
        "ann": {"people": [1], "pets": ["cat", "dog"]},
        "bob": {"people": [2], "pets": []},
        "cid": {"people": [], "pets": ["emu"]},
    }


@pytest.mark.parametrize("wrong", [[], {}, 5])
def test_a_join_of_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(df.PipelineError, match="needs several PCollections"):
        df.CoGroupByKey().__ror__(wrong)


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.booleans()), max_size=12),
    st.sampled_from([df.SumCombineFn(), df.CountCombineFn(), df.MeanCombineFn()]),
)
def test_retract_input_inverts_add_input(
    steps: list[tuple[int, bool]], combine_fn: df.CombineFn
) -> None:
    """In any order, also before."""
    accumulator = combine_fn.create_accumulator()
    for value, is_first in steps:
        if is_first:
            accumulator = combine_fn.retract_input(accumulator, value)
        accumulator = combine_fn.add_input(accumulator, value)
        if not is_first:
            accumulator = combine_fn.retract_input(accumulator, value)

    assert combine_fn.create_accumulator() == accumulator
