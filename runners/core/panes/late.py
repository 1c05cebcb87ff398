"""Late records as people see them, and as a store keeps them: one shape for every runner."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dataflow.do_fn import TimestampedValue
from dataflow.serialization import dumps, loads
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
        **_contents(arrival),
    }


def late_payload(arrival: LateArrival) -> bytes:
    """What a store keeps of a late arrival beside its plain columns, so that it can be replayed."""
    return dumps(_contents(arrival))


def late_text(arrival: LateArrival) -> str:
    """What a store keeps of a late arrival for people, who unpickle nothing."""
    record = arrival.record
    return shown(arrival.accumulator if record is None else record[0])


def stored_late_mapping(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same mapping as `late_mapping`, of a row of a store."""
    # The one is for who deletes it, the other for who cannot unpickle it.
    kept = {name: value for name, value in row.items() if name not in ("number", "contents")}
    return {**kept, **loads(row["payload"])}


def count_by_transform(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Pairs of a transform and a number of records, added up."""
    totals: Counter[str] = Counter()
    for transform, count in counts:
        totals[transform] += count
    return dict(totals)


def _contents(arrival: LateArrival) -> dict[str, Any]:
    record, element, sign = arrival.record, None, +1
    if record is not None:
        value, timestamp_us, sign = record
        plain = (arrival.key, value) if arrival.is_keyed else value
        element = TimestampedValue(plain, to_datetime(timestamp_us))
    return {"sign": sign, "payload": arrival.accumulator, "element": element}
