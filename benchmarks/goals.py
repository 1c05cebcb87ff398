"""Goals of this project as ratios to programs that ran beside it, and which of them a run has met."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import attrs

from benchmarks import tables
from benchmarks.tables import Result


@attrs.frozen
class Throughput:
    """A case takes at most so many times what a peer takes."""

    case: str
    mine: str
    theirs: str
    most: float

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the ratios of times, run by run, for each size that both programs have run."""
        for size in dict.fromkeys(each["size"] for each in results if each["case"] == self.case):
            found = tables.ratios(results, self.mine, self.theirs, self.case, size)["seconds"]
            yield f"{self.case} of {size:,}, {self.mine} by {self.theirs}", found


@attrs.frozen
class Latency:
    """A percentile in S2 is at most so many times that of a peer, at every rate."""

    percent: int
    theirs: str
    most: float

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the ratios of the percentile, run by run, for each rate that both programs have run."""
        for rate in dict.fromkeys(each["rate"] for each in results if each["case"] == "S2"):
            found = tables.latency_ratios(results, "ours", self.theirs, rate)[self.percent]
            yield f"S2 at {rate:,} a second, ours by {self.theirs}, {self.percent} %", found


@attrs.frozen
class Lag:
    """The median of what each stage adds to the lag of the watermark is at most so many milliseconds."""

    rate: int
    most: float

    def measured(self, results: Sequence[Result]) -> Iterator[tuple[str, list[float]]]:
        """Yield a title and the most that a stage adds, in milliseconds, run by run."""
        found = []
        for each in results:
            if each["case"] == "LAG" and each["rate"] == self.rate and tables.is_good(each):
                lags = sorted([0.0, *(stage["p50"] for stage in each["stages"].values())])
                found.append(max(after - before for before, after in pairwise(lags)))
        yield f"LAG at {self.rate:,} a second, milliseconds that a stage adds, at most", found


GOALS: tuple[Throughput | Latency | Lag, ...] = (
    *(Latency(percent, "floor", 1.5) for percent in (50, 99)),
    Lag(10_000, 20.0),
    Throughput("S1", "ours", "spark-native", 1.0),
    Throughput("S1", "ours", "flink-sql", 1.0),
    *(Throughput(case, "ours", "spark-rdd", 0.6) for case in ("B2", "B3", "B4", "B5")),
    *(Throughput(case, "ours-columns", "polars", 1.5) for case in ("B2", "B3", "B4")),
)


def table(results: Sequence[Result]) -> str:
    """Each goal for which there are runs: the bound, the median, and whether it is met; empty if there are none."""
    rows = []
    for goal in GOALS:
        for title, found in goal.measured(results):
            if found:
                is_met = median(found) <= goal.most
                figures = [f"{goal.most:g}", tables.ratio_text(found), str(len(found))]
                rows.append([title, *figures, "met" if is_met else "not met"])
    header = ["Goal", "At most", "Measured", "Runs", "Outcome"]
    return tables.markdown(header, "l", rows, last="l")
