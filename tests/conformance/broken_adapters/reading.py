"""Adapters that answer wrongly when an owner reads cells."""

import time
from collections.abc import Mapping, Sequence

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import (
    JOURNAL_START,
    PAGE_MARK,
    CellKey,
    Fenced,
    JournalPlace,
    StoredKey,
)


class ShowsCellsToFormerOwners(MemoryStore):
    """Answers whoever asks."""

    def _not_owned(self, job: str, tokens: Mapping[RangeId, int]) -> Fenced | None:
        return None if job in self._jobs else super()._not_owned(job, tokens)


class LooksAtTheTokenFirst(MemoryStore):
    """Looks at the token, and reads a round trip later."""

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        fenced = self._not_owned(job, tokens)
        time.sleep(0.001)
        stored = self._jobs[job].cells.get(computation, {}) if job in self._jobs else {}
        return fenced or {key: stored[key] for key in keys if key in stored}


class LooksAtOneTokenOnly(MemoryStore):
    """Lets the owner of one of the ranges read them all."""

    def _not_owned(self, job: str, tokens: Mapping[RangeId, int]) -> Fenced | None:
        last = list(tokens.items())[-1:]
        return super()._not_owned(job, dict(last))


class DividesTheCellsOfAHash(MemoryStore):
    """A page has exactly so many cells."""

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        page = super().read_cell_page(job, range_id, token, first_hash, cells)
        return page if isinstance(page, Fenced) else dict(list(page.items())[:cells])


class SkipsTheFirstHash(MemoryStore):
    """A page begins behind the hash that it is asked for."""

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        return super().read_cell_page(job, range_id, token, first_hash + 1, cells)


class HandsOutPages(MemoryStore):
    """Whatever is of a range is read with it."""

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        page = super().read_cell_page(job, range_id, token, first_hash, cells)
        if isinstance(page, Fenced) or (keys := self._jobs[job].ranges[range_id].keys) is None:
            return page
        stored = self._jobs[job].cells.get(range_id.computation, {})
        pages = {
            key: value
            for key, value in stored.items()
            if key[1].startswith(PAGE_MARK) and key[0] in keys
        }
        return {**page, **pages}


class ReadsOneCell(MemoryStore):
    """The first one is enough."""

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        return super().read_cells(job, computation, tokens, keys[:1])


class ShowsWholeRanges(MemoryStore):
    """A key is shown with all cells of its range."""

    def read_key(self, job: str, computation: str, key_hash: int) -> StoredKey | None:
        found = super().read_key(job, computation, key_hash)
        if found is None:
            return None
        cells = {key: value for (_, key), value in self._jobs[job].cells[computation].items()}
        return attrs.evolve(found, cells=cells)


class RepeatsPagesOfJournals(MemoryStore):
    """The next page of a journal begins with the last entry of the one before."""

    def read_journal(
        self, job: str, range_id: RangeId, after: JournalPlace = JOURNAL_START
    ) -> Sequence[tuple[JournalPlace, bytes]]:
        return super().read_journal(job, range_id, after._replace(part=after.part - 1))


class ForgetsJournalsOfKeys(MemoryStore):
    """Who looks at a key is shown what is in tables alone."""

    def read_journal(
        self, job: str, range_id: RangeId, after: JournalPlace = JOURNAL_START
    ) -> Sequence[tuple[JournalPlace, bytes]]:
        return ()
