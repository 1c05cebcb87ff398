"""The port to engines: what a runner is given and what it gives back.

The SDK finds runners by name through the entry-point group ``dataflow.runners`` and imports none of them.
"""

import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph

_GROUP = "dataflow.runners"


class PipelineResult(Protocol):
    """A run that has ended, or is under way."""

    def wait_until_finish(self) -> None:
        """Block until every element is processed; raises what made the run fail."""

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table as mappings, in no particular order."""

    def send_signal(self, name: str) -> None:
        """Have every window that is open hear a signal, if its trigger waits for it (`df.AfterSignal`).

        Returns when the signal is sure to be heard, exactly once by each window; of what the job has read by then.
        """

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records dropped because their window was gone: transform, key, window, watermark, payload, count."""


class Runner(Protocol):
    """An engine."""

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Check everything that can be checked, then run the pipeline."""


def create_runner(name: str, **options: Any) -> Runner:
    """The runner of that name, with its own options.

    Raises:
        PipelineError: there is no runner of that name, or it does not take one of the options.
    """
    known = {entry.name: entry for entry in entry_points(group=_GROUP)}
    if name not in known:
        raise PipelineError(
            f"there is no runner {name!r}",
            detail=f"installed runners: {', '.join(sorted(known)) or 'none'}",
            hint="use one of these; if the list is empty, install the package (pip install -e .)",
        )
    runner_class = known[name].load()
    try:
        runner: Runner = runner_class(**options)
    except TypeError as error:
        raise PipelineError(
            f"runner {name!r} cannot be made with the options {sorted(options)}",
            detail=str(error),
            hint=f"options of this runner: {', '.join(inspect.signature(runner_class).parameters)}",
        ) from error
    return runner
