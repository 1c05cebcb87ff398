"""KeptStore: the connection of a worker process to the store, from one task to the next.

A new session of the server, and all that it plans for the first time, take longer than most of what a task does there.
The session ends with the worker process: with Spark's session, or when Spark has had nothing for it for a minute.
"""

import attrs

from runners.millwheel.store.port import Store
from runners.registry import open_store

#: The one of this process, and what it was opened for.
_kept: dict[tuple[str, str | None], Store] = {}


@attrs.frozen
class KeptStore:
    """Opens a store by its DSN, or returns the one that this process has open.

    Whoever uses it closes it after an error only: it connects again when it is next used.

    Attributes:
        incarnation: the only one to work with; None: whichever is there.
    """

    incarnation: str | None = None

    def __call__(self, dsn: str) -> Store:
        """The store at ``dsn``; another one that this process has had is closed."""
        wanted = dsn, self.incarnation
        if wanted not in _kept:
            for other in _kept.values():
                other.close()
            _kept.clear()
            _kept[wanted] = open_store(dsn, incarnation=self.incarnation)
        return _kept[wanted]
