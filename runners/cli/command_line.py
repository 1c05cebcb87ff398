"""The command line ``dataflow``: run pipelines, look at jobs in a store, send signals to them, and ask for something.

Answers go to stdout, errors to stderr.  Exit status: 0; 2 when what was asked for cannot be done; 130 when interrupted.

**Invariant:** nothing that it prints contains the password of a connection string, wherever on the line it was given.
Nothing is unpickled but by ``run`` and ``replay``, which run functions of the user's, and by ``why --pipeline``.
"""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from typing import Any, NoReturn

from dataflow import distribution
from dataflow.errors import DataflowError
from dataflow.interruption import EXIT_STATUS
from dataflow.times import ago
from runners.cli.advise import add_command as add_advise_command
from runners.cli.bundle import add_command as add_bundle_command
from runners.cli.check import add_command as add_check_command
from runners.cli.counted import add_command as add_metrics_command
from runners.cli.init import add_command as add_init_command
from runners.cli.kept import add_commands as add_kept_commands
from runners.cli.rows import add_command as add_explain_command
from runners.cli.rows import add_plot_command
from runners.cli.run import add_command as add_run_command
from runners.cli.tables import add_command as add_rows_command
from runners.cli.text import find_job, print_table, shown_backlog, shown_watermark
from runners.cli.top import add_command as add_top_command
from runners.cli.ui import add_commands as add_ui_commands
from runners.cli.waiting import add_command as add_sinks_command
from runners.cli.why import add_command as add_why_command
from runners.log_format import JSON, TEXT, checked_format, is_json, json_line, use_format
from runners.millwheel.control.asking import ANSWER_TIMEOUT_S, ranges_of, refused, wait_for_answer
from runners.millwheel.model import requests
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.store.port import JobSummary, Store
from runners.registry import STORE_VARIABLE, forget_job, open_store, store_dsn
from runners.system_clock import SystemClock
from windowing.timestamps import format_timestamp, to_timestamp_us

_EXAMPLES = """\
examples:
  dataflow init team_scores
  dataflow run scores:pipeline --runner streaming --job scores
  dataflow jobs
  dataflow check
  dataflow check scores --fresh-within 5s
  dataflow signal scores flush
  dataflow ranges scores
  dataflow sinks scores
  dataflow why scores --key red
  dataflow top scores
  dataflow bundle scores -o scores.zip
  dataflow troubles scores
  dataflow ui
  dataflow serve-metrics
  dataflow drain scores --wait
  dataflow metrics scores
  dataflow rows totals
  dataflow explain-row totals red,2013-01-01T12:00:00Z
  dataflow plot scores --key red --out red.svg
  dataflow late scores --contents
  dataflow purge scores --late 30d
  dataflow forget scores
"""
_STORE_HELP = (
    f"Postgres that is the store; by default ${STORE_VARIABLE}, which hides a password better than a command line, "
    "else the embedded Postgres of this machine"
)
#: A password in a URI, or as a keyword.
_SECRETS = re.compile(
    r"(://[^/@:\s]*:)(?!password@).*(?=@)|(\bpassword\s*=\s*)('.*'|[^\s&]+)", re.IGNORECASE
)
#: A person is waiting, and most often the server is simply not there.
_CONNECT_TIMEOUT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of a command line; returns the exit status."""
    asked = parser().parse_args(arguments)
    try:
        use_format(checked_format(getattr(asked, "log_format", None)))
        if asked.needs_store:
            dsn = store_dsn(asked.store)
            with closing(open_store(dsn, connect_timeout_s=_CONNECT_TIMEOUT_S)) as store:
                asked.do(store, asked)
        else:
            asked.do(asked)
        sys.stdout.flush()
    except DataflowError as error:
        _print_error(_without_secrets(str(error)))
        return 2
    except BrokenPipeError:
        # The reader has closed the pipe; Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interruption:
        if str(interruption):
            # A service is stopped so with each upgrade: nobody is to be called for it.
            _print_error(str(interruption), logging.WARNING)
        return EXIT_STATUS
    return 0


def _print_error(text: str, level: int = logging.ERROR) -> None:
    as_json = False
    with suppress(DataflowError):
        as_json = is_json()
    print(json_line("dataflow", level, text) if as_json else text, file=sys.stderr)


def send_signal(store: Store, asked: argparse.Namespace) -> None:
    """Send a signal to a job, and print its number.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and ``name``.
    """
    find_job(store, asked.job)
    number = store.send_signal(asked.job, asked.name)
    print(f"signal {number} of job {asked.job}: {asked.name}")


def show_jobs(store: Store, asked: argparse.Namespace) -> None:
    """Print a line for each job.

    Args:
        store: whose jobs are listed.
        asked: the parsed command line, with ``json``.
    """
    jobs = store.read_jobs()
    if asked.json:
        for job in jobs:
            print(json.dumps(_job_row(job)))
        return
    if not jobs:
        print("no jobs")
        return
    print_table(
        ("job", "mode", "state", "driver", "watermark", "lag", "ranges open", "listens to"),
        (
            (
                job.job,
                job.mode,
                _state(job),
                job.driver or "-",
                *shown_watermark(job.watermark_us, is_finished=job.is_finished),
                f"{job.open_ranges} of {job.ranges}",
                ", ".join(sorted(job.signals)) or "-",
            )
            for job in jobs
        ),
    )


def _job_row(job: JobSummary) -> dict[str, object]:
    return {
        "job": job.job,
        "mode": job.mode,
        "state": _state(job),
        "driver": job.driver,
        "watermark": None if job.watermark_us is None else format_timestamp(job.watermark_us),
        "open_ranges": job.open_ranges,
        "ranges": job.ranges,
        "signals": sorted(job.signals),
    }


def _state(job: JobSummary) -> str:
    if job.is_drained:
        return "drained"
    return "finished" if job.is_finished else "unfinished"


def forget(store: Store, asked: argparse.Namespace) -> None:
    """Forget a job, with the tables that are its own.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and ``yes``.
    """
    find_job(store, asked.job)
    tables = store.result_tables(asked.job)
    own = [table.name for table in tables if table.is_own and table.has_rows is not None]
    left = [table.name for table in tables if not table.is_own and table.has_rows is not None]
    if not asked.yes:
        raise DataflowError(
            f"job {asked.job} is not forgotten yet",
            detail=f"its state goes, and what it keeps of late records and dead letters; tables that are dropped: "
            f"{', '.join(own) or 'none'}; tables that stay as they are: {', '.join(left) or 'none'}",
            hint="say --yes",
        )
    forget_job(asked.job, store=asked.store)
    print(f"job {asked.job} is forgotten")
    for what, names in (("dropped", own), ("left as they are", left)):
        if names:
            print(f"tables {what}: {', '.join(names)}")


def show_troubles(store: Store, asked: argparse.Namespace) -> None:
    """Print why workers of a job have ended, and wait: how often, when, and the reasons.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``.
    """
    find_job(store, asked.job)
    troubles = store.read_troubles(asked.job)
    if not troubles:
        print(f"no worker of job {asked.job} is known to have ended or waited")
        return
    now_us = SystemClock().now_us()
    for each in troubles:
        first, last = (f"{at:%Y-%m-%d %H:%M:%S}" for at in (each.first_at, each.last_at))
        when = f"at {last}" if each.trouble.count == 1 else f"from {first} to {last}"
        age = ago(to_timestamp_us(each.last_at), now_us)
        print(_without_secrets(f"{when} UTC, {age}: {each.trouble}"))
        print()


def show_ranges(store: Store, asked: argparse.Namespace) -> None:
    """Print a line for each range of a job.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``.
    """
    find_job(store, asked.job)
    job, polls, now_us = (
        store.read_job(asked.job),
        store.read_polls(asked.job),
        SystemClock().now_us(),
    )
    print_table(
        (
            *("range", "first key hash", "last key hash", "worker", "watermark", "lag"),
            *("last poll", "last record", "backlog", "state"),
        ),
        (
            (
                each["range"],
                *(
                    "-" if each[name] is None else f"{each[name]:#018x}"
                    for name in ("first_hash", "last_hash")
                ),
                each["worker"] or "-",
                *shown_watermark(each["watermark_us"], is_finished=each["is_finished"]),
                *(
                    "-" if each[name] is None else ago(each[name], now_us)
                    for name in ("polled_us", "record_us")
                ),
                shown_backlog(each["backlog"]),
                _range_state(each),
            )
            for each in (ranges_of(job, polls) if job else ())
        ),
    )


def _range_state(fields: Mapping[str, Any]) -> str:
    if fields["handover_with"]:
        return f"in handover with {fields['handover_with']}"
    if fields["is_removed"]:
        return "removed" if fields["is_finished"] else "removed, not ended yet"
    return "finished" if fields["is_finished"] else "open"


def send_request(store: Store, asked: argparse.Namespace) -> None:
    """Send a request to a job; print the number of the request, or its outcome.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``, the verb and its arguments, and ``wait``.
    """
    find_job(store, asked.job)
    request: Request = asked.make(asked)
    number = store.send_request(asked.job, request)
    print(f"request {number} of job {asked.job}: {request}", flush=True)
    if not asked.wait:
        return
    # A drain has no time limit.
    timeout_s = None if request.verb is Verb.DRAIN else ANSWER_TIMEOUT_S
    answer = wait_for_answer(store, asked.job, number, timeout_s)
    if not answer.is_done:
        raise refused(asked.job, request, answer)
    print(answer.text)


def _without_secrets(text: str) -> str:
    return _SECRETS.sub(lambda found: f"{found[1] or found[2]}***", text)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors repeat the arguments without passwords."""

    def error(self, message: str) -> NoReturn:
        super().error(_without_secrets(message))


@cache
def parser() -> argparse.ArgumentParser:
    """The parser of all commands and their options, which is made once for each process."""
    parser = _Parser(
        prog="dataflow",
        description="Run pipelines, look at the jobs in a store, and send signals and requests to them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"{distribution.NAME} {distribution.VERSION}"
    )
    parser.set_defaults(needs_store=True)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    signal = _verb(
        verbs,
        "signal",
        "send a signal to every open window of a streaming job",
        "Triggers fire by it with df.AfterSignal(NAME). It is for the windows of all that the job has read by "
        "then, and each of them receives it once, even if workers die. A job that is not running receives it "
        "when it is run again.",
        "dataflow signal scores flush",
    )
    signal.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
    signal.add_argument("name", metavar="NAME", help="name of the signal")
    signal.set_defaults(do=send_signal)
    jobs = _verb(
        verbs,
        "jobs",
        "list the jobs in a store",
        "The watermark is the lowest that any range of the job has committed; its lag is by the clock of this machine. "
        "An unfinished job goes on when it is run again; it may be running now or not.",
        "dataflow jobs --store postgresql://me@db.example.org/flights",
    )
    jobs.add_argument("--json", action="store_true", help="print one JSON object per line")
    jobs.set_defaults(do=show_jobs)
    add_check_command(partial(_verb, verbs))
    add_init_command(partial(_verb, verbs))
    add_run_command(verbs)
    add_kept_commands(_with_job(verbs))
    add_metrics_command(_with_job(verbs))
    add_sinks_command(_with_job(verbs))
    add_rows_command(partial(_verb, verbs))
    add_explain_command(partial(_verb, verbs))
    add_plot_command(_with_job(verbs))
    add_why_command(_with_job(verbs))
    add_top_command(_with_job(verbs))
    add_advise_command(_with_job(verbs))
    add_bundle_command(_with_job(verbs))
    add_ui_commands(partial(_verb, verbs))
    _add_views(verbs)
    _add_requests(verbs)
    return parser


def _add_views(verbs: Any) -> None:
    """Add what shows or deletes a job, whether it runs or not."""
    troubles = _verb(
        verbs,
        "troubles",
        "show why workers of a job have ended, or wait",
        "Shows each of the latest reasons with its place, how often it occurred and when; the full text is "
        "in the log of the program that runs the job.",
        "dataflow troubles scores",
    )
    troubles.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
    troubles.set_defaults(do=show_troubles)
    ranges = _verb(
        verbs,
        "ranges",
        "list the ranges of a job: splits of its sources, and key ranges of its groupings",
        "Each has one worker; its watermark shows how far it has come. Of splits it shows when they were last asked "
        "for records and when they last had one, as of a second ago: one that was asked just now and had nothing is "
        "quiet, and of one that was asked long ago nobody knows what it has. "
        "A split that is removed was not in its input any more, and has ended where it had been read to. "
        "A range in handover with another one is being split or merged, and cannot be moved.",
        "dataflow ranges scores",
    )
    ranges.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
    ranges.set_defaults(do=show_ranges)
    forgotten = _verb(
        verbs,
        "forget",
        "delete a job from the store, and drop the result tables that are its own",
        "A table that another job writes to, or that was there before, stays as it is, with the job's rows. "
        "The job must not be running. Without --yes, only shows what would be deleted.",
        "dataflow forget scores --yes",
    )
    forgotten.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
    forgotten.add_argument(
        "--yes",
        action="store_true",
        help="delete it, instead of only showing what would be deleted",
    )
    forgotten.set_defaults(do=forget)


def _add_requests(verbs: Any) -> None:
    move = _request(
        verbs,
        Verb.MOVE,
        "move a range to another worker while the job is running",
        "dataflow move scores 'sum[0]' 1 --wait",
        lambda asked: requests.move(asked.range, asked.slot),
    )
    move.add_argument(
        "range", metavar="RANGE", help="name of the range, as `dataflow ranges` shows it"
    )
    move.add_argument(
        "slot", metavar="SLOT", type=int, help="slot of the worker; slots count from 0"
    )
    split = _request(
        verbs,
        Verb.SPLIT,
        "divide a key range while the job is running",
        "dataflow split scores 'sum[0]' 0x4000000000000000",
        lambda asked: requests.split(asked.range, asked.at),
    )
    split.add_argument(
        "range", metavar="RANGE", help="name of the range, as `dataflow ranges` shows it"
    )
    split.add_argument(
        "at",
        metavar="AT",
        nargs="?",
        type=lambda text: int(text, 0),
        help="first key hash of the new range, e.g. 0x4000000000000000; by default the one that halves the state",
    )
    merge = _request(
        verbs,
        Verb.MERGE,
        "merge a key range with its neighbour while the job is running",
        "dataflow merge scores 'sum[0]' 'sum[1]'",
        lambda asked: requests.merge(asked.range, asked.other),
    )
    merge.add_argument("range", metavar="RANGE", help="range that has all keys afterwards")
    merge.add_argument(
        "other", metavar="OTHER", help="its neighbour, which is deleted; of the same grouping"
    )
    _request(
        verbs,
        Verb.DRAIN,
        "end a job: its sources stop where they are, and every open window emits its last pane",
        "dataflow drain scores --wait",
        lambda _: Request(Verb.DRAIN),
    )
    _request(
        verbs,
        Verb.CANCEL,
        "stop a job where it is; running it again continues it",
        "dataflow cancel scores --wait",
        lambda _: Request(Verb.CANCEL),
    )


def _request(
    verbs: Any,
    verb: Verb,
    what: str,
    example: str,
    make: Callable[[argparse.Namespace], Request],
) -> argparse.ArgumentParser:
    carried_out = (
        "A job that is not running does so when it is run again."
        if verb in (Verb.DRAIN, Verb.CANCEL)
        else "If the program that runs the job ends before that, the answer is that it has gone."
    )
    # As text: argparse shows the names of a mistaken choice as Python would.
    parser = _verb(verbs, verb.value, what, carried_out, example)
    parser.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
    parser.add_argument(
        "--wait", action="store_true", help="wait until it is done or refused, and print the answer"
    )
    parser.set_defaults(do=send_request, make=make)
    return parser


def _with_job(verbs: Any) -> Callable[[str, str, str, str], argparse.ArgumentParser]:
    """Adds commands that are about one job."""

    def add(name: str, what: str, more: str, example: str) -> argparse.ArgumentParser:
        parser = _verb(verbs, name, what, more, example)
        parser.add_argument("job", metavar="JOB", help="name of the job, as given to the runner")
        return parser

    return add


def _verb(verbs: Any, name: str, what: str, more: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. {more}",
        epilog=f"example: {example}",
    )
    parser.add_argument("--store", metavar="DSN", help=_STORE_HELP)
    parser.add_argument(
        "--log-format",
        choices=(TEXT, JSON),
        help="of what is written to stderr: text, or json for one object a line; by default $DATAFLOW_LOG_FORMAT, else "
        "text",
    )
    return parser
