"""What user code has counted as bytes: an entry for each commit that counts, and all entries together in one."""

from collections.abc import Sequence
from typing import Any

from dataflow.metric_updates import Metric, MetricKind, MetricOf, MetricValues, merged_metrics
from runners.stored.framing import frame, unframed

METRICS = "metrics"
#: A larger integer is stored as text.
_INTEGER_MAX = 1 << 62


def encode_metrics(values: MetricValues) -> bytes:
    """Metrics as bytes; what is no text in a name or a text is escaped."""
    return frame(
        METRICS,
        [
            [_text(step), kind.value, _text(namespace), _text(name), _written(kind, value)]
            for (step, (kind, namespace, name)), value in values.items()
        ],
    )


def decode_metrics(blob: bytes) -> MetricValues:
    """The inverse of `encode_metrics`.

    Raises:
        StoredFormatError: it is something else, or of a format that is not read.
    """
    (rows,) = unframed(METRICS, blob)
    return {
        MetricOf(step, Metric(MetricKind(kind), namespace, name)): _read(MetricKind(kind), value)
        for step, kind, namespace, name, value in rows
    }


def _written(kind: MetricKind, value: Any) -> Any:
    if kind is MetricKind.COUNTER:
        return _number(value)
    if kind is MetricKind.STRING_SET:
        return sorted(map(_text, value))
    return list(map(_number, value))


def _read(kind: MetricKind, value: Any) -> Any:
    if kind is MetricKind.COUNTER:
        return _number_of(value)
    if kind is MetricKind.STRING_SET:
        return frozenset(value)
    return tuple(map(_number_of, value))


def _number(value: Any) -> Any:
    is_small = isinstance(value, float) or -_INTEGER_MAX < value < _INTEGER_MAX
    return value if is_small else str(value)


def _number_of(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def metrics_of(blobs: Sequence[bytes]) -> MetricValues:
    """All entries together.

    Args:
        blobs: the entries, oldest first.

    Raises:
        StoredFormatError: one is something else, or of a format that is not read.
    """
    return merged_metrics(map(decode_metrics, blobs))


def folded(blobs: Sequence[bytes]) -> bytes:
    """One entry in place of several.  Raises as `metrics_of` does.

    Args:
        blobs: the entries, oldest first.
    """
    return encode_metrics(metrics_of(blobs))
