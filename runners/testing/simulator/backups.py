"""Backups: contents of a store, kept now and then, so that it can lose what came afterwards.

As a standby that lags and is promoted, or a base backup that is restored: state, tokens and result tables go back
together, and the memory of drivers and workers does not.  The records of the checks go back with them, because
what is gone never happened.  Or only the part of one computation goes back (`Backups.tear`).
"""

import copy
from random import Random
from typing import Any

import attrs

from dataflow.graph import WriteTable
from runners.core.stages.plan import ExecutionPlan, Stage
from runners.millwheel.store.memory.job import StoredJob, StoredTable
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.memory.tokens import Tokens
from runners.testing.simulator.ledger import Ledger
from runners.testing.simulator.panes import PaneLog
from runners.testing.simulator.parts import go_back

#: The contents that change with a commit: of the store, of the ledger, and of the log of panes.
_CONTENTS = (
    *("_jobs", "_tables", "_tokens"),
    *(
        "_bundles",
        "_tokens",
        "_watermarks_us",
        "_percentiles_us",
        "_firing_us",
        "_marks",
        "_record_ids",
    ),
    *("_delivered", "_sent", "_payloads", "_open", "_kept", "_retired", "_inputs_us", "_torn"),
    *("_emitted", "_last", "_many", "_passed", "changes"),
)
#: The number of backups that are kept.
_KEPT_MAX = 4
#: A backup is taken in one of so many rounds.
_EVERY_ROUNDS = 25
_ATOMS = (int, str, bytes, bool, float, type(None))


class Backups:
    """Backups of the store of one run.

    Args:
        seed: decides when one is taken, and which is restored.
        store: the store.
        books: the records of the run's checks.
    """

    def __init__(self, seed: int, store: MemoryStore, *books: Ledger | PaneLog) -> None:
        self._random = Random(f"backups {seed}")  # noqa: S311 - to be repeated, not to be secret
        self._store, self._books = store, books
        self._kept: list[list[dict[str, Any]]] = []
        #: The backup that a part of the store was restored from, where the rest is later.
        self._torn: list[dict[str, Any]] | None = None

    def take(self) -> None:
        """Take a backup, in some of the calls."""
        if self._random.randrange(_EVERY_ROUNDS) == 0 and not self.is_torn:
            self._kept = [*self._kept[1 - _KEPT_MAX :], self._contents()]

    def restore(self) -> bool:
        """Restore a backup, losing what came after it; returns whether there is one."""
        if not self._kept:
            return False
        number = self._random.randrange(len(self._kept))
        # Later backups are of a future that no longer exists.
        kept, self._kept = self._kept[number], self._kept[:number]
        self._put(kept)
        return True

    def _put(self, kept: list[dict[str, Any]]) -> None:
        for each, contents in zip((self._store, *self._books), kept, strict=True):
            vars(each).update(contents)
        self._torn = None

    @property
    def is_torn(self) -> bool:
        """Whether a part of the store is of an earlier moment than the rest."""
        return self._torn is not None

    def tear(self, plan: ExecutionPlan) -> str | None:
        """Restore a backup of one computation only, and return which; None if that is impossible.

        Not where others write to the same tables, which go back with it.
        """
        if self._torn is not None or not self._kept:
            return None
        number = self._random.randrange(len(self._kept))
        name = self._random.choice(sorted(plan.stages))
        written = {each: _tables_of(plan.stages[each]) for each in plan.stages}
        tables = written.pop(name)
        then = self._kept[number]
        part = contents_copied(then)
        if any(not tables.isdisjoint(others) for others in written.values()):
            return None
        if not go_back(self._store, part[0], name, tables):
            return None
        for book, contents in zip(self._books, part[1:], strict=True):
            book.go_back(name, contents)
        # A backup that was taken while the store was torn would not be restored.
        self._kept, self._torn = self._kept[:number], then
        return name

    def mend(self) -> None:
        """Take the whole of the store back to that moment, as a person does who learns of the loss."""
        assert self._torn is not None
        self._put(self._torn)

    def forget(self) -> None:
        """Drop all backups: there is a new version of the job, and the former one runs no more."""
        self._kept.clear()

    def _contents(self) -> list[dict[str, Any]]:
        return [
            contents_copied({name: vars(each)[name] for name in _CONTENTS if name in vars(each)})
            for each in (self._store, *self._books)
        ]


def contents_copied(contents: Any) -> Any:
    """A copy of everything that changes in place; all else is a frozen value, which the copies share.

    `copy.deepcopy` would copy each of those too, which took a fifth of the time of a run.
    """
    if isinstance(contents, dict):
        copied = copy.copy(contents)  # with the default of a defaultdict
        for key, value in contents.items():
            if type(value) not in _ATOMS:
                copied[key] = contents_copied(value)
        return copied
    if isinstance(contents, list):
        return [each if type(each) in _ATOMS else contents_copied(each) for each in contents]
    if isinstance(contents, set | Tokens):
        return copy.copy(contents)
    if isinstance(contents, StoredJob | StoredTable):
        fields = attrs.asdict(contents, recurse=False)
        return type(contents)(**{name: contents_copied(value) for name, value in fields.items()})
    return contents


def _tables_of(stage: Stage) -> set[str]:
    operations = [each.operation for each in stage.tables]
    return {each.table.name for each in operations if isinstance(each, WriteTable)}
