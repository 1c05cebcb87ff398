"""Reads of the store by name: each a file of ``queries/``, which people can read and run in psql too."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.resources import files
from types import MappingProxyType

from runners.core.ground.clock import Clock
from runners.millwheel.store.postgres.reader import FoundRows, ReadOnlyStore, Statement
from runners.observability.why.evidence import Evidence, KeySeen
from runners.observability.why.from_store import key_from_store

_SQL = files(__package__) / "queries"

#: Every SQL text of the page, by name.
QUERIES: Mapping[str, str] = MappingProxyType(
    {
        path.name.removesuffix(".sql"): path.read_text(encoding="utf-8")
        for path in sorted(_SQL.iterdir(), key=lambda path: path.name)
        if path.name.endswith(".sql")
    }
)
#: What several viewers ask for within this time is read once.
SHARED_US = 1_000_000
_SHARED_MAX = 256


class Reads:
    """Named reads of a store, shared for a second by all who ask for the same.

    Thread-safe.

    Args:
        store: what is read.
        clock: that of this machine.
    """

    def __init__(self, store: ReadOnlyStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._shared: dict[object, tuple[int, Mapping[str, FoundRows]]] = {}

    def key(self, job: str, key: str, evidence: Evidence) -> KeySeen:
        """The windows of a key that have state, and what their triggers wait for.

        Args:
            job: its name.
            key: as text.
            evidence: of the job.

        Raises:
            StoreError: there is no such job, or the store cannot be read.
        """
        with closing(self._store.as_port()) as port:
            return key_from_store(port, job, key, evidence)

    def read(self, names: Sequence[str], **parameters: object) -> Mapping[str, FoundRows]:
        """What the statements of these names find, all as of one moment.

        Args:
            names: of files in ``queries/``.
            parameters: of the statements.

        Raises:
            StoreError: the store cannot be read.
        """
        asked = (tuple(names), repr(sorted(parameters.items())))
        now_us = self._clock.now_us()
        with self._lock:
            at_us, found = self._shared.get(asked, (0, {}))
        if found and now_us - at_us < SHARED_US:
            return found
        found = self._store.read(
            {name: Statement(text=QUERIES[name], parameters=parameters) for name in names}
        )
        with self._lock:
            if len(self._shared) >= _SHARED_MAX:
                self._shared.clear()
            self._shared[asked] = now_us, found
        return found
