"""The oracle: what a grouping must emit, computed from all arrivals by sorting and regrouping.

Independent on purpose: it imports nothing of the SDK, keeps no incremental state, and knows no
triggers, timers or panes.  Times are plain integers, days are pendulum's.
Dataflow Model, section 2; ADR 0003.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import pendulum

#: The end of time, as a plain number: no window ends after it.
END_OF_TIME_US = 253_402_300_799_999_999
_BEGINNING_OF_TIME_US = -62_135_596_800_000_000


class Record(NamedTuple):
    """One element: ``value`` is unique in a stream, so that every record can be followed."""

    key: Hashable
    value: int
    timestamp_us: int


class Arrivals(NamedTuple):
    """Records that arrive together, and the watermark that is reported after them."""

    records: tuple[Record, ...]
    watermark_us: int


class Windowing(NamedTuple):
    """How windows are assigned.

    ``kind`` is "fixed", "sliding", "sessions", "own gaps" (sessions with a gap for each record), "days", "span" (the
    one window from ``offset_us`` on) or "global"; ``size_us`` is a size or a gap.  ``percentile``: the watermark that
    triggers follow, which makes no difference to what the answer is.
    """

    kind: str
    size_us: int = 0
    offset_us: int = 0
    lateness_us: int = 0
    period_us: int = 0
    zone: str = ""
    percentile: float = 100


class Group(NamedTuple):
    """The records of one key and window."""

    key: Hashable
    start_us: int
    end_us: int
    records: tuple[Record, ...]

    @property
    def values(self) -> list[int]:
        """The values in order."""
        return sorted(record.value for record in self.records)


class Answer(NamedTuple):
    """The final groups, and the records that were too late for any."""

    groups: list[Group]
    dropped: list[Record]


def evaluate(windowing: Windowing, arrivals: Sequence[Arrivals]) -> Answer:
    """Group everything that arrived.

    A group is closed once the watermark has reached its end plus the allowed lateness.
    Records that arrive together are regrouped with all records of groups still open; a record is
    dropped only if its group then holds nothing but newcomers and would already be closed.
    """
    if windowing.kind == "sliding":
        return _evaluate_one_by_one(windowing, arrivals)
    closed: list[Group] = []
    still_open: list[Group] = []
    dropped: list[Record] = []
    watermark_us = _BEGINNING_OF_TIME_US
    for arrival in arrivals:
        kept = [record for group in still_open for record in group.records]
        known = set(kept)
        still_open = []
        for group in regroup(windowing, [*kept, *arrival.records]):
            is_gone = closes_us(windowing, group) <= watermark_us
            if is_gone and known.isdisjoint(group.records):
                dropped.extend(group.records)
            else:
                still_open.append(group)
        watermark_us = max(watermark_us, arrival.watermark_us)
        closed += [g for g in still_open if closes_us(windowing, g) <= watermark_us]
        still_open = [g for g in still_open if closes_us(windowing, g) > watermark_us]
    return Answer(closed + still_open, dropped)


def _evaluate_one_by_one(windowing: Windowing, arrivals: Sequence[Arrivals]) -> Answer:
    """Overlapping windows have nothing to do with each other: each is a stream of what is inside of it."""
    answer = Answer([], [])
    times_us = [record.timestamp_us for arrival in arrivals for record in arrival.records]
    for start_us in _starts_us(windowing, times_us):
        span = windowing._replace(kind="span", offset_us=start_us)
        inside = [
            arrival._replace(
                records=tuple(
                    record
                    for record in arrival.records
                    if start_us <= record.timestamp_us < start_us + windowing.size_us
                )
            )
            for arrival in arrivals
        ]
        groups, dropped = evaluate(span, inside)
        answer.groups.extend(groups)
        answer.dropped.extend(dropped)
    return answer


def _starts_us(windowing: Windowing, times_us: Sequence[int]) -> range:
    """The starts of all sliding windows that could contain one of the times, and of some that do not."""
    if not times_us:
        return range(0)
    before_us = (min(times_us) - windowing.size_us) // windowing.period_us * windowing.period_us
    return range(
        before_us - windowing.period_us + windowing.offset_us % windowing.period_us,
        max(times_us) + 1,
        windowing.period_us,
    )


def gap_us(windowing: Windowing, value: int) -> int:
    """The gap of a record where each has its own."""
    return windowing.size_us + value % 3 * 4


def closes_us(windowing: Windowing, group: Group) -> int:
    """The watermark at which a group is closed."""
    return min(group.end_us + windowing.lateness_us, END_OF_TIME_US)


def regroup(windowing: Windowing, records: Iterable[Record]) -> list[Group]:
    """The groups of records that all belong together in time: nothing is late here."""
    by_key: dict[Hashable, list[Record]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(record)
    cut = {
        "fixed": _fixed,
        "sliding": _sliding,
        "sessions": _sessions,
        "own gaps": _own_gaps,
        "days": _days,
        "span": _span,
        "global": _global,
    }[windowing.kind]
    return [group for key, those in by_key.items() for group in cut(windowing, key, those)]


def _fixed(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    by_number: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_number[(record.timestamp_us - windowing.offset_us) // windowing.size_us].append(record)
    return [
        Group(
            key,
            windowing.offset_us + number * windowing.size_us,
            windowing.offset_us + (number + 1) * windowing.size_us,
            tuple(those),
        )
        for number, those in by_number.items()
    ]


def _sliding(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    """Try every window on every record."""
    groups = []
    for start_us in _starts_us(windowing, [record.timestamp_us for record in records]):
        end_us = start_us + windowing.size_us
        inside = [record for record in records if start_us <= record.timestamp_us < end_us]
        if inside:
            groups.append(Group(key, start_us, end_us, tuple(inside)))
    return groups


def _days(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    """Group by the date that clocks in the zone show."""
    by_date: dict[pendulum.DateTime, list[Record]] = defaultdict(list)
    for record in records:
        moment = pendulum.from_timestamp(record.timestamp_us // 10**6, tz=windowing.zone)
        by_date[moment.start_of("day")].append(record)
    return [
        Group(
            key,
            int(day.timestamp()) * 10**6,
            int(day.add(days=1).start_of("day").timestamp()) * 10**6,
            tuple(those),
        )
        for day, those in by_date.items()
    ]


def _sessions(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    """Cut the sorted times wherever two neighbours are at least a gap apart."""
    in_order = sorted(records, key=lambda record: record.timestamp_us)
    cuts = [
        index
        for index in range(1, len(in_order))
        if in_order[index].timestamp_us - in_order[index - 1].timestamp_us >= windowing.size_us
    ]
    runs = [
        in_order[low:high] for low, high in zip([0, *cuts], [*cuts, len(in_order)], strict=True)
    ]
    return [
        Group(key, run[0].timestamp_us, run[-1].timestamp_us + windowing.size_us, tuple(run))
        for run in runs
    ]


def _own_gaps(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    """Join any two groups that overlap, until there are none."""
    groups = [
        Group(key, each.timestamp_us, each.timestamp_us + gap_us(windowing, each.value), (each,))
        for each in records
    ]
    while pair := next(
        (
            (a, b)
            for a, b in combinations(groups, 2)
            if max(a.start_us, b.start_us) < min(a.end_us, b.end_us)
        ),
        None,
    ):
        a, b = pair
        groups = [group for group in groups if group not in pair]
        start_us, end_us = min(a.start_us, b.start_us), max(a.end_us, b.end_us)
        groups.append(Group(key, start_us, end_us, a.records + b.records))
    return groups


def _span(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    end_us = windowing.offset_us + windowing.size_us
    return [Group(key, windowing.offset_us, end_us, tuple(records))]


def _global(windowing: Windowing, key: Hashable, records: list[Record]) -> list[Group]:
    return [Group(key, _BEGINNING_OF_TIME_US, END_OF_TIME_US, tuple(records))]
