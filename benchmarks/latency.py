"""Figures of a run of a case of latency, from its rows: percentiles, and whether every record is there."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import ceil

from benchmarks.reference import OK

#: The percentiles that are printed of a distribution.
PERCENTILES = (50, 95, 99, 100)

Line = tuple[int, int, int, int]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that so many percent do not exceed (nearest rank); of values in order, at least one."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Iterable[float]) -> dict[str, float]:
    """The percentiles by name, such as ``p50``; empty of no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{percent}": round(percentile(ordered, percent), 3) for percent in PERCENTILES}


def latencies_ms(lines: Iterable[Line], warm_up_s: float) -> list[float]:
    """Latencies of the lines (user, count, created, committed), without those created while the job warmed up."""
    found = list(lines)
    first_us = min(created_us for _, _, created_us, _ in found) + warm_up_s * 1_000_000
    return [
        (committed_us - created_us) / 1_000
        for _, _, created_us, committed_us in found
        if created_us >= first_us
    ]


def check_counts(lines: Iterable[Line], users: Iterable[int], *, has_all: bool) -> str:
    """``ok``, or what is wrong: each user's last count must be how many records it has had.

    ``has_all``: there must be a row for each record too, that is, the counts of a user are 1, 2, 3 and so on.
    """
    expected = Counter(users)
    counts: dict[int, list[int]] = defaultdict(list)
    for user, count, _, _ in lines:
        counts[user].append(count)
    if set(counts) != set(expected):
        return f"WRONG: {len(counts)} users, not {len(expected)}"
    for user, count in expected.items():
        right = list(range(1, count + 1)) if has_all else [count]
        emitted = sorted(counts[user]) if has_all else [max(counts[user])]
        if emitted != right:
            return f"WRONG: user {user} has the counts {emitted[:5]}..., and {count} records"
    return OK


def lag_by_stage(lines: Iterable[tuple[str, int]]) -> dict[str, dict[str, float]]:
    """Percentiles of the lag of each stage in milliseconds, from lines (stage, microseconds)."""
    by_stage: dict[str, list[float]] = defaultdict(list)
    for stage, lag_us in lines:
        by_stage[stage].append(lag_us / 1_000)
    return {stage: spread(lags) for stage, lags in by_stage.items()}
