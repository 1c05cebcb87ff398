"""BackfillWriter: what a task of a backfill leaves in the store.

As `RangeWriter`, with the same guarantee for every attempt, but it does not mark a range as finished.  A split has a
mark of how far it is read, and a key range one of how many of its parts are loaded: cells, timers and rows of a part
are in the commit that counts it.  A later attempt can distinguish what is written from the rest, which none can in a
batch: it comes to the same parts in the same order (`key_parts.py`).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import attrs

from runners.batch.range_writer import RangeWriter
from runners.errors import FencedError
from runners.millwheel.control.backfill_progress import is_loaded, mark_of
from runners.millwheel.model.ids import Fence
from runners.millwheel.model.production import CellWrite, Production
from runners.millwheel.store.commit_or_resolve import commit_or_resolve
from runners.millwheel.store.port import Committed, Indeterminate, RangeRow
from runners.stored.places import ReadSoFar, SplitMark, encode_split_mark


class BackfillWriter(RangeWriter):
    """A `RangeWriter` whose `is_finished` is true when all that is to be written is.

    Attributes:
        reached: the marks that a split commits from here on, in addition to those passed to `commit`.
        left: further parts of the next production.
    """

    reached: SplitMark = SplitMark()
    left: Mapping[str, Any] = MappingProxyType({})

    def __enter__(self) -> Self:
        """Take the range over, unless a stream owns it by now: an attempt may begin too late to be needed.

        Raises:
            FencedError: a stream owns it.
        """
        super().__enter__()
        row = self._row
        assert row is not None
        if row.split is not None and row.bundle and mark_of(row) is None:
            self._store.close()
            raise FencedError(
                f"{self._range_id} of job {self._job} has gone live",
                hint="nothing is lost, and nothing is to be done: its backfill was loaded by another attempt",
            )
        return self

    def commit_pages(self, pages: Sequence[CellWrite]) -> None:
        """Commit pages of cells that a later commit leaves; without that one nothing finds them.

        A later attempt leaves the same pages once more.  What else is kept for the next commit waits for that.

        Args:
            pages: as cells.

        Raises:
            FencedError: another attempt owns the range.
            StoreUnreachableError: it is unknown whether it was committed.
        """
        if self.is_finished:
            return
        fence = Fence(range_id=self._range_id, token=self.token, bundle=self._bundle + 1)
        result = commit_or_resolve(
            self._store, Production(job=self._job, fences=[fence], cells=pages)
        )
        if isinstance(result.outcome, Indeterminate):
            raise self._unknown(result.detail)
        if isinstance(result.outcome, Committed):
            self._bundle = fence.bundle
        else:
            self._wait_for_new_owner()

    @property
    def mark(self) -> SplitMark:
        """What earlier attempts have committed."""
        assert self._row is not None
        return mark_of(self._row) or SplitMark()

    def _is_done(self, row: RangeRow) -> bool:
        return is_loaded(row)

    def _so_far_of(self, row: RangeRow) -> ReadSoFar:
        mark = mark_of(row) or SplitMark()
        return ReadSoFar(
            mark.records,
            mark.position,
            mark.dead,
            mark.sent,
            letters=mark.letters,
            packings=mark.packings,
        )

    def _progress(self, so_far: ReadSoFar | None, *, is_last: bool) -> dict[str, Any]:
        positions = {}
        if so_far is not None:
            fields = attrs.asdict(
                so_far, recurse=False, filter=lambda field, _: field.name != "run"
            )
            mark = attrs.evolve(self.reached, **fields, is_end=is_last)
            positions[self._range_id] = encode_split_mark(mark)
        return {"positions": positions, **self.left}
