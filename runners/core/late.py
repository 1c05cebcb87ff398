"""Late records as people see them: one shape for every runner."""

from collections.abc import Mapping
from typing import Any

from runners.core.cells import LateArrival


def late_mapping(transform: str, arrival: LateArrival) -> Mapping[str, Any]:
    """A late arrival as a mapping: transform, key, window_start_us, window_end_us, watermark_us, payload, count."""
    return {
        "transform": transform,
        "key": repr(arrival.key),
        "window_start_us": arrival.window.start_us,
        "window_end_us": arrival.window.end_us,
        "watermark_us": arrival.watermark_us,
        "payload": arrival.accumulator,
        "count": arrival.count,
    }
