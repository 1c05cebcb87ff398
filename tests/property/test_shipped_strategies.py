"""The strategies that are shipped for users: what they draw is what their names promise, and is all there is."""

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from dataflow.testing import strategies as our
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

look = settings(
    max_examples=2_000,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@given(our.elements(), st.data())
def test_bundles_are_the_elements_cut(elements: list[Any], data: st.DataObject) -> None:
    split = data.draw(our.bundles(elements))

    assert elements == [each for bundle in split for each in bundle]
    assert all(split)


@given(our.elements(), st.data())
def test_arrivals_are_of_the_given_elements(elements: list[Any], data: st.DataObject) -> None:
    stream = data.draw(our.arrivals(elements))

    assert sorted(map(repr, elements)) == sorted(map(repr, stream.elements()))


@given(our.streams())
def test_nothing_is_late_unless_asked_for(stream: TestStream) -> None:
    watermark_us = MIN_TIMESTAMP_US
    for event in stream._events:
        assert all(timestamp_us >= watermark_us for timestamp_us in event.timestamps_us)
        watermark_us = event.watermark_us


@pytest.mark.slow
def test_late_elements_can_be_asked_for() -> None:
    def has_late(stream: TestStream) -> bool:
        return any(
            before.watermark_us > timestamp_us
            for before, event in pairwise(stream._events)
            for timestamp_us in event.timestamps_us
        )

    assert has_late(find(our.streams(late=True), has_late, settings=look))


@pytest.mark.slow
def test_streams_shrink_to_what_matters() -> None:
    """One element, in one bundle, and no clock that moves."""
    assert "TestStream().add_elements([TimestampedValue(('a', 1), 0)])" == repr(
        find(
            our.streams(),
            lambda stream: bool(stream.elements()),
            settings=settings(look, phases=list(Phase)),
        )
    )


@given(our.timestamps_us(anywhere=True))
def test_times_are_event_times(timestamp_us: int) -> None:
    assert MIN_TIMESTAMP_US <= timestamp_us < MAX_TIMESTAMP_US


@given(our.windowings())
def test_windowings_are_arguments(windowing: dict[str, Any]) -> None:
    df.WindowInto(**windowing)

    assert set(windowing) == set(inspect.signature(df.WindowInto).parameters)


def kinds_of(base: type) -> list[type]:
    """What users can make; a base class that is for deriving from is abstract."""
    exported = {getattr(df, name) for name in df.__all__}
    kinds = [
        each
        for each in exported
        if inspect.isclass(each) and issubclass(each, base) and not inspect.isabstract(each)
    ]
    return sorted(kinds, key=lambda kind: kind.__name__)


def parts_of(trigger: Any) -> Iterator[df.Trigger]:
    yield trigger
    for field in attrs.fields(type(trigger)):
        value = getattr(trigger, field.name)
        for part in value if isinstance(value, tuple) else [value]:
            if isinstance(part, df.Trigger):
                yield from parts_of(part)


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds_of(df.Trigger), ids=lambda kind: kind.__name__)
def test_every_trigger_is_drawn(kind: type) -> None:
    def has_kind(trigger: df.Trigger) -> bool:
        return any(type(part) is kind for part in parts_of(trigger))

    assert has_kind(find(our.triggers(), has_kind, settings=look))


@pytest.mark.parametrize("kind", kinds_of(df.WindowFn), ids=lambda kind: kind.__name__)
def test_every_window_fn_is_drawn(kind: type) -> None:
    is_merging = issubclass(kind, df.MergingWindowFn)

    def is_kind(window_fn: df.WindowFn) -> bool:
        return type(window_fn) is kind

    assert find(our.window_fns(), is_kind, settings=look)
    assert find(our.window_fns(merging=is_merging), is_kind, settings=look)


@given(our.window_fns(merging=True), our.window_fns(merging=False, keyed=False))
def test_window_fns_can_be_narrowed(merging: df.WindowFn, plain: df.WindowFn) -> None:
    assert isinstance(merging, df.MergingWindowFn)
    assert not isinstance(plain, df.MergingWindowFn | df.PhaseShiftedWindows)


def test_every_mode_is_drawn() -> None:
    for mode in df.AccumulationMode:
        assert mode is find(
            our.accumulation_modes(),
            lambda each: each is mode,  # noqa: B023 - called at once
            settings=look,
        )
