"""The input of `examples.zeitgeist`: search queries made from a seed, with spikes and dips planted on the last day.

Queries are distributed as Zipf has it, each with its own rhythm of the day; a few arrive much later than the others.
Each region writes a log file; the lines of a file are in the order of arrival.
"""

import json
import math
import random  # noqa: TID251 - seeded, and not part of a pipeline
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

START = datetime(2026, 3, 2, tzinfo=UTC)
DAYS = 3
END = START + timedelta(days=DAYS)
DAY = timedelta(days=1)
BUCKET = timedelta(minutes=10)
#: How far event times go back in a log, except for those that are late.
MAX_DISORDER = timedelta(minutes=10)
LATE_SHARE = 0.001
LATE_MAX = timedelta(hours=3)

#: By how many people ask for them; and the hour at which most do.
TERMS = {
    "weather": 8,
    "news": 9,
    "television listings": 20,
    "football": 21,
    "train times": 7,
    "recipes": 18,
    "translate": 14,
    "maps": 12,
    "cinema": 19,
    "solar eclipse": 13,
    "cat videos": 22,
    "island volcano": 15,
}
REGIONS = ("americas", "asia", "europe")
#: Of the most popular query in a bucket, on average over the day.
PER_BUCKET = 40


@attrs.frozen
class Planted:
    """Between two instants a query is asked for this many times as often."""

    query: str
    start: datetime
    end: datetime
    factor: float

    @property
    def kind(self) -> str:
        """``spike`` or ``dip``."""
        return "spike" if self.factor > 1 else "dip"


def _on_last_day(query: str, hour: int, minute: int, minutes: int, factor: float) -> Planted:
    start = END - DAY + timedelta(hours=hour, minutes=minute)
    return Planted(query, start, start + timedelta(minutes=minutes), factor)


PLANTED = (
    _on_last_day("weather", 6, 40, 80, 0.05),
    _on_last_day("solar eclipse", 11, 20, 40, 14),
    _on_last_day("island volcano", 13, 0, 30, 25),
    _on_last_day("cat videos", 16, 50, 20, 12),
    _on_last_day("television listings", 19, 10, 60, 0),
)


@attrs.frozen
class Query:
    """One search: what for, from where, when; and when the log has it."""

    text: str
    region: str
    time: datetime
    arrival: datetime


def queries(seed: int) -> Iterator[Query]:
    """All queries, in no order."""
    chance = random.Random(seed)  # noqa: S311 - it need not be unpredictable
    for rank, (text, peak_hour) in enumerate(TERMS.items(), 1):
        start = START
        while start < END:
            hour = (start - START) / timedelta(hours=1) % 24
            rhythm = 1 + 0.6 * math.cos((hour - peak_hour) / 24 * 2 * math.pi)
            expected = PER_BUCKET / rank * rhythm
            expected *= math.prod(
                each.factor
                for each in PLANTED
                if each.query == text and each.start <= start < each.end
            )
            for _ in range(_poisson(expected, chance)):
                time = start + chance.random() * BUCKET
                delay = min(chance.expovariate(60), 1.0) * MAX_DISORDER
                if chance.random() < LATE_SHARE:
                    delay = chance.uniform(0.2, 1) * LATE_MAX
                yield Query(text, chance.choice(REGIONS), time, time + delay)
            start += BUCKET


def write_logs(folder: Path, seed: int) -> Path:
    """A log for each region, as JSON lines; the pattern that they match."""
    logs: dict[str, list[Query]] = defaultdict(list)
    for query in queries(seed):
        logs[query.region].append(query)
    for region, log in logs.items():
        log.sort(key=lambda query: query.arrival)
        lines = [
            json.dumps({"time": each.time.isoformat(), "query": each.text, "region": region})
            for each in log
        ]
        (folder / f"{region}.jsonl").write_text("\n".join([*lines, ""]), "utf-8")
    return folder / "*.jsonl"


def _poisson(mean: float, chance: random.Random) -> int:
    """Knuth's way, in parts so that nothing gets too small."""
    count, left = 0, mean
    while left > 0:
        limit, product = math.exp(-min(left, 30)), chance.random()
        while product > limit:
            count += 1
            product *= chance.random()
        left -= 30
    return count
