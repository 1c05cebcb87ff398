"""What the page reads of lineage: entries of a key, and the explanation of a row or pane."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dataflow.coders import encode_key, hash_key
from dataflow.errors import PipelineError
from runners.core.ground.element_text import shown
from runners.core.ground.lineage import LineageEntry, LineageKind, PaneOrigin
from runners.errors import StoreError
from runners.observability.lineage.explained_rows import (
    Find,
    Recorded,
    explain_pane,
    explain_row,
    not_recorded,
)
from runners.observability.why.from_store import keys_of_text
from runners.stored.lineage import elements_of, origin_of
from runners.ui.reads import Reads

#: Hashes of keys are unsigned, and a bigint is not.
_HASH_OFFSET = 1 << 63


@attrs.frozen(kw_only=True)
class AskedRow:
    """A row, or a pane, that somebody asks for.

    Attributes:
        table: of the row; None: a pane is asked for.
        key: of either, as text.
        transform: the grouping, or stateful DoFn, of the pane.
        start_us, end_us: the window of the pane, in microseconds.
        index: of the pane.
    """

    table: str | None
    key: str
    transform: str = ""
    start_us: int = 0
    end_us: int = 0
    index: int = 0


def hashes_of(key: str) -> list[int]:
    """The hashes of what a text may be the key of, as the store has them.

    Args:
        key: the text.
    """
    return [hash_key(encode_key(each)) - _HASH_OFFSET for each in keys_of_text(key)]


def recorded(row: Mapping[str, Any]) -> Recorded:
    """An entry of the rows of a statement.

    Args:
        row: of ``lineage.sql`` or ``key_lineage.sql``.
    """
    entry = LineageEntry(
        kind=LineageKind(row["kind"]),
        transform=row["transform"],
        key=row["key"],
        key_hash=row["key_hash"] + _HASH_OFFSET,
        window_start_us=row["window_start_us"],
        window_end_us=row["window_end_us"],
        sign=row["sign"],
        count=row["count"],
        index=row["pane_index"],
        timing=row["timing"],
        accumulation=row["accumulation"],
        watermark_us=row["watermark_us"],
        now_us=row["now_us"],
        reason=row["reason"],
        origin=origin_of(row["origin"]),
        elements=elements_of(row["elements"]),
    )
    return Recorded(row["lineage_id"], row["version"], entry)


def explained(reads: Reads, job: str, asked: AskedRow) -> tuple[Mapping[str, Any] | None, str]:
    """What is recorded of a row or pane, as plain values; and if that is nothing, why.

    Args:
        reads: of the store.
        job: its name.
        asked: the row or pane.

    Raises:
        StoreError: the store cannot be read.
    """
    find = _finder(reads, job)
    if asked.table is not None:
        row = explain_row(find, asked.table, asked.key)
        if row is None:
            return None, str(not_recorded(asked.table, asked.key))
        return row.as_json(), ""
    for key in keys_of_text(asked.key):
        bounds = asked.start_us, asked.end_us
        key_hash = hash_key(encode_key(key))
        origin = PaneOrigin(asked.transform, shown(key), key_hash, *bounds, asked.index)
        pane = explain_pane(find, origin)
        if pane is not None:
            return {"row": None, "pane": pane.as_json(), "views": [], "before": []}, ""
    missing = PipelineError(
        f"nothing is recorded of pane {asked.index} of {asked.transform!r} for the key {asked.key}",
        detail="there is none, or it is older than lineage is kept",
    )
    return None, str(missing)


def _finder(reads: Reads, job: str) -> Find:
    known: dict[object, Sequence[Recorded]] = {}

    def find(kind: LineageKind, transform: str, key_hash: int) -> Sequence[Recorded]:
        asked = kind, transform, key_hash
        if asked not in known:
            hashes = [key_hash - _HASH_OFFSET]
            (found,) = reads.read(
                ["lineage"], job=job, kind=kind.value, transform=transform, hashes=hashes
            ).values()
            if found.rows is None:
                raise StoreError("lineage cannot be read", detail=found.reason)
            known[asked] = list(map(recorded, found.rows))
        return known[asked]

    return find
