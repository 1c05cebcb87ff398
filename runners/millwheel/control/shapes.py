"""Shapes: how the key ranges of a job are divided now, and the splits and merges under way.

In a split the owner of a range commits that its upper keys belong to a new one; in a merge, that the keys of a range
belong to its neighbour.  State stays where it is: cells are found by the hash of their key.  What has been sent and not
acknowledged is still addressed by the former bounds, so the two ranges are in a *handover*: one worker owns both, and
takes in for either what is for the other.  When every sender follows the new routing, and all that it sent before has
been acknowledged, the handover ends: a new range may move, and one that has lost its keys is retired.

**Invariants**

* The keyed ranges of a computation cover the key space with no gap and no overlap, in the store and in every routing.
* A range that was asked for, or that may exist, holds watermarks back (`WatermarkAuthority.add`) from before it is
  committed until it is retired.
* Ranges in a handover have one owner: a worker that acquires one of them in the store gets the others with it.

MillWheel, sections 4.1 and 7.1; ADR 0017.  Pure bookkeeping; lives in the master, which sends the messages.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs

from runners.millwheel.model.events import UNKNOWN
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyMap, KeyRange
from runners.millwheel.store.port import RangeRow


@attrs.frozen(kw_only=True)
class Routing:
    """What each key range covers; of two routings the one with the higher number is the newer one."""

    number: int
    keys: Mapping[RangeId, KeyRange]

    def maps(self) -> Mapping[str, KeyMap]:
        """A map for each computation."""
        by_name: dict[str, dict[RangeId, KeyRange]] = {}
        for range_id, keys in self.keys.items():
            by_name.setdefault(range_id.computation, {})[range_id] = keys
        return {name: KeyMap(keys) for name, keys in by_name.items()}


@attrs.frozen(kw_only=True)
class SplitKeys:
    """Give the keys from ``at`` on to a new range; None: from where its owner finds the middle of the state."""

    range_id: RangeId
    born: RangeId
    at: int | None = None
    reason: str = UNKNOWN.reason


@attrs.frozen(kw_only=True)
class MergeKeys:
    """Give all keys of ``gone`` to its neighbour."""

    range_id: RangeId
    gone: RangeId
    reason: str = UNKNOWN.reason


class RangeShape(NamedTuple):
    """The keys of a range in the store (None: none any more), and the range with which it is in a handover."""

    keys: KeyRange | None
    handover_with: RangeId | None


class ShapeError(ValueError):
    """A range cannot be split or merged like this, or not now; the text has the reason."""


class Shapes:
    """Lives in the master.

    Args:
        rows: every range of the job.
        senders: for each computation, the computations that send to it.
    """

    def __init__(
        self, rows: Mapping[RangeId, RangeRow], senders: Mapping[str, Sequence[str]]
    ) -> None:
        self._senders = senders
        self._ranges = {range_id for range_id, row in rows.items() if not row.is_retired}
        self._keys = {range_id: row.keys for range_id, row in rows.items() if row.keys is not None}
        self._next_index: dict[str, int] = {}
        for range_id in rows:
            self._count(range_id)
        self._heads = {
            range_id: row.handover_with for range_id, row in rows.items() if row.handover_with
        }
        self._number = 1
        #: By range in a handover, the routing that senders must follow before the handover can end; it is known when
        #: the split or merge is committed.
        self._since = dict.fromkeys(self._heads, self._number)
        self._passed: dict[RangeId, int] = {}
        #: What was asked of the owner of a range, and was not reported as done.
        self.asked: dict[RangeId, SplitKeys | MergeKeys] = {}

    @property
    def routing(self) -> Routing:
        """The routing that senders are to follow."""
        return Routing(number=self._number, keys=dict(self._keys))

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way."""
        return not self.asked and not self._heads

    def split(
        self,
        range_id: RangeId,
        at: int | None,
        is_stable: Callable[[RangeId], bool],
        reason: str = UNKNOWN.reason,
    ) -> SplitKeys:
        """Ask for a split.

        Args:
            range_id: to be divided.
            at: the first key hash of the new range; None: the middle.
            is_stable: whether the owner of a range is the one that it should have.
            reason: for people.

        Raises:
            ShapeError: there is no such key range, it is in a handover, or the hash is not inside it; or a range of the
                computation is changing its owner.
        """
        keys = self._free(range_id)
        self._check_stable(range_id.computation, is_stable)
        if at is not None and not keys.low < at < keys.high:
            raise ShapeError(f"{at:#x} does not divide {range_id}, which has the keys {keys}")
        if keys.high - keys.low == 1:
            raise ShapeError(f"{range_id} has a single key hash")
        born = RangeId(range_id.computation, self._next_index[range_id.computation])
        self._count(born)
        self._ranges.add(born)
        asked = SplitKeys(range_id=range_id, born=born, at=at, reason=reason)
        self._ask(asked, born)
        return asked

    def merge(self, range_id: RangeId, gone: RangeId, reason: str = UNKNOWN.reason) -> MergeKeys:
        """Ask for a merge of two ranges of one owner.

        Args:
            range_id: has all keys afterwards.
            gone: its neighbour, which is retired.
            reason: for people.

        Raises:
            ShapeError: they are no neighbours, or one is in a handover.
        """
        self._check_neighbours(range_id, gone)
        asked = MergeKeys(range_id=range_id, gone=gone, reason=reason)
        self._ask(asked, gone)
        return asked

    def check_merge(
        self, range_id: RangeId, gone: RangeId, is_stable: Callable[[RangeId], bool]
    ) -> None:
        """Raise what `merge` would raise, or that a range of the computation is changing its owner.

        Args:
            range_id: has all keys afterwards.
            gone: its neighbour, which is retired.
            is_stable: whether the owner of a range is the one that it should have.
        """
        self._check_neighbours(range_id, gone)
        self._check_stable(range_id.computation, is_stable)

    def _check_stable(self, computation: str, is_stable: Callable[[RangeId], bool]) -> None:
        """Refuse while a range is changing its owner: it is not known then whether the former one has divided it."""
        for each in self._keys:
            if each.computation == computation and not is_stable(each):
                raise ShapeError(f"{each} is being moved to another worker")

    def _check_neighbours(self, range_id: RangeId, gone: RangeId) -> None:
        keys, others = self._free(range_id), self._free(gone)
        is_beside = keys.high == others.low or others.high == keys.low
        if range_id.computation != gone.computation or not is_beside:
            raise ShapeError(f"{range_id} and {gone} are no neighbours")

    def add_sender(self, range_id: RangeId) -> None:
        """Add a split that a source has got: from here on handovers wait for what it sends, too."""
        self._ranges.add(range_id)

    def learn(self, found: Mapping[RangeId, RangeShape]) -> Mapping[RangeId, RangeId]:
        """Note what a worker's ranges are in the store; returns handovers that are new here, by range the other one.

        An owner can have split or merged ranges on behalf of a driver that is gone.
        The routing is a new one if anything has changed.
        """
        handovers = {
            range_id: shape.handover_with
            for range_id, shape in found.items()
            if shape.handover_with is not None and range_id not in self._heads
        }
        changed = {
            range_id: shape.keys
            for range_id, shape in found.items()
            if self._keys.get(range_id) != shape.keys
        }
        for range_id, keys in changed.items():
            self._ranges.add(range_id)
            self._count(range_id)
            if keys is None:
                self._keys.pop(range_id, None)
            else:
                self._keys[range_id] = keys
        if changed:
            self._number += 1
        for range_id, head in handovers.items():
            self._heads[range_id] = head
            self._since[range_id] = self._number
        for head, asked in list(self.asked.items()):
            other = asked.born if isinstance(asked, SplitKeys) else asked.gone
            is_done = (
                other in self._keys if isinstance(asked, SplitKeys) else other not in self._keys
            )
            if is_done:
                del self.asked[head]
                self._since[other] = self._number
        return handovers

    def report(self, passed: Mapping[RangeId, int]) -> None:
        """Note up to which routing ranges have nothing on its way that follows an older one."""
        for range_id, number in passed.items():
            self._passed[range_id] = max(number, self._passed.get(range_id, 0))

    @property
    def unborn(self) -> frozenset[RangeId]:
        """Ranges that were asked for and may not be there yet."""
        return frozenset(each.born for each in self.asked.values() if isinstance(each, SplitKeys))

    def ripe(self) -> list[RangeId]:
        """Ranges in a handover for which nothing is on its way by the former bounds."""
        return [
            range_id
            for range_id, number in self._since.items()
            if self.is_in_handover(range_id) and self._all_follow(range_id.computation, number)
        ]

    def is_in_handover(self, range_id: RangeId) -> bool:
        """Whether a range is known to be in a handover, and not only asked to be split or merged."""
        return range_id in self._heads and not any(
            range_id == (each.born if isinstance(each, SplitKeys) else each.gone)
            for each in self.asked.values()
        )

    def ended_handovers(self, range_id: RangeId) -> bool:
        """Note that the handover of a range has ended; returns whether it is retired by that."""
        self._heads.pop(range_id, None)
        self._since.pop(range_id, None)
        is_retired = range_id not in self._keys
        if is_retired:
            self._ranges.discard(range_id)
        return is_retired

    def _all_follow(self, computation: str, number: int) -> bool:
        return all(
            self._passed.get(range_id, 0) >= number
            for range_id in self._ranges
            if range_id.computation in self._senders[computation]
        )

    def _free(self, range_id: RangeId) -> KeyRange:
        keys = self._keys.get(range_id)
        if keys is None:
            raise ShapeError(f"there is no key range {range_id}")
        if range_id in self._heads or range_id in self._heads.values():
            raise ShapeError(f"{range_id} is being split or merged")
        return keys

    def _ask(self, asked: SplitKeys | MergeKeys, other: RangeId) -> None:
        self.asked[asked.range_id] = asked
        self._heads[other] = asked.range_id

    def _count(self, range_id: RangeId) -> None:
        known = self._next_index.get(range_id.computation, 0)
        self._next_index[range_id.computation] = max(known, range_id.index + 1)
