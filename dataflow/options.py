"""PipelineOptions: what can be said of a run beside the pipeline: typed, from code, the environment or a command line.

The constructors of the runners have the options, with their meanings and defaults; here are their names and types, so
that `df.Pipeline` is checked by type checkers, and how each is read from text.  An option means the same on every
runner that has it (`tests/unit/runners/test_options.py`).

What code gives wins; then comes the variable ``DATAFLOW_<OPTION>``, and then the runner's default.  The variables are
for all programs of a shell, so a runner ignores those that it has no option for.
"""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn, TypedDict, cast, get_type_hints

from dataflow.errors import PipelineError, TimeError
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us, to_timestamp_us

#: What the variables are called, before the option in capitals.
_PREFIX = "DATAFLOW_"
#: Read where a store is opened, so that commands which run nothing find the same one.
_READ_ELSEWHERE = frozenset(("store",))


class RunnerOptions(TypedDict, total=False):
    """Options of the runners; the constructor of each says which it has, and what they mean.

    Attributes:
        job: names the run.
        store: DSN of a Postgres.
        fresh: forget what the job has done, and begin anew.
        show_progress: on stderr.
        tries_per_record: how often a record may fail before it is a dead letter.
        step_timeout: how long user code may be at work on one step.
        log_level: what of that level or above user code logs is shown.
        log_format: of what is written to stderr; "text" or "json".
        trace_to: the collector that traces of bundles are sent to.
        trace_ratio: how much of the bundles is traced.
        check_types: check each element against the type that is known of it.
        workers: how many; of a stream.
        partitions: of a batch.
        until: the end of a backfill.
        lineage: how much is recorded of where rows come from; "panes" or "records".
    """

    job: str
    store: str | None
    fresh: bool
    show_progress: bool
    tries_per_record: int | None
    step_timeout: DurationLike | None
    log_level: str
    log_format: str | None
    trace_to: str | None
    trace_ratio: float | None
    check_types: bool
    bundle_records: int
    micro_batch: DurationLike | None
    master: str | None
    spark_settings: Mapping[str, str]
    code: Sequence[str]
    partitions: int | None
    spill_bytes: int
    until: TimestampLike | None
    workers: int
    skew_limit: DurationLike | None
    state_cache_bytes: int | None
    value_bytes_max: int
    balance: bool
    gather: bool
    evidence: bool
    show_keys: bool
    keep_late: DurationLike | None
    keep_dead: DurationLike | None
    keep_lineage: DurationLike | None
    records_per_second: float | None
    guarantees: Mapping[str, Any]
    update: Any
    lineage: str | None


class PipelineOptions(RunnerOptions, total=False):
    """All that `df.Pipeline` takes: ``df.Pipeline(**options)``.

    Attributes:
        runner: its name.
    """

    runner: str


def parse_options(arguments: Sequence[str] | None = None) -> tuple[PipelineOptions, list[str]]:
    """Options from a command line, and the arguments that are none, for a parser of the program's own.

    ``--runner streaming --job scores --workers 4 --fresh``: an underscore is a hyphen, and what is not given is not in
    the options.  Beam's counterpart is ``PipelineOptions(arguments)``::

        options, rest = df.parse_options()
        with df.Pipeline(**options) as p:
            ...

    Args:
        arguments: without the name of the program; None: those of this process.

    Raises:
        SystemExit: a value cannot be read; what is wrong is on stderr.
    """
    given, rest = options_parser().parse_known_args(
        sys.argv[1:] if arguments is None else arguments
    )
    return options_of(given), rest


def options_parser() -> argparse.ArgumentParser:
    """A parser of all options that can be written as text; also for ``parents`` of another."""
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("options of the pipeline, as its runner documents them")
    for name, kind in get_type_hints(PipelineOptions).items():
        flag = f"--{name.replace('_', '-')}"
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction)
        elif kind == Mapping[str, str]:
            group.add_argument(flag, action="append", type=_setting, metavar="NAME=VALUE")
        elif kind == Sequence[str]:
            group.add_argument(flag, action="append", metavar="PATH")
        elif kind in _READERS:
            read = _READERS[kind]
            group.add_argument(flag, type=_argument(read), metavar=_METAVARS.get(read, "TEXT"))
    return parser


def options_of(given: argparse.Namespace) -> PipelineOptions:
    """The options among what a parser with `options_parser` as its parent has found."""
    names = get_type_hints(PipelineOptions)
    options = {name: value for name, value in vars(given).items() if name in names}
    if "spark_settings" in options:
        options["spark_settings"] = dict(options["spark_settings"])
    return cast("PipelineOptions", options)


def runner_of_environment() -> str | None:
    """The name of the runner in ``DATAFLOW_RUNNER``; None: it is not set."""
    return os.environ.get(f"{_PREFIX}RUNNER") or None


def from_environment(names: Collection[str]) -> dict[str, Any]:
    """Options from the environment.

    Args:
        names: of the options that are wanted.

    Raises:
        PipelineError: the value of a variable cannot be read.
    """
    found = {}
    for name, kind in _kinds().items():
        variable = f"{_PREFIX}{name.upper()}"
        text = os.environ.get(variable)
        if not text or name not in names or name in _READ_ELSEWHERE or kind not in _READERS:
            continue
        try:
            found[name] = _READERS[kind](text)
        except ValueError as error:
            raise PipelineError(
                f"the environment variable {variable} cannot be read: {_fact(error)}",
                hint=f"set it to a value of the option {name}, or unset it",
            ) from None
    return found


@cache
def _kinds() -> Mapping[str, Any]:
    """The types of all options of runners."""
    return get_type_hints(RunnerOptions)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors do not begin with the thirty options that there are."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _is_true(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


def _whole_or_none(text: str) -> int | None:
    return None if text.lower() == "none" else _whole(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def _duration(text: str) -> str:
    to_duration_us(text)
    return text


def _instant(text: str) -> str:
    to_timestamp_us(text)
    return text


#: How a value of each type is read from text; an option of another type can be given in code alone.
_READERS: Mapping[object, Callable[[str], object]] = {
    str: str,
    str | None: str,
    bool: _is_true,
    int: _whole,
    int | None: _whole_or_none,
    float | None: _number,
    DurationLike | None: _duration,
    TimestampLike | None: _instant,
}
_METAVARS: Mapping[Callable[[str], object], str] = {
    _whole: "N",
    _whole_or_none: "N",
    _number: "NUMBER",
    _duration: "DURATION",
    _instant: "INSTANT",
}


def _argument(read: Callable[[str], object]) -> Callable[[str], object]:
    """A reader for argparse, which shows the text of an `ArgumentTypeError` alone."""

    def read_argument(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(_fact(error)) from None

    return read_argument


def _fact(error: ValueError) -> str:
    return error.fact if isinstance(error, TimeError) else str(error)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, value
