"""Backups: what a store has had, kept now and then, so that it can lose what came afterwards.

As a standby that lags and is promoted, or a base backup that is restored: state, tokens and result tables go back
together, and what is in the memory of drivers and workers does not.  The books of the checks go back with them, because
what is gone never happened.
"""

import copy
from random import Random
from typing import Any

from runners.millwheel.store.memory.store import MemoryStore
from runners.testing.simulator.ledger import Ledger
from runners.testing.simulator.panes import PaneLog

#: What changes with a commit: of the store, of the ledger, and of the log of panes.
_CONTENTS = (
    *("_jobs", "_tables", "_tokens"),
    *("_bundles", "_tokens", "_watermarks_us", "_percentiles_us", "_marks", "_record_ids"),
    *("_delivered", "_sent", "_payloads", "_open", "_kept", "_retired", "_inputs_us"),
    *("_said", "_last", "changes"),
)
#: How many are kept.
_KEPT_MAX = 4
#: One round in so many leaves one.
_EVERY_ROUNDS = 25


class Backups:
    """Those of one run.

    Args:
        seed: decides when one is taken, and which is restored.
        store: whose.
        books: of the run's checks.
    """

    def __init__(self, seed: int, store: MemoryStore, *books: Ledger | PaneLog) -> None:
        self._random = Random(f"backups {seed}")  # noqa: S311 - to be repeated, not to be secret
        self._store, self._books = store, books
        self._kept: list[list[dict[str, Any]]] = []

    def take(self) -> None:
        """Keep what there is now; only sometimes."""
        if self._random.randrange(_EVERY_ROUNDS) == 0:
            self._kept = [*self._kept[1 - _KEPT_MAX :], self._contents()]

    def restore(self) -> bool:
        """Lose what came after one of them; whether there is one."""
        if not self._kept:
            return False
        number = self._random.randrange(len(self._kept))
        # Those that were taken later are of a future that there is none of.
        kept, self._kept = self._kept[number], self._kept[:number]
        for each, contents in zip((self._store, *self._books), kept, strict=True):
            vars(each).update(contents)
        return True

    def forget(self) -> None:
        """There is a new version of the job, and nobody runs the former one any more."""
        self._kept.clear()

    def _contents(self) -> list[dict[str, Any]]:
        return [
            copy.deepcopy({name: vars(each)[name] for name in _CONTENTS if name in vars(each)})
            for each in (self._store, *self._books)
        ]
