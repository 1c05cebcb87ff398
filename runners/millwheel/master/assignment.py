"""Assignment: which slot has which ranges, and which are on their way from one slot to another.

A range moves in one of two ways.  A live worker is asked to release it, and when it has, the next one is given it.
The ranges of a worker whose lease is over are given away at once: the next owner moves their tokens first, so whatever
the old one still does is fenced (MillWheel, sections 6.2 and 7.1).

**Invariant:** every range has exactly one slot, at all times; a slot without a worker has its ranges until it has one,
or until they are given away.

Pure bookkeeping; the master sends the messages.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from runners.millwheel.model.ids import RangeId

#: Ranges to give to the workers of slots, or to ask back from them.
BySlot = Mapping[int, tuple[RangeId, ...]]


class Assignment:
    """Lives in the master.

    Args:
        ranges: all of the job, dealt out evenly; the slot that has one first is its home.
        slots: how many there are.
        heads: ranges that must have the slot of another one.
    """

    def __init__(
        self,
        ranges: Sequence[RangeId],
        slots: int,
        heads: Mapping[RangeId, RangeId] = MappingProxyType({}),
    ) -> None:
        self._slots = slots
        self._home = {range_id: index % slots for index, range_id in enumerate(ranges)}
        self._home.update((each, self._home[head]) for each, head in heads.items())
        self._slot = dict(self._home)
        self._confirmed: set[RangeId] = set()
        #: Ranges that must have the slot of another one.
        self._heads = dict(heads)
        #: The slots that ranges go to which their worker has been asked to release.
        self._leaving: dict[RangeId, int] = {}

    def ranges_of(self, slot: int) -> tuple[RangeId, ...]:
        """The ranges of a slot, whether its worker has taken them over yet or not."""
        return tuple(range_id for range_id, owner in self._slot.items() if owner == slot)

    @property
    def confirmed(self) -> frozenset[RangeId]:
        """The ranges that the worker of their slot has taken over."""
        return frozenset(self._confirmed)

    @property
    def leaving(self) -> Mapping[RangeId, int]:
        """The slots that ranges go to which their worker has been asked to release."""
        return dict(self._leaving)

    @property
    def heads(self) -> Mapping[RangeId, RangeId]:
        """The ranges that others are in a handover with."""
        return dict(self._heads)

    def is_stable(self, range_id: RangeId) -> bool:
        """Whether the worker of the range's slot owns it, and is not asked to release it."""
        return range_id in self._confirmed and range_id not in self._leaving

    @property
    def is_at_rest(self) -> bool:
        """Whether every range is where it belongs for now."""
        return not self._leaving and len(self._confirmed) == len(self._slot)

    @property
    def is_in_one_slot(self) -> bool:
        """Whether one slot has all ranges."""
        return len({*self._slot.values()}) == 1

    def awaited(self) -> BySlot:
        """Ranges that workers have been given and have not confirmed yet."""
        waiting: dict[int, list[RangeId]] = defaultdict(list)
        for range_id, slot in self._slot.items():
            if range_id not in self._confirmed and range_id not in self._leaving:
                waiting[slot].append(range_id)
        return {slot: tuple(found) for slot, found in waiting.items()}

    def asked_back(self) -> BySlot:
        """Ranges that workers have been asked to release, and have not."""
        waiting: dict[int, list[RangeId]] = defaultdict(list)
        for range_id in self._leaving:
            waiting[self._slot[range_id]].append(range_id)
        return {slot: tuple(found) for slot, found in waiting.items()}

    def place(self, slot: int) -> BySlot:
        """Note that a slot has a new worker; returns which ranges to give to which slot."""
        mine = self.ranges_of(slot)
        self._confirmed.difference_update(mine)
        given = self._arrive(range_id for range_id in mine if range_id in self._leaving)
        return _merged(given, {slot: self.ranges_of(slot)})

    def confirm(self, slot: int, ranges: Iterable[RangeId]) -> None:
        """Note that the worker of a slot has taken ranges over.

        Args:
            slot: its number, from 0.
            ranges: that the worker owns now.
        """
        self._confirmed.update(each for each in ranges if self._slot.get(each) == slot)

    def expire(self, slot: int, live: Sequence[int]) -> BySlot:
        """Give the ranges of a slot, whose worker has lost its lease, to the slots ``live``.

        Args:
            slot: its number, from 0.
            live: the numbers of the slots whose workers have leases.
        """
        mine = self.ranges_of(slot)
        self._confirmed.difference_update(mine)
        given: dict[int, list[RangeId]] = defaultdict(list)
        heads = [each for each in mine if each not in self._heads]
        targets = {each: live[index % len(live)] for index, each in enumerate(heads)}
        for range_id in mine:
            target = self._leaving.pop(range_id, slot)
            if target not in live:
                target = targets[self._heads.get(range_id, range_id)]
            self._slot[range_id] = target
            given[target].append(range_id)
        return {target: tuple(found) for target, found in given.items()}

    def move(self, ranges: Iterable[RangeId], slot: int) -> BySlot:
        """Have ranges go to a slot; returns which slot to ask for which ranges.

        Those that are on their way already, or in a handover, are left alone.

        Args:
            ranges: with those that are in handover with them.
            slot: its number, from 0.
        """
        asked: dict[int, list[RangeId]] = defaultdict(list)
        in_handover = {*self._heads, *self._heads.values()}
        for range_id in ranges:
            if range_id in in_handover or range_id not in self._slot:
                continue
            if self.is_stable(range_id) and self._slot[range_id] != slot:
                # The slot that it was moved to is the one it comes back to when a worker has been replaced.
                self._leaving[range_id] = self._home[range_id] = slot
                asked[self._slot[range_id]].append(range_id)
        return {owner: tuple(found) for owner, found in asked.items()}

    def add(self, range_id: RangeId, live: Collection[int]) -> int:
        """Deal a new range to the slot that has fewest; returns its number.

        Where one slot has been given everything, it is given this too.

        Args:
            range_id: of the new range.
            live: the slots whose workers have leases; none: that is not asked for.
        """
        counts = Counter(self._home.values())
        is_gathered = len(counts) == 1 < len(self._home)
        slots = counts if is_gathered else live or range(self._slots)
        slot = min(slots, key=lambda each: (counts[each], each))
        self._home[range_id] = self._slot[range_id] = slot
        return slot

    @property
    def slots(self) -> Mapping[RangeId, int]:
        """The slot of every range."""
        return dict(self._slot)

    def slot_of(self, range_id: RangeId) -> int:
        """The slot of a range."""
        return self._slot[range_id]

    def handover(self, range_id: RangeId, head: RangeId) -> None:
        """Begin a handover: a range, which may be new, has the slot of another one and moves with it from here on.

        Args:
            range_id: of the range that follows.
            head: of the range that it follows.
        """
        if self._slot.get(range_id) != self._slot[head]:
            self._confirmed.discard(range_id)
        self._slot[range_id], self._home[range_id] = self._slot[head], self._home[head]
        self._leaving.pop(range_id, None)
        if head in self._leaving:
            self._leaving[range_id] = self._leaving[head]
        self._heads[range_id] = head

    def end_handover(self, range_id: RangeId, *, is_retired: bool) -> None:
        """End a handover: the range may move from here on, or is retired.

        Args:
            range_id: of the range that followed another.
            is_retired: whether it has no keys any more.
        """
        self._heads.pop(range_id, None)
        if is_retired:
            del self._slot[range_id], self._home[range_id]
            self._confirmed.discard(range_id)

    def bring_home(self, slot: int) -> BySlot:
        """Have the ranges that were dealt to a slot come back to it; returns which slot to ask for which ranges."""
        return self.move([each for each, home in self._home.items() if home == slot], slot)

    def release(self, slot: int, ranges: Collection[RangeId]) -> BySlot:
        """Note that the worker of a slot has released ranges; returns which ranges to give to which slot.

        Args:
            slot: its number, from 0.
            ranges: that the worker owned.
        """
        return self._arrive(
            each for each in ranges if each in self._leaving and self._slot[each] == slot
        )

    def _arrive(self, ranges: Iterable[RangeId]) -> BySlot:
        given: dict[int, list[RangeId]] = defaultdict(list)
        for range_id in list(ranges):
            target = self._slot[range_id] = self._leaving.pop(range_id)
            self._confirmed.discard(range_id)
            given[target].append(range_id)
        return {target: tuple(found) for target, found in given.items()}


def _merged(one: BySlot, other: BySlot) -> BySlot:
    """The ranges of each slot in two answers, each range once."""
    slots = dict.fromkeys((*one, *other))
    return {
        slot: tuple(dict.fromkeys((*one.get(slot, ()), *other.get(slot, ())))) for slot in slots
    }
