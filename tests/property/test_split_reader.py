"""What a backfill reads of a split and what a stream reads on is the split, each record once, wherever the cut is."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import dataflow as df
from runners.batch.backfill import split_reader
from runners.batch.backfill.split_reader import SplitReader
from runners.core.stages.source_stage import watermark_behind
from runners.errors import UnrepeatableError
from runners.stored.places import SplitMark
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

END_US = MAX_TIMESTAMP_US


@attrs.frozen
class Timed(df.Source):
    """Event times, of which a part is there; the watermark follows the newest at a distance."""

    times_us: tuple[int, ...]
    there: int
    disorder_us: int = 0
    #: Records that come in one piece, whatever the number that is asked for.
    piece: int = 1

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _TimedReader(self, position or 0)


class _TimedReader(df.SourceReader):
    def __init__(self, source: Timed, position: int) -> None:
        self._source, self._next = source, position

    def read(self, max_records: int) -> df.SourceBatch:
        source, start = self._source, self._next
        count = -(-max_records // source.piece) * source.piece
        self._next = min(start + count, source.there)
        times_us = source.times_us[start : self._next]
        status = df.SplitStatus.ACTIVE
        if self._next == len(source.times_us):
            status = df.SplitStatus.FINISHED
        elif not times_us:
            status = df.SplitStatus.IDLE
        newest_us = max(times_us, default=MIN_TIMESTAMP_US + source.disorder_us)
        watermark_us = newest_us - source.disorder_us
        return df.SourceBatch(
            values=range(start, self._next),
            timestamps_us=times_us,
            position=self._next,
            watermark_us=END_US if status is df.SplitStatus.FINISHED else watermark_us,
            status=status,
        )


sources = st.builds(
    lambda times_us, less, disorder_us, piece: Timed(
        tuple(times_us), max(0, len(times_us) - less), disorder_us, piece
    ),
    st.lists(st.integers(0, 30), max_size=30),
    st.sampled_from([0, 0, 1, 5]),
    st.sampled_from([0, 3, 20]),
    st.sampled_from([1, 1, 4]),
)


def reader(
    source: Timed, until_us: int | None, end: SplitMark | None = None, begin: int = 0
) -> SplitReader:
    mark = SplitMark(records=begin, position=begin)
    return SplitReader(source, 0, begin=mark, end=end, until_us=until_us, where="the read")


def read(reader: SplitReader, records_max: int) -> list[Any]:
    found: list[Any] = []
    while (batch := reader.read(records_max)) is not None:
        assert batch.values
        found += zip(batch.values, batch.timestamps_us, strict=True)
    assert reader.records == len(found)
    reader.close()
    return found


def mark_of(reader: SplitReader) -> SplitMark:
    return SplitMark(
        records=reader.records,
        position=reader.position,
        watermark_us=reader.watermark_us,
        is_source_finished=reader.is_source_finished,
    )


@given(source=sources, until_us=st.none() | st.integers(-1, 31), records_max=st.integers(1, 9))
def test_nothing_at_or_behind_the_point_is_read_and_the_rest_follows(
    source: Timed, until_us: int | None, records_max: int
) -> None:
    backfill = reader(source, until_us)
    found = read(backfill, records_max)

    everything = list(enumerate(source.times_us[: source.there]))
    assert found == everything[: len(found)]
    assert (backfill.position or 0) == len(found)
    if until_us is None:
        assert found == everything
        return
    assert all(time_us < until_us for _, time_us in found)
    is_there = backfill.watermark_us >= until_us
    beyond = [number for number, time_us in everything if time_us >= until_us]
    if source.piece == 1 and not is_there:
        assert len(found) == min(beyond, default=len(everything))


@given(
    source=sources,
    until_us=st.none() | st.integers(-1, 31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    more=st.integers(0, 9),
)
def test_read_again_it_ends_at_the_same_place_though_there_is_more(
    source: Timed, until_us: int | None, sizes: tuple[int, int], more: int
) -> None:
    source = attrs.evolve(source, piece=1)
    first = reader(source, until_us)
    found = read(first, sizes[0])
    grown = attrs.evolve(source, there=min(len(source.times_us), source.there + more))
    again = reader(grown, None, mark_of(first))

    assert read(again, sizes[1]) == found
    assert mark_of(again) == mark_of(first)


def test_input_that_has_become_less_is_an_error() -> None:
    source = Timed((1, 2, 3), 3)
    first = reader(source, None)
    read(first, 9)

    with pytest.raises(UnrepeatableError, match="has 2 records, and had 3"):
        read(reader(attrs.evolve(source, there=2), None, mark_of(first)), 9)


@given(source=sources, until_us=st.none() | st.integers(-1, 31), records_max=st.integers(1, 9))
def test_the_watermark_is_that_of_the_source_and_never_the_end_of_time(
    source: Timed, until_us: int | None, records_max: int
) -> None:
    backfill = reader(source, until_us)
    found = read(backfill, records_max)
    newest_us = max((time_us for _, time_us in found), default=MIN_TIMESTAMP_US)

    assert backfill.watermark_us <= max(newest_us - source.disorder_us, MIN_TIMESTAMP_US)
    assert backfill.is_source_finished <= (len(found) == len(source.times_us))


class Scripted(df.SourceReader, df.Source):
    """Batches of one record each, with the watermark behind each, which may go back; perhaps with an end."""

    def __init__(self, script: Sequence[tuple[int, int]], *, has_end: bool = False) -> None:
        self._script, self._has_end, self._next = script, has_end, 0

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        again = Scripted(self._script, has_end=self._has_end)
        again._next = position or 0
        return again

    def read(self, max_records: int) -> df.SourceBatch:
        if self._next == len(self._script):
            return df.SourceBatch(
                values=[],
                timestamps_us=[],
                position=self._next,
                watermark_us=MIN_TIMESTAMP_US,
                status=df.SplitStatus.IDLE,
            )
        time_us, watermark_us = self._script[self._next]
        self._next += 1
        is_last = self._has_end and self._next == len(self._script)
        return df.SourceBatch(
            values=[self._next],
            timestamps_us=[time_us],
            position=self._next,
            watermark_us=watermark_us,
            status=df.SplitStatus.FINISHED if is_last else df.SplitStatus.ACTIVE,
        )


@given(
    script=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=8),
    until_us=st.integers(5, 12),
    begin=st.integers(0, 4),
)
def test_the_point_is_there_when_the_watermark_is(
    script: list[tuple[int, int]], until_us: int, begin: int
) -> None:
    """What is late by then is left to the stream; and the watermark does not go back, nor does one that goes on."""
    begin = min(begin, len(script))
    known_us = max((watermark_us for _, watermark_us in script[:begin]), default=MIN_TIMESTAMP_US)
    assume(known_us < until_us)
    mark = SplitMark(records=begin, position=begin, watermark_us=known_us)
    backfill = SplitReader(
        Scripted(script), 0, begin=mark, end=None, until_us=until_us, where="the read"
    )
    expected = begin
    for time_us, watermark_us in script[begin:]:
        if time_us >= until_us:
            break
        known_us, expected = max(known_us, watermark_us), expected + 1
        if known_us >= until_us:
            break
    while backfill.read(1) is not None:
        pass

    assert backfill.records == expected
    assert backfill.watermark_us == known_us


scripts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=8)


def check_watermark(script: list[tuple[int, int]], *, has_end: bool) -> None:
    """Whatever the last batch says: when there will never be more, the end of time is left to the stream."""
    source = Scripted(script, has_end=has_end)
    backfill = SplitReader(source, 0, begin=SplitMark(), end=None, until_us=None, where="the read")
    stream, stream_us = source.open(0, None, fence=0), MIN_TIMESTAMP_US
    known_us = MIN_TIMESTAMP_US
    for number, (_, watermark_us) in enumerate(script, 1):
        is_end = has_end and number == len(script)
        known_us = known_us if is_end else max(known_us, watermark_us)
        stream_us = watermark_behind(stream.read(1), stream_us)
        assert backfill.read(1) is not None

        assert backfill.watermark_us == known_us
        assert backfill.is_source_finished == is_end
        assert stream_us == (END_US if is_end else known_us)


@given(script=scripts, has_end=st.booleans())
def test_event_time_in_a_split_is_that_of_a_stream_until_there_is_never_more(
    script: list[tuple[int, int]], has_end: bool
) -> None:
    check_watermark(script, has_end=has_end)


def go_back(batch: df.SourceBatch, before_us: int, *, end_us: int) -> int:
    """The watermark is what the source reported last."""
    return end_us if batch.status is df.SplitStatus.FINISHED else batch.watermark_us


def go_to_the_end(batch: df.SourceBatch, before_us: int, *, end_us: int) -> int:
    """A backfill fires everything, and the stream has no windows to go on with."""
    return watermark_behind(batch, before_us)


def believe_the_last_batch(batch: df.SourceBatch, before_us: int, *, end_us: int) -> int:
    """What a source reports with its end moves event time."""
    return max(before_us, batch.watermark_us)


@pytest.mark.parametrize("broken", [go_back, go_to_the_end, believe_the_last_batch])
def test_a_watermark_that_is_broken_on_purpose_is_found(
    broken: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reader, "watermark_behind", broken)

    @settings(max_examples=200, phases=[Phase.generate], database=None, derandomize=True)
    @given(script=scripts, has_end=st.booleans())
    def look(script: list[tuple[int, int]], has_end: bool) -> None:
        check_watermark(script, has_end=has_end)

    with pytest.raises(AssertionError):
        look()
