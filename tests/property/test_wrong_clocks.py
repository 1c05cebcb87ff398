"""Messages with times that are wrong: the watermark follows the right ones, at the declared distance, and nothing else.

In the future, before 1970, at the ends of time, jumping back: of streams of messages (NATS, Redis, HTTP) and of Kafka,
with times of the record and with those of the server or the broker, read as every engine reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.graph import Read
from dataflow.io import trusted_watermark
from dataflow.io.max_ahead import MaxAhead
from dataflow.io.message_streams.reader import Message, MessageForm, MessageReader, Poll
from dataflow.io.trusted_watermark import TrustedReader, opened
from dataflow.source import Source, SourceReader
from dataflow.testing.model_kafka import ModelKafka
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, US_PER_SECOND

DAY_S = 86_400
#: The clock of whoever reads.
NOW_S = 20_000 * DAY_S
DISORDER_S, AHEAD_S = 60, DAY_S
CEILING_US = (NOW_S + AHEAD_S) * US_PER_SECOND
TOPIC = "events"

#: Seconds since 1970: around now, a day around it, the past, before 1970, and the future up to the end of time.
times_s = st.one_of(
    st.integers(NOW_S - 300, NOW_S),
    st.integers(NOW_S - 300, NOW_S),
    st.integers(NOW_S - DAY_S, NOW_S + AHEAD_S),
    st.integers(0, NOW_S),
    st.integers(MIN_TIMESTAMP_US // US_PER_SECOND, -1),
    st.integers(NOW_S + AHEAD_S + 1, MAX_TIMESTAMP_US // US_PER_SECOND),
    st.sampled_from([NOW_S * 1_000, MAX_TIMESTAMP_US // US_PER_SECOND]),
)


class _Messages(MessageReader):
    """Messages of a server, which gives as many as it is asked for."""

    def __init__(self, form: MessageForm, messages: Sequence[Message]) -> None:
        super().__init__(form, 0)
        self._messages = messages

    def poll(self, max_records: int) -> Poll:
        end = min(len(self._messages), self.position + max_records)
        return Poll(messages=self._messages[self.position : end], position=end)


@attrs.frozen
class _MessageSource(Source):
    form: MessageForm
    messages: Sequence[Message] = attrs.field(eq=False)
    is_bounded = False

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: Any, *, fence: int) -> SourceReader:
        return _Messages(self.form, self.messages)


def second_of(content: Any) -> float:
    return float(content)


def _message_source(times: Sequence[int], *, is_of_record: bool) -> Source:
    form = MessageForm(
        name="stream s",
        decode=lambda content: content,
        event_time=second_of if is_of_record else None,
        max_disorder_us=DISORDER_S * US_PER_SECOND,
    )
    server_s = [NOW_S] * len(times) if is_of_record else times
    return _MessageSource(
        form,
        [
            Message(f"message {n}", second, b"", at_s * US_PER_SECOND)
            for n, (second, at_s) in enumerate(zip(times, server_s, strict=True))
        ],
    )


def messages_of_record(times: Sequence[int]) -> Source:
    return _message_source(times, is_of_record=True)


#: Nobody else holds it while it is read.
_CLUSTERS: list[ModelKafka] = []


def cluster() -> ModelKafka:
    kafka = ModelKafka(now_ms=NOW_S * 1_000)
    kafka.make_topic(TOPIC, partitions=1)
    _CLUSTERS[:] = [kafka]
    return kafka


def _kafka_source(times: Sequence[int], *, is_of_record: bool) -> Source:
    kafka = cluster()
    for second in times:
        stamp_ms = NOW_S * 1_000 if is_of_record else second * 1_000
        kafka.append(TOPIC, str(second).encode(), partition=0, timestamp_ms=stamp_ms)
    read: Any = df.ReadFromKafka(
        TOPIC,
        bootstrap_servers=kafka.clients,
        event_time=(lambda record: float(record.value)) if is_of_record else None,
        max_disorder=DISORDER_S,
    )
    found: Source = read._source
    return found


def kafka_of_record(times: Sequence[int]) -> Source:
    return _kafka_source(times, is_of_record=True)


def kafka_of_producer(times: Sequence[int]) -> Source:
    # Clients refuse negative times, and -1 means that there is none.
    return _kafka_source([second for second in times if second >= 0], is_of_record=False)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trusted_watermark, "MaxAhead", lambda us: MaxAhead(us, lambda: NOW_S * US_PER_SECOND)
    )


def reader_of(source: Source) -> SourceReader:
    """A reader as every engine opens it."""
    return opened(Read(source, None, AHEAD_S * US_PER_SECOND), source.splits(1)[0], None)


@pytest.mark.parametrize("make", [messages_of_record, kafka_of_record, kafka_of_producer])
@given(times=st.lists(times_s, max_size=30), sizes=st.lists(st.integers(1, 7), min_size=1))
def test_the_watermark_is_that_of_the_right_records(
    make: Callable[[Sequence[int]], Source], times: list[int], sizes: list[int]
) -> None:
    """It never goes back, sticks, or runs ahead; each right record is read, and each wrong one is set aside."""
    reader = reader_of(make(times))
    wanted = [each for each in times if make is not kafka_of_producer or each >= 0]
    right = [each * US_PER_SECOND for each in wanted if each * US_PER_SECOND <= CEILING_US]
    watermark_us, read_us, aside = MIN_TIMESTAMP_US, list[int](), 0
    for number in range(2 * len(times) + 2):
        batch = reader.read(sizes[number % len(sizes)])
        read_us += batch.timestamps_us
        aside += len(batch.set_aside)
        newest_us = max(read_us, default=MIN_TIMESTAMP_US)
        assert batch.watermark_us >= watermark_us
        assert batch.watermark_us == max(MIN_TIMESTAMP_US, newest_us - DISORDER_S * US_PER_SECOND)
        watermark_us = batch.watermark_us
    reader.close()
    assert read_us == right
    assert aside == len(wanted) - len(right)


@given(times=st.lists(times_s, max_size=30), sizes=st.lists(st.integers(1, 7), min_size=1))
def test_a_servers_clock_that_was_wrong_is_over_when_it_is_right(
    times: list[int], sizes: list[int]
) -> None:
    """What it took while its clock was too far ahead is set aside; what came before and after that is not late."""
    reader = reader_of(_message_source(times, is_of_record=False))
    watermark_us, taken, aside, believed_us = MIN_TIMESTAMP_US, 0, 0, [MIN_TIMESTAMP_US]
    for number in range(2 * len(times) + 2):
        batch = reader.read(sizes[number % len(sizes)])
        assert all(time_us >= watermark_us for time_us in batch.timestamps_us)
        assert batch.watermark_us >= watermark_us
        watermark_us = batch.watermark_us
        taken += len(batch.values)
        aside += len(batch.set_aside)
        here = [each * US_PER_SECOND for each in times[: taken + aside]]
        believed_us = [each for each in here if each <= CEILING_US]
        newest_us = max(believed_us, default=MIN_TIMESTAMP_US)
        assert watermark_us == max(MIN_TIMESTAMP_US, newest_us - DISORDER_S * US_PER_SECOND)
    assert taken == len(believed_us)
    assert taken + aside == len(times)


class _Deaf(TrustedReader):
    """Does not limit its reader."""

    def read(self, max_records: int) -> Any:
        self._reader.ignore_after = lambda ceiling_us: False  # type: ignore[method-assign]
        return super().read(max_records)


def test_a_reader_that_is_not_limited_sticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the law would not show what it is for."""
    monkeypatch.setattr(trusted_watermark, "TrustedReader", _Deaf)
    law: Any = test_the_watermark_is_that_of_the_right_records
    with pytest.raises(AssertionError):
        law.hypothesis.inner_test(messages_of_record, [NOW_S - 9, 2 * NOW_S, NOW_S], [1])


def test_a_timestamp_that_is_no_instant_is_set_aside() -> None:
    """Of a producer that takes nanoseconds for milliseconds; the limit for what is ahead may be none."""
    kafka = cluster()
    for stamp_ms in (NOW_S * 1_000, NOW_S * 1_000_000_000, NOW_S * 1_000 + 5):
        kafka.append(TOPIC, b"x", partition=0, timestamp_ms=stamp_ms)
    read: Any = df.ReadFromKafka(TOPIC, bootstrap_servers=kafka.clients, max_disorder=0)
    source = read._source
    reader = source.open(source.splits(1)[0], None, fence=0)
    batch = reader.read(10)
    assert list(batch.timestamps_us) == [NOW_S * US_PER_SECOND, NOW_S * US_PER_SECOND + 5_000]
    assert [each.error.fact for each in batch.set_aside] == [
        f"topic {TOPIC}, partition 0 has a record whose timestamp is no instant, at offset 1"
    ]
    reader.close()
