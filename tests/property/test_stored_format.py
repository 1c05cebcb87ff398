"""Whatever a range holds and sends comes back from its bytes as it was, of the same types, whatever keys there are."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dataflow.serialization import dumps
from runners.core.ground.cells import NOTHING, EmittedPane, LateElement, WindowState, WindowTimers
from runners.core.partials.partial import LatePartial, Partial
from runners.core.stages.entries import Changes
from runners.core.stateful.keyed_state import KeyedState, MergingState
from runners.stored.cells import decode_cell, encode_cell
from runners.stored.columns import own_blob, own_of, windows_column, windows_from
from runners.stored.journal import decode_entry, encode_changes
from runners.stored.partials import decode_partials, encode_partials
from triggers.after_watermark import Phases
from triggers.trigger import Progress, TriggerTimers
from windowing.pane import PaneInfo, PaneTiming
from windowing.time_domain import TimeDomain
from windowing.window import Window


class Named(Window):
    """A window of a user's own."""

    __slots__ = ()


class Text(str):
    """A key of a user's own."""

    __slots__ = ()


PLAIN = st.one_of(
    st.text(max_size=3),
    st.integers(-3, 3),
    st.integers(),
    st.floats(allow_nan=False),
    st.binary(max_size=3),
    st.none(),
    st.booleans(),
    st.dates(),
    st.builds(Text, st.text(max_size=3)),
    # A lone surrogate is no Unicode, and so in no MessagePack.
    st.just("\ud800"),
)
KEYS = st.one_of(
    PLAIN,
    st.sampled_from(["a", "b"]),
    st.tuples(PLAIN, PLAIN),
    st.tuples(PLAIN, st.tuples(PLAIN)),
    st.just(()),
)
BOUNDS = st.tuples(st.integers(0, 9), st.integers(10, 12))
WINDOWS = st.one_of(
    *[
        st.builds(lambda bounds, kind=kind: kind(*bounds), BOUNDS)
        for kind in (Window, Window, Named)
    ]
)
VALUES = st.one_of(KEYS, st.lists(st.integers(), max_size=3), WINDOWS)
TIMES = st.integers(-(1 << 62), 1 << 62)
PANES = st.builds(
    PaneInfo,
    st.integers(0, 9),
    st.sampled_from(PaneTiming),
    st.booleans(),
    st.booleans(),
    st.integers(-1, 9),
)
PARTIALS = st.tuples(KEYS, WINDOWS, VALUES, st.integers(1, 1 << 40))
LATE = st.builds(
    LatePartial.of, PARTIALS, st.builds(LateElement, VALUES, TIMES, st.sampled_from([1, -1]))
)
TRIGGERS = st.one_of(
    st.just(Progress()),
    st.builds(
        Progress, st.one_of(st.booleans(), st.integers(), st.text(max_size=2)), st.booleans()
    ),
    st.builds(Progress, st.builds(Phases, st.integers(), st.none(), st.booleans())),
)
MAYBE = st.one_of(st.none(), TIMES)
REMEMBERED = st.one_of(
    st.none(),
    st.dictionaries(
        st.text(max_size=2), st.lists(st.lists(VALUES, max_size=2), max_size=2), max_size=2
    ),
)
EMITTED = st.builds(EmittedPane, VALUES, TIMES, WINDOWS, PANES, REMEMBERED)
STATES = st.builds(
    WindowState,
    st.one_of(st.just(NOTHING), VALUES),
    st.integers(0, 9),
    st.lists(EMITTED, max_size=2).map(tuple),
    st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
    TRIGGERS,
    st.builds(WindowTimers, MAYBE, MAYBE, MAYBE),
    MAYBE,
)
TIMER_NAMES = st.one_of(st.text(max_size=2), st.tuples(st.text(max_size=2), st.text(max_size=2)))
KEYED = st.builds(
    KeyedState,
    st.dictionaries(st.text(max_size=2), VALUES, max_size=2),
    st.dictionaries(TIMER_NAMES, st.tuples(TIMES, TIMES), max_size=2),
    st.lists(st.tuples(VALUES, TIMES, PANES, st.sampled_from([1, -1])), max_size=2),
    st.builds(TriggerTimers, MAYBE, MAYBE),
)
MERGING = st.builds(
    MergingState,
    st.dictionaries(WINDOWS, KEYED, max_size=3),
    st.lists(st.tuples(VALUES, TIMES, PANES, st.sampled_from([1, -1]), WINDOWS), max_size=2),
    st.builds(TriggerTimers, MAYBE, MAYBE),
)
CELLS = st.one_of(STATES, KEYED, MERGING, st.dictionaries(WINDOWS, STATES, max_size=3))
CELL_IDS = st.tuples(KEYS, st.one_of(st.none(), WINDOWS))
CHANGES = st.lists(st.tuples(CELL_IDS, st.one_of(st.none(), CELLS)), max_size=4)
TIMERS = st.lists(
    st.tuples(st.tuples(CELL_IDS, WINDOWS, st.sampled_from(TimeDomain)), MAYBE), max_size=4
)


def spelled(value: Any) -> Any:
    """A value with its types, which equality alone does not show: 1 equals True, and windows are tuples."""
    kind = type(value)
    if isinstance(value, dict):
        parts: Any = [(spelled(key), spelled(each)) for key, each in value.items()]
    elif isinstance(value, tuple | list):
        parts = [spelled(each) for each in value]
        if isinstance(value, LatePartial):
            parts.append(spelled(value.record))
    elif kind in (WindowState, EmittedPane, KeyedState, MergingState):
        names = [name for name in value.__slots__ if not name.startswith("_")]
        parts = [spelled(getattr(value, name)) for name in names if name != "armed_for"]
    else:
        parts = repr(value)
    return kind.__name__, parts


@given(st.lists(st.one_of(PARTIALS, PARTIALS, LATE), max_size=6))
def test_partials_come_back(partials: list[Partial]) -> None:
    assert spelled(partials) == spelled(list(decode_partials(encode_partials(partials), None)))


@given(CELLS)
def test_a_cell_comes_back(cell: Any) -> None:
    assert spelled(cell) == spelled(decode_cell(encode_cell(cell)))


@given(CHANGES, TIMERS)
def test_changes_come_back(cells: list[Any], timers: list[Any]) -> None:
    found = decode_entry(encode_changes(cells, timers), None)

    assert isinstance(found, Changes)
    known: dict[Any, Any] = {}
    # Of keys that are one key, the first is all keys: they are canonical where they come from.
    wanted = [((known.setdefault(key, key), window), cell) for (key, window), cell in cells]
    due = [
        (((known.setdefault(key, key), window), about, domain), fire_us)
        for ((key, window), about, domain), fire_us in timers
    ]
    assert spelled(wanted) == spelled(found.cells)
    assert spelled(due) == spelled(found.timers)


@given(
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
        | st.lists(st.integers())
    )
)
def test_users_values_are_the_same_bytes_by_the_fast_way(own: list[Any]) -> None:
    assert own_blob(own) == (dumps(own) if own else b"")
    # What is long has a frame of its own in a pickle.
    long = [*own, "x" * 100_000]
    assert own_blob(long) == dumps(long)


@given(st.lists(st.tuples(st.sampled_from([Window, Named]), st.integers(0, 2)), max_size=5))
def test_a_window_that_equals_another_keeps_its_class(made: list[tuple[type[Window], int]]) -> None:
    windows = [kind(start, 5) for kind, start in made]
    own: list[Any] = []
    column = windows_column(windows, own)
    found = windows_from(column, own_of(own_blob(own)))

    assert found == windows
    assert list(map(type, found)) == list(map(type, windows))
