"""The cluster that librdkafka brings along for its own tests, with faults by request: by its C API.

It listens on this machine alone, and is gone with the process.  It has no aborted transactions: what they have is read.
"""

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

#: Of Kafka's protocol.
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT = 0, 1, 2, 3, 8
_PRODUCER = 0


def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka-*.so*")
    found = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(found, name).restype = ctypes.c_void_p
    found.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return found


class MockKafka:
    """A cluster of one broker; a context manager."""

    def __init__(self) -> None:
        self._library = library = _library()
        reason = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, reason, len(reason)))
        assert self._client, reason.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, 1))
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def make_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        made = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        assert made == 0

    def stop(self) -> None:
        """The broker is away: it closes its connections."""
        assert self._library.rd_kafka_mock_broker_set_down(self._cluster, 1) == 0

    def start(self) -> None:
        """The broker is there again, with all that it had."""
        assert self._library.rd_kafka_mock_broker_set_up(self._cluster, 1) == 0

    def fail(self, request: int, *codes: int) -> None:
        """Answer the next requests of a kind with these errors."""
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster,
            ctypes.c_int16(request),
            ctypes.c_size_t(len(codes)),
            (ctypes.c_int * len(codes))(*codes),
        )

    def heal(self, request: int) -> None:
        """Answer requests of a kind as they are."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def close(self) -> None:
        """End it."""
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._cluster = ctypes.c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
