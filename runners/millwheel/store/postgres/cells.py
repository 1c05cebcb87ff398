"""Cells in the database, as the owner of their ranges reads them beside its commits.

Tokens and cells are read by one statement, and so as of one instant: a former owner sees nothing of what the next one
has written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.port import (
    JOURNAL_PAGE,
    JOURNAL_START,
    CellKey,
    Fenced,
    JournalPlace,
    StoredKey,
    StoredTimer,
)
from runners.millwheel.store.postgres.arrays import ByteaArray, Int4Array, Int8Array
from runners.millwheel.store.postgres.catalog import JobIds, to_signed, to_unsigned
from runners.millwheel.store.postgres.job_reads import JobReads

#: The kinds of rows of what is stored of a key.
_RANGE, _CELL, _TIMER = range(3)


class CellVerbs(JobReads):
    """The verbs of the port that read cells."""

    def read_cells(
        self,
        job: str,
        computation: str,
        tokens: Mapping[RangeId, int],
        keys: Sequence[CellKey],
    ) -> Mapping[CellKey, bytes] | Fenced:
        """Read those of these cells that exist, for the owner of their ranges."""
        if not keys:
            return {}

        def parameters(ids: JobIds) -> Mapping[str, Any]:
            key_hashes, cell_keys = zip(*keys, strict=True)
            return {
                "range_ids": Int4Array.of([ids.range(range_id).number for range_id in tokens]),
                "tokens": Int8Array.of(list(tokens.values())),
                "computation_id": ids.computations[computation],
                "key_hashes": Int8Array.of(list(map(to_signed, key_hashes))),
                "cell_keys": ByteaArray.of(cell_keys),
            }

        rows = self._read_of("read_cells", job, tokens, parameters)
        if rows is None or rows[0][0] != len(tokens):
            return Fenced(next(iter(tokens)))
        return _cells(rows)

    def read_cell_page(
        self, job: str, range_id: RangeId, token: int, first_hash: int, cells: int
    ) -> Mapping[CellKey, bytes] | Fenced:
        """The next cells of a range, for its owner."""

        def parameters(ids: JobIds) -> Mapping[str, Any]:
            return {
                "range_id": ids.range(range_id).number,
                "token": token,
                "first_hash": to_signed(first_hash),
                "cells": cells,
            }

        rows = self._read_of("read_cell_page", job, [range_id], parameters)
        return _cells(rows) if rows else Fenced(range_id)

    def read_key(self, job: str, computation: str, key_hash: int) -> StoredKey | None:
        """What is stored of the keys with a hash."""
        ids = self._load(job)
        if ids is None or computation not in ids.computations:
            return None
        signed = to_signed(key_hash)
        rows = self._read_of(
            "read_key",
            job,
            (),
            lambda known: {
                "computation_id": known.computations[computation],
                "key_hash": signed,
            },
        )
        ranges = [row for row in rows or () if row[0] == _RANGE]
        if not rows or not ranges:
            return None
        return StoredKey(
            range_id=ids.by_number[ranges[0][1]],
            watermark_us=ranges[0][2],
            cells={key: value for kind, _, _, key, value, _ in rows if kind == _CELL},
            timers=[
                StoredTimer(key_hash=key_hash, cell_key=key, tag=tag, domain=domain, fire_us=us)
                for kind, _, us, key, tag, domain in rows
                if kind == _TIMER
            ],
        )

    def state_sizes(self, job: str) -> Mapping[RangeId, int]:
        """How many bytes of state each key range has, with all of its journal."""
        ids = self._load(job)
        if ids is None:
            return {}
        rows = self._read_of("state_sizes", job, (), lambda _: {"job": job})
        return {
            ids.by_number[number]: nbytes
            for number, nbytes in rows or ()
            if number in ids.by_number
        }

    def read_journal(
        self, job: str, range_id: RangeId, after: JournalPlace = JOURNAL_START
    ) -> Sequence[tuple[JournalPlace, bytes]]:
        """The next entries of a range's journal."""

        def parameters(ids: JobIds) -> Mapping[str, Any]:
            return {
                "range_id": ids.range(range_id).number,
                "bundle": after.bundle,
                "part": after.part,
                "entries": JOURNAL_PAGE,
            }

        rows = self._read_of("read_journal_page", job, [range_id], parameters)
        return [(JournalPlace(bundle, part), payload) for bundle, part, payload in rows or ()]


def _cells(rows: Iterable[tuple[Any, ...]]) -> Mapping[CellKey, bytes]:
    return {
        (to_unsigned(key_hash), cell_key): value
        for _, key_hash, cell_key, value in rows
        if key_hash is not None
    }
