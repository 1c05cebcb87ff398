"""PartitionReader: reads one partition of a topic, and says when it is at its end.

**At the end** is what the broker says: the consumer's end-of-partition event has the offset that is fetched next,
behind the markers of transactions, which are no records.  Under ``read_committed`` that is the last stable offset, so a
transaction that hangs is the end for as long as it hangs.  That the broker is still there, and the end where it was, is
asked again each second: a partition whose broker does not answer is not idle, it is unknown.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dataflow.errors import InputError
from dataflow.io.kafka.clients import Topic, is_refusal, kafka_error, library, not_reached
from dataflow.io.kafka.reading import Ends, KafkaReading, PartitionSplit, ends_of
from dataflow.io.kafka.records import RegistryAwayError
from dataflow.io.max_ahead import newest_up_to
from dataflow.io.outages import Outages, steady_s
from dataflow.set_aside import SetAside
from dataflow.source import Backlog, SourceBatch, SourceReader, SplitStatus
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, clamp_timestamp_us

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_LOG = logging.getLogger(__name__)
#: How long a new reader waits for the first records, in seconds.
FIRST_WAIT_S = 2.0
#: How long one that is not at the end waits for records, in seconds.
WAIT_S = 0.02
#: How often a reader at the end asks whether that is so, in seconds, and for how long it waits for the answer.
CONFIRM_EVERY_S, CONFIRM_WAIT_S = 1.0, 1.0
#: How old it may be, in seconds, what is known of the topic.
TOPIC_AGE_MAX_S = 30.0


class PartitionReader(SourceReader):
    """Reads a partition.

    Args:
        reading: how it is read.
        split: of the source.
        position: offset and topic id; None: at the start of the split.

    Raises:
        InputError: the position is of a topic that was deleted.
    """

    def __init__(
        self, reading: KafkaReading, split: PartitionSplit, position: tuple[Any, ...] | None
    ) -> None:
        self._reading, self._split = reading, split
        self._offset, topic_id = (split.start, split.topic_id) if position is None else position
        if topic_id is not None:
            split.check_same(Topic(id=topic_id, partitions=split.partition + 1))
        self.reads_columns = reading.form.rows is not None
        self._watermark_us, self._ceiling_us = MIN_TIMESTAMP_US, MAX_TIMESTAMP_US
        self._consumer: Consumer | None = None
        self._is_assigned = self._has_waited = self._is_at_end = self._is_confirmed = False
        self._confirm_s = 0.0
        self._is_first_confirm, self._end_offset = True, 0
        self._outages = Outages(str(split))
        self._last_us: int | None = None

    def ignore_after(self, ceiling_us: int) -> bool:
        """Follow no record that is later."""
        self._ceiling_us = ceiling_us
        return self._reading.max_disorder_us is not None

    def read(self, max_records: int) -> SourceBatch:
        """Records, if there are any; nothing while the cluster does not answer.

        Raises:
            InputError: the partition cannot be read on: it is gone, or records have expired that were not read.
        """
        if self._is_finished or self._outages.is_pausing:
            return self._batch([], [], [])
        before = self._offset
        try:
            self._assign()
            messages, lost = self._fetch(max_records)
            self._confirm(has_records=bool(messages or lost))
            values, times_us, aside = self._reading.form.read(str(self._split), messages)
            self._outages.over()
        except (library().KafkaException, RegistryAwayError) as error:
            self._offset = before
            self._failed(error)
            return self._batch([], [], [])
        return self._batch(values, times_us, [*lost, *aside])

    def close(self) -> None:
        """Close the consumer."""
        consumer, self._consumer = self._consumer, None
        self._is_assigned = self._is_at_end = self._is_confirmed = self._has_waited = False
        if consumer is not None:
            consumer.close()

    @property
    def _is_finished(self) -> bool:
        return self._split.end is not None and self._offset >= self._split.end

    def _batch(
        self, values: Sequence[Any], times_us: Sequence[int], aside: list[SetAside]
    ) -> SourceBatch:
        disorder_us = self._reading.max_disorder_us
        newest_us = newest_up_to(times_us, self._ceiling_us)
        if disorder_us is not None and newest_us is not None:
            self._watermark_us = max(
                self._watermark_us, clamp_timestamp_us(newest_us - disorder_us)
            )
        status = SplitStatus.ACTIVE
        if self._is_finished:
            status = SplitStatus.FINISHED
        elif self._is_at_end and self._is_confirmed and not len(values) and not aside:
            status = SplitStatus.IDLE
        return SourceBatch(
            values=values,
            timestamps_us=times_us,
            position=(self._offset, self._split.topic_id),
            watermark_us=MAX_TIMESTAMP_US if self._is_finished else self._watermark_us,
            status=status,
            set_aside=aside,
            backlog=self._backlog(),
            outage=self._outages.outage,
        )

    def _backlog(self) -> Backlog | None:
        """What is left, as of the last records that came."""
        if self._is_finished or (self._is_at_end and self._is_confirmed):
            return Backlog(records=0, age_us=0)
        if self._consumer is None or not self._is_assigned:
            return None
        known = self._consumer.get_watermark_offsets(self._partition(), cached=True)
        end = max(-1 if known is None else known[1], self._split.end or -1)
        if end <= self._offset:
            return None
        # What comes next is about as old as what came last.
        age_us = None if self._last_us is None else max(0, self._reading.now_us() - self._last_us)
        return Backlog(records=end - self._offset, age_us=age_us)

    def _partition(self) -> Any:
        return library().TopicPartition(self._split.topic, self._split.partition, self._offset)

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._reading.consumer(on_commit=self._answered)
        return self._consumer

    def _answered(self, error: KafkaError | None, offsets: Sequence[Any]) -> None:
        """Whether the offset of a group was committed."""

    def _assign(self) -> None:
        """Begin to read at the offset, of the topic that it is one of."""
        topic = self._reading.topic_now(
            self._split.topic, wait_s=CONFIRM_WAIT_S, max_age_s=TOPIC_AGE_MAX_S
        )
        self._split.check_same(topic)
        if not self._is_assigned:
            self._opened().assign([self._partition()])
            self._is_assigned, self._is_at_end = True, False

    def _fetch(self, max_records: int) -> tuple[Sequence[Message], list[SetAside]]:
        """The next messages, and records that are lost; moves the offset behind them."""
        consumer = self._opened()
        wait_s = 0.0 if self._is_at_end else WAIT_S if self._has_waited else FIRST_WAIT_S
        found: Sequence[Message] = consumer.consume(1, wait_s) if wait_s else []
        if len(found) < max_records:
            found = [*found, *consumer.consume(max_records - len(found), 0.0)]
        self._has_waited = True
        lost: list[SetAside] = []
        if any(message.error() is not None for message in found):
            found = self._without_errors(found, lost)
        elif found:
            self._is_at_end = False
        if found:
            self._offset = (found[-1].offset() or 0) + 1
            self._last_us = found[-1].timestamp()[1] * 1_000
        if self._is_at_end:
            self._offset = max(self._offset, self._end_offset)
        return self._up_to_the_end(found), lost

    def _up_to_the_end(self, found: Sequence[Message]) -> Sequence[Message]:
        end = self._split.end
        if end is None or self._offset <= end:
            return found
        self._offset = end
        return found[: bisect_left(found, end, key=lambda message: message.offset() or 0)]

    def _without_errors(self, found: Sequence[Message], lost: list[SetAside]) -> list[Message]:
        kafka = library()
        kept: list[Message] = []
        for message in found:
            error = message.error()
            if error is None:
                kept.append(message)
                self._is_at_end = False
            elif error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's name
                self._is_at_end = self._is_confirmed = True
                self._end_offset = message.offset() or 0
                self._confirm_s = steady_s() + CONFIRM_EVERY_S
            elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the library's name
                lost += self._out_of_range()
            else:
                self._refused(error)
        return kept

    def _refused(self, error: KafkaError) -> None:
        """Raise what another try does not help against; the library tries again by itself."""
        if is_refusal(error):
            raise not_reached(f"{self._split} cannot be read", library().KafkaException(error))
        if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}:
            self._split.check_same(
                self._reading.topic_now(self._split.topic, wait_s=CONFIRM_WAIT_S, max_age_s=0.0)
            )
        _LOG.info("%s: %s", self._split, error)

    def _out_of_range(self) -> list[SetAside]:
        """The offset is not there: what is lost, if that is to be passed over.

        Raises:
            InputError: it is not to be; or the partition ends before the offset.
        """
        self._is_assigned = False
        self._split.check_same(
            self._reading.topic_now(self._split.topic, wait_s=CONFIRM_WAIT_S, max_age_s=0.0)
        )
        first, end = self._ends()
        if first <= self._offset <= end:
            return []
        if self._offset > end:
            raise InputError(
                f"{self._split} ends before what was read of it",
                detail=f"offset {self._offset} is next, and the partition ends at {end}",
                hint="a broker has lost records, or the topic was made anew; a job of another name reads what is there",
            )
        lost = InputError(
            f"{self._split}: {first - self._offset} records have expired before they were read",
            detail=f"offset {self._offset} is next, and the first one that is there is {first}",
            hint="lengthen retention.ms of the topic; skip_lost=True goes on with what is there, and keeps a dead "
            "letter that says what is missing",
        )
        if not self._reading.skips_lost:
            raise lost
        _LOG.error("%s; reading goes on at offset %s", lost.fact, first)
        aside = SetAside(
            error=lost,
            element={
                "topic": self._split.topic,
                "partition": self._split.partition,
                "lost_from_offset": self._offset,
                "lost_to_offset": first,
            },
            is_always_kept=True,
        )
        self._offset = first
        return [aside]

    def _ends(self) -> Ends:
        return ends_of(
            self._opened(), self._split.topic, self._split.partition, wait_s=CONFIRM_WAIT_S
        )

    def _confirm(self, *, has_records: bool) -> None:
        """Where there was nothing, ask whether that is the end; the watermark may follow the clock from then on."""
        if has_records or not self._is_at_end:
            self._is_confirmed = self._is_at_end
            return
        reading = self._reading
        follows = reading.idle_follows_clock and reading.max_disorder_us is not None
        if steady_s() < self._confirm_s and not (follows and self._is_first_confirm):
            return
        # Before it is asked: what comes after the answer is from later.
        asked_us = reading.now_us()
        self._confirm_s = steady_s() + CONFIRM_EVERY_S
        self._is_first_confirm = False
        try:
            _, end = self._ends()
        except library().KafkaException:
            self._is_confirmed = False
            raise
        self._is_confirmed = end <= self._offset
        if self._is_confirmed and follows:
            assert reading.max_disorder_us is not None
            self._watermark_us = max(
                self._watermark_us, clamp_timestamp_us(asked_us - reading.max_disorder_us)
            )

    def _failed(self, error: Exception) -> None:
        """Try again later, where that may help; raise otherwise."""
        known = kafka_error(error)
        if known is not None and is_refusal(known):
            raise not_reached(f"{self._split} cannot be read", error) from error
        # What was taken out of the consumer and not handed over is read again.
        self._is_assigned = self._is_confirmed = False
        self._outages.failed(error)


class AcknowledgingReader(PartitionReader):
    """Has the offset of a group follow what is durable, for tools that show how far a job is behind.

    Args:
        reading: how it is read.
        split: of the source.
        position: as for `PartitionReader`.
    """

    def __init__(
        self, reading: KafkaReading, split: PartitionSplit, position: tuple[Any, ...] | None
    ) -> None:
        super().__init__(reading, split, position)
        self._commit_error: KafkaError | None = None

    def committed(self, position: tuple[Any, ...]) -> None:
        """Commit the offset, soon.

        Raises:
            KafkaException: an earlier one was not committed.
        """
        error, self._commit_error = self._commit_error, None
        offset, _ = position
        kafka = library()
        self._opened().commit(
            offsets=[kafka.TopicPartition(self._split.topic, self._split.partition, offset)],
            asynchronous=True,
        )
        if error is not None:
            raise kafka.KafkaException(error)

    def _answered(self, error: KafkaError | None, offsets: Sequence[Any]) -> None:
        self._commit_error = error
