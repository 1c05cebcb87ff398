"""Handles of state: what ``process`` and the methods of timers get for the specs of `dataflow.user_state`.

A handle is the state of one key and window, for the duration of one call.  What it returns is the caller's own: to
change it changes no state.

**Invariant:** state that is empty is not kept: a key whose state has been cleared takes no memory.
**Invariant:** what is read comes in an order that is the same in every process and after a restart.

Names are Apache Beam's (`apache_beam.transforms.userstate`; of maps, its Java SDK's `MapState`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from datetime import datetime
from typing import Any, Protocol

import attrs

from dataflow.combine_fn import CombineFn
from dataflow.errors import PipelineError
from dataflow.paged_state import (
    JoinedBag,
    Paged,
    PagedBag,
    PagedList,
    PagedMap,
    insert_by_time,
    span_of,
)
from dataflow.user_state import (
    HOLD,
    TTL,
    VERSION,
    BagStateSpec,
    CombiningValueStateSpec,
    MapStateSpec,
    OrderedListStateSpec,
    SetStateSpec,
    SetTimer,
    StateSpec,
    TimerName,
    WatermarkHoldStateSpec,
)
from windowing.errors import error_text
from windowing.time_domain import TimeDomain
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    TimestampLike,
    to_datetime,
    to_timestamp_us,
)

#: Asked for by the class itself, as `isinstance` of an abstract one takes long for what is done with each element.
_PAGED_TYPES: frozenset[type] = frozenset((PagedBag, JoinedBag, PagedMap, PagedList))
#: Stands for state that is not there.
_NOTHING: Any = object()


@attrs.frozen
class Lifetime:
    """When a piece of state ends that is written now, and the timers of which one will clear it.

    Attributes:
        name: of the state.
        ends_us: an instant of the domain of the spec, in microseconds.
        output_us: the event time of the call, in microseconds.
    """

    name: str
    timers: MutableMapping[TimerName, SetTimer]
    ends_us: int
    output_us: int

    @classmethod
    def of(
        cls,
        spec: StateSpec,
        timers: MutableMapping[TimerName, SetTimer],
        timestamp_us: int,
        now_us: int,
    ) -> Lifetime | None:
        """What a write has to prolong; None: the state has no time to live.

        Args:
            spec: of the state.
            timers: of its key and window.
            timestamp_us: the event time of the call, in microseconds.
            now_us: the processing time of the call, likewise.
        """
        if spec.ttl_us is None:
            return None
        start_us = timestamp_us if spec.ttl_domain is TimeDomain.EVENT else now_us
        return cls(spec.name, timers, start_us + spec.ttl_us, timestamp_us)

    def begin(self) -> None:
        """Have the state live from now on; never shorter than before, as elements may come out of order."""
        ends_us, _ = self.timers.pop((TTL, self.name), (self.ends_us, 0))
        self.timers[TTL, self.name] = max(ends_us, self.ends_us), self.output_us

    def end(self) -> None:
        """Have the state live no more, because it is gone."""
        self.timers.pop((TTL, self.name), None)


# Handles are not frozen, as one is made for each call of user code, and those are made in half the time.
@attrs.define
class _State:
    _values: dict[Any, Any]
    _name: Any
    _lifetime: Lifetime | None

    def clear(self) -> None:
        """Delete all of it."""
        found = self._values.pop(self._name, None)
        if type(found) in _PAGED_TYPES:
            found.drop()
        if self._lifetime is not None:
            self._lifetime.end()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing."""
        return self._name not in self._values

    def _wrote(self) -> None:
        if self._lifetime is not None:
            self._lifetime.begin()


@attrs.define
class ReadModifyWriteState(_State):
    """Handle of a `ReadModifyWriteStateSpec`."""

    def read(self) -> Any:
        """The value; None if there is none."""
        return self._values.get(self._name)

    def write(self, value: Any) -> None:
        """Replace the value."""
        self._values[self._name] = value
        self._wrote()


@attrs.define
class BagState(_State):
    """Handle of a `BagStateSpec`."""

    def read(self) -> list[Any]:
        """The values in the order they were added."""
        return list(self._values.get(self._name, ()))

    def add(self, value: Any) -> None:
        """Add a value."""
        self._values.setdefault(self._name, []).append(value)
        self._wrote()

    def take_over(self, other: BagState) -> None:
        """Add all values of the bag of another window, which is not to be used any more."""
        mine, theirs = self._values.get(self._name), other._values.get(other._name)
        if isinstance(mine, PagedBag) and isinstance(theirs, PagedBag):
            self._values[self._name] = mine.followed_by(theirs)
            # Its pages do not go with that window.
            del other._values[other._name]
        else:
            self._values.setdefault(self._name, []).extend(other.read())
        self._wrote()


@attrs.define
class _Hashed(_State):
    """What is kept as a dict: of these, unlike sets, the order is the same in every process."""

    def _found(self) -> dict[Any, Any] | PagedMap:
        return self._values.get(self._name) or {}

    def _has(self, key: Any) -> bool:
        _check_hashable(self._name, key)
        return key in self._found()

    def _put(self, key: Any, value: Any) -> None:
        _check_hashable(self._name, key)
        self._values.setdefault(self._name, {})[key] = value
        self._wrote()

    def _pop(self, key: Any) -> Any:
        _check_hashable(self._name, key)
        found = self._found()
        if key not in found:
            return None
        value = found.pop(key)
        if found:
            self._wrote()
        else:
            self.clear()
        return value


@attrs.define
class SetState(_Hashed):
    """Handle of a `SetStateSpec`."""

    def read(self) -> list[Any]:
        """The values, in the order in which they were first added."""
        return list(self._found())

    def contains(self, value: Any) -> bool:
        """Whether a value is in the set.

        Raises:
            PipelineError: it cannot be hashed.
        """
        return self._has(value)

    def add(self, value: Any) -> bool:
        """Add a value; returns whether it was not there before.

        Raises:
            PipelineError: it cannot be hashed.
        """
        is_new = not self._has(value)
        if is_new:
            self._put(value, None)
        else:
            self._wrote()
        return is_new

    def remove(self, value: Any) -> None:
        """Remove a value, if it is there.

        Raises:
            PipelineError: it cannot be hashed.
        """
        self._pop(value)


@attrs.define
class MapState(_Hashed):
    """Handle of a `MapStateSpec`."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key.

        Args:
            key: of the map; it has nothing to do with the key that the state is of.
            default: returned if the key has no value.

        Raises:
            PipelineError: the key cannot be hashed.
        """
        return self._found()[key] if self._has(key) else default

    def contains(self, key: Any) -> bool:
        """Whether a key has a value.

        Raises:
            PipelineError: the key cannot be hashed.
        """
        return self._has(key)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key.

        Args:
            key: of the map.
            value: replaces the one that it had.

        Raises:
            PipelineError: the key cannot be hashed.
        """
        self._put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none; returns the one that it had, or None.

        Args:
            key: of the map.
            value: set if there is none.

        Raises:
            PipelineError: the key cannot be hashed.
        """
        if self._has(key):
            return self._found()[key]
        self._put(key, value)
        return None

    def remove(self, key: Any) -> Any:
        """Remove a key; returns the value that it had, or None.

        Raises:
            PipelineError: the key cannot be hashed.
        """
        return self._pop(key)

    def keys(self) -> list[Any]:
        """The keys, in the order in which they were first put."""
        return list(self._found())

    def values(self) -> list[Any]:
        """The values, in the order of `keys`."""
        return list(self._found().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Pairs of key and value, in the order of `keys`."""
        return list(self._found().items())


def _check_hashable(name: str, key: Any) -> None:
    try:
        hash(key)
    except TypeError:
        raise PipelineError(
            f"state {name!r} cannot have {key!r}: values of this type cannot be hashed",
            detail=f"type {type(key).__qualname__}",
            hint="use a tuple for a list, and a frozen class for one that can be changed",
        ) from None


@attrs.define
class OrderedListState(_State):
    """Handle of an `OrderedListStateSpec`: of equal timestamps, the value that was added first comes first."""

    def add(self, element: tuple[TimestampLike, Any]) -> None:
        """Add a pair of timestamp and value.

        Raises:
            PipelineError: it is not a pair.
            TimeError: the timestamp is not an instant.
        """
        if not isinstance(element, tuple) or len(element) != 2:
            raise PipelineError(
                f"state {self._name!r} takes a pair of timestamp and value, not {element!r}",
                hint="e.g. prices.add((timestamp, value))",
            )
        time, value = element
        time_us, entries = to_timestamp_us(time), self._values.setdefault(self._name, [])
        if isinstance(entries, list):
            insert_by_time(entries, time_us, value)
        else:
            entries.add(time_us, value)
        self._wrote()

    def read(self) -> list[tuple[datetime, Any]]:
        """All pairs of timestamp, in UTC, and value, by time."""
        return _dated(self._entries())

    def read_range(
        self, start: TimestampLike | None, end: TimestampLike | None
    ) -> list[tuple[datetime, Any]]:
        """The pairs from an instant on, and before another.

        Args:
            start: the first instant that belongs to the range; None: it has no beginning.
            end: the first instant behind it; None: it has no end.

        Raises:
            TimeError: one is not an instant.
        """
        entries, (start_us, end_us) = self._entries(), _range_us(start, end)
        if isinstance(entries, list):
            return _dated(entries[span_of(entries, start_us, end_us)])
        return _dated(entries.between(start_us, end_us))

    def clear_range(self, start: TimestampLike | None, end: TimestampLike | None) -> None:
        """Delete the pairs from an instant on, and before another.

        Args:
            start: the first instant that belongs to the range; None: it has no beginning.
            end: the first instant behind it; None: it has no end.

        Raises:
            TimeError: one is not an instant.
        """
        entries, (start_us, end_us) = self._entries(), _range_us(start, end)
        if not _removed(entries, start_us, end_us):
            return
        if entries:
            self._wrote()
        else:
            self.clear()

    def _entries(self) -> list[tuple[int, Any]] | PagedList:
        return self._values.get(self._name) or []


def _range_us(start: TimestampLike | None, end: TimestampLike | None) -> tuple[int, int]:
    """A range in microseconds; one without an end has the last instant, too."""
    return (
        MIN_TIMESTAMP_US if start is None else to_timestamp_us(start),
        MAX_TIMESTAMP_US + 1 if end is None else to_timestamp_us(end),
    )


def _removed(entries: list[tuple[int, Any]] | PagedList, start_us: int, end_us: int) -> bool:
    """Delete pairs by time; returns whether there were any."""
    if not isinstance(entries, list):
        return entries.remove(start_us, end_us)
    before = len(entries)
    del entries[span_of(entries, start_us, end_us)]
    return len(entries) < before


def _dated(entries: Iterable[tuple[int, Any]]) -> list[tuple[datetime, Any]]:
    return [(to_datetime(time_us), value) for time_us, value in entries]


@attrs.define
class CombiningValueState(_State):
    """Handle of a `CombiningValueStateSpec`."""

    _combine_fn: CombineFn

    def read(self) -> Any:
        """The result so far; that of nothing if nothing was added."""
        return self._combine_fn.extract_output(self._accumulator())

    def add(self, value: Any) -> None:
        """Add a value."""
        self._values[self._name] = self._combine_fn.add_input(self._accumulator(), value)
        self._wrote()

    def get_accumulator(self) -> Any:
        """What is kept: the accumulator of all values that were added; an empty one if none was."""
        return self._accumulator()

    def add_accumulator(self, accumulator: Any) -> None:
        """Add all values of an accumulator of the same `CombineFn`; what was kept comes first.

        Args:
            accumulator: not to be used afterwards.
        """
        kept = self._accumulator()
        self._values[self._name] = self._combine_fn.merge_accumulators((kept, accumulator))
        self._wrote()

    def _accumulator(self) -> Any:
        found = self._values.get(self._name, _NOTHING)
        return self._combine_fn.create_accumulator() if found is _NOTHING else found


@attrs.define
class WatermarkHoldState(_State):
    """Handle of a `WatermarkHoldStateSpec`."""

    def read(self) -> datetime | None:
        """The earliest instant that was added, in UTC; None if there is none."""
        hold_us = self._values.get(self._name)
        return None if hold_us is None else to_datetime(hold_us)

    def add(self, timestamp: TimestampLike) -> None:
        """Hold the output watermark at an instant; where it has passed it, at the place where it is.

        Raises:
            TimeError: it is not an instant.
        """
        time_us = to_timestamp_us(timestamp)
        self._values[self._name] = min(time_us, self._values.get(self._name, time_us))
        self._wrote()


class Clearable(Protocol):
    """A handle of state or of a timer."""

    def clear(self) -> None:
        """Delete all of it."""


def clear_all(*handles: Clearable) -> None:
    """Clear several pieces of state and timers, so that nothing of a key remains."""
    for each in handles:
        each.clear()


def handle_of(spec: StateSpec, values: dict[Any, Any], lifetime: Lifetime | None) -> _State:
    """The handle of a piece of state.

    Args:
        spec: of the state.
        values: of its key and window, by name; changed in place.
        lifetime: what a write prolongs; None: the state has no time to live.
    """
    return handles_of(spec)(values, lifetime)


def handles_of(spec: StateSpec) -> Callable[[dict[Any, Any], Lifetime | None], _State]:
    """A function that makes the handles of a piece of state, as `handle_of` does, for many keys.

    Args:
        spec: of the state.
    """
    if spec.version > 1:
        return lambda values, lifetime: _handle(spec, values, _migrated(spec, values), lifetime)
    name = spec.name
    if isinstance(spec, CombiningValueStateSpec):
        combine_fn = spec.combine_fn
        return lambda values, lifetime: CombiningValueState(values, name, lifetime, combine_fn)
    return lambda values, lifetime: _handle(spec, values, name, lifetime)


def _handle(spec: StateSpec, values: dict[Any, Any], key: Any, lifetime: Lifetime | None) -> _State:
    if isinstance(spec, CombiningValueStateSpec):
        return CombiningValueState(values, key, lifetime, spec.combine_fn)
    if isinstance(spec, WatermarkHoldStateSpec):
        return WatermarkHoldState(values, (HOLD, spec.name), lifetime)
    return _HANDLES.get(type(spec), ReadModifyWriteState)(values, key, lifetime)


def _key_of(name: str, version: int) -> Any:
    return name if version == 1 else (VERSION, name, version)


def paged_kinds(specs: Iterable[StateSpec]) -> dict[Any, type[Paged]]:
    """What stands for state in pages, by the key of the state; state of other kinds is one value.

    Args:
        specs: of all state of a DoFn.
    """
    return {
        _key_of(spec.name, spec.version): _PAGED[type(spec)]
        for spec in specs
        if type(spec) in _PAGED
    }


def _migrated(spec: StateSpec, values: dict[Any, Any]) -> Any:
    """The key of a piece of state in its version, after it was brought up to date if it is of an older one."""
    key = _key_of(spec.name, spec.version)
    if key in values:
        return key
    for older in range(spec.oldest, spec.version):
        if (older_key := _key_of(spec.name, older)) in values:
            kept = values[older_key]
            for version in range(older, spec.version):
                kept = _in_next_version(spec, version, kept)
            # Only now, so that a migration that has failed finds the state as it was.
            before = values.pop(older_key)
            if isinstance(before, Paged):
                before.drop()
            values[key] = kept
            break
    return key


def _in_next_version(spec: StateSpec, version: int, kept: Any) -> Any:
    migrate = spec.migrations[version]
    try:
        if isinstance(spec, BagStateSpec):
            return [migrate(value) for value in kept]
        if isinstance(spec, SetStateSpec):
            return dict.fromkeys(migrate(value) for value in kept)
        if isinstance(spec, MapStateSpec):
            return {key: migrate(value) for key, value in kept.items()}
        if isinstance(spec, OrderedListStateSpec):
            return [(time_us, migrate(value)) for time_us, value in kept]
        return migrate(kept)
    except Exception as error:
        raise PipelineError(
            f"the migration of state {spec.name!r} from version {version} raised {type(error).__name__}",
            detail=error_text(error),
            hint="correct the function; the state is as it was",
        ) from error


_HANDLES: dict[type[StateSpec], type[_State]] = {
    BagStateSpec: BagState,
    SetStateSpec: SetState,
    MapStateSpec: MapState,
    OrderedListStateSpec: OrderedListState,
}

_PAGED: dict[type[StateSpec], type[Paged]] = {
    BagStateSpec: PagedBag,
    SetStateSpec: PagedMap,
    MapStateSpec: PagedMap,
    OrderedListStateSpec: PagedList,
}
