"""The tests are tested: ways of keeping windows, each broken on purpose, must fail the laws of open windows."""

from collections.abc import Callable
from typing import Any

import pytest

from runners.core.open_windows.buffered import Buffered
from runners.core.open_windows.cells import Cells
from runners.core.open_windows.replayed import Replayed
from runners.core.single_firing import column_windows
from runners.core.single_firing.column_windows import ColumnWindows
from runners.core.stages.entries import Changes
from tests.property.test_open_windows import HARD, check_a_batch, check_a_stream

Patch = pytest.MonkeyPatch


def spill_no_timers(patch: Patch) -> None:
    """Cells are restored, and never fire."""
    spill = Cells.spill

    def broken(windows: Cells) -> Any:
        for entry in spill(windows):
            yield Changes(entry.cells, []) if isinstance(entry, Changes) else entry

    patch.setattr(Cells, "spill", broken)


def keep_what_is_spilled(patch: Patch) -> None:
    """Partials are in a file, and still in memory."""
    patch.setattr(Replayed, "spill", Replayed.contents)


def restore_partials_in_place_of_others(patch: Patch) -> None:
    """Of several entries the last is kept."""
    keep = Replayed._keep

    def broken(windows: Replayed, partials: Any) -> None:
        windows._columns, windows._partials = [], []
        keep(windows, partials)

    patch.setattr(Replayed, "_keep", broken)


def fire_before_all_is_there(patch: Patch) -> None:
    """A replay fires by what it has at first, and then once more."""
    take = Replayed.take

    def broken(windows: Replayed, arrivals: Any, clocks: Any) -> Any:
        step = take(windows, arrivals, clocks)
        bundles = windows._panes.bundles([*windows._columns, windows._partials])
        return windows._stage.emit_next(bundles, clocks) or step

    patch.setattr(Replayed, "take", broken)


def spill_cells_alone(patch: Patch) -> None:
    """What is buffered does not go where the cells go."""
    patch.setattr(Buffered, "spill", Cells.spill)


def buffer_what_was_restored_as_cells(patch: Patch) -> None:
    """What comes for the windows of restored cells is buffered."""
    restore = Buffered.restore

    def broken(windows: Buffered, *args: Any, **more: Any) -> None:
        restore(windows, *args, **more)
        windows.singles.clear()

    patch.setattr(Buffered, "restore", broken)


def fire_columns_when_timers_have_fired(patch: Patch) -> None:
    """Columns whose window ends with a timer, or after it, are gone with those before."""
    pop_due = ColumnWindows.pop_due
    patch.setattr(
        ColumnWindows, "pop_due", lambda kept, until_us: pop_due(kept, until_us + 10_000_000)
    )


def relieve_without_cells(patch: Patch) -> None:
    """What has no room is let go."""
    relieve = Buffered.relieve

    def broken(windows: Buffered, owner: Any, clocks: Any) -> Any:
        windows._buffered[owner].pop_all()
        return relieve(windows, owner, clocks)

    patch.setattr(Buffered, "relieve", broken)


def keep_what_has_ended(patch: Patch) -> None:
    """What is late is buffered, and a window fires a second time."""
    parted = Buffered._parted
    patch.setattr(
        Buffered,
        "_parted",
        lambda windows, owner, partials, _: parted(windows, owner, partials, -1 << 62),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        spill_no_timers,
        keep_what_is_spilled,
        restore_partials_in_place_of_others,
        fire_before_all_is_there,
        spill_cells_alone,
        buffer_what_was_restored_as_cells,
        fire_columns_when_timers_have_fired,
        relieve_without_cells,
        keep_what_has_ended,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_a_broken_way_of_keeping_windows_is_found(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(column_windows, "FOLD_PARTIALS_MIN", 3)
    mutate(monkeypatch)

    with pytest.raises(AssertionError):
        check_hard_scripts()


def check_hard_scripts() -> None:
    """Unbroken ways of keeping windows pass these scripts in `tests/property/test_open_windows.py`."""
    for script in HARD:
        check_a_stream(**script)
        check_a_batch(**script)
