"""MetricSpec: all that is known of one metric: how it is read, what it means, where it is shown, and when it alerts."""

from collections.abc import Callable, Iterable
from enum import StrEnum

import attrs

from runners.observability.evidence.snapshot import Histogram
from runners.observability.metrics.readout import StoreReadout


class MetricType(StrEnum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


#: A number; of a histogram its buckets; of a summary how many values there were, and their sum.
Value = float | Histogram | tuple[int, float]
#: Values of labels, and the value.
Sample = tuple[tuple[str, ...], Value]


@attrs.frozen(kw_only=True)
class Panel:
    """Where a metric is on the dashboard; metrics with the same section and title share a panel.

    Attributes:
        expr: PromQL; ``$job`` is the job that is looked at.
        legend: of each series, in Grafana's notation.
        unit: Grafana's name of the unit; empty: a bare number.
    """

    section: str
    title: str
    expr: str
    legend: str = ""
    unit: str = ""


@attrs.frozen(kw_only=True)
class Alert:
    """When somebody should look.

    Attributes:
        expr: PromQL.
        for_: how long that must hold, as Prometheus writes it.
        severity: ``critical``, ``warning`` or ``info``.
        summary: one sentence, in Prometheus' notation.
        action: what to do.
    """

    name: str
    expr: str
    for_: str
    severity: str
    summary: str
    action: str


@attrs.frozen(kw_only=True)
class MetricSpec:
    """A metric.

    Attributes:
        name: as Prometheus has it, with the suffix of counters.
        type: of Prometheus.
        labels: their names.
        help: what it is.
        source: where it is read.
        high: what it means when it is high, or not as it should be.
        panel: where it is shown.
        samples: its series, of a readout of a store that is up.
        alerts: rules about it.
    """

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    source: str
    high: str
    panel: Panel
    samples: Callable[[StoreReadout], Iterable[Sample]]
    alerts: tuple[Alert, ...] = ()

    @property
    def unit(self) -> str:
        """The base unit, by the name: seconds, bytes, or none."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes", "ratio") if base.endswith(unit)), "")
