"""SlotPosition: how far a reader of changes is, in the first copy of the table and in the slot.

**The handover has no gap and no overlap, whatever is killed.**  The slot is made first, at L0.  The table is copied in
the order of its primary key; whenever that begins, or begins again behind the last key that was handed over, it is in a
new snapshot, at a place L1, L2, ... of the log that a temporary slot gives.  So the keys are divided into *segments*,
each with the place at which it was read.  Changes then come from the slot, from L1 on: of a change that was committed
before the place of its key's segment the copy has the outcome, so it is passed over; all others are handed over.
"""

from __future__ import annotations

from typing import Any

import attrs

#: A key as values that Python orders as Postgres does.
Key = tuple[Any, ...]


@attrs.frozen
class Segment:
    """Keys above those of the segment before, up to a last one.

    Attributes:
        lsn: where its snapshot is in the log; it has what was committed before.
        upto: the last key; None: there is no end (it is the last segment, and is copied), or nothing is read yet.
    """

    lsn: int
    upto: Key | None


@attrs.frozen(kw_only=True)
class SlotPosition:
    """A place in the input; records before it are handed over.

    Attributes:
        table: the number of the table; one that is made anew has another.
        columns: the columns that are read, with the numbers of their types: those at the beginning.
        segments: of the copy; empty: no change can be in it any more.
        is_copied: whether the table is copied.
        lsn: all transactions that were committed before this place are handed over; what the slot need not keep.
        commit_lsn: of the transaction that is handed over in part, where its commit is; 0: there is none.
        index: how many of its records are passed, those that are not handed over among them.
        timeline: of the log that all these places are in; 0: it was not noted.
    """

    table: int
    columns: tuple[tuple[str, int], ...]
    segments: tuple[Segment, ...] = ()
    is_copied: bool = False
    lsn: int = 0
    commit_lsn: int = 0
    index: int = 0
    timeline: int = 0

    def plain(self) -> tuple[Any, ...]:
        """Plain data, to be stored."""
        segments = tuple((each.lsn, each.upto) for each in self.segments)
        return (
            2,
            self.table,
            self.columns,
            segments,
            self.is_copied,
            self.lsn,
            self.commit_lsn,
            self.index,
            self.timeline,
        )

    @classmethod
    def of(cls, plain: tuple[Any, ...]) -> SlotPosition:
        """The value that was stored.

        Args:
            plain: of `plain`; the first version of it had no timeline.
        """
        _, table, columns, segments, is_copied, lsn, commit_lsn, index, *timeline = plain
        return cls(
            table=table,
            columns=columns,
            segments=tuple(Segment(*each) for each in segments),
            is_copied=is_copied,
            lsn=lsn,
            commit_lsn=commit_lsn,
            index=index,
            timeline=timeline[0] if timeline else 0,
        )

    @property
    def newest_lsn(self) -> int:
        """The last place in the log that it depends on: of the changes, or of the copy."""
        return max([self.lsn, self.commit_lsn, *(each.lsn for each in self.segments)])

    @property
    def last_key(self) -> Key | None:
        """The last key that is copied; None: there is none."""
        keys = [each.upto for each in self.segments if each.upto is not None]
        return keys[-1] if keys else None

    def began_copy(self, lsn: int) -> SlotPosition:
        """The copy begins, or goes on, in another snapshot.

        Args:
            lsn: of the snapshot.
        """
        # A segment that nothing was read of is none.
        kept = tuple(each for each in self.segments if each.upto is not None)
        segments = (*kept, Segment(lsn, None))
        return attrs.evolve(self, segments=segments, lsn=segments[0].lsn)

    def copied_to(self, key: Key) -> SlotPosition:
        """Rows up to a key are copied.

        Args:
            key: of the last of them.
        """
        last = attrs.evolve(self.segments[-1], upto=key)
        return attrs.evolve(self, segments=(*self.segments[:-1], last))

    def copy_ended(self) -> SlotPosition:
        """The table is copied: the last segment has no end."""
        last = attrs.evolve(self.segments[-1], upto=None)
        return attrs.evolve(self, segments=(*self.segments[:-1], last), is_copied=True)

    def passed(self, lsn: int) -> SlotPosition:
        """No transaction is open, and all before a place are handed over.

        Args:
            lsn: the place.
        """
        lsn = max(lsn, self.lsn)
        is_behind = all(each.lsn <= lsn for each in self.segments)
        return attrs.evolve(
            self, lsn=lsn, commit_lsn=0, index=0, segments=() if is_behind else self.segments
        )

    def needs_keys(self, commit_lsn: int) -> bool:
        """Whether it depends on its key whether a change is in the copy.

        Args:
            commit_lsn: of its transaction.
        """
        return any(commit_lsn < each.lsn for each in self.segments)

    def is_in_copy(self, commit_lsn: int, key: Key) -> bool:
        """Whether the copy has the outcome of a change.

        Args:
            commit_lsn: of its transaction.
            key: of the row that is added or removed.
        """
        for each in self.segments:
            if each.upto is None or key <= each.upto:
                return commit_lsn < each.lsn
        return False
