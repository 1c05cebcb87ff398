"""Results of the cases of scale as tables, and the page that has these tables."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks import pages
from benchmarks.scale.faults import LIMITS_S, NAMES
from benchmarks.scale.runs import BACKLOG, KEYS, LATENCY, RECOVERY
from benchmarks.tables import Result, is_good, markdown

PAGE = pages.ROOT / "docs" / "scale.md"

_PERCENTILES = ("p50", "p95", "p99", "p100")
#: What distinguishes each row of a table of medians.
_ROWS = {
    LATENCY: ("rate", "ranges", "workers", "keys"),
    KEYS: ("keys", "value_bytes", "cache_mb"),
    BACKLOG: ("size", "variant"),
    RECOVERY: ("rate", "fault", "bound_ms"),
}
_MB = 1e6


def sections(results: Sequence[Result]) -> dict[str, str]:
    """Each table for which there are results, by its title."""
    found = {
        "Latency": latency_table(results),
        "Keys": keys_table(results),
        "Backlog": backlog_table(results),
        "Recovery": recovery_table(results),
    }
    return {title: table for title, table in found.items() if table}


def write(results: Sequence[Result]) -> None:
    """Put tables and machine into the page; a table for which there are no results stays as it is."""
    parts = {**sections(results), "Machine": pages.machines(results)}
    PAGE.write_text(pages.filled_in(PAGE.read_text("utf-8"), parts), "utf-8")


def in_a_line(result: Result) -> str:
    """The most important figures of a run, in a line."""
    shown = ("p50", "p99", "first_s", "again_s", "seconds", "silent_s", "recovered_s")
    figures = [f"{name} {round(result[name], 2)}" for name in shown if result.get(name) is not None]
    return ", ".join([*figures, str(result["check"])])


def latency_table(results: Sequence[Result]) -> str:
    """Milliseconds from a record's creation to the commit of its row; of several runs the medians."""
    rows = []
    for amounts, runs in _grouped(results, LATENCY):
        figures = [_median(runs, name, "{:,.1f}") for name in _PERCENTILES]
        rows.append([*(f"{amount:,}" for amount in amounts), *figures, _checks(runs)])
    header = ["Records a second", "Ranges", "Workers", "Keys", "Median", "95 %", "99 %", "Most"]
    return markdown([*header, "Answer"], "", rows, last="l", numbers_first=True)


def keys_table(results: Sequence[Result]) -> str:
    """What many keys take, by how much of their state may be in memory."""
    rows = []
    for (keys, value_bytes, cache_mb), runs in _grouped(results, KEYS):
        rows.append(
            [
                f"{keys:,}",
                f"{value_bytes:,}",
                "all" if cache_mb < 0 else f"{cache_mb:,} MiB",
                _rate(runs, keys, "first_s"),
                _rate(runs, keys, "again_s"),
                _rate(runs, keys, "end_s"),
                "-" if cache_mb < 0 else _median(runs, "cache_bytes", "{:,.0f}", _MB),
                _median(runs, "worker_bytes", "{:,.0f}", _MB),
                _median(runs, "store_bytes", "{:,.0f}", _MB),
                _checks(runs),
            ]
        )
    header = [
        "Keys",
        "Bytes a visit",
        "In memory, each worker",
        "First visits a second",
        "Second visits a second",
        "Panes a second at the end",
        "State in memory, MB",
        "A worker, MB",
        "Store, MB",
        "Answer",
    ]
    return markdown(header, "", rows, last="l", numbers_first=True)


def backlog_table(results: Sequence[Result]) -> str:
    """How fast a day is worked off, and what was late."""
    rows = []
    for (size, variant), runs in _grouped(results, BACKLOG):
        rows.append(
            [
                variant,
                f"{size:,}",
                _median(runs, "seconds", "{:,.1f}"),
                _rate(runs, size, "seconds"),
                _median(runs, "panes", "{:,.0f}"),
                _median(runs, "late", "{:,.0f}"),
                _median(runs, "dropped", "{:,.0f}"),
                _checks(runs),
            ]
        )
    header = ["As", "Records", "Seconds", "A second", "Panes", "Of them late", "Records dropped"]
    return markdown([*header, "Answer"], "l", rows, last="l")


def recovery_table(results: Sequence[Result]) -> str:
    """How long a fault affects the output."""
    rows = []
    for (rate, fault, bound_ms), runs in _grouped(results, RECOVERY):
        rows.append(
            [
                NAMES[fault],
                f"{rate:,}",
                _median(runs, "before_ms", "{:,.0f}"),
                _median(runs, "server_s", "{:.1f}"),
                _median(runs, "silent_s", "{:.1f}"),
                f"{_median(runs, 'recovered_s', '{:.1f}')} ({bound_ms:,.0f} ms)",
                _median(runs, "most_ms", "{:,.0f}"),
                f"{LIMITS_S[fault]:.0f}",
                _checks(runs),
            ]
        )
    header = [
        "Fault",
        "Records a second",
        "95 % before, ms",
        "Postgres away for, s",
        "No commit for, s",
        "Back within the bound after, s",
        "Longest latency, ms",
        "Limit, s",
        "Answer",
    ]
    return markdown(header, "l", rows, last="l")


def _grouped(results: Sequence[Result], case: str) -> list[tuple[tuple[Any, ...], list[Result]]]:
    found: dict[tuple[Any, ...], list[Result]] = {}
    for each in results:
        if each["case"] == case:
            found.setdefault(tuple(each[name] for name in _ROWS[case]), []).append(each)
    return list(found.items())


def _values(runs: Sequence[Result], name: str) -> list[float]:
    return [each[name] for each in runs if is_good(each) and each.get(name) is not None]


def _median(runs: Sequence[Result], name: str, text: str, unit: float = 1.0) -> str:
    found = _values(runs, name)
    return text.format(median(found) / unit) if found else "-"


def _rate(runs: Sequence[Result], count: int, name: str) -> str:
    found = [seconds for seconds in _values(runs, name) if seconds]
    return f"{count / median(found):,.0f}" if found else "-"


def _checks(runs: Sequence[Result]) -> str:
    return "; ".join(sorted({str(each["check"]) for each in runs}))
