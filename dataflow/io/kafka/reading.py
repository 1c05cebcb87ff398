"""KafkaReading: how partitions are read, whichever they are; and `PartitionSplit`, one of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from dataflow.errors import InputError
from dataflow.io.kafka.clients import CONNECT_S, KafkaClients, Topic, library
from dataflow.io.kafka.records import RecordForm
from dataflow.io.outages import steady_s

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class Ends(NamedTuple):
    """The first offset of a partition that is there, and the one behind its last."""

    first: int
    end: int


@attrs.frozen(kw_only=True)
class PartitionSplit:
    """A partition, and where it is read.

    Attributes:
        topic_id: of the topic; None: the cluster did not say.
        start: the first offset that is read.
        end: the offset behind the last one; None: it has no end.
    """

    topic: str
    topic_id: str | None
    partition: int
    start: int
    end: int | None

    def plain(self) -> tuple[Any, ...]:
        """Plain data, of which `of` makes the same."""
        return self.topic, self.topic_id, self.partition, self.start, self.end

    @classmethod
    def of(cls, plain: Sequence[Any]) -> PartitionSplit:
        """A split of plain data.

        Args:
            plain: of `plain`.
        """
        topic, topic_id, partition, start, end = plain
        return cls(topic=topic, topic_id=topic_id, partition=partition, start=start, end=end)

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}"

    def check_same(self, topic: Topic | None) -> None:
        """Refuse a topic that is not the one of the split.

        Args:
            topic: as the cluster has it; None: it has none of that name.

        Raises:
            InputError: it is gone, was made anew, or lacks the partition.
        """
        if topic is None or topic.partitions <= self.partition:
            raise InputError(
                f"{self} is gone",
                detail="it was read, and the cluster has it no more",
                hint="what it had is lost; read another topic by a job of another name, or let this user read it again",
            )
        if None not in {topic.id, self.topic_id} and topic.id != self.topic_id:
            raise InputError(
                f"topic {self.topic} was deleted and made anew",
                detail=f"the job has read the topic with the id {self.topic_id}, and this one has {topic.id}; its "
                "offsets mean other records",
                hint="run a job of another name to read the new one from its beginning",
            )


@attrs.frozen(kw_only=True)
class KafkaReading:
    """How partitions are read; see `dataflow.io.kafka.read.ReadFromKafka` for the arguments.

    Attributes:
        max_disorder_us: how far event times go back in a partition; None: the watermark stays at the beginning of time.
        now_us: reads the clock, in microseconds.
    """

    clients: KafkaClients
    form: RecordForm
    now_us: Callable[[], int]
    group_id: str | None = None
    max_disorder_us: int | None = None
    idle_follows_clock: bool = False
    is_committed: bool = True
    skips_lost: bool = False

    def consumer(self, on_commit: Callable[..., None] | None = None) -> Consumer:
        """A consumer of no group but that whose offsets follow; it commits nothing by itself.

        Args:
            on_commit: called with an error or None, and offsets, when they were committed.
        """
        return self.clients.consumer(
            on_commit,
            group_id=self.group_id or "dataflow",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            # An offset that is not there any more is for us to decide on.
            auto_offset_reset="error",
            isolation_level="read_committed" if self.is_committed else "read_uncommitted",
            **_BUFFERS,
        )

    def topic_now(self, name: str, *, wait_s: float, max_age_s: float) -> Topic | None:
        """A topic as the cluster has it, or had it a short time ago; None: it has no such topic.

        Args:
            name: of the topic.
            wait_s: how long the cluster is waited for, in seconds.
            max_age_s: how old the answer may be, in seconds.

        Raises:
            KafkaException: the cluster does not answer.
        """
        key = os.getpid(), self.clients.bootstrap_servers, name
        asked_s, found = _ASKED.get(key, (-max_age_s, None))
        now_s = steady_s()
        if now_s - asked_s < max_age_s:
            return found
        found = self.clients.topics([name], wait_s=wait_s).get(name)
        _ASKED[key] = now_s, found
        return found


#: When which topic was last asked for, by process, in seconds, and what it was.
_ASKED: dict[tuple[int, str, str], tuple[float, Topic | None]] = {}
#: A reader has one partition, and its memory is bounded: librdkafka's default is 64 MiB for each.
_BUFFERS = {"queued_max_messages_kbytes": 16_384, "fetch_message_max_bytes": 4 << 20}


def ends_of(consumer: Consumer, topic: str, partition: int, wait_s: float = CONNECT_S) -> Ends:
    """The ends of a partition, as this consumer may read it.

    Args:
        consumer: of the cluster.
        topic: of the partition.
        partition: its number.
        wait_s: how long the broker is waited for, in seconds.

    Raises:
        KafkaException: it does not answer.
    """
    found: Any = consumer.get_watermark_offsets(
        library().TopicPartition(topic, partition), timeout=wait_s
    )
    if found is None:
        kafka = library()
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001 - the library's name
    return Ends(*found)
