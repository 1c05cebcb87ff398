"""The command line of `examples.flight_delays`: run one job, or two and compare them.

Results go to stdout, progress and errors to stderr.
Exit status: 0; 1 when two runs differ; 2 when what was asked for cannot be done; 130 when
interrupted.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import attrs
from rich.console import Console

import dataflow as df
from examples.flight_delays import TableNames, build
from examples.flight_report import first_differences, print_report
from examples.flights_data import flights_csv

_BACKFILL_THEN_LIVE = "backfill-then-live"

_EXAMPLES = """\
examples:
  {program} --demo
  {program} --runner batch --month 2
  {program} --runner streaming --month 1 --rate 1000 --fresh
  {program} --compare --month 1
  {program} --backfill-then-live
"""


@attrs.frozen(kw_only=True)
class Run:
    """A job that has ended."""

    job: str
    runner: str
    tables: TableNames
    result: df.PipelineResult
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs that the command line names; returns the exit status."""
    asked = _parser().parse_args(arguments)
    # So that Spark and the embedded Postgres are stopped as at any other exit.
    signal.signal(signal.SIGTERM, _terminate)
    out = Console()
    try:
        if asked.demo:
            return demo(asked, out)
        if asked.compare:
            return compare(asked, out)
        if asked.backfill_then_live:
            return backfill_then_live(asked, out)
        return run_one(asked, out)
    except df.DataflowError as error:
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt as interruption:
        again = ", without --fresh" if getattr(asked, "fresh", False) else ""
        print(f"\n{interruption or 'interrupted'}{again}", file=sys.stderr)
        return 130


def _terminate(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def run_one(asked: argparse.Namespace, out: Console) -> int:
    """Run one job and show what it left."""
    source = flights_csv(asked.month)
    run = _run(asked, asked.runner, source, out)
    _report(run, source, out, is_whole=asked.fresh or asked.runner == "direct")
    if asked.runner != "direct":
        _print_where_the_rows_are(asked, [run.tables], out)
    return 0


def compare(asked: argparse.Namespace, out: Console) -> int:
    """Finish both jobs where they are unfinished, and report whether they left the same rows."""
    batch, stream = (
        _run(asked, runner, flights_csv(asked.month), out) for runner in ("batch", "streaming")
    )
    return _verdict(batch, stream, out)


def backfill_then_live(asked: argparse.Namespace, out: Console) -> int:
    """Run one job as a backfill and then live, and one batch over everything, and compare: they leave the same rows."""
    source = flights_csv(asked.month)
    runs = []
    for runner in ("batch", _BACKFILL_THEN_LIVE):
        out.rule(f"[bold]{runner}[/]", align="left", style="dim")
        runs.append(_run(asked, runner, source, out))
        _report(runs[-1], source, out, is_whole=asked.fresh, is_short=True)
    out.rule("[bold]the same?[/]", align="left", style="dim")
    batch, live = runs
    return _verdict(batch, live, out)


def demo(asked: argparse.Namespace, out: Console) -> int:
    """Run one month in batch and as a stream, both from the start, and compare them."""
    asked.month, asked.fresh = asked.month or 1, True
    source = flights_csv(asked.month)
    out.print(
        f"[bold]The flights that left New York in month {asked.month} of 2013, twice:[/] first in "
        "batch, the whole file at once; then as a stream, in the order in which the flights "
        "really left, so that late ones come late.\n"
        "It is the same pipeline, so it must leave the same rows.\n",
        highlight=False,
    )
    runs = []
    for runner in ("batch", "streaming"):
        out.rule(f"[bold]{runner}[/]", align="left", style="dim")
        runs.append(_run(asked, runner, source, out))
        _report(runs[-1], source, out, is_whole=True, is_short=runner == "streaming")
    out.rule("[bold]the same?[/]", align="left", style="dim")
    batch, stream = runs
    status = _verdict(batch, stream, out)
    if status == 0:
        out.print()
        _print_where_the_rows_are(asked, [batch.tables, stream.tables], out)
        _print_how_to_kill_it(asked.month, out)
    return status


def _verdict(batch: Run, stream: Run, out: Console) -> int:
    if first_differences("batch", _tables_of(batch), stream.runner, _tables_of(stream), out):
        out.print("[bold red]NOT identical:[/] the first rows that differ are above.")
        return 1
    out.print(
        f"[bold green]Identical:[/] batch and {stream.runner} left the same rows in all three tables."
    )
    return 0


def _run(asked: argparse.Namespace, runner: str, source: Path, out: Console) -> Run:
    is_pair = asked.demo or asked.compare or asked.backfill_then_live
    job = asked.job or f"flight-delays-{runner}" + (f"-{asked.month}" if asked.month else "")
    if asked.job and is_pair:
        job = f"{asked.job}-{runner}"
    tables = TableNames.with_suffix(_suffix(job))
    pipeline = df.Pipeline(runner=runner, **_options(asked, runner, job, is_pair=is_pair))
    build(pipeline, source, tables)
    if runner == _BACKFILL_THEN_LIVE or (runner == "streaming" and not is_pair):
        out.print(
            f"job {job}, process {os.getpid()}; to try a crash, type elsewhere: "
            f"kill -9 {os.getpid()}",
            highlight=False,
            soft_wrap=True,
        )
    started = time.perf_counter()
    result = pipeline.run()
    result.wait_until_finish()
    seconds = time.perf_counter() - started
    return Run(job=job, runner=runner, tables=tables, result=result, seconds=seconds)


def _options(asked: argparse.Namespace, runner: str, job: str, *, is_pair: bool) -> dict[str, Any]:
    """Options for the runner; the runner refuses, by name, an option that it does not know."""
    options: dict[str, Any] = {}
    if runner != "direct":
        options["job"] = job
    if runner == _BACKFILL_THEN_LIVE:
        options["until"] = _until(asked)
    given = {"store": asked.store, "fresh": asked.fresh or None}
    if runner != "batch" or not is_pair:
        given |= {"workers": asked.workers, "records_per_second": asked.rate}
    options |= {name: value for name, value in given.items() if value is not None}
    if is_pair:
        # One Spark for both, with room for every worker.
        threads = max(asked.workers or 2, os.cpu_count() or 1)
        options["master"] = f"local[{threads},4]"
    return options


def _until(asked: argparse.Namespace) -> datetime:
    """Where the backfill ends."""
    if asked.until is not None:
        until: datetime = asked.until
        return until
    return datetime(2013, asked.month or 12, 21 if asked.month else 1, tzinfo=UTC)


def _instant(text: str) -> datetime:
    try:
        return df.instant(text, time_zone="UTC")
    except df.TimeError as error:
        raise argparse.ArgumentTypeError(f"{error.fact}") from None


def _suffix(job: str) -> str:
    """The suffix of the job's tables: the name of the job, as far as SQL allows it without quotes."""
    return re.sub(r"[^a-z0-9]+", "_", job.removeprefix("flight-delays-").lower()).strip("_")


def _tables_of(run: Run) -> dict[str, Sequence[Any]]:
    plain = TableNames()
    return {
        plain.hours: run.result.read_table(run.tables.hours),
        plain.sessions: run.result.read_table(run.tables.sessions),
        plain.dead_letters: run.result.read_table(run.tables.dead_letters),
    }


def _report(
    run: Run, source: Path, out: Console, *, is_whole: bool, is_short: bool = False
) -> None:
    print_report(_tables_of(run), len(run.result.late_records()), out, is_short=is_short)
    with source.open("rb") as file:
        records = sum(1 for _ in file) - 1
    took = f"{records:,} flights in {run.seconds:.1f} s"
    if not is_whole:
        took = f"{run.seconds:.1f} s for what was left to do of {records:,} flights"
    else:
        took += f", {records / run.seconds:,.0f} records/s"
        took += "" if is_short else ", the start of the runner included"
    out.print(took + "\n", highlight=False)


def _print_where_the_rows_are(
    asked: argparse.Namespace, names: Sequence[TableNames], out: Console
) -> None:
    out.print("The rows are in:", highlight=False)
    for tables in names:
        out.print(f"  {', '.join(attrs.astuple(tables))}", highlight=False, soft_wrap=True)
    dsn = asked.store or os.environ.get("DATAFLOW_STORE")
    if dsn:
        out.print(
            "Look at them with psql, for example: "
            f"table {names[-1].hours} order by mean_delay desc nulls last limit 10;",
            highlight=False,
            soft_wrap=True,
        )
    else:
        out.print(
            "of the Postgres that came with this package; it stops when nobody uses it.\n"
            "To have them in your own, where psql can see them: --store postgresql://...",
            highlight=False,
            soft_wrap=True,
        )


def _print_how_to_kill_it(month: int, out: Console) -> None:
    out.print(
        "\n[bold]Now kill it:[/] "
        "start a slow stream, kill it with -9 as it says, run it again, compare.\n"
        f"  {_program()} --runner streaming --month {month} --rate 1000 --fresh\n"
        f"  {_program()} --runner streaming --month {month}\n"
        f"  {_program()} --compare --month {month}",
        highlight=False,
        soft_wrap=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_program(),
        description="How late flights leave, and what each aircraft did in a day; New York, 2013.",
        epilog=_EXAMPLES.format(program=_program()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--runner", default="direct", help="direct (the default: in memory), batch, or streaming"
    )
    what.add_argument(
        "--demo",
        action="store_true",
        help="one month in batch and then as a stream, both from the start, and compare",
    )
    what.add_argument(
        "--compare",
        action="store_true",
        help="the same without starting over: finish what is unfinished, and compare",
    )
    what.add_argument(
        "--backfill-then-live",
        action="store_true",
        help="run a backfill in batch, then go on as a stream; compare with one batch over everything",
    )
    parser.add_argument(
        "--until",
        type=_instant,
        metavar="INSTANT",
        help="where the backfill ends, e.g. 2013-06-01, in UTC if it names no zone; by default in December, of one "
        "--month on its 21st",
    )
    parser.add_argument(
        "--month", type=int, metavar="N", help="1 to 12; without it the whole year (--demo: 1)"
    )
    parser.add_argument(
        "--store",
        metavar="DSN",
        help="a Postgres; by default $DATAFLOW_STORE, else one that comes with this package",
    )
    parser.add_argument(
        "--job", metavar="NAME", help="of the job and its tables; by default by runner and month"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget the job and its tables, and start over"
    )
    parser.add_argument(
        "--rate", type=float, metavar="RECORDS_PER_SECOND", help="slow the stream down to this"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="of the stream; by default 2")
    return parser


def _program() -> str:
    """This program as it is typed here: the Python by its name where it is active, else by its path."""
    python = Path(sys.executable)
    if shutil.which("python") == str(python):
        return "python -m examples.flight_delays"
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return f"{python} -m examples.flight_delays"
