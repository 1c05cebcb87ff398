"""The name of this process among those of all machines, for people."""

import os
import socket

#: Postgres cuts names of sessions off at 63 bytes.
_HOST_BYTES_MAX = 24


def process_name() -> str:
    """The host, shortened, and the number of the process on it."""
    host = socket.gethostname().encode("ascii", "replace")[:_HOST_BYTES_MAX].decode()
    return f"{host}:{os.getpid()}"
