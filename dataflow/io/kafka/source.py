"""KafkaSource: the partitions of topics, each a split; what they begin and end with is decided when they are divided.

**Partitions are assigned, never subscribed to:** a consumer group has a coordinator that moves partitions between its
members, and the master of a job does that already.  So nothing is read twice at a time, and no rebalance stops all.

**The truth about offsets is the position** that is committed with what was made of the records.  A group's offset is
for people, and for tools that show how far a job is behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.kafka.clients import CONNECT_S, Topic, library, not_reached
from dataflow.io.kafka.reader import AcknowledgingReader, PartitionReader
from dataflow.io.kafka.reading import KafkaReading, PartitionSplit, ends_of
from dataflow.io.kafka.records import KafkaRecord
from dataflow.source import Source, SourceReader, SplitChanges
from windowing.timestamps import TimestampLike, to_timestamp_us

if TYPE_CHECKING:
    from confluent_kafka import Consumer

#: Of one topic by partition, or of several by topic and partition.
Offsets = Mapping[int, int] | Mapping[tuple[str, int], int]
#: Where to begin: ``"earliest"``, ``"latest"``, an instant, or offsets.
Place = str | TimestampLike | Offsets
EARLIEST, LATEST, NOW = "earliest", "latest", "now"
#: How often a stream looks for partitions that were added.
DISCOVER_EVERY_MS = 30_000


@attrs.frozen(kw_only=True)
class KafkaSource(Source):
    """Reads topics; see `dataflow.io.kafka.read.ReadFromKafka` for the arguments."""

    topics: tuple[str, ...]
    reading: KafkaReading
    start: Place = EARLIEST
    until: Place | None = None

    @property
    def element_type(self) -> Any:
        """The row type, or records."""
        return KafkaRecord if self.reading.form.rows is None else self.reading.form.rows.row_type

    @property
    def is_bounded(self) -> bool:
        """Whether it ends somewhere."""
        return self.until is not None

    @property
    def input_name(self) -> str:
        """The topics."""
        return ", ".join(self.topics)

    @property
    def acknowledges(self) -> bool:
        """Whether there is a group whose offsets follow."""
        return self.reading.group_id is not None

    @property
    def keeps_set_aside(self) -> bool:
        """Whether records that are lost are kept as a dead letter that says how many they are."""
        return self.reading.skips_lost

    @property
    def discover_every_ms(self) -> int | None:
        """Half a minute, where the input has no end."""
        return None if self.is_bounded else DISCOVER_EVERY_MS

    def check(self) -> None:
        """Check that the cluster answers and has the topics.

        Raises:
            InputError: it does not.
        """
        self._topics()

    def splits(self, desired: int) -> Sequence[tuple[Any, ...]]:
        """All partitions, whatever is desired, with the offsets where they begin and end.

        Raises:
            InputError: a topic is missing, or the cluster does not answer.
        """
        topics = self._topics()
        consumer = self.reading.consumer()
        try:
            return [
                PartitionSplit(
                    topic=name,
                    topic_id=topic.id,
                    partition=partition,
                    start=self._start(consumer, name, partition),
                    end=self._end(consumer, name, partition),
                ).plain()
                for name, topic in topics.items()
                for partition in range(topic.partitions)
            ]
        except library().KafkaException as error:
            raise not_reached(f"{self.input_name} cannot be read", error) from error
        finally:
            consumer.close()

    def discover(self, known: Sequence[tuple[Any, ...]]) -> SplitChanges:
        """Partitions that were added, which are read from their beginning.  None is ever removed by Kafka.

        Raises:
            InputError: a topic is gone or was made anew, which its reader says too.
        """
        topics = self._topics()
        before = [PartitionSplit.of(each) for each in known]
        for split in before:
            split.check_same(topics.get(split.topic))
        have = {(split.topic, split.partition) for split in before}
        added = [
            PartitionSplit(
                topic=name,
                topic_id=topic.id,
                partition=partition,
                # Of a partition that was named before it was there; nothing else that may change.
                start=_offset_in(self.start, name, partition, 0)
                if isinstance(self.start, Mapping)
                else 0,
                end=None,
            ).plain()
            for name, topic in topics.items()
            for partition in range(topic.partitions)
            if (name, partition) not in have
        ]
        return SplitChanges(added=added)

    def open(
        self, split: tuple[Any, ...], position: tuple[Any, ...] | None, *, fence: int
    ) -> SourceReader:
        """Read a partition from an offset on."""
        kind = AcknowledgingReader if self.acknowledges else PartitionReader
        return kind(self.reading, PartitionSplit.of(split), position)

    def repeatable(self) -> KafkaSource:
        """Return itself, if it ends.

        Raises:
            PipelineError: it has no end.
        """
        if self.is_bounded:
            return self
        raise PipelineError(
            f"{self.input_name} cannot be read in batch without an end",
            detail="a topic goes on for ever, and a batch ends",
            hint='give ReadFromKafka until="now", an instant, or offsets; or run it on the streaming runner',
        )

    def _topics(self) -> dict[str, Topic]:
        try:
            topics = self.reading.clients.topics(self.topics)
        except library().KafkaException as error:
            raise not_reached(f"{self.input_name} cannot be read", error) from error
        if missing := [name for name in self.topics if name not in topics]:
            raise InputError(
                f"the Kafka cluster has no topic {missing[0]!r}",
                detail=f"it was asked at {self.reading.clients.bootstrap_servers}",
                hint="make it, correct the name, or let this user read it",
            )
        return topics

    def _start(self, consumer: Consumer, topic: str, partition: int) -> int:
        ends = ends_of(consumer, topic, partition)
        if self.start == EARLIEST:
            return ends.first
        if self.start == LATEST:
            return ends.end
        if isinstance(self.start, Mapping):
            return _offset_in(self.start, topic, partition, ends.first)
        found = _offset_at(consumer, topic, partition, self.start)
        return ends.end if found is None else found

    def _end(self, consumer: Consumer, topic: str, partition: int) -> int | None:
        if self.until is None:
            return None
        end = ends_of(consumer, topic, partition).end
        if isinstance(self.until, str) and self.until in {NOW, LATEST}:
            return end
        if isinstance(self.until, Mapping):
            return _offset_in(self.until, topic, partition, end)
        found = _offset_at(consumer, topic, partition, self.until)
        return end if found is None else found


def _offset_at(consumer: Consumer, topic: str, partition: int, at: TimestampLike) -> int | None:
    """The first offset with a timestamp of an instant or later; None: there is none."""
    time_ms = -(-to_timestamp_us(at) // 1_000)
    asked = library().TopicPartition(topic, partition, time_ms)
    (found,) = consumer.offsets_for_times([asked], timeout=CONNECT_S)
    return found.offset if found.offset >= 0 else None


def _offset_in(offsets: Offsets, topic: str, partition: int, otherwise: int) -> int:
    by_any: Mapping[Any, int] = offsets
    found = by_any.get((topic, partition), by_any.get(partition))
    return otherwise if found is None else found
