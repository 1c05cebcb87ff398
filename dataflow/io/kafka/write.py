"""WriteToKafka: elements as messages of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dataflow.do_fn import CallableDoFn, Shape
from dataflow.errors import PipelineError, SinkError
from dataflow.graph import MAIN, ParDo
from dataflow.io.kafka.clients import KafkaClients, clients_of, library, not_reached
from dataflow.io.kafka.messages import Encode, Encoded, Mode
from dataflow.io.kafka.writer import AtLeastOnceWriter, TopicWriter
from dataflow.io.sinks import Write
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.sink import Lane, Sink, SinkWriter

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"


class WriteToKafka(PTransform[PCollection[Any], None]):
    """Write elements as messages of a topic, exactly once.

    They wait in the outbox of the store, in the commits that emit them, and go to the topic in transactions, each of
    which has the number of its batch; readers with ``read_committed`` see each once.  docs/connectors/kafka.md has what
    is promised.

    Args:
        topic: its name; it has to be there.
        bootstrap_servers: addresses of some brokers, ``"host:port,host:port"``; or clients, such as those of a
            `dataflow.testing.model_kafka.ModelKafka`.
        config: settings of librdkafka, such as those of security.
        key: the name of a member of the elements, or a function of them; messages of one key are in one partition, in
            order.  Bytes are written as they are, text in UTF-8, anything else as JSON.  None: messages have no key.
        value: a function of the element; None: the element itself.  Written as keys are; None is a message without a
            value.
        headers: a function of the element that gives names and values; None: there are none.
        mode: what becomes of retractions.  ``"append"``: each element is a message; input that retracts is refused.
            ``"upsert"``: a message replaces that of its key, and a retraction is a message without a value, for
            compacted topics.  ``"debezium"``: messages say what was ``before``, what is ``after``, and ``op``, as
            those of Debezium.  ``"changelog"``: each change is a message with the header ``dataflow-sign``, ``+1`` or
            ``-1``.  None: ``"append"`` if nothing is retracted, else ``"upsert"``.
        delivery: ``"exactly-once"``; or ``"at-least-once"``, without transactions: messages that may come twice have
            the same header ``dataflow-id``.
        lanes: how many parts the outbox has, each of which is written by a producer of its own; messages of one key
            are in one of them.

    Raises:
        PipelineError: the input retracts, and the mode does not know how; or the arguments do not suit each other.
        SinkError: the topic is missing, or the cluster does not answer.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str | KafkaClients,
        config: Mapping[str, Any] | None = None,
        key: str | Callable[[Any], Any] | None = None,
        value: Callable[[Any], Any] | None = None,
        headers: Callable[[Any], Mapping[str, bytes | str]] | None = None,
        mode: str | None = None,
        delivery: str = EXACTLY_ONCE,
        lanes: int = 1,
    ) -> None:
        if mode is not None and mode not in {each.value for each in Mode}:
            raise PipelineError(
                f"WriteToKafka was given mode={mode!r}",
                hint=f"give one of {', '.join(repr(each.value) for each in Mode)}",
            )
        if delivery not in {EXACTLY_ONCE, AT_LEAST_ONCE}:
            raise PipelineError(
                f"WriteToKafka was given delivery={delivery!r}",
                hint=f"give {EXACTLY_ONCE!r} or {AT_LEAST_ONCE!r}",
            )
        self._mode = None if mode is None else Mode(mode)
        if self._mode in {Mode.UPSERT, Mode.DEBEZIUM} and key is None:
            raise PipelineError(
                f"WriteToKafka was given mode={mode!r} without a key",
                hint="give key=..., which says what a message replaces",
            )
        self._key, self._value, self._headers = key, value, headers
        self._sink = KafkaTopic(
            clients=clients_of(bootstrap_servers, config),
            topic=topic,
            mode=self._mode or Mode.APPEND,
            delivery=delivery,
            lanes=lanes,
        )
        Write(self._sink)  # checks it

    def default_label(self) -> str:
        """``WriteToKafka(topic)``."""
        return f"WriteToKafka({self._sink.topic})"

    def expand(self, pcoll: PCollection[Any]) -> None:
        """Encode the elements where they are emitted, and write the messages.

        Raises:
            PipelineError: the input retracts, and messages have no key; or the mode is ``"append"``.
        """
        mode = self._mode
        if mode is None:
            mode = Mode.UPSERT if pcoll.node.retracted_by else Mode.APPEND
            if mode is Mode.UPSERT and self._key is None:
                raise PipelineError(
                    f"{pcoll.pipeline.here()} only adds messages, but its input retracts results",
                    detail=f"{pcoll.node.retracted_by} retracts what it has emitted",
                    hint="give key=..., so that a retraction can delete its message; or mode='changelog'",
                )
        if mode is Mode.APPEND and pcoll.node.retracted_by:
            raise PipelineError(
                f"{pcoll.pipeline.here()} only adds messages, but its input retracts results",
                detail=f"{pcoll.node.retracted_by} retracts what it has emitted",
                hint="give it a mode that can say so: 'upsert', 'debezium' or 'changelog'",
            )
        sink = attrs.evolve(self._sink, mode=mode)
        sink.check()
        encode = Encode(key=self._key, value=self._value, headers=self._headers, mode=mode)
        messages: PCollection[Encoded] = pcoll | "Encode" >> _Encoded(encode)
        _ = messages | Write(sink)


class _Encoded(PTransform[PCollection[Any], PCollection[Encoded]]):
    def __init__(self, encode: Encode) -> None:
        self._encode = encode

    def expand(self, pcoll: PCollection[Any]) -> PCollection[Encoded]:
        operation = ParDo(CallableDoFn(self._encode, Shape.MAP))
        return pcoll.pipeline.add_operation(
            operation, [pcoll], pcoll.node.strategy, retracted_by=pcoll.node.retracted_by
        )[MAIN]


@attrs.frozen(kw_only=True)
class KafkaTopic(Sink[Encoded]):
    """A topic, to which messages are written."""

    clients: KafkaClients
    topic: str
    mode: Mode
    delivery: str = EXACTLY_ONCE
    _lanes: int = 1

    @property
    def lanes(self) -> int:
        """How many producers write."""
        return self._lanes

    @property
    def takes_retractions(self) -> bool:
        """Whether the mode knows what to do with them."""
        return self.mode is not Mode.APPEND

    def lane_key(self, element: Encoded) -> Any:
        """The key of the message, or all of one without a key."""
        return element if element[0] is None else element[0]

    def check(self) -> None:
        """Check that the cluster answers and has the topic.

        Raises:
            SinkError: it does not.
        """
        try:
            topics = self.clients.topics([self.topic])
        except library().KafkaException as error:
            found = not_reached(f"topic {self.topic} cannot be written to", error)
            raise SinkError(found.fact, detail=found.detail, hint=found.hint) from error
        if self.topic not in topics:
            raise SinkError(
                f"the Kafka cluster has no topic {self.topic!r}",
                detail=f"it was asked at {self.clients.bootstrap_servers}",
                hint="make it, with as many partitions as it is to have: later ones get keys of others",
            )

    def open(self, lane: Lane) -> SinkWriter:
        """A writer of a lane."""
        kind = TopicWriter if self.delivery == EXACTLY_ONCE else AtLeastOnceWriter
        return kind(self.clients, self.topic, self.mode, lane)
