"""How the windows of a grouping are kept open: by what an engine does with them, and by what the windows allow."""

from runners.core.open_windows.cells import Cells
from runners.core.open_windows.open_windows import OpenWindows
from runners.core.open_windows.replayed import Replayed
from runners.core.single_firing.single_panes import SinglePanes
from runners.core.stages.grouping import GroupingStage


def opened(stage: GroupingStage) -> Cells:
    """Open windows for any input, all of whose state is in cells and timers."""
    return Cells(stage, {})


def opened_until_all_is_there(stage: GroupingStage) -> OpenWindows:
    """Open windows that first take all of their input; then the watermark moves once, to the end of time."""
    panes = SinglePanes.of_replay(stage.graph, stage.root)
    return opened(stage) if panes is None else Replayed(stage, panes)
