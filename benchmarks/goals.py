"""Goals of this project as ratios to programs that ran beside it, and which of them a run has met."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import attrs

from benchmarks import tables
from benchmarks.peers.registry import NEXMARK, NEXMARK_COLUMNS, PEERS
from benchmarks.reports import SOAK, TIMED
from benchmarks.tables import Result


@attrs.frozen
class Throughput:
    """A case takes at most so many times what a peer takes; `size`: of which it is wanted, None: of any."""

    case: str
    mine: str
    theirs: str
    most: float
    size: int | None = None
    is_least = False

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"{self.case}, {self.mine} by {self.theirs}"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        size = "" if self.size is None else f" --size {self.size}"
        return f'make bench CASE={self.case} ARGS="--peers {self.mine} {self.theirs}{size}"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the ratios of times, run by run, for each size that both programs have run."""
        for size in dict.fromkeys(each["size"] for each in results if each["case"] == self.case):
            if self.size not in (None, size):
                continue
            found = tables.ratios(results, self.mine, self.theirs, self.case, size)["seconds"]
            yield f"{self.case} of {size:,}, {self.mine} by {self.theirs}", found


@attrs.frozen
class Latency:
    """A percentile in S2 is at most so many times that of a peer, at every rate."""

    percent: int
    theirs: str
    most: float
    is_least = False

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"S2, ours by {self.theirs}, {self.percent} %"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f'make bench CASE=S2 ARGS="--peers ours {self.theirs} --rate 1000 10000 30000"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the ratios of the percentile, run by run, for each rate that both programs have run."""
        for rate in dict.fromkeys(each["rate"] for each in results if each["case"] == "S2"):
            found = tables.latency_ratios(results, "ours", self.theirs, rate)[self.percent]
            yield f"S2 at {rate:,} a second, ours by {self.theirs}, {self.percent} %", found


@attrs.frozen
class Milliseconds:
    """A percentile in S2 of one of our programs is at most so many milliseconds, at a rate."""

    mine: str
    rate: int
    percent: int
    most: float
    is_least = False

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"S2 at {self.rate:,} a second, {self.mine}, {self.percent} %, milliseconds"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f'make bench CASE=S2 ARGS="--peers {self.mine} --rate {self.rate}"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the milliseconds, run by run."""
        wanted = "S2", self.mine, self.rate, ""
        found = [
            each[f"p{self.percent}"]
            for each in results
            if tuple(map(each.get, ("case", "peer", "rate", "variant"))) == wanted
            and tables.is_good(each)
        ]
        yield self.title, found


@attrs.frozen
class Lag:
    """The median of what each stage adds to the lag of the watermark is at most so many milliseconds."""

    rate: int
    most: float
    is_least = False

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"LAG at {self.rate:,} a second, milliseconds that a stage adds, at most"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f'make bench CASE=LAG ARGS="--peers ours --rate {self.rate}"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the most that a stage adds, in milliseconds, run by run."""
        found = []
        for each in results:
            if each["case"] == "LAG" and each["rate"] == self.rate and tables.is_good(each):
                lags = sorted([0.0, *(stage["p50"] for stage in each["stages"].values())])
                found.append(max(after - before for before, after in pairwise(lags)))
        yield self.title, found


@attrs.frozen
class Seconds:
    """A case of a size takes at most so many seconds: what is fixed of a job, and not of its records."""

    case: str
    mine: str
    size: int
    most: float
    is_least = False

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"{self.case} of {self.size:,}, {self.mine}, seconds"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f'make bench CASE={self.case} ARGS="--peers {self.mine} --size {self.size}"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the seconds, run by run."""
        wanted = self.case, self.mine, self.size
        found = [
            each["seconds"]
            for each in results
            if (each["case"], each.get("peer"), each.get("size")) == wanted and tables.is_good(each)
        ]
        yield self.title, found


@attrs.frozen
class PerCore:
    """A program handles at least so many thousand records of a case in a second of one core."""

    case: str
    mine: str
    most: float
    is_least = True

    @property
    def title(self) -> str:
        """The title of its row in the table of goals."""
        return f"{self.case}, {self.mine}, thousands a second and core"

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f'make bench CASE={self.case} ARGS="--peers {self.mine}"'

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the thousands, run by run, for each size."""
        mine = [each for each in results if (each["case"], each["peer"]) == (self.case, self.mine)]
        for size in dict.fromkeys(each["size"] for each in mine):
            found = [
                size / each["cpu_s"] / 1_000
                for each in mine
                if each["size"] == size and tables.is_good(each) and each["cpu_s"]
            ]
            yield f"{self.case} of {size:,}, {self.mine}, thousands a second and core", found


@attrs.frozen
class Recorded:
    """A figure that another program has recorded is within a bound.

    Attributes:
        case: of its results.
        field: of these, that has the figure.
        bound: that it must keep.
        is_least: whether it must be at least that, and not at most.
        title: what it is.
        command: what measures it.
    """

    case: str
    field: str
    bound: float
    title: str
    command: str
    is_least: bool = False

    @property
    def most(self) -> float:
        """The bound."""
        return self.bound

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield the title and the figures, run by run."""
        found = [
            float(each[self.field])
            for each in results
            if each["case"] == self.case and tables.is_good(each)
        ]
        yield self.title, found


#: Results of `benchmarks.stream_under_snapshot`.
SNAPSHOT = "SNAPSHOT"
_SNAPSHOT_COMMAND = "python -m benchmarks.stream_under_snapshot --results FILE"

_SOAK_COMMAND = 'make soak ARGS="--write-docs"'

Goal = Throughput | Latency | Milliseconds | Lag | Seconds | PerCore | Recorded

GOALS: tuple[Goal, ...] = (
    Recorded(
        SNAPSHOT,
        "rows",
        0.9,
        "S2 with a snapshot held by S2 without, rows a second",
        _SNAPSHOT_COMMAND,
        is_least=True,
    ),
    Recorded(
        SNAPSHOT, "p99", 2.0, "S2 with a snapshot held by S2 without, 99 %", _SNAPSHOT_COMMAND
    ),
    *(Latency(percent, "floor", 1.5) for percent in (50, 99)),
    Milliseconds("ours-columns", 100_000, 99, 20.0),
    Lag(10_000, 20.0),
    Throughput("S1", "ours", "spark-native", 1.0),
    Throughput("S1", "ours", "flink-sql", 1.0),
    *(Throughput(case, "ours", "spark-rdd", 0.6) for case in ("B2", "B3", "B4", "B5")),
    *(Throughput(case, "ours-columns", "polars", 1.5, 5_000_000) for case in ("B2", "B3", "B4")),
    Seconds("B1", "ours-columns", 1_000_000, 0.7),
    Recorded(SOAK, "minutes", 60, "the soak, minutes", _SOAK_COMMAND, is_least=True),
    Recorded(SOAK, "faulty", 0, "the soak, what has grown or is wrong", _SOAK_COMMAND),
    *(
        Recorded(
            TIMED[target],
            "seconds",
            most,
            f"make {target}, seconds",
            f"python -m benchmarks.check_times {target} --write-docs",
        )
        for target, most in (("check", 60), ("test", 900))
    ),
)


#: Of Nexmark, whose tables have a page of their own: the faster of our programs is compared.
NEXMARK_GOALS: tuple[Goal, ...] = (
    *(PerCore(query, "ours-columns", 50.0) for query in ("q4", "q5", "q7", "q8", "q11")),
    *(
        Throughput(query, "ours-columns" if query in NEXMARK_COLUMNS else "ours", "flink-sql", 1.0)
        for query in PEERS["flink-sql"].cases
        if query in NEXMARK
    ),
)


def table(results: Sequence[Result], wanted: Sequence[Goal] = GOALS) -> str:
    """Each goal: the bound, the median, and whether it is met; or what measures it.  Empty if there are no runs at all.

    Args:
        results: of all runs.
        wanted: the goals.
    """
    rows = []
    for goal in wanted:
        measured = [(title, found) for title, found in goal.measured(results) if found]
        bound = f"{'at least' if goal.is_least else 'at most'} {goal.most:g}"
        for title, found in measured:
            middle = median(found)
            is_met = middle >= goal.most if goal.is_least else middle <= goal.most
            outcome = "met" if is_met else "not met"
            rows.append([title, bound, tables.ratio_text(found), str(len(found)), outcome])
        if not measured and results:
            rows.append([goal.title, bound, "-", "0", f"not measured: `{goal.command}`"])
    header = ["Goal", "Bound", "Measured", "Runs", "Outcome"]
    return tables.markdown(header, "l", rows, last="l")
