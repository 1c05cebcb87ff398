"""KafkaClients: makes clients of a cluster; with its errors, the one place that imports confluent-kafka.

The library is imported when there is something to connect to: it takes long, and is an extra.
A model of a cluster (`dataflow.testing.model_kafka`) is a subclass whose clients behave as the library's do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError, PipelineError
from dataflow.io.extras import require
from dataflow.times import in_words
from windowing.timestamps import US_PER_SECOND

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

#: What librdkafka logs, by way of Python's logging.
_CLIENT_LOG = logging.getLogger("dataflow.kafka.client")
#: What a broker of before version 2.8 has for an id: zeros.
_NO_ID = "A" * 22
#: How long a cluster is waited for, in seconds, where nothing can go on without it.
CONNECT_S = 15.0


@attrs.frozen(kw_only=True)
class Topic:
    """A topic, as the cluster has it.

    Attributes:
        id: of this topic and no other of its name; None: the cluster does not say.
        partitions: how many.
    """

    id: str | None
    partitions: int


def _config_of(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)


@attrs.frozen
class KafkaClients:
    """Makes clients of one cluster.

    Args:
        bootstrap_servers: addresses of some of its brokers: ``host:port,host:port``.
        config: settings of librdkafka for every client, such as those of security; never shown, as it may have
            passwords.
    """

    bootstrap_servers: str
    config: dict[str, Any] = attrs.field(
        factory=dict, converter=_config_of, repr=False, kw_only=True
    )

    def consumer(self, on_commit: Callable[..., None] | None = None, **settings: Any) -> Consumer:
        """A consumer; of ``settings`` dots are underscores.

        Args:
            on_commit: called with an error or None, and offsets, when they were committed; None: nobody is.
            settings: of librdkafka.
        """
        all_settings = self._settings(settings)
        if on_commit is not None:
            all_settings["on_commit"] = on_commit
        made: Consumer = library().Consumer(all_settings)
        return made

    def producer(self, **settings: Any) -> Producer:
        """A producer; of ``settings`` dots are underscores.

        Args:
            settings: of librdkafka.
        """
        made: Producer = library().Producer(self._settings(settings))
        return made

    def topics(self, names: Sequence[str], *, wait_s: float = CONNECT_S) -> dict[str, Topic]:
        """Ask for topics; none is made by being asked for.

        Args:
            names: of the topics.
            wait_s: how long the cluster is waited for, in seconds, for each of them.

        Raises:
            KafkaException: the cluster does not answer, or refuses.
        """
        consumer = self.consumer(group_id="dataflow")
        try:
            # One call for each: to list all would take long in a large cluster.
            found = [consumer.list_topics(name, timeout=wait_s) for name in names]
        finally:
            consumer.close()
        counts = {
            name: len(each.topics[name].partitions)
            for name, each in zip(names, found, strict=True)
            if name in each.topics and each.topics[name].error is None
        }
        # A cluster that names no controller, as librdkafka's mock does, would have the question wait in vain.
        can_describe = all(each.controller_id in each.brokers for each in found)
        ids = self._ids(list(counts), wait_s) if counts and can_describe else {}
        return {name: Topic(id=ids.get(name), partitions=count) for name, count in counts.items()}

    def _ids(self, names: list[str], wait_s: float) -> dict[str, str]:
        kafka = library()
        with import_module("confluent_kafka.admin").AdminClient(self._settings({})) as admin:
            asked = admin.describe_topics(kafka.TopicCollection(names), request_timeout=wait_s)
            ids = {name: each.result(wait_s).topic_id for name, each in asked.items()}
        found = {name: str(each) for name, each in ids.items() if each is not None}
        return {name: each for name, each in found.items() if each != _NO_ID}

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": "dataflow",
            "logger": _CLIENT_LOG,
            **self.config,
            **dotted,
        }


def clients_of(bootstrap_servers: object, config: Mapping[str, Any] | None) -> KafkaClients:
    """The clients of a cluster, as a user names it.

    Args:
        bootstrap_servers: addresses, or clients.
        config: settings of librdkafka; None: none.

    Raises:
        PipelineError: the library is not installed, the servers are neither, or a setting is ours.
    """
    library()
    if isinstance(bootstrap_servers, KafkaClients):
        return bootstrap_servers
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers.strip():
        raise PipelineError(
            f"Kafka cannot be reached at {bootstrap_servers!r}",
            hint="give bootstrap_servers='host:port', or several with commas between them",
        )
    given = dict(config or {})
    if ours := sorted(_OURS & set(given)):
        raise PipelineError(
            f"config sets {', '.join(ours)}, which the connector has to set",
            hint="leave it out; arguments of the transform say what can be chosen",
        )
    return KafkaClients(bootstrap_servers, config=given)


#: Settings on which it depends that records count once.
_OURS = {
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "isolation.level",
    "transactional.id",
}


def library() -> Any:
    """The package ``confluent_kafka``.

    Raises:
        PipelineError: it is not installed.
    """
    require("confluent_kafka", "kafka", "Kafka")
    return import_module("confluent_kafka")


def kafka_error(error: BaseException) -> KafkaError | None:
    """What the library says of an exception of its own; None: it is another exception.

    Args:
        error: whatever was raised.
    """
    kafka = library()
    first = error.args[0] if isinstance(error, kafka.KafkaException) and error.args else None
    return first if isinstance(first, kafka.KafkaError) else None


def is_refusal(error: KafkaError) -> bool:
    """Whether the cluster refuses this client, so that another try does not help.

    Args:
        error: of the library.
    """
    return error.name() in _REFUSALS


_REFUSALS = {
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
    "_AUTHENTICATION",
}


def not_reached(what: str, error: BaseException) -> InputError:
    """The error of a cluster that does not answer, or refuses.

    Args:
        what: cannot be done, as the beginning of a sentence.
        error: whatever was raised.
    """
    return InputError(
        f"{what}: the Kafka cluster does not answer, or refuses",
        detail=f"{error}",
        hint="check bootstrap_servers and config, that the brokers run, and what this user may do",
    )


def bounded(call: Callable[[], object], wait_s: float) -> None:
    """Call the library, and give up if it does not come back, whatever time-out it was given.

    It loses requests of a producer whose coordinator was restarted (librdkafka 2.16), and waits for them for ever.  The
    thread that was given up stays; whoever calls makes another client, and leaves that one alone.

    Args:
        call: of the library.
        wait_s: how long it may take, in seconds.

    Raises:
        TimeoutError: it has not come back.
        Exception: it has raised that.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="dataflow-kafka", daemon=True)
    thread.start()
    thread.join(wait_s)
    if thread.is_alive():
        waited = in_words(int(wait_s * US_PER_SECOND))
        raise TimeoutError(f"the Kafka client has not answered after {waited}")
    if errors:
        raise errors[0]
