"""Connections to Redis: one connection each, which does not repeat a command by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from dataflow.errors import InputError

if TYPE_CHECKING:
    from redis import Redis

#: How long an answer is waited for, in seconds.
ANSWER_S = 10.0


@attrs.frozen(kw_only=True)
class RedisServer:
    """How a server is reached.

    Attributes:
        url: as ``redis://user:password@host:6379/0``, or ``rediss://`` with TLS.
    """

    url: str = attrs.field(repr=False)

    def connect(self) -> Redis:
        """A connection; it is opened with the first command."""
        from redis import Redis  # noqa: PLC0415 - takes long, and only such jobs need it
        from redis.backoff import NoBackoff  # noqa: PLC0415 - likewise
        from redis.retry import Retry  # noqa: PLC0415 - likewise

        return Redis.from_url(
            self.url,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
        )

    def information(self, section: str, stream: str) -> dict[str, Any]:
        """What the server says of itself.

        Args:
            section: of ``INFO``.
            stream: that is to be read or written, for messages.

        Raises:
            InputError: it cannot be reached.
        """
        try:
            client = self.connect()
            try:
                found: dict[str, Any] = client.info(section)
            finally:
                client.close()
        except lost_errors() as error:
            raise InputError(
                f"the Redis server of stream {stream} cannot be reached",
                detail=f"{type(error).__name__} {error}",
                hint="check the url, and that the server runs and lets this user in",
            ) from error
        return found

    def version(self, stream: str) -> tuple[int, int]:
        """Of the server, such as (7, 2); of others, whose protocol theirs is.

        Args:
            stream: that is to be read or written, for messages.

        Raises:
            InputError: it cannot be reached.
        """
        major, minor = str(self.information("server", stream)["redis_version"]).split(".")[:2]
        return int(major), int(minor)


def lost_errors() -> tuple[type[BaseException], ...]:
    """What is raised where the server, or the connection to it, is away, or does not work for the moment."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - takes long, and only such jobs need it

    return (RedisError, OSError)
