"""What becomes of the state and timers of windows that merge into one.

Windows are taken in the order of time: of a bag the values of the earlier window come first, of a set and a map the
keys that the earlier window has; of an ordered list, at one instant, its values.

* Bags are put together, sets and ordered lists united; combining values merge their accumulators.
* Of two single values, and of two values of a key of a map, ``merge`` of the spec makes one.
* A watermark hold is the earliest.
* State lives as long as in the window in which it lives longest.
* Of a timer, or a timer of a family with one tag, that several windows have set, the latest is left, as when it is set
  again.  Its output timestamp is the earliest that it had in one of them, so the watermark has not passed it.

It goes through the handles, so how state is kept does not matter here: of state in pages those of the earliest window
stay, and what the others have is added to them; but the pages of a bag stay where they are.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from dataflow.errors import DataflowError, PipelineError
from dataflow.paged_state import unpaged
from dataflow.state_handles import (
    BagState,
    CombiningValueState,
    MapState,
    OrderedListState,
    ReadModifyWriteState,
    SetState,
    WatermarkHoldState,
    handle_of,
)
from dataflow.user_state import (
    HOLD,
    PAGES,
    MapStateSpec,
    ReadModifyWriteStateSpec,
    SetTimer,
    StateSpec,
    TimerName,
)
from windowing.errors import error_text


def merge_state(
    specs: Iterable[StateSpec], values: dict[Any, Any], later: Sequence[dict[Any, Any]]
) -> None:
    """Merge the state of later windows into that of the earliest.

    Args:
        specs: of all state.
        values: of the earliest window, by name; changed in place.
        later: of the other windows, in the order of time; not to be used afterwards, but for their pages, which stay.

    Raises:
        PipelineError: a function that merges two values raised.
    """
    for spec in specs:
        into = handle_of(spec, values, None)
        for each in later:
            other = handle_of(spec, each, None)
            if not other.is_empty:
                _add(spec, into, other)
    # Left over by an earlier version of the program, which nothing reads.
    for each in later:
        for name, value in each.items():
            is_own = name == PAGES or (type(name) is tuple and name[0] == HOLD)
            if not is_own and name not in values:
                values[name] = unpaged(value)


def _add(spec: StateSpec, into: Any, other: Any) -> None:
    """Add the state of a later window to that of an earlier one."""
    match into:
        case BagState():
            into.take_over(other)
        case SetState():
            for value in other.read():
                into.add(value)
        case OrderedListState():
            for pair in other.read():  # a date has all microseconds of an instant
                into.add(pair)
        case MapState():
            for key, value in other.items():
                is_new = not into.contains(key)
                into.put(key, value if is_new else _one_of(spec, into.get(key), value))
        case CombiningValueState():
            into.add_accumulator(other.get_accumulator())
        case WatermarkHoldState():
            into.add(other.read())
        case ReadModifyWriteState():
            is_new = into.is_empty
            into.write(other.read() if is_new else _one_of(spec, into.read(), other.read()))


def _one_of(spec: StateSpec, earlier: Any, later: Any) -> Any:
    assert isinstance(spec, ReadModifyWriteStateSpec | MapStateSpec)
    assert spec.merge is not None  # or the DoFn was refused
    try:
        return spec.merge(earlier, later)
    except DataflowError:
        raise
    except Exception as error:
        raise PipelineError(
            f"the merge function of state {spec.name!r} raised {type(error).__name__}",
            detail=error_text(error),
            hint="it is called with the value of the earlier window and that of the later one, and returns one value",
        ) from error


def merge_timers(
    timers: MutableMapping[TimerName, SetTimer],
    values: dict[Any, Any],
    later: Iterable[tuple[Mapping[TimerName, SetTimer], Mapping[Any, Any]]],
) -> None:
    """Merge the timers of later windows into those of the earliest, and the holds that belong to them.

    Args:
        timers: of the earliest window; changed in place.
        values: of the earliest window, with its holds; changed in place.
        later: timers and values of the other windows, in the order of time.
    """
    for others, other_values in later:
        for timer, at in others.items():
            kept = timers.get(timer)
            if kept is None or at[0] >= kept[0]:
                timers.pop(timer, None)
                timers[timer] = at
            hold_us = other_values.get((HOLD, timer))
            if hold_us is not None:
                values[HOLD, timer] = min(hold_us, values.get((HOLD, timer), hold_us))
