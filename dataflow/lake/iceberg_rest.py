"""TimedRestCatalog: a catalogue of Iceberg tables by REST that does not wait for ever for an answer."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

#: How long a connection may take, and then the service to say anything, in seconds; a commit writes metadata meanwhile.
TIMEOUTS_S = (5, 60)


class TimedRestCatalog(RestCatalog):
    """pyiceberg's own, whose requests have no time-out: where nothing comes any more, its client would hang."""

    def _create_session(self) -> Any:
        session: Any = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUTS_S)
        return session
