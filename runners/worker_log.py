"""What user code logs in a worker, on the worker's stderr: with the worker, and the transform that was running.

Where executors are on the driver's machine that is the driver's terminal; elsewhere it is the log of the executor.
The level is INFO, or that of the variable DATAFLOW_LOG_LEVEL where the driver was started.
"""

import logging
import os
import sys
from typing import TextIO

from dataflow.errors import PipelineError
from dataflow.metric_updates import running

LEVEL_VARIABLE = "DATAFLOW_LOG_LEVEL"
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(dataflow_where)s] %(message)s"


class _WorkerHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """The one handler of this module in a process.

    Attributes:
        worker: changes with the task.
    """

    worker = ""

    @property
    def stream(self) -> TextIO:
        """The stderr of this moment: a process that serves several tasks may have been given another since."""
        return sys.stderr

    @stream.setter
    def stream(self, ignored: TextIO) -> None:
        """What the base class is given at its start is not kept."""

    def emit(self, record: logging.LogRecord) -> None:
        where = [f"transform {running().label!r}"] if running().label else []
        record.dataflow_where = ", ".join([*where, self.worker])
        super().emit(record)


def wanted_level() -> str:
    """The level that the user of this driver wants to see.

    Raises:
        PipelineError: the variable names no level.
    """
    given = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
    if given not in logging.getLevelNamesMapping():
        raise PipelineError(
            f"{LEVEL_VARIABLE} is no level of logging: {given!r}",
            hint="give DEBUG, INFO, WARNING, ERROR or CRITICAL",
        )
    return given


def log_as(worker: str, level: str) -> None:
    """Have this process log what is of ``level`` or above, as this worker; again for each task.

    Args:
        worker: the name that each line has.
        level: as `logging` names it.
    """
    root = logging.getLogger()
    handler = next((each for each in root.handlers if isinstance(each, _WorkerHandler)), None)
    if handler is None:
        handler = _WorkerHandler()
        handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
        root.addHandler(handler)
    handler.worker = worker
    root.setLevel(level)
