"""LoadPolicy: which one change to the ranges, if any, would spread the load of a job better.

* A slot that is much busier than the others gives a range away, where that makes the busiest one less busy.
* Where no range is small enough for that, the hottest is split, so that a part of it is; that part moves later, when
  the handover has ended.
* Neighbours that are both cold, in one slot, are merged, down to a number of ranges.

It never goes back and forth: it waits until an imbalance has lasted, makes one change, and then waits until the effect
of the change can be seen.  A move must make the busiest slot less busy by a good part, and what is split is much warmer
than what is merged.

Pure: numbers in, a decision out.  MillWheel, section 7.1; ADR 0017.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KeyRange


@attrs.frozen(kw_only=True)
class RangeView:
    """A range as the policy sees it.

    Attributes:
        range_id: its name.
        slot: where it is.
        keys: what it covers; None of a split of a source, which moves and is never divided.
        records: how many it has taken in over the last interval.
        hashes: key hashes of some of these.
    """

    range_id: RangeId
    slot: int
    keys: KeyRange | None
    records: int
    hashes: Sequence[int] = ()


@attrs.frozen
class MoveRange:
    """Have a range go to another slot."""

    range_id: RangeId
    slot: int


@attrs.frozen
class SplitRange:
    """Have a range divided at a key hash."""

    range_id: RangeId
    at: int


@attrs.frozen
class MergeRanges:
    """Have a range take in its neighbour."""

    range_id: RangeId
    gone: RangeId


Change = MoveRange | SplitRange | MergeRanges


@attrs.frozen(kw_only=True)
class PolicyOptions:
    """When the policy decides on a change.

    Attributes:
        records_min: of all ranges together over an interval; with less it leaves everything as it is.
        imbalance: how much busier than the mean the busiest slot must be, as a part of the mean.
        gain: by how much a move must make the busiest slot less busy, as a part of what it has beyond the mean.
        cold: what two neighbours may have together to be merged, as a part of the mean load of a slot.
        lighter_share: what either side of a split must have of the range's load.
        hashes_min: what must be known of a range's keys before it is split.
        patience: intervals in which a slot must be too busy, before something moves or is split.
        merge_patience: intervals in which nothing is too busy, before something is merged.
        pause: intervals after a change in which nothing is decided.
        ranges_min: that are left of each computation, at least.
    """

    records_min: int = 2_000
    imbalance: float = 0.3
    gain: float = 0.1
    cold: float = 0.05
    lighter_share: float = 0.15
    hashes_min: int = 16
    patience: int = 3
    merge_patience: int = 20
    pause: int = 4
    ranges_min: int = 4


def slots_too_hot(loads: Sequence[float], imbalance: float) -> list[int]:
    """The slots that are busier than the others by more than they may be.

    Args:
        loads: of all slots.
        imbalance: by how much more than the mean they may have, as a part of it.
    """
    mean = sum(loads) / len(loads)
    return [slot for slot, load in enumerate(loads) if load > (1 + imbalance) * mean]


class LoadPolicy:
    """Decides once in an interval; remembers for how long the load has been as it is.

    Args:
        slots: how many there are, all of them with a worker.
        options: when it decides on a change.
    """

    def __init__(self, slots: int, options: PolicyOptions = PolicyOptions()) -> None:
        self._slots, self._options = slots, options
        self._is_too_hot = False
        self._since = self._pause = 0

    def decide(self, views: Collection[RangeView]) -> Change | None:
        """The change to make now, if any, by what the ranges have done in the interval that ends."""
        if self._pause:
            self._pause -= 1
            return None
        change = self._change(views)
        if change is not None:
            self._pause, self._since = self._options.pause, 0
        return change

    def disturbed(self) -> None:
        """Disregard the last interval: something else was going on."""
        self._since = 0

    def _change(self, views: Collection[RangeView]) -> Change | None:
        options, slots = self._options, _Slots(self._slots, views)
        if slots.mean * self._slots < options.records_min:
            self.disturbed()
            return None
        is_too_hot = bool(slots_too_hot(slots.loads, options.imbalance))
        # Which slot is too hot may change from one interval to the next, where two are equally hot.
        self._since = self._since + 1 if is_too_hot is self._is_too_hot else 1
        self._is_too_hot = is_too_hot
        patience = options.patience if is_too_hot else options.merge_patience
        return change_of(self._slots, views, options) if self._since >= patience else None


def change_of(
    slots: int, views: Collection[RangeView], options: PolicyOptions = PolicyOptions()
) -> Change | None:
    """The one change that would spread a load better, if it stays as it is; None: none is worth it.

    Args:
        slots: how many there are.
        views: all ranges.
        options: what is worth it.
    """
    found = _Slots(slots, views)
    if found.mean * slots < options.records_min:
        return None
    if not slots_too_hot(found.loads, options.imbalance):
        return _merge(views, found.mean, options)
    mine = [view for view in views if view.slot == found.hottest]
    return _move(mine, found, options) or _split(mine, found, options)


@attrs.frozen(kw_only=True)
class PlannedChange:
    """A change that is due after those before it.

    Attributes:
        before, after: the load of each slot, in records of an interval.
        born: the range that a split makes; None: it is none.
    """

    change: Change
    before: Sequence[float]
    after: Sequence[float]
    born: RangeId | None = None


def planned_changes(
    slots: int,
    views: Collection[RangeView],
    options: PolicyOptions = PolicyOptions(),
    *,
    next_indexes: Mapping[str, int],
    changes_max: int = 10,
) -> list[PlannedChange]:
    """The changes that `LoadPolicy` would make one after the other, if the load stays as it is.

    Args:
        slots: how many there are.
        views: all ranges.
        options: those of the policy.
        next_indexes: the number of the next range of each computation; none is used again.
        changes_max: how many changes, at most.
    """
    found: list[PlannedChange] = []
    indexes = dict(next_indexes)
    while len(found) < changes_max and (change := change_of(slots, views, options)) is not None:
        born = None
        if isinstance(change, SplitRange):
            name = change.range_id.computation
            born = RangeId(name, indexes[name])
            indexes[name] += 1
        after = _changed(views, change, born)
        found.append(
            PlannedChange(
                change=change,
                before=_Slots(slots, views).loads,
                after=_Slots(slots, after).loads,
                born=born,
            )
        )
        views = after
    return found


def _changed(views: Collection[RangeView], change: Change, born: RangeId | None) -> list[RangeView]:
    """The ranges after a change, with the same load."""
    by_id = {each.range_id: each for each in views}
    mine = by_id.pop(change.range_id)
    if isinstance(change, MoveRange):
        return [*by_id.values(), attrs.evolve(mine, slot=change.slot)]
    assert mine.keys is not None, "what is split or merged has keys"
    if isinstance(change, MergeRanges):
        gone = by_id.pop(change.gone)
        assert gone.keys is not None, "as above"
        low, high = min(mine.keys.low, gone.keys.low), max(mine.keys.high, gone.keys.high)
        merged = attrs.evolve(
            mine,
            keys=KeyRange(low, high),
            records=mine.records + gone.records,
            hashes=[*mine.hashes, *gone.hashes],
        )
        return [*by_id.values(), merged]
    assert born is not None, "a split makes a range"
    below = [each for each in mine.hashes if each < change.at]
    records = round(mine.records * len(below) / len(mine.hashes))
    lower = attrs.evolve(
        mine, keys=KeyRange(mine.keys.low, change.at), records=records, hashes=below
    )
    upper = attrs.evolve(
        mine,
        range_id=born,
        keys=KeyRange(change.at, mine.keys.high),
        records=mine.records - records,
        hashes=[each for each in mine.hashes if each >= change.at],
    )
    return [*by_id.values(), lower, upper]


def _move(mine: Sequence[RangeView], slots: "_Slots", options: PolicyOptions) -> MoveRange | None:
    """The move that makes the busier of the two slots least busy, if it is worth it."""
    best = min(mine, key=lambda view: (slots.busier(view.records), view.range_id))
    if slots.gain(best.records) < options.gain:
        return None
    return MoveRange(best.range_id, slots.coldest)


def _split(mine: Sequence[RangeView], slots: "_Slots", options: PolicyOptions) -> SplitRange | None:
    """A split of the hottest range of which a part could move and be worth it, where that part is the best one."""
    for view in sorted(mine, key=lambda each: (-each.records, each.range_id)):
        cuts = [(slots.gain(share * view.records), share, at) for at, share in _cuts(view, options)]
        gain, _, at = max(cuts, default=(0.0, 0.0, 0))
        if gain >= options.gain:
            return SplitRange(view.range_id, at)
    return None


def _cuts(view: RangeView, options: PolicyOptions) -> Iterator[tuple[int, float]]:
    """Yield where a range could be divided, with the share of its load on the lighter side."""
    keys = view.keys
    hashes = sorted(each for each in view.hashes if keys is not None and each in keys)
    if len(hashes) < options.hashes_min:
        return
    for index in range(1, len(hashes)):
        share = min(index, len(hashes) - index) / len(hashes)
        if hashes[index - 1] < hashes[index] and share >= options.lighter_share:
            yield hashes[index], share


def _merge(views: Collection[RangeView], mean: float, options: PolicyOptions) -> MergeRanges | None:
    """A merge of the coldest two neighbours of one slot, of a computation that has ranges to spare."""
    pairs = [
        (low.records + high.records, low.range_id, high.range_id)
        for low, high in _neighbours(views, options.ranges_min)
        if low.slot == high.slot
    ]
    records, low, high = min(pairs, default=(0, None, None))
    if low is None or high is None or records > options.cold * mean:
        return None
    return MergeRanges(low, high)


class _Slots:
    """The load of each slot."""

    def __init__(self, count: int, views: Collection[RangeView]) -> None:
        loads = self.loads = [0] * count
        for view in views:
            loads[view.slot] += view.records
        self.mean = sum(loads) / count
        self.hottest, self.coldest = loads.index(max(loads)), loads.index(min(loads))
        self.hottest_load, self._coldest_load = max(loads), min(loads)

    def busier(self, moved: float) -> float:
        """Load of the busier of the hottest and the coldest slot, if so much moved from the one to the other."""
        return max(self.hottest_load - moved, self._coldest_load + moved)

    def gain(self, moved: float) -> float:
        """How much less busy the busier of them is then, as a part of what the hottest has beyond the mean."""
        return (self.hottest_load - self.busier(moved)) / (self.hottest_load - self.mean)


def _neighbours(
    views: Collection[RangeView], ranges_min: int
) -> Iterator[tuple[RangeView, RangeView]]:
    """Yield key ranges side by side, of computations that have more than so many."""
    by_name: dict[str, list[tuple[int, RangeView]]] = defaultdict(list)
    for view in views:
        if view.keys is not None:
            by_name[view.range_id.computation].append((view.keys.low, view))
    for found in by_name.values():
        if len(found) > ranges_min:
            for (_, low), (_, high) in pairwise(sorted(found, key=lambda each: each[0])):
                yield low, high
