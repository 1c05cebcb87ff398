"""The right answers, worked out from the definitions with plain loops over the events; shares no code with any runner.

Sessions have two right answers: events exactly a gap apart are of two sessions by half-open windows, as here and in
Beam, and of one in Spark's `session_window`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.answers import Answer
from benchmarks.cases import GAP_MS, PERIOD_MS, WINDOW_MS, Case
from benchmarks.nexmark import NexmarkCase
from benchmarks.workloads import SEED, Event, events, lines_of_text

#: Of an answer that joins events exactly a gap apart.
INCLUSIVE_GAP = "ok (gap inclusive)"
OK = "ok"

Row = tuple[Any, ...]


def rows(
    case: Case | NexmarkCase, size: int, seed: int = SEED, *, is_gap_inclusive: bool = False
) -> list[Row]:
    """All rows of a case's answer."""
    if isinstance(case, NexmarkCase):
        return case.rows(size)
    if case.reads_text:
        counts = Counter(word for line in lines_of_text(size, seed) for word in line.split(" "))
        return list(counts.items())
    stream = events(size, seed)
    if case.name == "B1":
        tripled = [event.value * 3 for event in stream if event.value % 2 == 0]
        return [(len(tripled), sum(tripled))]
    if case.name == "B4":
        return list(_sessions(stream, GAP_MS + is_gap_inclusive))
    return _by_window(stream, PERIOD_MS if case.name == "B3" else WINDOW_MS)


def answers(
    case: Case | NexmarkCase, size: int, seed: int = SEED, kept_in: Path | None = None
) -> dict[str, Answer]:
    """The right answers of a case by name; kept in a folder, because they take seconds for millions of events."""
    found = {}
    kinds = {OK: False} | ({INCLUSIVE_GAP: True} if case.name == "B4" else {})
    for name, is_gap_inclusive in kinds.items():
        kept = (
            kept_in and kept_in / f"answer-{case.name}-{size}-{seed}-{int(is_gap_inclusive)}.json"
        )
        if kept and kept.exists():
            found[name] = Answer.from_json(kept.read_text("utf-8"))
            continue
        right = rows(case, size, seed, is_gap_inclusive=is_gap_inclusive)
        found[name] = Answer.of(case, right)
        if kept:
            kept.write_text(found[name].to_json(), "utf-8")
    return found


def check_answer(given: Answer, right: dict[str, Answer]) -> str:
    """Compare an answer: returns ``ok``, which of the right answers it is, or ``WRONG`` and the difference."""
    for name, answer in right.items():
        if given == answer:
            return name
    return f"WRONG: {given.difference(right[OK])}"


def _by_window(stream: Iterable[Event], period_ms: int) -> list[Row]:
    counts: Counter[tuple[int, int]] = Counter()
    sums: Counter[tuple[int, int]] = Counter()
    for user_id, event_ms, value in stream:
        last_ms = event_ms - event_ms % period_ms
        for start_ms in range(last_ms, last_ms - WINDOW_MS, -period_ms):
            counts[user_id, start_ms] += 1
            sums[user_id, start_ms] += value
    return [(*cell, count, sums[cell]) for cell, count in counts.items()]


def _sessions(stream: Iterable[Event], apart_ms: int) -> Iterator[Row]:
    for user_id, group in groupby(sorted(stream), key=itemgetter(0)):
        start_ms = end_ms = count = total = 0
        for _, event_ms, value in group:
            if count and event_ms - end_ms >= apart_ms:
                yield user_id, start_ms, end_ms + GAP_MS, count, total
                count = total = 0
            if not count:
                start_ms = event_ms
            end_ms, count, total = event_ms, count + 1, total + value
        yield user_id, start_ms, end_ms + GAP_MS, count, total
