"""Deduplicate: the first of equal elements, until a time has passed in either domain."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from tests.unit.dataflow.test_refused_state import refused
from tests.unit.dataflow.test_user_state import retracting, run_all
from tests.unit.dataflow.transforms.test_transforms import run


def firsts(elements: list[tuple[str, int]], seconds: int) -> list[tuple[str, int]]:
    """What is emitted of keys and times, worked out from scratch."""
    found: list[tuple[str, int]] = []
    until: dict[str, int] = {}
    for key, at in sorted(elements, key=lambda each: each[1]):
        if at >= until.get(key, 0):
            until[key] = at + seconds
            found.append((key, at))
    return sorted(found)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=30),
    st.integers(1, 20),
)
def test_each_key_comes_once_in_so_much_event_time(
    elements: list[tuple[str, int]], seconds: int
) -> None:
    values = [df.TimestampedValue((key, at), at) for key, at in elements]
    per_key = df.DeduplicatePerKey(event_time_duration=seconds)

    assert firsts(elements, seconds) == sorted(run(per_key, values=values))
    whole = df.Deduplicate(event_time_duration=seconds)
    keys = [df.TimestampedValue(key, at) for key, at in elements]
    assert sorted(key for key, _ in firsts(elements, seconds)) == sorted(run(whole, values=keys))


def test_each_key_comes_once_in_so_much_processing_time() -> None:
    stream = (
        TestStream()
        .advance_processing_time(1)
        .add_elements([("a", 1), ("a", 2)])
        .advance_processing_time(4)
        .add_elements([("a", 3), ("b", 4)])
        .advance_processing_time(2)
        .add_elements([("a", 5), ("b", 6)])
    )
    emitted, _ = run_all(df.DeduplicatePerKey(processing_time_duration=5), source=stream)

    assert [("a", 1), ("b", 4), ("a", 5)] == emitted


def test_the_time_that_has_passed_first_counts() -> None:
    stream = (
        TestStream()
        .advance_processing_time(1)
        .add_elements([df.TimestampedValue("a", 1)])
        .advance_watermark_to(12)
        .add_elements([df.TimestampedValue("a", 13)])
        .advance_processing_time(6)
        .add_elements([df.TimestampedValue("a", 14), df.TimestampedValue("a", 15)])
    )
    both = df.Deduplicate(processing_time_duration=5, event_time_duration=10)
    emitted, _ = run_all(both, df.Reify.Window(), source=stream)

    assert [1.0, 13.0, 14.0] == [at.timestamp() for _, at, _ in emitted]


def test_each_window_has_a_first() -> None:
    values = [df.TimestampedValue("a", at) for at in (1, 2, 11)]
    found = run(
        df.WindowInto(df.FixedWindows(10)),
        df.Deduplicate(event_time_duration=1000),
        values=values,
    )

    assert ["a", "a"] == found


@pytest.mark.parametrize("kind", [df.Deduplicate, df.DeduplicatePerKey])
def test_durations_are_needed_and_positive(kind: Any) -> None:
    with pytest.raises(df.PipelineError, match=f"{kind.__name__} needs a processing_time"):
        kind()
    for wrong in ({"processing_time_duration": 0}, {"event_time_duration": -1}):
        with pytest.raises(df.PipelineError, match="needs positive durations"):
            kind(**wrong)


def test_what_cannot_be_deduplicated_is_refused() -> None:
    for kind in (df.Deduplicate, df.DeduplicatePerKey):
        assert "may merge" in refused(kind(5), df.WindowInto(df.Sessions(60))).fact
        assert "may be retracted" in refused(kind(5), *retracting()).fact
