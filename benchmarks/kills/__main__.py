"""Kill a small streaming count with SIGKILL, run it again, and count what its sink has lost, or has twice.

    python -m benchmarks.kills
    python -m benchmarks.kills --programs ours spark-files --kills 5 --write-docs

The same count by key and window with each program, over files that appear one after the other.  Everything that the
program has started is killed in the moment at which its sink has got new rows, which is the worst one for a sink that
is not part of the program's commit; then it is started again at once, as a supervisor would.  What it is to go on with
it has to have on disk, or in its database, which is not killed.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path

import attrs
import psutil

from benchmarks import environments, harness, pages
from benchmarks.kills import feed, sinks
from benchmarks.kills.feed import Settings
from benchmarks.kills.sinks import Reader, Verdict
from benchmarks.peers.registry import PEERS
from benchmarks.processes import family
from benchmarks.recording import recording
from benchmarks.stores import Server
from benchmarks.tables import Result
from dataflow.distribution import VERSION

PAGE = harness.ROOT / "docs" / "explanation" / "comparisons.md"
CASE, PART = "KILLS", "Kills"
_LOOK_S = 0.01
_LOG_TAIL_LINES = 15


@attrs.frozen(kw_only=True)
class Program:
    """A program that counts.

    Attributes:
        module: what is run.
        reads: reads its sink.
        title: what it is, with its version.
        promise: what its documentation promises of this sink.
        peer: whose environment it has, by its name; empty: this one.
        arguments: more of the command line.
        needs_store: whether it writes into a database.
        ahead_windows: so many files come before the sink has the rows of the first of them.
    """

    module: str
    reads: Reader
    title: str
    promise: str
    peer: str = ""
    arguments: Sequence[str] = ()
    needs_store: bool = False
    ahead_windows: int = 6


def _required(peer: str) -> str:
    return " ".join(PEERS[peer].requirements).replace("==", " ")


PROGRAMS: Mapping[str, Program] = {
    "ours": Program(
        module="ours",
        reads=sinks.of_table,
        title=f"this project {VERSION}, a table of its Postgres",
        promise="exactly once",
        needs_store=True,
    ),
    "spark-files": Program(
        module="spark",
        reads=sinks.of_log,
        arguments=("files",),
        title=f"Spark Structured Streaming {version('pyspark')}, file sink",
        promise="exactly once",
    ),
    "spark-foreach": Program(
        module="spark",
        reads=sinks.of_table,
        arguments=("foreach",),
        title=f"Spark Structured Streaming {version('pyspark')}, `foreachBatch` that appends to Postgres",
        promise="at least once",
        needs_store=True,
    ),
    "flink-sql": Program(
        module="flink_sql",
        reads=sinks.of_files,
        peer="flink-sql",
        title=f"Flink SQL ({_required('flink-sql')}), file sink",
        promise="exactly once",
        # Its source reads files that are there at once in any order, so that some of them would be late.
        ahead_windows=1,
    ),
    "bytewax": Program(
        module="bytewax_flow",
        reads=sinks.of_files,
        peer="bytewax",
        title=f"Bytewax ({_required('bytewax')}), file sink",
        promise="at least once; files go back to the snapshot",
    ),
    "pathway": Program(
        module="pathway_tables",
        reads=sinks.of_changes,
        peer="pathway",
        title=f"Pathway ({_required('pathway')}), file of changes",
        promise="at least once",
    ),
}


class Run:
    """One program, from its first start to the end of its input.

    Args:
        program: that runs.
        python: its interpreter.
        settings: with which it is started first.
    """

    def __init__(self, program: Program, python: str, settings: Settings) -> None:
        self.program, self._settings = program, settings
        module = f"benchmarks.kills.{program.module}"
        self._words = [python, "-m", module]
        self._process: subprocess.Popen[bytes] | None = None
        self.rows = 0

    def start(self) -> None:
        """Start it, as often as it is asked."""
        words = [*self._words, json.dumps(self._settings._asdict()), *self.program.arguments]
        with Path(self._settings.scratch, "log").open("ab") as log:
            self._process = subprocess.Popen(
                words,
                cwd=harness.ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(harness.ROOT)},
            )
        self._settings = self._settings._replace(attempt=self._settings.attempt + 1)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        process = self._process
        if process is None:
            return
        for each in family(process.pid):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._process = None

    def look(self) -> list[feed.Row]:
        """Look at the sink; raises `EndedError` where the program has ended by itself."""
        found = self.program.reads(self._settings)
        self.rows = len(found)
        if self._process is not None and self._process.poll() is not None:
            raise EndedError(self.log_tail())
        return found

    def log_tail(self) -> str:
        """The end of what it has printed."""
        log = Path(self._settings.scratch, "log").read_text("utf-8", "replace")
        return "\n".join(log.splitlines()[-_LOG_TAIL_LINES:])


class EndedError(Exception):
    """The program has ended by itself, or does not come to its end; the message has the end of its log."""


@attrs.frozen(kw_only=True)
class Plan:
    """How a program is tried.

    Attributes:
        windows: of the input.
        kills: how often it is killed.
        pause_s: from one file to the next, in seconds.
        timeout_s: how long the program may take for all of it, in seconds.
    """

    windows: int
    kills: int
    pause_s: float
    timeout_s: float

    def thresholds(self) -> list[int]:
        """How many rows the sink has to have before each kill."""
        rows = self.windows * feed.KEYS
        return [rows * number // (self.kills + 1) for number in range(1, self.kills + 1)]


def tried(run: Run, folder: Path, plan: Plan) -> tuple[Verdict, list[float]]:
    """Feed a program, kill it, and compare; with the seconds from each kill to the next new row of the sink."""
    feeding = _feeding(folder, plan, run)
    deadline_s = time.monotonic() + plan.timeout_s
    back_s: list[float] = []
    run.start()

    def reach(rows: int) -> None:
        while run.rows < rows:
            next(feeding)
            run.look()
            if time.monotonic() > deadline_s:
                raise EndedError(f"{run.rows} rows after {plan.timeout_s:.0f} s\n{run.log_tail()}")
            time.sleep(_LOOK_S)

    for threshold in plan.thresholds():
        reach(max(threshold, run.rows + 1))
        run.kill()
        killed_s = time.monotonic()
        # What was on its way to the sink may have come to it after it was looked at.
        run.rows = len(run.look())
        run.start()
        reach(run.rows + 1)
        back_s.append(time.monotonic() - killed_s)
    while not feed_is_over(run, plan):
        next(feeding)
        run.look()
        if time.monotonic() > deadline_s:
            break  # what is not there by then is lost
        time.sleep(_LOOK_S)
    # A row that is written again comes soon or never.
    _keep_looking(run, seconds=3.0)
    return sinks.verdict(feed.right_rows(plan.windows), run.look()), back_s


def feed_is_over(run: Run, plan: Plan) -> bool:
    """Whether the sink has a row of each key and window."""
    found = {(row.key, row.start_s) for row in run.look()}
    return found >= {(row.key, row.start_s) for row in feed.right_rows(plan.windows)}


def _keep_looking(run: Run, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        run.look()
        time.sleep(_LOOK_S)


def _feeding(folder: Path, plan: Plan, run: Run) -> Iterator[None]:
    """Have a file appear whenever it is due and the sink is not far behind: else all come at once, after a start."""
    next_s = time.monotonic()
    # The first has two windows, so that one of them ends with it.
    for window in range(1, plan.windows + 1):
        rows_first = (window - run.program.ahead_windows) * feed.KEYS
        while time.monotonic() < next_s or run.rows < rows_first:
            yield
        if window < plan.windows:
            feed.put_windows(folder, range(0 if window == 1 else window, window + 1))
        else:
            feed.put_end(folder, plan.windows)
        next_s = time.monotonic() + plan.pause_s
    while True:
        yield


@contextmanager
def _prepared(program: Program, server: Server) -> Iterator[Settings]:
    home = Path(tempfile.mkdtemp(prefix="dataflow-kills-"))
    places = {name: home / name for name in ("files", "rows", "scratch")}
    for place in places.values():
        place.mkdir()
    database = server.database("kills") if program.needs_store else nullcontext("")
    try:
        with database as dsn:
            yield Settings(
                **{name: str(place) for name, place in places.items()}, store=dsn, attempt=0
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measured(name: str, plan: Plan, server: Server, cache: Path) -> Result:
    """The result of one program."""
    program = PROGRAMS[name]
    result: Result = {"case": CASE, "rep": 0, "program": name, "kills": plan.kills}
    try:
        python = (
            environments.interpreter(PEERS[program.peer], cache) if program.peer else sys.executable
        )
    except environments.UnavailableError as error:
        return result | {"check": str(error)}
    with _prepared(program, server) as settings:
        run = Run(program, python, settings)
        try:
            verdict, back_s = tried(run, Path(settings.files), plan)
        except EndedError as error:
            print(error, flush=True)
            return result | {"check": f"FAILED: {str(error).partition(chr(10))[0]}"}
        finally:
            run.kill()
    return result | {"check": "ok", **attrs.asdict(verdict), "back_s": statistics.median(back_s)}


def table(results: Sequence[Result]) -> str:
    """The table of the page."""
    lines = [
        "| Program and sink | Promised | Kills | Records lost | Records twice | Rows again | Seconds to the next row |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in results:
        if each["case"] == pages.MACHINE:
            continue
        program = PROGRAMS[each["program"]]
        if each["check"] == "ok":
            figures = (
                f"{each['lost']:,} | {each['doubled']:,} | {each['rows_again']:,} "
                f"| {each['back_s']:.1f}"
            )
        else:
            figures = f"{each['check']} | | | "
        lines.append(f"| {program.title} | {program.promise} | {each['kills']} | {figures} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command line; the exit status is 1 where ours has lost or doubled something, or has failed."""
    parser = harness.parser(__doc__)
    harness.add_recording_options(parser, timeout_s=300, page=str(PAGE.relative_to(harness.ROOT)))
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--kills", type=int, default=3, help="of each program")
    parser.add_argument("--windows", type=int, default=60, help="of the input, one a file")
    parser.add_argument("--pause-s", type=float, default=0.25, help="from one file to the next")
    given = parser.parse_args()
    options = {"programs": given.programs, "kills": given.kills, "windows": given.windows}
    command = harness.command("benchmarks.kills", options | {"pause_s": given.pause_s})
    plan = Plan(
        windows=given.windows, kills=given.kills, pause_s=given.pause_s, timeout_s=given.timeout
    )
    with recording(given, "kills", command) as found:
        for name in given.programs:
            print(f"{name} ...", flush=True)
            found.note(measured(name, plan, found.server, given.cache / "environments"))
    shown = table(found.results)
    print(shown)
    if given.write_docs:
        parts = {PART: f"{pages.machines(found.results)}\n\n{shown}"}
        PAGE.write_text(pages.filled_in(PAGE.read_text("utf-8"), parts), "utf-8")
    ours = [each for each in found.results if each.get("program") == "ours"]
    return int(any(each["check"] != "ok" or each["lost"] or each["doubled"] for each in ours))


if __name__ == "__main__":
    sys.exit(main())
