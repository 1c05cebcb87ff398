"""TopicWriter: batches of a lane into a topic, each in one transaction with its number.

The number is the committed offset of a group of the lane's own, with the token as its metadata, and is committed in the
transaction of the records.  The order of acts is the whole proof: a producer with the lane's transactional id is
initialised, which aborts what a former one has open and shuts it out; only then is the number read.  Read before, it
may be that of a former producer whose transaction is committed a moment later.

There is no second phase, and no transaction that outlives its writer: it is as long as one batch, and times out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import SinkFencedError, SinkRefusedError
from dataflow.io.kafka.clients import (
    CONNECT_S,
    KafkaClients,
    bounded,
    kafka_error,
    library,
)
from dataflow.io.kafka.messages import Encoded, Mode, messages_of
from dataflow.io.outages import steady_s
from dataflow.sink import Lane, SinkChange, SinkWriter

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

#: How long a broker keeps a transaction open for a writer that says nothing.
TRANSACTION_TIMEOUT_MS = 10_000
#: How long an answer is waited for, in seconds: after that the transaction has ended in any case; and how much longer
#: for the library to say so.
_ANSWER_S, _GRACE_S = TRANSACTION_TIMEOUT_MS / 1_000, 2.0
#: The header of a message that may come again, which says what it is.
ID_HEADER = "dataflow-id"
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}
_REFUSED = {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "TOPIC_AUTHORIZATION_FAILED"}
#: Of Java's clients, so that they find a key in the partition where it is.
_PARTITIONER = "murmur2_random"


@attrs.frozen
class LaneProgress:
    """What the cluster has of a lane: the number of its last batch, and the token that it was fenced with last."""

    number: int = 0
    token: int = 0


class TopicWriter(SinkWriter):
    """Writes batches of a lane exactly once.

    Args:
        clients: of the cluster.
        topic: where to.
        mode: what becomes of retractions.
        lane: the lane.
    """

    def __init__(self, clients: KafkaClients, topic: str, mode: Mode, lane: Lane) -> None:
        self._clients, self._topic, self._mode, self._lane = clients, topic, mode, lane
        #: The group and the transactional id of the lane.
        self._name = f"dataflow.{lane.writer}"
        self._token = 0
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._failed: list[KafkaError] = []
        #: Whether the producer has been asked something, and has not come back.
        self._is_stuck = False

    def fence(self, token: int) -> int:
        """Shut out every writer with a lower token, then read the number.

        Raises:
            SinkFencedError: the lane was fenced with this token or a higher one.
        """
        # A writer that is too late must not shut out the one that is not; what this says is used for nothing else.
        with self._opened(isolation_level="read_uncommitted") as reader:
            self._check_token(self._progress(reader), token)
        self._producer = self._opened_producer()
        number = self._fenced(self._producer, token)
        self._token = token
        # The token is there from now on.
        self._transact([], number)
        return number

    def _fenced(self, producer: Producer, token: int) -> int:
        self._ask(producer.init_transactions)
        self._consumer = self._opened(isolation_level="read_committed")
        progress = self._progress(self._consumer)
        self._check_token(progress, token)
        return progress.number

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write a batch and its number in one transaction.

        Raises:
            SinkFencedError: another writer has the lane.
            SinkRefusedError: the topic takes no such messages.
            KafkaException: nobody knows whether it is there.
        """
        self._transact(messages_of(self._mode, changes), number)

    def close(self) -> None:
        """Close the clients."""
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        # A SystemError is of the binding, about an exception of its own that it has not passed on.
        with suppress(library().KafkaException, TimeoutError, SystemError):
            if producer is not None and not self._is_stuck:
                # What was not committed is aborted by the next writer, or by the broker.
                bounded(producer.purge, _GRACE_S)
                bounded(producer.close, _GRACE_S)
        with suppress(library().KafkaException, TimeoutError):
            if consumer is not None:
                bounded(consumer.close, _GRACE_S)

    def _transact(self, messages: Sequence[Encoded], number: int) -> None:
        producer, consumer = self._producer, self._consumer
        assert producer is not None
        assert consumer is not None
        self._failed.clear()
        try:
            producer.begin_transaction()
            for message in messages:
                self._produce(producer, message)
            group = consumer.consumer_group_metadata()
            self._ask(
                partial(producer.send_offsets_to_transaction, [self._place(number)], group),
            )
            self._ask(producer.commit_transaction)
        except library().KafkaException as error:
            raise self._translated(error) from error

    def _ask(self, call: Callable[[float], object]) -> None:
        """Have the producer ask the cluster, for as long as a transaction may last."""
        self._is_stuck = True
        try:
            bounded(partial(call, _ANSWER_S), _ANSWER_S + _GRACE_S)
        except TimeoutError:
            raise
        except BaseException:
            self._is_stuck = False
            raise
        self._is_stuck = False

    def _place(self, number: int = -1) -> Any:
        """Where the number of the lane is kept."""
        kafka = library()
        if number < 0:
            return kafka.TopicPartition(self._topic, 0)
        return kafka.TopicPartition(self._topic, 0, number, metadata=f"token {self._token}")

    def _produce(self, producer: Producer, message: Encoded) -> None:
        key, value, headers = message
        while True:
            try:
                producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    headers=list(headers),
                    on_delivery=self._delivered,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def _translated(self, error: Exception) -> Exception:
        """What the relay is to know: that the lane was fenced, or the rows are refused, or nothing is known."""
        found = [each for each in [kafka_error(error), *self._failed] if each is not None]
        for each in found:
            if each.name() in _FENCED:
                return SinkFencedError(
                    f"{self._lane.title} was fenced by another writer", detail=f"{each}"
                )
        for each in found:
            if each.name() in _REFUSED:
                return SinkRefusedError(
                    f"topic {self._topic} does not take the messages: {each}",
                    hint="change the topic or the pipeline; what waits stays in the outbox, and is written when the "
                    "job runs again",
                )
        return error

    def _check_token(self, progress: LaneProgress, token: int) -> None:
        if progress.token >= token:
            raise SinkFencedError(
                f"{self._lane.title} was fenced by another writer",
                detail=f"it has the token {progress.token}, and this one {token}",
            )

    def _progress(self, consumer: Consumer) -> LaneProgress:
        (found,) = consumer.committed([self._place()], timeout=CONNECT_S)
        if found.error is not None:
            raise library().KafkaException(found.error)
        if found.offset < 0:
            return LaneProgress()
        token = (found.metadata or "").removeprefix("token ")
        return LaneProgress(number=found.offset, token=int(token) if token.isdigit() else 0)

    def _opened(self, **settings: Any) -> Consumer:
        return self._clients.consumer(
            self._answered, group_id=self._name, enable_auto_commit=False, **settings
        )

    def _answered(self, error: KafkaError | None, offsets: Sequence[Any]) -> None:
        """Whether an offset was committed outside of a transaction, which none is."""

    def _opened_producer(self) -> Producer:
        return self._clients.producer(
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            partitioner=_PARTITIONER,
        )


class AtLeastOnceWriter(TopicWriter):
    """Writes batches of a lane at least once, without transactions; each message has an id by which it is known.

    The number is committed behind the batch, so the batch after it may be there as well: it is written again then, with
    the same ids.

    Args:
        clients: of the cluster.
        topic: where to.
        mode: what becomes of retractions.
        lane: the lane.
    """

    def __init__(self, clients: KafkaClients, topic: str, mode: Mode, lane: Lane) -> None:
        super().__init__(clients, topic, mode, lane)
        self._answers: list[KafkaError | None] = []

    def fence(self, token: int) -> int:
        """Read the number, and leave the token; a former writer that is still at work is not shut out."""
        self._consumer = self._opened(isolation_level="read_committed")
        progress = self._progress(self._consumer)
        self._check_token(progress, token)
        self._token = token
        self._producer = self._clients.producer(
            enable_idempotence=True,
            partitioner=_PARTITIONER,
            message_timeout_ms=int(CONNECT_S * 1_000),
        )
        self._keep(progress.number)
        return progress.number

    def write(self, number: int, changes: Sequence[SinkChange]) -> None:
        """Write a batch, and keep its number when all of it is there.

        Raises:
            SinkFencedError: the producer was shut out.
            SinkRefusedError: the topic takes no such messages.
            KafkaException: not all of it is known to be there.
        """
        producer = self._producer
        assert producer is not None
        self._failed.clear()
        writer = self._lane.writer
        try:
            for index, message in enumerate(messages_of(self._mode, changes)):
                key, value, headers = message
                id_header = ID_HEADER, f"{writer}/{number}/{index}".encode()
                self._produce(producer, (key, value, (*headers, id_header)))
            left = producer.flush(2 * CONNECT_S)
            kafka = library()
            if self._failed or left:
                error = (self._failed or [kafka.KafkaError(kafka.KafkaError._TIMED_OUT)])[0]  # noqa: SLF001 - the library's name
                raise kafka.KafkaException(error)
        except library().KafkaException as error:
            raise self._translated(error) from error
        self._keep(number)

    def _keep(self, number: int) -> None:
        """Commit the number, and wait until it is."""
        kafka, consumer = library(), self._consumer
        assert consumer is not None
        self._answers.clear()
        consumer.commit(offsets=[self._place(number)], asynchronous=True)
        give_up_s = steady_s() + CONNECT_S
        while not self._answers:
            if steady_s() > give_up_s:
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001 - the library's name
            consumer.poll(0.05)
        if self._answers[0] is not None:
            raise kafka.KafkaException(self._answers[0])

    def _answered(self, error: KafkaError | None, offsets: Sequence[Any]) -> None:
        self._answers.append(error)
