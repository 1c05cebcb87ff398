"""Late records in the form in which users see them, which is the same for every runner."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dataflow.do_fn import TimestampedValue
from dataflow.typed_keys import emitted_key
from runners.core.ground.cells import LateArrival
from runners.core.ground.element_text import shown
from windowing.timestamps import to_datetime


def late_mapping(transform: str, arrival: LateArrival) -> Mapping[str, Any]:
    """A late arrival as a mapping; `dataflow.runner.PipelineResult.late_records` describes what is in it.

    Args:
        transform: the label of the grouping.
        arrival: the late arrival.
    """
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
    """The text that a store keeps of a late arrival for people, who unpickle nothing."""
    record = arrival.record
    return shown(arrival.accumulator if record is None else record[0])


def count_by_transform(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The number of records for each transform, added up from pairs of a transform and a number."""
    totals: Counter[str] = Counter()
    for transform, count in counts:
        totals[transform] += count
    return dict(totals)


def late_contents(arrival: LateArrival) -> dict[str, Any]:
    """The record of a late arrival, with all that is needed to replay it."""
    record, element, sign = arrival.record, None, +1
    if record is not None:
        value, timestamp_us, sign = record
        plain = (emitted_key(arrival.key), value) if arrival.is_keyed else value
        element = TimestampedValue(plain, to_datetime(timestamp_us))
    return {"sign": sign, "payload": arrival.accumulator, "element": element}
