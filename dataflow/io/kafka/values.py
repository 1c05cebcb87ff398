"""Decoders of keys and values: JSON, and Avro and JSON with the schemas of a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import attrs
import msgspec

from dataflow.distribution import install_command
from dataflow.errors import InputError, PipelineError
from dataflow.io.kafka.records import Decode, RegistryAwayError

_json = msgspec.json.Decoder().decode


def json_value(raw: bytes, topic: str) -> Any:
    """What is in JSON.

    Args:
        raw: of the value.
        topic: for messages.

    Raises:
        InputError: it is no JSON.
    """
    try:
        return _json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"topic {topic} has a record that is not JSON",
            detail=f"{error}",
            hint="correct its producer, or read bytes",
        ) from error


def text_value(raw: bytes, topic: str) -> str:
    """Text in UTF-8.

    Args:
        raw: of the value.
        topic: for messages.

    Raises:
        InputError: it is none.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"topic {topic} has a record that is not UTF-8",
            detail=f"{error}",
            hint="correct its producer, or read bytes",
        ) from error


#: By the names that users give.
DECODERS: dict[str, Decode | None] = {"bytes": None, "json": json_value, "text": text_value}


def decoder_of(name: str, value: object) -> Decode | None:
    """The decoder that a user has named, or given; None: bytes.

    Args:
        name: of the argument.
        value: of the argument.

    Raises:
        PipelineError: it is none.
    """
    if isinstance(value, str) and value in DECODERS:
        return DECODERS[value]
    if isinstance(value, KafkaSchemas):
        return value.decoder(is_key=name == "key")
    if callable(value):
        return _Called(value)
    raise PipelineError(
        f"ReadFromKafka was given {name}={value!r}",
        hint=f"give one of {', '.join(map(repr, DECODERS))}, a function of the bytes, or a KafkaSchemas",
    )


@attrs.frozen
class _Called:
    """A user's function of the bytes."""

    function: Callable[[bytes], Any]

    def __call__(self, raw: bytes, topic: str) -> Any:
        return self.function(raw)


@attrs.frozen
class KafkaSchemas:
    """Keys or values with the id of a schema in front of them, which a schema registry has.

    Args:
        url: of the registry.
        kind: ``"avro"`` or ``"json"``.
        config: settings of the registry's client, such as ``basic.auth.user.info``; never shown.
        schema: of the reader, as text; None: that of the writer.

    Raises:
        PipelineError: the kind is unknown, or the libraries are not installed.
    """

    url: str
    kind: str = attrs.field(default="avro", kw_only=True)
    config: Mapping[str, Any] = attrs.field(factory=dict, repr=False, kw_only=True)
    schema: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.kind not in _DESERIALIZERS:
            raise PipelineError(
                f"KafkaSchemas was given kind={self.kind!r}",
                hint=f"give one of {', '.join(map(repr, _DESERIALIZERS))}",
            )
        _registry_library()
        _registry_library(_DESERIALIZERS[self.kind][0])

    def decoder(self, *, is_key: bool) -> Decode:
        """Decodes keys or values.

        Args:
            is_key: whether they are keys, whose schemas have names of their own.
        """
        return RegistryDecoder(self, is_key)


_DESERIALIZERS = {"avro": ("avro", "AvroDeserializer"), "json": ("json_schema", "JSONDeserializer")}


class RegistryDecoder:
    """Decodes by the schemas of a registry; it is asked once for each schema, in each process.

    Args:
        registry: where they are.
        is_key: whether keys are decoded.
    """

    def __init__(self, registry: KafkaSchemas, is_key: bool) -> None:  # noqa: FBT001 - `__reduce__` gives it so
        self._registry, self._is_key = registry, is_key
        self._deserialize: Callable[[bytes, Any], Any] | None = None
        self._contexts: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return RegistryDecoder, (self._registry, self._is_key)

    def __call__(self, raw: bytes, topic: str) -> Any:
        """What is in a key or value.

        Args:
            raw: the number of the schema, and what it describes.
            topic: of the record.

        Raises:
            RegistryAwayError: nobody knows the schema at the moment.
            Exception: it does not fit its schema, or there is none of that number.
        """
        if self._deserialize is None:
            self._deserialize = self._opened()
        context = self._contexts.get(topic)
        if context is None:
            serialization = import_module("confluent_kafka.serialization")
            field = (
                serialization.MessageField.KEY if self._is_key else serialization.MessageField.VALUE
            )
            context = self._contexts[topic] = serialization.SerializationContext(topic, field)
        try:
            return self._deserialize(raw, context)
        except Exception as error:
            if _is_away(error):
                raise RegistryAwayError(
                    f"the schema registry at {self._registry.url} does not answer; records wait for it, and none is "
                    f"set aside: {type(error).__name__}: {error}"
                ) from error
            raise

    def _opened(self) -> Callable[[bytes, Any], Any]:
        client = _registry_library().SchemaRegistryClient(
            {"url": self._registry.url, "timeout": 10, **self._registry.config}
        )
        module, name = _DESERIALIZERS[self._registry.kind]
        kind = getattr(_registry_library(module), name)
        schema = self._registry.schema
        made: Callable[[bytes, Any], Any] = (
            kind(client, schema_str=schema)
            if self._registry.kind == "avro"
            else kind(schema, schema_registry_client=client)
        )
        return made


def _is_away(error: BaseException | None) -> bool:
    """Whether an error is one of the registry, and not of the record: another try may not have it."""
    while error is not None:
        status = getattr(error, "http_status_code", None)
        if isinstance(status, int) and (status in _PASSING or status >= _SERVER_ERRORS):
            return True
        # Of the library's HTTP client, whichever it is.
        if isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore")):
            return True
        error = error.__cause__ or error.__context__
    return False


#: Of HTTP: a request that timed out, and too many of them; and what the server has failed at.
_PASSING, _SERVER_ERRORS = {408, 429}, 500


def _registry_library(module: str = "") -> Any:
    name = ".".join(filter(None, ["confluent_kafka.schema_registry", module]))
    try:
        return import_module(name)
    except ImportError:
        raise PipelineError(
            "a schema registry needs libraries that are not installed",
            hint=f"{install_command('kafka')}; workers need it too",
        ) from None
