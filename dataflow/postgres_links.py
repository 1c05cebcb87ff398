"""How long a connection to a Postgres server may be silent before it is lost: for the store, sources and sinks."""

from collections.abc import Mapping
from typing import Any

#: Settings of libpq, which an address of the user's may override.  A server that is gone without a word, or whose words
#: do not come any more, is noticed within about half a minute; without these settings, TCP waits for hours.
NOTICED: Mapping[str, Any] = {
    "connect_timeout": 5,  # seconds, for one attempt
    "keepalives": 1,
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
}
