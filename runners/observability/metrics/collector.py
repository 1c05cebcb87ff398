"""StoreCollector: answers Prometheus from the store, in bounded time, whether a driver lives or the store answers.

A look at the store is in a thread of its own: a server that is stopped, or behind a network that is cut, keeps whoever
reads from it for as long as TCP likes.  Who asks
meanwhile is answered that the store is not up, and no second look begins.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from runners.core.ground.clock import Clock
from runners.errors import StoreError
from runners.observability.evidence.snapshot import Histogram
from runners.observability.metrics.metric_spec import MetricSpec, MetricType, Sample
from runners.observability.metrics.metric_table import METRICS
from runners.observability.metrics.readout import StoreReadout

#: Below the ten seconds that Prometheus waits by default.
TIMEOUT_S = 8.0
#: Several who ask within this time share a look.
SHARED_MS = 1_000

_LOG = logging.getLogger(__name__)
_FAMILIES = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
    MetricType.SUMMARY: SummaryMetricFamily,
}


class _Look:
    """One look at the store."""

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.is_done = threading.Event()
        self.found = StoreReadout(is_up=False)


class StoreCollector(Collector):
    """A collector of prometheus_client over a store.

    Thread-safe.

    Args:
        read: looks at the store; may raise `StoreError`, or not return.
        clock: for how long it took.
        timeout_s: how long who asks waits for it at most, in seconds.
        shared_ms: who asks so soon after another is given the same.
    """

    def __init__(
        self,
        read: Callable[[], StoreReadout],
        clock: Clock,
        timeout_s: float = TIMEOUT_S,
        shared_ms: int = SHARED_MS,
    ) -> None:
        self._read, self._clock, self._timeout_s = read, clock, timeout_s
        self._shared_ms = shared_ms
        self._lock = threading.Lock()
        self._look: _Look | None = None
        self._is_failing = False

    def describe(self) -> Iterator[Metric]:
        """The families without samples, so that the store is not looked at when this is registered."""
        for spec in METRICS:
            yield _family(spec, ())

    def collect(self) -> Iterator[Metric]:
        """All families as of now; those of jobs are empty where the store is not up."""
        began_ms = self._clock.monotonic_ms()
        look = self._current()
        look.is_done.wait(self._timeout_s)
        found = look.found if look.is_done.is_set() else StoreReadout(is_up=False)
        took_s = (self._clock.monotonic_ms() - began_ms) / 1_000
        found = attrs.evolve(found, took_s=took_s)
        for spec in METRICS:
            yield _family(spec, spec.samples(found))

    def _current(self) -> _Look:
        with self._lock:
            look, now_ms = self._look, self._clock.monotonic_ms()
            if look is not None and (
                not look.is_done.is_set() or now_ms - look.began_ms < self._shared_ms
            ):
                return look
            look = self._look = _Look(now_ms)
        threading.Thread(
            target=self._fill, args=(look,), name="dataflow-metrics", daemon=True
        ).start()
        return look

    def _fill(self, look: _Look) -> None:
        try:
            look.found = self._read()
        except StoreError as error:
            if not self._is_failing:
                _LOG.warning("metrics are without those of jobs until the store is read: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False
        finally:
            look.is_done.set()


def _family(spec: MetricSpec, samples: Iterable[Sample]) -> Metric:
    family: Any = _FAMILIES[spec.type](spec.name, spec.help, labels=spec.labels)
    for labels, value in samples:
        if isinstance(value, Histogram):
            family.add_metric(labels, _buckets(value), value.sum_us / 1e6)
        elif isinstance(value, tuple):
            family.add_metric(labels, *value)
        else:
            family.add_metric(labels, value)
    found: Metric = family
    return found


def _buckets(found: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus has them."""
    buckets, total = [], 0
    bounds = [*(str(bound_us / 1e6) for bound_us in found.bounds_us), "+Inf"]
    for bound, count in zip(bounds, found.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


class Exposition:
    """The answer to who scrapes, in the format that he asks for.

    Args:
        collector: what is asked for samples.
    """

    def __init__(self, collector: StoreCollector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)

    def answer(self, accept: str) -> tuple[bytes, str]:
        """The body, and its type.

        Args:
            accept: the header of that name; empty: the text format.
        """
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind
