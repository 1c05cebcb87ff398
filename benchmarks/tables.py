"""Results as tables: ratios first, because a time holds on one machine only.

A ratio compares two runs that were made one after the other, so what else the machine did disturbs both.  Below 1 ours
is better: it took less time, processors or memory.
"""

import os
import platform
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import psutil

from benchmarks.latency import PERCENTILES
from benchmarks.nexmark import CASES as NEXMARK
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers.registry import OURS, PEERS
from benchmarks.reference import OK

Result = dict[str, Any]
_MEASURES = ("seconds", "cpu_s", "rss_mb")


def machine(flush_ms: float | None = None) -> str:
    """The machine on which the figures were measured, in a line."""
    memory_gib = psutil.virtual_memory().total / (1 << 30)
    load = os.getloadavg()[0]
    words = (
        f"{os.cpu_count()} cores of {_processor()}, {memory_gib:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}; load when it began: {load:.1f}"
    )
    return words if flush_ms is None else f"{words}; a page is on disk in {flush_ms:.2f} ms"


def ratio_text(ratios: Sequence[float]) -> str:
    """The median, and the least and the most where there are several: ``0.52 (0.49-0.60)``."""
    if not ratios:
        return "-"
    middle = f"{median(ratios):.2f}"
    if len(ratios) == 1:
        return middle
    return f"{middle} ({min(ratios):.2f}-{max(ratios):.2f})"


def is_good(result: Result) -> bool:
    """Whether the run came to an end and its answer was right."""
    return str(result["check"]).startswith(OK)


def ratios(
    results: Iterable[Result], mine: str, theirs: str, case: str, size: int
) -> dict[str, list[float]]:
    """The ratios of each measure, run by run, where both programs have a good run."""
    runs = {
        (each["peer"], each["rep"]): each
        for each in results
        if each["case"] == case and each["size"] == size and is_good(each)
    }
    found: dict[str, list[float]] = {measure: [] for measure in _MEASURES}
    for peer, rep in sorted(runs):
        if peer == mine and (theirs, rep) in runs:
            for measure in _MEASURES:
                other = runs[theirs, rep].get(measure)
                if other and runs[mine, rep].get(measure) is not None:
                    found[measure].append(runs[mine, rep][measure] / other)
    return found


def latency_ratios(
    results: Iterable[Result], mine: str, theirs: str, rate: int
) -> dict[int, list[float]]:
    """The ratios of each percentile in S2, run by run, where both programs have a good run; weak ones are left out."""
    runs = {
        (each["peer"], each["rep"]): each
        for each in results
        if each["case"] == "S2" and each["rate"] == rate and not each["variant"] and is_good(each)
    }
    return {
        percent: [
            each[f"p{percent}"] / runs[theirs, rep][f"p{percent}"]
            for (peer, rep), each in sorted(runs.items())
            if peer == mine and (theirs, rep) in runs
        ]
        for percent in PERCENTILES
    }


def ratio_table(results: Sequence[Result]) -> str:
    """Ours beside each peer, case by case; empty without both."""
    rows = []
    for case, size in _amounts(results, "size"):
        names = _names(results, case)
        for mine in (name for name in names if name in OURS):
            for theirs in (name for name in names if name not in OURS):
                found = ratios(results, mine, theirs, case, size)
                if found["seconds"]:
                    rows.append(
                        [case, f"{size:,}", mine, theirs]
                        + [ratio_text(found[measure]) for measure in _MEASURES]
                        + [str(len(found["seconds"]))]
                    )
    header = ["Case", "Records", "Ours", "Peer", "Time", "Processors", "Memory", "Pairs"]
    return markdown(header, "llll", rows)


def run_table(results: Sequence[Result]) -> str:
    """Tabulate the measurements of each run on this machine."""
    rows = []
    for case, size in _amounts(results, "size"):
        for name in _names(results, case):
            runs = [
                each
                for each in results
                if (each["case"], each["size"], each["peer"]) == (case, size, name)
            ]
            if not runs:
                continue
            good = [each for each in runs if is_good(each)]
            checks = sorted({str(each["check"]) for each in runs})
            figures = ["-", "-", "-", "-"]
            if good:
                seconds = median(each["seconds"] for each in good)
                figures = [
                    f"{seconds:.2f}",
                    f"{size / seconds:,.0f}",
                    f"{median(each['cpu_s'] for each in good):.1f}",
                    f"{median(each['rss_mb'] for each in good):,.0f}",
                ]
            rows.append([case, f"{size:,}", name, *figures, str(len(good)), "; ".join(checks)])
    header = ["Case", "Records", "Program", "Seconds", "A second", "CPU s", "MB", "Runs", "Answer"]
    return markdown(header, "lll", rows, last="l")


def nexmark_table(results: Sequence[Result]) -> str:
    """Nexmark, query by query: thousands of events in a second, and in a second of one core, of each program.

    One table for each number of events, with the programs that have read so many.  A cell has the medians of its good
    runs; what a program cannot say, or was not asked, is empty.
    """
    mine = [each for each in results if each["case"] in NEXMARK]
    found = []
    for size in dict.fromkeys(each["size"] for each in mine):
        of_size = [each for each in mine if each["size"] == size]
        names = list(dict.fromkeys(each["peer"] for each in of_size))
        rows = []
        for case in dict.fromkeys(each["case"] for each in of_size):
            of_case = [each for each in of_size if each["case"] == case]
            cells = [
                _nexmark_cell([each for each in of_case if each["peer"] == name]) for name in names
            ]
            rows.append([case, f"{size:,}", *cells])
        found.append(markdown(["Query", "Events", *names], "l", rows))
    return "\n\n".join(found)


def nexmark_latency_table(results: Sequence[Result]) -> str:
    """Milliseconds from when a row of a query is complete until it is committed; of several runs the medians."""
    rows = []
    for case, rate in _amounts(results, "rate"):
        if case not in NEXMARK_LATENCY:
            continue
        for name in _names(results, case):
            wanted = case, rate, name
            mine = [
                each for each in results if (each["case"], each["rate"], each["peer"]) == wanted
            ]
            counted = f"{median(each.get('rows', 0) for each in mine):,.0f}"
            figures = [_medians(mine, f"p{percent}") for percent in PERCENTILES]
            checks = sorted({str(each["check"]) for each in mine})
            query = NEXMARK_LATENCY[case].query.name
            rows.append(
                [query, f"{rate:,}", name, counted, *figures, str(len(mine)), "; ".join(checks)]
            )
    header = ["Query", "Events a second", "Program", "Rows", "Median", "95 %", "99 %", "Most"]
    return markdown([*header, "Runs", "Answer"], "lll", rows, last="l")


def _nexmark_cell(runs: Sequence[Result]) -> str:
    good = [each for each in runs if is_good(each)]
    if not good:
        return str(runs[0]["check"]).partition(":")[0] if runs else ""
    rates = [
        median(each["size"] / max(each[measure], 0.01) for each in good) / 1_000
        for measure in ("seconds", "cpu_s")
    ]
    return " / ".join(f"{rate:,.0f}" for rate in rates)


def latency_table(results: Sequence[Result]) -> str:
    """Milliseconds from creation to commit; of several runs the medians."""
    rows = []
    for case, rate in _amounts(results, "rate"):
        runs = [each for each in results if (each["case"], each["rate"]) == (case, rate)]
        if case != "S2":
            continue
        for name, variant in dict.fromkeys((each["peer"], each["variant"]) for each in runs):
            mine = [each for each in runs if (each["peer"], each["variant"]) == (name, variant)]
            checks = sorted({str(each["check"]) for each in mine})
            figures = [_medians(mine, f"p{percent}") for percent in PERCENTILES]
            rows.append(
                [
                    f"{rate:,}",
                    f"{name} {variant}".strip(),
                    *figures,
                    str(len(mine)),
                    "; ".join(checks),
                ]
            )
    header = ["Events a second", "Program", "Median", "95 %", "99 %", "Most", "Runs", "Answer"]
    return markdown(header, "ll", rows, last="l", numbers_first=True)


def latency_ratio_table(results: Sequence[Result]) -> str:
    """Ours beside each peer in S2, by percentiles; empty without both."""
    rows = []
    for case, rate in _amounts(results, "rate"):
        for theirs in _names(results, case) if case == "S2" else ():
            found = latency_ratios(results, "ours", theirs, rate)
            if theirs not in OURS and found[PERCENTILES[0]]:
                figures = [ratio_text(found[percent]) for percent in PERCENTILES]
                rows.append(
                    [f"{rate:,}", "ours", theirs, *figures, str(len(found[PERCENTILES[0]]))]
                )
    header = ["Events a second", "Ours", "Peer", "Median", "95 %", "99 %", "Most", "Pairs"]
    return markdown(header, "lll", rows, numbers_first=True)


def lag_table(results: Sequence[Result]) -> str:
    """Milliseconds that the watermark of each stage is behind the clock."""
    rows = []
    for each in results:
        if each["case"] == "LAG" and is_good(each):
            for stage, found in each["stages"].items():
                figures = [f"{found[f'p{percent}']:,.0f}" for percent in (50, 95, 99)]
                rows.append([f"{each['rate']:,}", stage, *figures])
    header = ["Events a second", "Stage", "Median", "95 %", "99 %"]
    return markdown(header, "ll", rows, numbers_first=True)


def notes(results: Sequence[Result]) -> str:
    """Notes about the programs in the results, one a line."""
    names = dict.fromkeys(each["peer"] for each in results)
    return "\n".join(f"* **{name}**: {PEERS[name].note}." for name in names)


def markdown(
    header: Sequence[str],
    left: str,
    rows: Sequence[Sequence[str]],
    *,
    last: str = "r",
    numbers_first: bool = False,
) -> str:
    """A table; as many columns as ``left`` is long are text, the others numbers; empty without rows."""
    if not rows:
        return ""
    is_text = [index < len(left) for index in range(len(header))]
    is_text[0] = not numbers_first
    is_text[-1] = is_text[-1] or last == "l"
    rule = ["---" if text else "---:" for text in is_text]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def _medians(runs: Sequence[Result], figure: str) -> str:
    found = [each[figure] for each in runs if figure in each]
    return f"{median(found):,.1f}" if found else "-"


def _amounts(results: Sequence[Result], kind: str) -> list[tuple[str, int]]:
    return list(dict.fromkeys((each["case"], each[kind]) for each in results if each[kind]))


def _names(results: Sequence[Result], case: str) -> list[str]:
    return list(dict.fromkeys(each["peer"] for each in results if each["case"] == case))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - one line of it
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
