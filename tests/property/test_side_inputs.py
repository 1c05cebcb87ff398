"""In the end elements are there with the last views, whatever came first; and each is there once at every moment."""

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from runners.direct import DirectRunner
from tests.effort import by_profile

MODE = df.AccumulationMode
#: An example takes some ten milliseconds.
EFFORT = settings(max_examples=by_profile(dev=60, ci=100, nightly=3_000), deadline=None)
WINDOW = 10
TRIGGERS = st.sampled_from(
    [
        None,
        df.Always(),
        df.AfterWatermark(early=df.AfterCount(1), late=df.AfterCount(1)),
        df.AfterWatermark(early=df.AfterCount(2)),
    ]
)


@attrs.frozen
class Script:
    """What comes, with event times in seconds, in parts; between two parts the watermark moves to that second."""

    parts: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    def stream(self) -> TestStream:
        stream, reached = TestStream(), 0
        for moves, elements in self.parts:
            stream = stream.add_elements([df.TimestampedValue(*each) for each in elements])
            reached += moves
            stream = stream.advance_watermark_to(reached)
        return stream

    @property
    def elements(self) -> list[tuple[str, int]]:
        return [each for _, elements in self.parts for each in elements]


def scripts(letters: str) -> st.SearchStrategy[Script]:
    element = st.tuples(st.sampled_from(letters), st.integers(0, 39))
    part = st.tuples(st.integers(0, 15), st.lists(element, max_size=3).map(tuple))
    return st.lists(part, min_size=1, max_size=5).map(lambda parts: Script(tuple(parts)))


def changes(main: Script, side: Script, trigger: Any, size: int, **more: Any) -> list[Any]:
    """Signs and values of elements with the sorted side input; nothing is too late."""
    found: list[Any] = []
    windowed = df.WindowInto(
        df.FixedWindows(size),
        trigger=trigger,
        allowed_lateness=1_000,
        accumulation_mode=more.pop("mode", MODE.ACCUMULATING_AND_RETRACTING),
    )
    own = df.WindowInto(
        df.FixedWindows(WINDOW), allowed_lateness=1_000, accumulation_mode=MODE.ACCUMULATING
    )
    with df.Pipeline(DirectRunner()) as p:
        letters = p | "side" >> side.stream() | "side windows" >> windowed
        (
            p
            | "main" >> main.stream()
            | "windows" >> own
            | df.Map(
                lambda x, all_of_it, at=df.DoFn.TimestampParam: (
                    x,
                    int(at.timestamp()),
                    "".join(sorted(all_of_it)),
                ),
                df.AsList(letters, shards=3, **more),
            )
            | df.ToChangelog()
            | df.Map(lambda each: found.append((each.sign, each.value)))
        )
    return found


@EFFORT
@given(
    main=scripts("ab"), side=scripts("xyz"), trigger=TRIGGERS, size=st.sampled_from([WINDOW, 20])
)
def test_in_the_end_elements_are_there_with_the_last_views(
    main: Script, side: Script, trigger: Any, size: int
) -> None:
    net: Counter[Any] = Counter()
    there: Counter[Any] = Counter()
    of_script = Counter(main.elements)
    for sign, value in changes(main, side, trigger, size):
        net[value] += sign
        there[value[:2]] += sign
        assert min(net[value], there[value[:2]]) >= 0, "retracted before it was emitted"
        assert there[value[:2]] <= of_script[value[:2]]

    assert (
        Counter(
            (x, t, "".join(sorted(y for y, at in side.elements if at // size == t // size)))
            for x, t in main.elements
        )
        == +net
    )


@EFFORT
@given(main=scripts("ab"), side=scripts("xyz"), trigger=TRIGGERS)
@pytest.mark.parametrize("mode", MODE)
def test_what_is_not_retracted_is_emitted_once(
    mode: MODE, main: Script, side: Script, trigger: Any
) -> None:
    found = changes(main, side, trigger, WINDOW, mode=mode, retracts=False)

    assert Counter(main.elements) == Counter(value[:2] for _, value in found)
    assert all(sign > 0 for sign, _ in found)
