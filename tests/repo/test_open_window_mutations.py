"""The tests are tested: ways of keeping windows, each broken on purpose, must fail the laws of open windows."""

from collections.abc import Callable
from typing import Any

import pytest

from runners.core.open_windows.cells import Cells
from runners.core.open_windows.columns import Columns
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
        bundles = windows._panes.bundles(windows._columns, windows._partials)
        return windows._stage.emit_next(bundles, clocks) or step

    patch.setattr(Replayed, "take", broken)


def spill_cells_alone(patch: Patch) -> None:
    """Columns do not go where the cells go."""
    patch.setattr(Columns, "spill", Cells.spill)


def add_to_cells_alone(patch: Patch) -> None:
    """What comes as rows has a cell, and what is columns of its window stays columns."""
    patch.setattr(Columns, "_make_single", lambda *_: ())


def believe_that_restored_cells_are_alone(patch: Patch) -> None:
    """What comes for the windows of restored cells becomes columns."""
    patch.setattr(Columns, "_note_cells", lambda *_: None)


def fire_columns_when_timers_have_fired(patch: Patch) -> None:
    """Columns whose window ends with a timer, or after it, are gone with those before."""
    pop_due = ColumnWindows.pop_due
    patch.setattr(
        ColumnWindows, "pop_due", lambda kept, until_us: pop_due(kept, until_us + 10_000_000)
    )


def relieve_without_cells(patch: Patch) -> None:
    """What has no room is let go."""
    into_cells = Columns._into_cells

    def broken(windows: Columns, released: Any, *args: Any) -> Any:
        return into_cells(windows, [(noted, []) for noted, _ in released], *args)

    patch.setattr(Columns, "_into_cells", broken)


def keep_what_has_ended(patch: Patch) -> None:
    """What is late becomes columns, and a window fires a second time."""
    kept = Columns._kept
    patch.setattr(
        Columns,
        "_kept",
        lambda windows, owner, partials, _: kept(windows, owner, partials, -1 << 62),
    )


@pytest.mark.parametrize(
    "mutate",
    [
        spill_no_timers,
        keep_what_is_spilled,
        restore_partials_in_place_of_others,
        fire_before_all_is_there,
        spill_cells_alone,
        add_to_cells_alone,
        believe_that_restored_cells_are_alone,
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
