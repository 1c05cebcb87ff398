"""Progress of long work, on stderr: a bar on a terminal, else a plain line now and then.

Standard output is never touched: it belongs to the user's program.  `rich` is imported where something is shown: a
program that shows nothing starts 25 ms earlier.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from runners.core.ground.clock import Clock
from runners.log_format import is_json, json_line
from runners.system_clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

#: Between two plain lines.
LINE_INTERVAL_MS = 5_000


def print_line(text: str, *, console: Console | None = None) -> None:
    """One plain line.

    Args:
        text: one line.
        console: None: stderr.
    """
    if console is None and is_json():
        print(json_line("dataflow.progress", logging.INFO, text), file=sys.stderr)  # noqa: T201 - it talks to a terminal
        return
    (console or _stderr()).print(text, markup=False, highlight=False, soft_wrap=True)


class ProgressDisplay:
    """How far something is; a context manager, used by one thread.

    Args:
        title: what is being done.
        unit: what is counted, in the plural.
        show: False: nothing is printed.
        console: where to; stderr by default.
        clock: for the time between two lines.
    """

    def __init__(
        self,
        title: str,
        *,
        unit: str,
        show: bool = True,
        console: Console | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._title, self._unit, self._show = title, unit, show
        self._console = console
        self._clock = clock or SystemClock()
        self._bar: RichProgress | None = None
        self._last_line_ms = 0

    def __enter__(self) -> Self:
        """Show the bar, or start to wait for the first line."""
        self._last_line_ms = self._clock.monotonic_ms()
        if self._show and not (self._console is None and is_json()):
            self._console = self._console or _stderr()
            if self._console.is_terminal:
                self._bar = _bar(self._console, self._unit)
                self._bar.add_task(self._title, total=None, note="")
                self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it; finding out how far something is need not be done for nobody."""
        return self._show

    def update(self, *, done: int, total: int | None = None, note: str = "") -> None:
        """Say how far it is: ``done`` of ``total`` (None: nobody knows), and at what.

        Args:
            done: how much is.
            total: of how much; None: that is not known.
            note: shown behind the numbers.
        """
        if self._bar is not None:
            (task_id,) = self._bar.task_ids
            self._bar.update(task_id, completed=done, total=total, note=note)
        elif self._show:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._last_line_ms >= LINE_INTERVAL_MS:
                self._last_line_ms = now_ms
                print_line(_line(self._title, done, total, self._unit, note), console=self._console)


def _stderr() -> Console:
    from rich.console import Console  # noqa: PLC0415 - as at the top

    return Console(stderr=True)


def _bar(console: Console, unit: str) -> RichProgress:
    from rich.progress import (  # noqa: PLC0415 - as at the top
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        transient=True,
        # What the user's code prints belongs to its own stream.
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _line(title: str, done: int, total: int | None, unit: str, note: str) -> str:
    far = f"{done}" if total is None else f"{done} of {total}"
    return f"{title}: {far} {unit}" + (f", {note}" if note else "")
