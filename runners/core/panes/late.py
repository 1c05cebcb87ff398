"""Late records as people see them: one shape for every runner."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dataflow.do_fn import TimestampedValue
from runners.core.ground.cells import LateArrival
from runners.core.ground.element_text import shown
from windowing.timestamps import to_datetime


def late_mapping(transform: str, arrival: LateArrival) -> Mapping[str, Any]:
    """A late arrival as a mapping; `dataflow.runner.PipelineResult.late_records` says what is in it."""
    return {
        "transform": transform,
        "key": repr(arrival.key),
        "window_start_us": arrival.window.start_us,
        "window_end_us": arrival.window.end_us,
        "watermark_us": arrival.watermark_us,
        "count": arrival.count,
        **late_contents(arrival),
    }


def late_text(arrival: LateArrival) -> str:
    """What a store keeps of a late arrival for people, who unpickle nothing."""
    record = arrival.record
    return shown(arrival.accumulator if record is None else record[0])


def count_by_transform(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Pairs of a transform and a number of records, added up."""
    totals: Counter[str] = Counter()
    for transform, count in counts:
        totals[transform] += count
    return dict(totals)


def late_contents(arrival: LateArrival) -> dict[str, Any]:
    """The record of a late arrival: what may be replayed of it."""
    record, element, sign = arrival.record, None, +1
    if record is not None:
        value, timestamp_us, sign = record
        plain = (arrival.key, value) if arrival.is_keyed else value
        element = TimestampedValue(plain, to_datetime(timestamp_us))
    return {"sign": sign, "payload": arrival.accumulator, "element": element}
