"""A source of one's own whose watermark follows a wrong record makes nothing late that is right."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import PipelineError
from dataflow.graph import Read
from dataflow.io.arrival import ARRIVAL_TIME
from dataflow.io.max_ahead import MaxAhead
from dataflow.io.trusted_watermark import TrustedReader
from dataflow.source import SourceBatch, SourceReader, SplitStatus
from runners.direct import DirectRunner
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

US, DAY_US = 1_000_000, 86_400_000_000
#: The time on the clock of the computer these tests run on, about.
NOW_US = 1_900_000_000 * US


class Following(df.Source):
    """Records at these times, one at a time; its watermark follows the newest."""

    def __init__(self, times_us: Sequence[int]) -> None:
        self.times_us = list(times_us)

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _Reader(self.times_us, position or 0)


class _Reader(SourceReader):
    def __init__(self, times_us: list[int], position: int) -> None:
        self._times_us, self._next = times_us, position

    def read(self, max_records: int) -> SourceBatch:
        read = self._times_us[self._next : self._next + min(max_records, 1)]
        self._next += len(read)
        is_over = self._next >= len(self._times_us)
        return SourceBatch(
            values=[f"at {time_us}" for time_us in read],
            timestamps_us=read,
            position=self._next,
            watermark_us=max(self._times_us[: self._next], default=MIN_TIMESTAMP_US),
            status=SplitStatus.FINISHED if is_over else SplitStatus.ACTIVE,
        )


def counted(source: df.Source, **options: Any) -> tuple[int, list[Any], int]:
    """What windows count, the dead letters, and how many records are late."""
    found: list[int] = []
    p = df.Pipeline(DirectRunner(bundle_records=1))
    pairs = p | "read" >> df.Read(source, **options) | df.Map(lambda record: ("k", 1))
    hours = pairs | df.WindowInto(df.FixedWindows(3600)) | df.CombinePerKey(sum)
    hours | df.Map(lambda pair: found.append(pair[1]))
    result = p.run()
    return sum(found), list(result.dead_letters()), len(result.late_records())


HOURS_US = [hour * 3600 * US for hour in range(6)]
FAR_US = NOW_US + 70 * 365 * DAY_US


def test_what_is_right_is_not_late_behind_what_is_far_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The wrong record is a dead letter, and the source is named."""
    source = Following([*HOURS_US[:3], FAR_US, *HOURS_US[3:]])
    with caplog.at_level(logging.WARNING):
        count, dead, late = counted(source)

    assert (count, late) == (len(HOURS_US), 0)
    [letter] = dead
    assert letter["element"].value == f"at {FAR_US}"
    assert "Following has a record whose event time is ahead of the clock" in letter["error"]
    assert caplog.text.count("Following reports a watermark of") == 1
    assert counted(source, max_ahead=None)[2] == 3


class Planning(Following):
    """Its watermark has nothing to do with the times of its records."""

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        reader = super().open(split, position, fence=fence)
        read = reader.read

        def planned(max_records: int) -> SourceBatch:
            batch = read(max_records)
            return SourceBatch(
                values=batch.values,
                timestamps_us=batch.timestamps_us,
                position=batch.position,
                watermark_us=NOW_US - 10_000 * DAY_US,
                status=batch.status,
            )

        reader.read = planned  # type: ignore[method-assign]
        return reader


def test_times_ahead_that_no_watermark_follows_are_right() -> None:
    """Appointments have such times."""
    count, dead, late = counted(Planning([FAR_US, FAR_US + 1, FAR_US + 2]))

    assert (count, dead, late) == (3, [], 0)


class Scripted(SourceReader):
    def __init__(self, batches: list[SourceBatch]) -> None:
        self._batches = iter(batches)

    def read(self, max_records: int) -> SourceBatch:
        return next(self._batches)


times_us = st.integers(NOW_US - 3 * DAY_US, NOW_US + 3 * DAY_US) | st.just(MAX_TIMESTAMP_US)


@given(
    script=st.lists(
        st.tuples(st.lists(times_us, max_size=3), times_us, st.sampled_from(SplitStatus))
    )
)
def test_no_watermark_passes_the_ceiling_and_no_record_is_lost(
    script: list[tuple[list[int], int, SplitStatus]],
) -> None:
    """What is handed over and what is set aside is all that was read; what can be is left as it is."""
    batches = [
        SourceBatch(
            values=list(times), timestamps_us=times, position=n, watermark_us=us, status=status
        )
        for n, (times, us, status) in enumerate(script)
    ]
    ceiling_us = NOW_US + DAY_US
    reader = TrustedReader(Scripted(batches), MaxAhead(DAY_US, lambda: NOW_US), "Scripted")
    output_watermark_us = MIN_TIMESTAMP_US
    for batch in batches:
        found = reader.read(10)
        aside_us = [each.timestamp_us or 0 for each in found.set_aside]
        assert sorted([*found.timestamps_us, *aside_us]) == sorted(batch.timestamps_us)
        assert list(found.values) == list(found.timestamps_us)
        assert (found.position, found.status) == (batch.position, batch.status)
        is_over = SplitStatus.FINISHED is batch.status or batch.watermark_us == MAX_TIMESTAMP_US
        if is_over or batch.watermark_us <= ceiling_us:
            assert found is batch
            output_watermark_us = max(output_watermark_us, batch.watermark_us)
        else:
            assert found.watermark_us == output_watermark_us
            assert all(us > ceiling_us for us in aside_us)
            assert all(us <= ceiling_us for us in found.timestamps_us)


def ahead_of_us(**options: Any) -> int | None:
    p = df.Pipeline(DirectRunner())
    p | "read" >> df.Read(Following([1]), **options)
    operation = p.graph().transforms[0].operation
    assert isinstance(operation, Read)
    return operation.max_ahead_us


def test_who_has_a_limit() -> None:
    """A source of one's own, unless it is declared otherwise, or its times are those of its arrival."""
    assert ahead_of_us() == DAY_US
    assert ahead_of_us(max_ahead=3600) == 3600 * US
    assert ahead_of_us(max_ahead=None) is None
    assert ahead_of_us(event_time=ARRIVAL_TIME) is None
    with pytest.raises(PipelineError, match="negative max_ahead"):
        ahead_of_us(max_ahead=-1)
