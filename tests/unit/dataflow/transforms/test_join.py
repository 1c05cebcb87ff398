"""Join: what is refused, what its other modes emit, and code behind it that does not return the same twice."""

import itertools
from collections import Counter
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner

Mode = df.AccumulationMode
PEOPLE, PETS = [("ann", 1), ("bob", 2)], [("ann", "cat"), ("ann", "dog"), ("cid", "emu")]


def both(pipeline: df.Pipeline, **windowing: Any) -> tuple[Any, Any]:
    """People and pets, one after the other."""
    stream = TestStream()
    for each in (("person", PEOPLE[0]), *(("pet", pet) for pet in PETS), ("person", PEOPLE[1])):
        stream = stream.add_elements([each])
    events: Any = pipeline | stream | df.WindowInto(df.GlobalWindows(), **windowing)
    people, pets = (
        events
        | kind >> df.Filter(lambda event, kind=kind: event[0] == kind)
        | f"{kind} pairs" >> df.Map(lambda event: event[1])
        for kind in ("person", "pet")
    )
    return people, pets


@pytest.mark.parametrize("wrong", [[], {}, 5, (None, None), "ab"])
def test_a_join_of_something_else_than_two_collections_is_refused(wrong: Any) -> None:
    with pytest.raises(df.PipelineError, match="needs two PCollections"):
        df.Join().__ror__(wrong)


def test_a_join_type_that_is_none_is_refused() -> None:
    with pytest.raises(df.PipelineError, match="needs a JoinType") as caught:
        df.Join("inner")  # type: ignore[arg-type]
    assert "LEFT_OUTER" in caught.value.hint


def test_collections_in_other_windows_are_refused() -> None:
    pipeline = df.Pipeline(DirectRunner())
    people, pets = both(pipeline)
    with pytest.raises(df.PipelineError, match="windowed differently"):
        _ = (people, pets | "other" >> df.WindowInto(df.FixedWindows(60))) | df.Join()


@pytest.mark.parametrize(
    "windowing",
    [{"trigger": df.Always()}, {"allowed_lateness": 1}, {"watermark_percentile": 90}],
    ids=str,
)
def test_windows_that_discard_what_others_would_have_met_are_refused(windowing: Any) -> None:
    """Each of them can fire twice."""
    pipeline = df.Pipeline(DirectRunner())
    with pytest.raises(df.PipelineError, match="would lose pairs") as caught:
        _ = both(pipeline, accumulation_mode=Mode.DISCARDING, **windowing) | "lost" >> df.Join()
    assert "'lost'" in caught.value.fact
    assert "test_join.py" in caught.value.fact
    assert "ACCUMULATING_AND_RETRACTING" in caught.value.hint


@pytest.mark.parametrize("mode", Mode, ids=lambda each: each.name)
def test_windows_that_fire_once_emit_the_same_in_every_mode(mode: Mode) -> None:
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    pairs = both(pipeline, accumulation_mode=mode) | df.Join(df.JoinType.FULL_OUTER)
    pairs | df.Map(seen.append)
    pipeline.run()

    assert Counter(seen) == Counter(
        [
            ("ann", (1, "cat")),
            ("ann", (1, "dog")),
            ("bob", (2, None)),
            ("cid", (None, "emu")),
        ]
    )


def test_values_of_what_is_never_retracted_need_not_be_hashable() -> None:
    seen: list[Any] = []
    pipeline = df.Pipeline(DirectRunner())
    people, pets = both(
        pipeline, trigger=df.Always(), accumulation_mode=Mode.ACCUMULATING_AND_RETRACTING
    )
    lists = people | "lists" >> df.Map(lambda pair: (pair[0], [pair[1]]))
    (lists, pets) | df.Join() | df.Map(seen.append)
    pipeline.run()

    assert [("ann", ([1], "cat")), ("ann", ([1], "dog"))] == seen


def test_what_code_made_of_a_pair_is_what_is_retracted() -> None:
    """Also where the code would make something else of it now."""
    numbers = itertools.count()
    balance: Counter[Any] = Counter()
    pipeline = df.Pipeline(DirectRunner())
    pairs = both(
        pipeline, trigger=df.Always(), accumulation_mode=Mode.ACCUMULATING_AND_RETRACTING
    ) | df.Join(df.JoinType.LEFT_OUTER)

    @df.nondeterministic
    def numbered(pair: Any) -> Any:
        return next(numbers), pair

    def book(change: df.Change[Any]) -> None:
        balance[change.value] += change.sign
        assert balance[change.value] >= 0, change

    pairs | df.Map(numbered) | df.ToChangelog() | df.Map(book)
    pipeline.run()

    left = Counter(pair for _, pair in balance.elements())
    assert left == Counter([("ann", (1, "cat")), ("ann", (1, "dog")), ("bob", (2, None))])
