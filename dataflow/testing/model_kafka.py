"""ModelKafka: a cluster in memory with the transactions of Kafka: fences, aborts, time-outs, what nobody knows.

It is the specification of what the source and the sink of Kafka rely on, and what they are tested against.  Its clients
have the methods of those of confluent-kafka that the connector calls, raise the same errors, and are made by `clients`:

    kafka = ModelKafka()
    kafka.make_topic("orders", partitions=3)
    p | df.ReadFromKafka("orders", bootstrap_servers=kafka.clients)

What it has of Kafka: partitions with offsets, in which transactions leave markers; a coordinator that gives producers
of a transactional id an epoch, and refuses those with an earlier one; offsets of groups that are committed with a
transaction or not at all; the last stable offset; time-outs of transactions; records that expire; topics with ids.  Of
time-outs its clock (`now_ms`) decides, which a test moves.  It has no brokers that fail alone, no rebalances, and no
compaction.  Needs confluent-kafka: ``pip install "dataflow-model[kafka]"``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakValueDictionary

import attrs

from dataflow.distribution import install_command
from dataflow.io.kafka.clients import KafkaClients, Topic
from dataflow.testing.model_sink import Outcome

try:
    from confluent_kafka import (
        KafkaError,
        KafkaException,
        Message,
        TopicPartition,
        murmur2,
    )
except ImportError as error:
    raise ImportError(
        f"dataflow.testing.model_kafka needs confluent-kafka: {install_command('kafka')}"
    ) from error

_MODELS: WeakValueDictionary[str, ModelKafka] = WeakValueDictionary()
_NUMBERS = itertools.count(1)
#: A place in a group: topic and partition.
_Place = tuple[str, int]


@attrs.define
class ModelTransaction:
    """One transaction of a producer.

    Attributes:
        is_committed: None: it is open.
        offsets: of groups, which are committed with it.
        places: where it has records.
    """

    began_ms: int
    is_committed: bool | None = None
    offsets: dict[tuple[str, _Place], tuple[int, str]] = attrs.field(factory=dict)
    places: set[_Place] = attrs.field(factory=set)


@attrs.define
class ModelProducerState:
    """What the coordinator knows of a transactional id."""

    epoch: int = -1
    timeout_ms: int = 60_000
    transaction: ModelTransaction | None = None


@attrs.frozen
class ModelEntry:
    """An offset of a partition: a record, or the marker of a transaction's end."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0
    transaction: ModelTransaction | None = None
    is_marker: bool = False


@attrs.define
class ModelLog:
    """A partition: its entries, and the offset of the first."""

    first: int = 0
    entries: list[ModelEntry] = attrs.field(factory=list)

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.first + len(self.entries)

    @property
    def stable_end(self) -> int:
        """The offset behind the last one before any record whose transaction is open."""
        for index, entry in enumerate(self.entries):
            if entry.transaction is not None and entry.transaction.is_committed is None:
                return self.first + index
        return self.end


@attrs.define
class ModelTopic:
    """A topic; its id is of no other."""

    id: str
    logs: list[ModelLog]


class ModelKafka:
    """A cluster in memory, of this process.

    Args:
        fate: called before each request with what it is (``init``, ``offsets``, ``commit``, ``abort``, ``produce``,
            ``committed``, ``fetch``, ``ends``, ``topics``); decides what becomes of it.
        between: called with the same before each request: others may act there.
        now_ms: the time of the cluster, which stands still but for `advance`.
    """

    def __init__(
        self,
        *,
        fate: Callable[[str], Outcome] = lambda _: Outcome.DONE,
        between: Callable[[str], None] = lambda _: None,
        now_ms: int = 1_357_000_000_000,
    ) -> None:
        self.fate, self.between, self.now_ms = fate, between, now_ms
        self.topics: dict[str, ModelTopic] = {}
        self.groups: dict[tuple[str, _Place], tuple[int, str]] = {}
        self.producers: dict[str, ModelProducerState] = {}
        #: Commits that are on their way, with the epochs of their producers.
        self.delayed: list[tuple[str, int, ModelTransaction]] = []
        self.is_up = True
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.clients = ModelClients(f"model:{next(_NUMBERS)}")
        _MODELS[self.clients.bootstrap_servers] = self

    def make_topic(self, name: str, *, partitions: int = 1) -> None:
        """Make a topic, with an id of its own.

        Args:
            name: of the topic.
            partitions: how many.
        """
        self.topics[name] = ModelTopic(
            f"id-{next(self._ids)}", [ModelLog() for _ in range(partitions)]
        )

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions.

        Args:
            name: of the topic.
            count: how many more.
        """
        self.topics[name].logs += [ModelLog() for _ in range(count)]

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
        transaction: ModelTransaction | None = None,
    ) -> int:
        """Add a record, as any producer may.

        Args:
            topic: its name.
            value: of the record.
            key: of the record.
            partition: of the topic.
            headers: of the record.
            timestamp_ms: of the record; None: the time now.
            transaction: of which it is; None: none.

        Returns:
            Its offset.
        """
        with self._lock:
            log = self.topics[topic].logs[partition]
            if transaction is not None:
                transaction.places.add((topic, partition))
            log.entries.append(
                ModelEntry(
                    key,
                    value,
                    tuple(headers),
                    self.now_ms if timestamp_ms is None else timestamp_ms,
                    transaction,
                )
            )
            return log.end - 1

    def begin(self) -> ModelTransaction:
        """A transaction of some producer, which is open until `end`."""
        return ModelTransaction(self.now_ms)

    def end(self, transaction: ModelTransaction, *, is_committed: bool) -> None:
        """Commit or abort a transaction: all of its records and offsets, or none.

        Args:
            transaction: that is open.
            is_committed: whether it is committed.
        """
        with self._lock:
            transaction.is_committed = is_committed
            if is_committed:
                self.groups.update(transaction.offsets)
            for topic, partition in transaction.places:
                if topic in self.topics:
                    log = self.topics[topic].logs[partition]
                    log.entries.append(ModelEntry(timestamp_ms=self.now_ms, is_marker=True))

    def expire(self, topic: str, partition: int, first: int) -> None:
        """Forget the records before an offset.

        Args:
            topic: its name.
            partition: of the topic.
            first: the offset of the first record that stays.
        """
        with self._lock:
            log = self.topics[topic].logs[partition]
            del log.entries[: first - log.first]
            log.first = first

    def advance(self, milliseconds: int) -> None:
        """Let time go by; transactions that take too long are aborted.

        Args:
            milliseconds: how long.
        """
        with self._lock:
            self.now_ms += milliseconds
            for state in self.producers.values():
                open_one = state.transaction
                if open_one and self.now_ms - open_one.began_ms > state.timeout_ms:
                    # As a broker does it: the producer is fenced as well.
                    state.epoch += 1
                    state.transaction = None
                    self.end(open_one, is_committed=False)

    def let_land(self) -> None:
        """Have all commits that are on their way done, but for those whose producer was fenced."""
        with self._lock:
            delayed, self.delayed = self.delayed, []
            for name, epoch, transaction in delayed:
                state = self.producers[name]
                if state.epoch == epoch and transaction.is_committed is None:
                    state.transaction = None
                    self.end(transaction, is_committed=True)

    def visible(self, topic: str, *, read_committed: bool = True) -> list[Message]:
        """The records that a reader of all partitions is given now.

        Args:
            topic: its name.
            read_committed: whether those of transactions that are not committed are left out.
        """
        with self._lock:
            return [
                found
                for partition, log in enumerate(self.topics[topic].logs)
                for found in readable(topic, partition, log, log.first, read_committed)
            ]

    @contextmanager
    def request(self, what: str) -> Iterator[Outcome]:
        """A request of a client: what becomes of it.

        Args:
            what: it is.

        Raises:
            KafkaException: it is not done, and the client knows that, or does not.
        """
        self.between(what)
        outcome = self.fate(what) if self.is_up else Outcome.LOST
        if outcome is Outcome.FAILED:
            raise failure(KafkaError._TRANSPORT, abortable=True)  # noqa: SLF001 - the library's name
        if outcome is Outcome.LOST:
            raise failure(KafkaError._TIMED_OUT)  # noqa: SLF001 - the library's name
        with self._lock:
            yield outcome
        if outcome is not Outcome.DONE:
            raise failure(KafkaError._TIMED_OUT)  # noqa: SLF001 - the library's name


def failure(code: int, *, fatal: bool = False, abortable: bool = False) -> KafkaException:
    """An error as the library raises it.

    Args:
        code: of `KafkaError`.
        fatal: whether the producer can do nothing more.
        abortable: whether it has to abort its transaction.
    """
    return KafkaException(KafkaError(code, None, fatal, False, abortable))  # noqa: FBT003 - the library's arguments


def readable(
    topic: str,
    partition: int,
    log: ModelLog,
    offset: int,
    read_committed: bool,  # noqa: FBT001 - as the setting
) -> Iterator[Message]:
    """The records of a partition that a reader is given, from an offset on.

    Args:
        topic: its name.
        partition: of the topic.
        log: of the partition.
        offset: of the first.
        read_committed: whether those of transactions that are not committed are left out.
    """
    end = log.stable_end if read_committed else log.end
    for at in range(offset, end):
        entry = log.entries[at - log.first]
        is_aborted = entry.transaction is not None and not entry.transaction.is_committed
        if not entry.is_marker and not (read_committed and is_aborted):
            yield Message(
                topic=topic,
                partition=partition,
                offset=at,
                key=entry.key,
                value=entry.value,
                headers=list(entry.headers),
                timestamp=(1, entry.timestamp_ms),
            )


@attrs.frozen
class ModelClients(KafkaClients):
    """Makes clients of a `ModelKafka` of this process."""

    @property
    def kafka(self) -> ModelKafka:
        """The cluster."""
        return _MODELS[self.bootstrap_servers]

    def consumer(self, on_commit: Callable[..., None] | None = None, **settings: Any) -> Any:
        """A consumer."""
        return ModelConsumer(self.kafka, settings, on_commit)

    def producer(self, **settings: Any) -> Any:
        """A producer."""
        return ModelProducer(self.kafka, settings)

    def topics(self, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, Topic]:
        """Ask for topics."""
        with self.kafka.request("topics"):
            return {
                name: Topic(id=found.id, partitions=len(found.logs))
                for name, found in self.kafka.topics.items()
                if name in names
            }


class ModelConsumer:
    """A consumer of one partition, which is assigned.

    Args:
        kafka: the cluster.
        settings: of librdkafka, with underscores.
        on_commit: called when offsets were committed.
    """

    def __init__(
        self,
        kafka: ModelKafka,
        settings: Mapping[str, Any],
        on_commit: Callable[..., None] | None = None,
    ) -> None:
        self._kafka, self._on_commit = kafka, on_commit
        self._group = str(settings["group_id"])
        self._is_committed = settings.get("isolation_level") != "read_uncommitted"
        self._place: _Place | None = None
        self._offset, self._known_end = 0, -1
        self.is_closed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read a partition from an offset on."""
        (found,) = partitions
        self._place, self._offset, self._known_end = (
            (found.topic, found.partition),
            found.offset,
            -1,
        )

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """The next records, and where the end is, once.

        Args:
            num_messages: how many.
            timeout: nobody waits.
        """
        if self._place is None or num_messages < 1:
            return []
        try:
            with self._kafka.request("fetch"):
                return self._fetched(*self._place, num_messages)
        except KafkaException:
            # The library tries again by itself.
            return []

    def _fetched(self, topic: str, partition: int, count: int) -> list[Message]:
        log = self._log(topic, partition)
        if log is None:
            return [_event(topic, partition, self._offset, KafkaError.UNKNOWN_TOPIC_OR_PART)]
        if not log.first <= self._offset <= log.end:
            code = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - the library's name
            found = [_event(topic, partition, self._offset, code)]
            self._place = None
            return found
        found = list(
            itertools.islice(
                readable(topic, partition, log, self._offset, self._is_committed), count
            )
        )
        end = self._end(log)
        if len(found) == count:
            self._offset = (found[-1].offset() or 0) + 1
            return found
        self._offset = end
        if self._known_end != end:
            self._known_end = end
            found.append(_event(topic, partition, end, KafkaError._PARTITION_EOF))  # noqa: SLF001 - the library's name
        return found

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        """The first offset that is there, and the one behind the last that this reader may read.

        Args:
            partition: which.
            timeout: nobody waits.
            cached: what is known without asking.

        Raises:
            KafkaException: there is no such partition.
        """
        if cached:
            log = self._log(partition.topic, partition.partition)
            return (0, -1001) if log is None else (log.first, log.end)
        with self._kafka.request("ends"):
            log = self._log(partition.topic, partition.partition)
            if log is None:
                raise failure(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return log.first, self._end(log)

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The first offsets with these timestamps or later.

        Args:
            partitions: with timestamps in place of offsets.
            timeout: nobody waits.
        """
        with self._kafka.request("ends"):
            return [self._at_time(each) for each in partitions]

    def _at_time(self, asked: TopicPartition) -> TopicPartition:
        log = self._kafka.topics[asked.topic].logs[asked.partition]
        for index, entry in enumerate(log.entries):
            if not entry.is_marker and entry.timestamp_ms >= asked.offset:
                return TopicPartition(asked.topic, asked.partition, log.first + index)
        return TopicPartition(asked.topic, asked.partition, -1)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The offsets of the group; not while a transaction may change them, where that matters.

        Args:
            partitions: which.
            timeout: nobody waits.
        """
        with self._kafka.request("committed"):
            return [self._committed(each) for each in partitions]

    def _committed(self, asked: TopicPartition) -> TopicPartition:
        key = self._group, (asked.topic, asked.partition)
        open_ones = [each.transaction for each in self._kafka.producers.values()]
        if self._is_committed and any(each and key in each.offsets for each in open_ones):
            raise failure(KafkaError._TIMED_OUT)  # noqa: SLF001 - the library's name
        offset, metadata = self._kafka.groups.get(key, (-1001, ""))
        return TopicPartition(asked.topic, asked.partition, offset, metadata=metadata)

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool = True) -> None:
        """Commit offsets of the group.

        Args:
            offsets: with their partitions.
            asynchronous: the answer comes at once in any case.
        """
        error: KafkaError | None = None
        try:
            with self._kafka.request("offsets"):
                self._kafka.groups.update(
                    {
                        (self._group, (each.topic, each.partition)): (
                            each.offset,
                            each.metadata or "",
                        )
                        for each in offsets
                    }
                )
        except KafkaException as found:
            error = found.args[0]
        if self._on_commit is not None:
            self._on_commit(error, list(offsets))

    def poll(self, timeout: float = -1) -> None:
        """Serve nothing: answers come at once."""

    def consumer_group_metadata(self) -> str:
        """The group."""
        return self._group

    def close(self) -> None:
        """End it."""
        self.is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _log(self, topic: str, partition: int) -> ModelLog | None:
        found = self._kafka.topics.get(topic)
        return None if found is None or partition >= len(found.logs) else found.logs[partition]

    def _end(self, log: ModelLog) -> int:
        return log.stable_end if self._is_committed else log.end


def _event(topic: str, partition: int, offset: int, code: int) -> Message:
    return Message(
        topic=topic, partition=partition, offset=offset, error=KafkaError(code), timestamp=(0, -1)
    )


class ModelProducer:
    """A producer, with transactions where it has a transactional id.

    Args:
        kafka: the cluster.
        settings: of librdkafka, with underscores.
    """

    def __init__(self, kafka: ModelKafka, settings: Mapping[str, Any]) -> None:
        self._kafka = kafka
        self._name: str | None = settings.get("transactional_id")
        self._timeout_ms = int(settings.get("transaction_timeout_ms", 60_000))
        self._epoch = -1
        self._transaction: ModelTransaction | None = None
        #: What the next commit is refused for: a record was not taken.
        self._failed: KafkaException | None = None
        self._turn = itertools.count()

    def init_transactions(self, timeout: float = -1) -> None:
        """Shut out producers of the same id, and abort what they have open."""
        assert self._name is not None
        with self._kafka.request("init"):
            state = self._kafka.producers.setdefault(self._name, ModelProducerState())
            former, state.transaction = state.transaction, None
            if former is not None:
                self._kafka.end(former, is_committed=False)
            state.epoch += 1
            state.timeout_ms = self._timeout_ms
            self._epoch = state.epoch

    def begin_transaction(self) -> None:
        """Begin, which the cluster learns with the first record or offset."""
        self._transaction = ModelTransaction(self._kafka.now_ms)
        self._failed = None

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        on_delivery: Callable[..., None] = lambda *_: None,
    ) -> None:
        """Send a record.

        Args:
            topic: its name.
            value: of the record.
            key: of the record, by which its partition is chosen.
            headers: of the record.
            on_delivery: called with what has become of it.

        Raises:
            KafkaException: never: that is for ``on_delivery``, and for the commit.
        """
        error: KafkaError | None = None
        try:
            with self._kafka.request("produce"):
                self._join()
                if topic not in self._kafka.topics:
                    raise failure(KafkaError.UNKNOWN_TOPIC_OR_PART, abortable=True)
                if len(value or b"") > MESSAGE_BYTES_MAX:
                    raise failure(KafkaError.MSG_SIZE_TOO_LARGE, abortable=True)
                count = len(self._kafka.topics[topic].logs)
                partition = next(self._turn) % count if key is None else murmur2(key, count)
                self._kafka.append(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    headers=headers,
                    transaction=self._transaction,
                )
        except KafkaException as found:
            error = found.args[0]
            self._failed = self._failed or found
        on_delivery(error, None)

    def send_offsets_to_transaction(
        self, offsets: Sequence[TopicPartition], group: str, timeout: float = -1
    ) -> None:
        """Have offsets of a group committed with the transaction.

        Args:
            offsets: with their partitions and metadata.
            group: its name.
            timeout: nobody waits.
        """
        transaction = self._transaction
        assert transaction is not None
        with self._kafka.request("offsets"):
            self._join()
            for each in offsets:
                place = each.topic, each.partition
                transaction.offsets[group, place] = each.offset, each.metadata or ""

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit; whether it was done may stay unknown.

        Raises:
            KafkaException: it was not done, or nobody knows.
        """
        if self._failed is not None:
            raise self._failed
        transaction = self._transaction
        assert transaction is not None
        assert self._name is not None
        with self._kafka.request("commit") as outcome:
            self._join()
            if outcome is Outcome.DELAYED:
                self._kafka.delayed.append((self._name, self._epoch, transaction))
                return
            self._kafka.producers[self._name].transaction = None
            self._kafka.end(transaction, is_committed=True)

    def flush(self, timeout: float = -1) -> int:
        """Nothing waits."""
        return 0

    def poll(self, timeout: float = -1) -> int:
        """Serve nothing: deliveries are known at once."""
        return 0

    def purge(self) -> None:
        """Forget what waits: nothing does."""

    def close(self) -> bool:
        """End it; an open transaction stays open."""
        return True

    def _join(self) -> None:
        """Refuse a producer that is fenced; the first request of a transaction begins it."""
        if self._name is None:
            return
        state = self._kafka.producers[self._name]
        transaction = self._transaction
        is_over = transaction is None or transaction.is_committed is not None
        if state.epoch != self._epoch or is_over:
            raise failure(KafkaError._FENCED, fatal=True)  # noqa: SLF001 - the library's name
        state.transaction = transaction


#: A larger record is refused, as by default in Kafka.
MESSAGE_BYTES_MAX = 1_048_576
