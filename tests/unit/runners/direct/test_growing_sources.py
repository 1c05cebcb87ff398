"""Sources that get and lose splits, in memory."""

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.io.arrival import ArrivalTime
from runners.testing.scripted_source import Batch, ScriptedSource

SECOND_US = 1_000_000


class Growing(ScriptedSource):
    """The second script comes when the first has nothing, and the third when both have ended; the second is removed."""

    is_bounded = False
    discover_every_ms = 1

    def __init__(self) -> None:
        first = [
            Batch(["a"], [70 * SECOND_US], 65 * SECOND_US),
            Batch([], [], 65 * SECOND_US, df.SplitStatus.IDLE),
        ]
        super().__init__(
            first,
            [Batch(["b"], [50 * SECOND_US], 0)],
            [Batch(["c"], [80 * SECOND_US], 80 * SECOND_US)],
        )
        self.asked: list[list[Any]] = []

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        reader = super().open(split, position, fence=fence)
        return Endless(reader) if split == 1 else reader

    def discover(self, known: Sequence[Any]) -> df.SplitChanges:
        self.asked.append(list(known))
        return df.SplitChanges(added=[len(known)] if len(known) < 3 else [], removed=[1])


class Endless(df.SourceReader):
    """Reads as another one does, and is idle where that ends."""

    def __init__(self, inner: df.SourceReader) -> None:
        self._inner = inner

    def read(self, max_records: int) -> df.SourceBatch:
        batch = self._inner.read(max_records)
        if batch.status is not df.SplitStatus.FINISHED:
            return batch
        return attrs.evolve(batch, watermark_us=0, status=df.SplitStatus.IDLE)


@pytest.mark.parametrize("event_time", [None, df.ARRIVAL_TIME, ArrivalTime(lambda: 5)])
def test_splits_come_and_go(
    event_time: ArrivalTime | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is read; it ends when all have ended, and nothing is discovered."""
    source = Growing()
    seen: list[str] = []
    with caplog.at_level(logging.WARNING), df.Pipeline() as p:
        p | df.Read(source, event_time=event_time) | df.Map(seen.append)
    assert sorted(seen) == ["a", "b", "c"]
    assert source.asked[-1] == [0, 1, 2]
    assert "is not in the input of" in caplog.text


def test_a_new_split_begins_where_event_time_is() -> None:
    """What it has from before is late, and the end of the others has not fired what it belongs to."""
    seen: list[tuple[str, list[str]]] = []
    with df.Pipeline() as p:
        (
            p
            | df.Read(Growing())
            | df.Map(lambda value: ("k", value))
            | df.WindowInto(df.FixedWindows(60), allowed_lateness=0)
            | df.GroupByKey()
            | df.Map(
                lambda pair, window=df.DoFn.WindowParam: seen.append(
                    (f"{window.start:%M}", sorted(pair[1]))
                )
            )
        )
    assert seen == [("01", ["a", "c"])]
    assert p.result is not None
    assert [each["element"].value for each in p.result.late_records()] == [("k", "b")]


def test_a_source_that_nobody_can_ask_is_refused() -> None:
    class Forgetful(Growing):
        is_bounded = True

    with pytest.raises(df.PipelineError, match=r"Forgetful may get splits .* ends by itself"):
        df.Read(Forgetful())


def test_an_answer_that_is_none_ends_the_run() -> None:
    """On a stream too, where what `discover` raises does not."""

    class Wrong(Growing):
        def discover(self, known: Sequence[Any]) -> Any:
            return [5]

    p = df.Pipeline()
    p | df.Read(Wrong())
    with pytest.raises(df.InputError, match="discover has returned no SplitChanges"):
        p.run()
