"""State kept as columns: whatever dies between deliveries, panes and compactions, nothing is lost or emitted twice.

The journals here are so short, and put together so often, that each takeover finds something of every kind in them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.core.open_windows.buffered import Buffered
from runners.core.single_firing import column_windows
from runners.core.single_firing.column_windows import ColumnWindows
from runners.core.stages.entries import Released, Whole
from runners.core.stages.grouping import Step
from runners.millwheel.worker.compactor import Compactor
from runners.millwheel.worker.deliveries import Deliveries
from runners.millwheel.worker.state import journal as journals
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.window_steps import WindowSteps
from runners.testing.simulator import ALL_FAULTS, Fault, SimulationError, dice, simulate
from tests.effort import by_profile
from windowing.window import Window

Patch = pytest.MonkeyPatch
#: Of each length of a journal.
EXAMPLES = by_profile(5, nightly=2_500)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: Patch) -> None:
    monkeypatch.setattr(journals, "JOURNAL_BYTES_MAX", 300)
    monkeypatch.setattr(dice, "STEPS", (StepLimits(panes=2, compacted=1),))
    monkeypatch.setattr(column_windows, "FOLD_PARTIALS_MIN", 3)


@pytest.fixture(params=[300, 5_000])
def short_journals(monkeypatch: Patch, request: pytest.FixtureRequest) -> None:
    """With the longer ones, a new owner finds more of what nothing has been put together of."""
    monkeypatch.setattr(journals, "JOURNAL_BYTES_MAX", request.param)


@pytest.mark.slow
@pytest.mark.usefixtures("short_journals")
def test_typed_rows_keep_their_promises() -> None:
    simulate("typed", seeds=range(EXAMPLES))


@pytest.mark.slow
@pytest.mark.usefixtures("short_journals")
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_typed_rows_keep_their_promises_for_any_seed(seed: int) -> None:
    simulate("typed", seeds=[seed])


def emit_again_what_was_emitted(patch: Patch) -> None:
    """A new owner keeps what has been emitted before."""
    patch.setattr(Buffered, "forget_fired", lambda *_: None)


def compact_what_is_kept(patch: Patch) -> None:
    """Entries go, and nothing comes in their place."""
    patch.setattr(Buffered, "whole", lambda *_: ())


def count_what_is_whole_in_addition(patch: Patch) -> None:
    """Of the entries before the one with everything, some are left; they count as well."""
    restore = Buffered.restore

    def broken(windows: Buffered, entry: Any, owner: Any = None, *, nbytes: int = 0) -> None:
        if not isinstance(entry, Whole):
            restore(windows, entry, owner, nbytes=nbytes)

    patch.setattr(Buffered, "restore", broken)


def forget_what_was_released(patch: Patch) -> None:
    """Windows are in cells, and in the journal as columns."""
    relieve = Buffered.relieve

    def broken(windows: Buffered, owner: Any, clocks: Any) -> Step:
        step = relieve(windows, owner, clocks)
        noted = [each._replace(entry=Released([])) for each in step.noted]
        return attrs.evolve(step, noted=noted)

    patch.setattr(Buffered, "relieve", broken)


class _Nobody(defaultdict[Any, set[Window]]):
    """No window is single."""

    def __missing__(self, owner: Any) -> set[Window]:
        return set()


def buffer_what_has_cells(patch: Patch) -> None:
    """What comes for a window in cells is buffered."""
    parted = Buffered._parted

    def broken(windows: Buffered, *args: Any) -> Any:
        windows.singles = _Nobody()
        return parted(windows, *args)

    patch.setattr(Buffered, "_parted", broken)


def buffer_what_has_come_as_cells(patch: Patch) -> None:
    """What comes for a window in cells that came with a range is buffered."""
    restore = Buffered.restore

    def broken(windows: Buffered, entry: Any, owner: Any = None, *, nbytes: int = 0) -> None:
        restore(windows, entry, owner, nbytes=nbytes)
        windows.singles.clear()

    patch.setattr(Buffered, "restore", broken)


def reshape_what_is_kept(patch: Patch) -> None:
    """Ranges are given other keys, and the new owners find columns of keys that are not theirs."""
    compact_all = Compactor.compact_all

    def broken(this: Compactor, name: str) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(WindowSteps, "relieve", lambda *_: ())
            compact_all(this, name)

    patch.setattr(Compactor, "compact_all", broken)


def fire_too_early_in_the_order(patch: Patch) -> None:
    """A window that has not ended fires with one that has."""
    pop_due = ColumnWindows.pop_due
    patch.setattr(
        ColumnWindows, "pop_due", lambda kept, until_us: pop_due(kept, until_us + 60_000_000)
    )


HANDS = {Fault.MOVE: 0.2, Fault.CRASH: 0.03}
RESHAPING = {Fault.SPLIT: 0.1, Fault.MERGE: 0.1}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "faults"),
    [
        (emit_again_what_was_emitted, ALL_FAULTS),
        (compact_what_is_kept, ALL_FAULTS),
        (count_what_is_whole_in_addition, ALL_FAULTS),
        (forget_what_was_released, ALL_FAULTS),
        (buffer_what_has_cells, ALL_FAULTS),
        (buffer_what_has_come_as_cells, HANDS),
        (reshape_what_is_kept, RESHAPING | {Fault.CRASH: 0.02}),
        (fire_too_early_in_the_order, HANDS),
    ],
)
def test_simulator_rejects(
    mutation: Callable[[Patch], None], faults: Collection[Fault], monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    with pytest.raises(SimulationError, match=r"(?s)seed \d+: I.*replay: .*seeds?[ =]"):
        simulate("typed", seeds=300, faults=faults)


def check_windows_are_in_one_place(patch: Patch) -> None:
    """Whenever deliveries are taken in, no window of a key is kept as columns and in cells."""
    take_in = Deliveries.take_in

    def checking(deliveries: Deliveries, *arguments: Any) -> Any:
        windows: Any = deliveries._state.windows
        buffered = windows._buffered.values() if isinstance(windows, Buffered) else ()
        kept = {
            (key, window) for each in buffered for part in each.parts for key, window, *_ in part
        }
        both = kept & {(cell_id[0], window) for cell_id, window, _ in windows.timers}
        assert not both, f"kept as columns and in cells: {both}"
        return take_in(deliveries, *arguments)

    patch.setattr(Deliveries, "take_in", checking)


@pytest.mark.slow
def test_no_window_is_in_two_places(monkeypatch: Patch) -> None:
    check_windows_are_in_one_place(monkeypatch)

    simulate("typed", seeds=range(12))


@pytest.mark.slow
def test_windows_in_two_places_are_found(monkeypatch: Patch) -> None:
    check_windows_are_in_one_place(monkeypatch)
    buffer_what_has_cells(monkeypatch)

    with pytest.raises(Exception, match=r"kept as columns and in cells|: I2: "):
        simulate("typed", seeds=300, faults={Fault.MOVE: 0.3})
