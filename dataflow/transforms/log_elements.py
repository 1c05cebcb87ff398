"""LogElements: each element into the log, on its way."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import attrs

from dataflow.do_fn import DoFn
from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.transforms.par_do import Map
from dataflow.type_vars import T
from windowing.pane import PaneInfo
from windowing.window import Window

#: The logger that all of them write to.
LOGGER = logging.getLogger("dataflow.log_elements")


class LogElements(PTransform[Any, Any]):
    """Writes each element to the logger ``dataflow.log_elements`` where it is processed, and emits it unchanged.

    A bundle that is run again is logged again.  A retraction is logged like an element; put `ToChangelog` before it to
    see signs.

    Args:
        prefix: before each element.
        with_timestamp: whether the event time is shown.
        with_window: whether the window is shown.
        with_pane_info: whether the `PaneInfo` is shown.
        level: of the messages, as in `logging`.

    Raises:
        PipelineError: ``level`` is none, or ``prefix`` no text.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        with_timestamp: bool = False,
        with_window: bool = False,
        with_pane_info: bool = False,
        level: int = logging.INFO,
    ) -> None:
        if not isinstance(level, int) or isinstance(level, bool):
            raise PipelineError(
                f"LogElements has no such level: {level!r}", hint="e.g. logging.WARNING"
            )
        if not isinstance(prefix, str):
            raise PipelineError(f"LogElements needs a text as prefix, not {prefix!r}")
        self._logged = _Logged(
            prefix,
            level,
            with_timestamp=with_timestamp,
            with_window=with_window,
            with_pane_info=with_pane_info,
        )

    def expand(self, pcoll: PCollection[T]) -> PCollection[T]:
        """Map each element to itself."""
        return pcoll | "log" >> Map(self._logged)


@attrs.frozen
class _Logged:
    prefix: str
    level: int
    with_timestamp: bool = attrs.field(kw_only=True)
    with_window: bool = attrs.field(kw_only=True)
    with_pane_info: bool = attrs.field(kw_only=True)

    def __call__(
        self,
        element: Any,
        /,
        timestamp: datetime = DoFn.TimestampParam,
        window: Window = DoFn.WindowParam,
        pane: PaneInfo = DoFn.PaneParam,
    ) -> Any:
        if LOGGER.isEnabledFor(self.level):
            shown = [f"{self.prefix}{element!r}"]
            if self.with_timestamp:
                shown.append(f"timestamp={timestamp.isoformat()}")
            if self.with_window:
                shown.append(f"window={window}")
            if self.with_pane_info:
                shown.append(f"pane={pane}")
            LOGGER.log(self.level, "%s", ", ".join(shown))
        return element
