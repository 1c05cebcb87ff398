"""The port to engines: what a runner gets and what it returns.

The SDK finds runners by name through the entry-point group ``dataflow.runners`` and imports none of them
(`dataflow.installed`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Protocol

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.installed import RUNNERS, installed
from dataflow.metrics import MetricResults
from dataflow.options import from_environment
from windowing.location import user_location
from windowing.timestamps import DurationLike, TimestampLike
from windowing.window import Window

#: A window, or an instant that is in it.
WindowLike = Window | TimestampLike


class PipelineState(StrEnum):
    """How far a run is."""

    #: It is under way.
    RUNNING = "running"
    #: Every element is processed.
    FINISHED = "finished"
    #: Sources ended where they were, because a drain was requested, and every window has emitted what it had.
    DRAINED = "drained"
    #: It was stopped on request; running it again continues it.
    CANCELLED = "cancelled"
    #: It was paused, with nothing on its way; running it again continues it.
    PAUSED = "paused"
    #: An error has ended it; `PipelineResult.wait_until_finish` raises it.
    FAILED = "failed"


class Explanation(Protocol):
    """An answer for people: ``print`` shows it."""

    def as_json(self) -> Mapping[str, Any]:
        """All of it as plain values, for JSON."""


class Picture(Protocol):
    """A picture, which notebooks show."""

    def to_svg(self) -> str:
        """The picture as SVG."""

    def save(self, path: str) -> None:
        """Write the picture to a file.

        Args:
            path: of the file, which usually ends in ``.svg``.
        """


class PipelineResult(Protocol):
    """A run that has ended, or is under way."""

    @property
    def state(self) -> PipelineState:
        """How far the run is now; never raises what made it fail."""

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Block until the run ends, and return how: not every run that ends has come to its end.

        Raises what made the run fail.  May be called again, as often as one likes.

        Args:
            timeout: how long to wait (`timedelta`, text, or seconds); the state is `PipelineState.RUNNING` if it is
                under way still.  None: until it ends.
        """

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table as mappings, in no particular order."""

    def send_signal(self, name: str) -> None:
        """Send a signal to every open window whose trigger waits for it (`df.AfterSignal`).

        Returns when it is certain that each window receives the signal, exactly once, with what the job has read by
        then.
        """

    def drain(self) -> None:
        """Have the sources end where they are, so that every open window emits what it has, and the run ends.

        Returns when that is certain to happen; raises where there is no stream that goes on by itself.
        """

    def cancel(self) -> None:
        """Stop now, if the run is under way; a run that can be continued is continued by running it again."""

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records dropped because their window was gone, oldest first, with these fields.

        Also those of a read with `RecordIds` that came when ids of their time were no longer kept.

        * ``transform``: the label of the grouping, or stateful DoFn, that they came to; or of the read;
        * ``key``: as text; of a read, the record's id;
        * ``window_start_us``, ``window_end_us``: the window that they missed, half-open; of a read, the instant of the
          record;
        * ``watermark_us``: where the watermark was when they came;
        * ``count``: how many they are, 1 unless the last field is None;
        * ``sign``: -1 if the record is a retraction, else +1;
        * ``payload``: as it would have gone into the grouping: the accumulator of a `CombineFn`, or a list of values;
        * ``element``: the record with its event time, a `TimestampedValue` of ``(key, value)``, ready for `Create`;
          of a read, of the value.
          None where several records were combined before they were late; then there is only the payload.
        """

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records that made user code fail whenever they were tried, or that could not be read, oldest first.

        Only where the runner is configured to keep them (``tries_per_record``); else the first failure ends the run.
        Each has these fields.

        * ``stage``: the label of the read, grouping or stateful DoFn whose record it is;
        * ``error``, ``traceback``: what failed, and the user's transform and line;
        * ``tries``: how often the record was tried alone;
        * ``timestamp_us``, ``window_start_us``, ``window_end_us``, ``sign``: of the record as it came into the stage;
        * ``element``: the record with its event time, a `TimestampedValue` ready for `Create`; None where it cannot
          be pickled, or could not be read;
        * ``text``: its ``repr``, shortened;
        * ``origin``: None, or where the record is, if it was set aside when a file was read: ``path``, ``line``
          (from 1), ``start_bytes``, ``end_bytes``, and ``raw``, the first 64 KiB of these bytes.
        """

    def explain_row(self, table: str, key: str) -> Explanation:
        """Explain where a row of a result table comes from: its pane, why that fired, and what it was made of.

        Only where the pipeline runs with ``lineage="panes"``, or ``"records"`` for the records too.

        Args:
            table: its name.
            key: the values of the columns of its key, with commas between them, or a JSON array of them.

        Raises:
            PipelineError: nothing is recorded of such a row.
        """

    def plot(self, key: Any, *, transform: str | None = None) -> Picture:
        """Draw the panes of a key as the Dataflow Model paper does: event time across, processing time up.

        Only where the pipeline runs with ``lineage="records"``; with ``"panes"`` the records are missing.

        Args:
            key: as elements have it.
            transform: the label of the grouping; None: the one that has the key.

        Raises:
            PipelineError: nothing is recorded of the key, or several groupings have it.
        """

    def late_counts(self) -> Mapping[str, int]:
        """How many records each transform has dropped as late; only transforms that have dropped any.

        Cheap, however many there are: the records themselves are not read.
        """

    def why(
        self,
        *,
        key: Any = None,
        window: WindowLike | None = None,
        transform: str | None = None,
    ) -> Explanation:
        """Why nothing has come out, or not of a key: a sentence, and the chain of what holds event time back.

        ``print`` it; ``as_json()`` has the same for programs.  At any time: it asks what there is, and changes nothing.

        Args:
            key: of a record; only then are keys shown.
            window: the window that has not fired, or an instant in it.  None: the first that has something.
            transform: a transform, or a table that is written.  None: the last that waits for something.

        Raises:
            DataflowError: there is no such transform; or no store, or job.
        """

    def metrics(self) -> MetricResults:
        """What user code has counted with `df.Metrics`, as far as it is durable: every effect exactly once.

        At any time: of a run that is under way, and of one that has ended; of a job that was run several times, updated
        or moved, from its beginning.  What failed or was run again does not count.
        """


class Runner(Protocol):
    """An engine."""

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Check everything that can be checked, then run the pipeline."""


def create_runner(name: str, **options: Any) -> Runner:
    """The runner of that name, with its own options.

    Args:
        name: as the package that has it registered it, e.g. ``"direct"``.
        **options: of its constructor; one that is not given is that of the environment, if it has it.

    Raises:
        PipelineError: there is no runner of that name, or it does not take one of the options.
    """
    runner_class = _runner_class(name)
    open_ones = inspect.signature(runner_class).parameters.keys() - options
    options = {**from_environment(open_ones), **options}
    _check_options(name, runner_class, options)
    return runner_class(**options)


def _runner_class(name: str) -> Callable[..., Runner]:
    known = installed(RUNNERS)
    if name not in known:
        meant = get_close_matches(name.lower().removesuffix("runner"), known, n=1)
        raise PipelineError(
            f"there is no runner {name!r} ({user_location()})",
            detail=f"installed runners: {', '.join(sorted(known)) or 'none'}",
            hint=f'did you mean df.Pipeline("{meant[0]}")?'
            if meant
            else "use one of these; on Spark, batch reads what is there, and streaming goes on without end"
            if known
            else "this package is not installed (pip install .)",
        )
    runner_class: Callable[..., Runner] = known[name].load()
    return runner_class


def _check_options(
    name: str, runner_class: Callable[..., Runner], options: Mapping[str, Any]
) -> None:
    parameters = inspect.signature(runner_class).parameters
    all_of_them = f"options of this runner: {', '.join(parameters)}"
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return  # it has checks of its own
    unknown = [each for each in options if each not in parameters]
    if unknown:
        meant = get_close_matches(unknown[0], parameters, 1)
        raise PipelineError(
            f"runner {name!r} does not have {_options(unknown)} ({user_location()})",
            detail=all_of_them,
            hint=f"did you mean {meant[0]}?" if meant else "leave it out",
        )
    required = [each.name for each in parameters.values() if each.default is each.empty]
    missing = [each for each in required if each not in options]
    if missing:
        example = ", ".join(f'{each}="a-name"' for each in missing)
        raise PipelineError(
            f"runner {name!r} needs {_options(missing)} ({user_location()})",
            detail=all_of_them,
            hint=f'df.Pipeline("{name}", {example}), or on a command line '
            + " ".join(f"--{each} a-name" for each in missing),
        )


def _options(names: Sequence[str]) -> str:
    return f"the option{'s' if len(names) > 1 else ''} {', '.join(names)}"
