"""BatchElements and GroupIntoBatches: every element in one list, of the sizes that are allowed."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.testing import TestStream
from tests.unit.dataflow.test_refused_state import refused
from tests.unit.dataflow.test_user_state import retracting, run_all
from tests.unit.dataflow.transforms.test_transforms import run

TEN_SECONDS = df.WindowInto(df.FixedWindows(10))
STAMPED = st.lists(st.tuples(st.integers(), st.integers(0, 50)), max_size=30)


def seconds(window: df.Window) -> int:
    return window.start_us // 1_000_000


@given(STAMPED, st.integers(1, 6), st.integers(0, 6), st.integers(1, 40))
def test_bundles_are_divided_into_lists(
    elements: list[tuple[int, int]], least: int, more: int, bundle_records: int
) -> None:
    """The lists of a window have its elements, and are no longer than allowed."""
    values = [df.TimestampedValue(*each) for each in elements]
    batches = df.BatchElements(least, least + more)
    found = run(
        TEN_SECONDS, batches, df.Reify.Window(), values=values, bundle_records=bundle_records
    )

    assert Counter((value, at // 10 * 10) for value, at in elements) == Counter(
        (value, seconds(window)) for batch, _, window in found for value in batch
    )
    assert all(1 <= len(batch) <= least + more for batch, _, _ in found)
    assert all(at.timestamp() >= seconds(window) for _, at, window in found)


@pytest.mark.parametrize(
    ("least", "most", "size", "sizes"),
    [
        (1, 4, 10, [4, 4, 2]),
        (3, 4, 10, [4, 3, 3]),
        (4, 4, 10, [4, 4, 2]),
        (2, 4, 9, [4, 3, 2]),
        (5, 9, 3, [3]),
        (1, 9, 9, [9]),
    ],
)
def test_the_last_list_takes_what_it_lacks(
    least: int, most: int, size: int, sizes: list[int]
) -> None:
    found = run(df.BatchElements(least, most), values=range(size), bundle_records=100)

    assert sizes == [len(batch) for batch in found]
    assert list(range(size)) == [value for batch in found for value in batch]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=40),
    st.integers(1, 5),
)
def test_keys_and_windows_are_grouped_into_full_lists(
    elements: list[tuple[str, int]], size: int
) -> None:
    """All but the last list of a key and window are full."""
    values = [df.TimestampedValue((key, at), at) for key, at in elements]
    found = run(TEN_SECONDS, df.GroupIntoBatches(size), df.Reify.Window(), values=values)
    lists: dict[Any, list[list[int]]] = defaultdict(list)
    for (key, batch), _, window in found:
        lists[key, seconds(window)].append(batch)

    assert Counter((key, at // 10 * 10, at) for key, at in elements) == Counter(
        (*place, at) for place, batches in lists.items() for batch in batches for at in batch
    )
    for batches in lists.values():
        short = [each for each in batches if len(each) < size]
        assert len(short) <= 1


def test_what_is_left_is_emitted_when_the_window_ends() -> None:
    stream = (
        TestStream()
        .add_elements([df.TimestampedValue(("a", value), value) for value in (1, 2, 3)])
        .advance_watermark_to(10)
        .add_elements([df.TimestampedValue(("a", 11), 11)])
        .add_elements([df.TimestampedValue(("a", 4), 4)])
        .advance_watermark_to(15)
    )
    window = df.WindowInto(
        df.FixedWindows(10),
        allowed_lateness=100,
        accumulation_mode=df.AccumulationMode.DISCARDING,
    )
    emitted, late = run_all(window, df.GroupIntoBatches(2), source=stream)

    assert [("a", [1, 2]), ("a", [3]), ("a", [4]), ("a", [11])] == emitted
    assert [] == late


def test_lists_end_after_so_many_bytes() -> None:
    values = ["x" * 10, "y" * 60, "z"]
    stamped = [df.TimestampedValue(("a", value), at) for at, value in enumerate(values)]

    assert [("a", values[:2]), ("a", values[2:])] == run(
        df.GroupIntoBatches(100, max_bytes=50), values=stamped
    )


def test_lists_wait_no_longer_than_allowed() -> None:
    stream = (
        TestStream()
        .advance_processing_time(1)
        .add_elements([("a", 1), ("a", 2)])
        .advance_processing_time(4)
        .add_elements([("a", 3)])
        .advance_processing_time(2)
        .add_elements([("a", 4)])
    )
    emitted, _ = run_all(df.GroupIntoBatches(100, max_duration=5), source=stream)

    assert [("a", [1, 2, 3]), ("a", [4])] == emitted


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "3"])
def test_sizes_are_positive_integers(wrong: Any) -> None:
    for make in (
        lambda: df.GroupIntoBatches(wrong),
        lambda: df.GroupIntoBatches(3, max_bytes=wrong),
        lambda: df.BatchElements(wrong),
        lambda: df.BatchElements(1, wrong),
    ):
        with pytest.raises(df.PipelineError, match=f"needs a positive .*, not {wrong!r}"):
            make()
    with pytest.raises(df.PipelineError, match="positive max_duration"):
        df.GroupIntoBatches(3, max_duration=0)
    with pytest.raises(df.PipelineError, match="more than its max_batch_size"):
        df.BatchElements(3, 2)


def test_what_cannot_be_batched_is_refused() -> None:
    assert "may merge" in refused(df.GroupIntoBatches(2), df.WindowInto(df.Sessions(60))).fact
    assert "may be retracted" in refused(df.GroupIntoBatches(2), *retracting()).fact
    assert "may be retracted" in refused(df.BatchElements(), *retracting()).fact


class Unstamped(df.DoFn):
    """Emits something at the end of a bundle that has no event time and no window."""

    def process(self, element: Any, /) -> None: ...

    def finish_bundle(self) -> Iterator[Any]:
        yield 1


def test_an_output_of_a_bundles_end_needs_a_time_and_a_window() -> None:
    with pytest.raises(df.TransformError, match="has no event time") as caught:
        run(TEN_SECONDS, df.ParDo(Unstamped()), values=[df.TimestampedValue(1, 5)])

    assert "df.WindowedValue(value, timestamp, window)" in (caught.value.hint or "")
