"""How the windows of a grouping are kept open: by what an engine does with them, and by what the windows allow."""

from collections.abc import Callable, Iterable
from typing import Any

from runners.core.ground.cells import CellId
from runners.core.open_windows.buffered import Buffered
from runners.core.open_windows.cells import Cells
from runners.core.open_windows.open_windows import OpenWindows
from runners.core.open_windows.replayed import Replayed
from runners.core.open_windows.stream_cells import StreamCells
from runners.core.open_windows.stream_windows import StreamWindows
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.grouping import GroupingStage


def opened(stage: GroupingStage, cells: dict[CellId, Any] | None = None) -> Cells:
    """Open windows for any input, all of whose state is in cells and timers.

    Args:
        stage: the grouping.
        cells: the cells, by their ids; the engine's.  None: new ones.
    """
    return Cells(stage, {} if cells is None else cells)


def opened_for_stream(
    stage: GroupingStage,
    cells: dict[CellId, Any],
    need: Callable[[Iterable[CellId]], None],
    bytes_max: int | None,
) -> StreamWindows:
    """Open windows that take input and fire in turns, and have owners that come and go.

    Args:
        stage: the grouping.
        cells: by their ids; the engine's.
        need: called before a step uses cells, to bring those into ``cells`` that are not there.
        bytes_max: how many bytes may be kept beside cells between two steps; None: as many as there are.
    """
    panes = SinglePanes.of_stream(stage.graph, stage.root)
    if panes is None:
        return StreamCells(stage, cells, need)
    return Buffered(stage, panes, cells, need, bytes_max)


def opened_until_all_is_there(
    stage: GroupingStage, cells: dict[CellId, Any] | None = None
) -> OpenWindows:
    """Open windows that first take all of their input; then the watermark moves once, to the end of time.

    Args:
        stage: the grouping.
        cells: as for `opened`, where there are cells.
    """
    panes = SinglePanes.of_replay(stage.graph, stage.root, is_of_slices=stage.is_of_slices)
    return opened(stage, cells) if panes is None else Replayed(stage, panes)
