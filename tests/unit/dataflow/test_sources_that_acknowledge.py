"""When the reader of a source is notified of what is durable, in memory; and what is refused."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus, open_split
from runners.direct import DirectRunner
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND

#: What happens, in its order: numbers that come through the pipeline, and positions as text.
EVENTS: list[Any] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    EVENTS.clear()


class Numbers(Source[int]):
    """Four numbers in one split, each at its second of processing time."""

    acknowledges = True

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return NumbersReader(position or 0)


class NumbersReader(SourceReader):
    def __init__(self, position: int) -> None:
        self._next = position

    def read(self, max_records: int) -> SourceBatch:
        values = list(range(self._next, min(4, self._next + max_records)))
        self._next += len(values)
        return SourceBatch(
            values=values,
            timestamps_us=[MIN_TIMESTAMP_US for _ in values],
            position=self._next,
            watermark_us=MIN_TIMESTAMP_US,
            status=SplitStatus.FINISHED if self._next == 4 else SplitStatus.ACTIVE,
            processing_time_us=self._next * US_PER_SECOND,
        )

    def committed(self, position: int) -> None:
        EVENTS.append(f"up to {position}")


def run(read: df.Read[int], runner: df.Runner) -> None:
    p = df.Pipeline(runner)
    totals = (
        p
        | read
        | df.WithKeys(0)
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Always(),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.GroupByKey()
    )
    totals | df.MapTuple(lambda _, values: EVENTS.extend(sorted(values)))
    p.run()


@pytest.mark.parametrize(
    "read",
    [
        lambda: df.Read(Numbers()),
        lambda: df.Read(Numbers(), max_ahead=None),
        lambda: df.Read(Numbers(), event_time=df.ARRIVAL_TIME),
    ],
)
def test_a_bundle_is_through_before_its_reader_is_notified(read: Any) -> None:
    """The positions are those of the reader, whatever is around it."""
    run(read(), DirectRunner(bundle_records=2))
    assert EVENTS == [0, 1, "up to 2", 2, 3, "up to 4"]


def test_a_micro_batch_is_through_before_the_readers_are_notified() -> None:
    run(df.Read(Numbers()), DirectRunner(bundle_records=1, micro_batch=timedelta(seconds=10)))
    assert EVENTS[:4] == [0, 1, 2, 3]
    assert EVENTS[4:] == ["up to 4"]


def test_a_reader_that_is_never_notified_is_refused() -> None:
    class Silent(Numbers):
        acknowledges = False

    with pytest.raises(InputError, match="NumbersReader defines committed, which nobody would"):
        df.collect(df.Pipeline() | df.Read(Silent()))
    with pytest.raises(InputError, match="NumbersReader defines committed"):
        df.collect(df.Pipeline() | df.Read(Silent(), event_time=df.ARRIVAL_TIME))


def test_a_source_that_takes_no_fence_is_refused() -> None:
    class Unfenced(Numbers):
        def open(self, split: int, position: int | None) -> SourceReader:  # type: ignore[override]
            return NumbersReader(position or 0)

    with pytest.raises(
        PipelineError, match=r"Unfenced\.open cannot be called with .* a fence"
    ) as e:
        df.Read(Unfenced())
    assert "open(self, split, position, *, fence)" in str(e.value)


def test_what_is_no_reader_is_refused() -> None:
    class Broken(Numbers):
        def open(self, split: int, position: int | None, *, fence: int) -> Any:
            return None

    with pytest.raises(InputError, match="Broken has opened no SourceReader, but None"):
        open_split(Broken(), 0, None)
