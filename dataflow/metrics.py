"""Metrics: numbers and names that user code counts while a pipeline runs, and how they are read.

Any user code may update them: a `DoFn`, a plain function, a `CombineFn`, a source.  An update counts for the transform
that runs, and is a part of what the transform has done: it becomes durable together with that, exactly once.  What a
bundle has counted that fails, or is run again, is left out.  What `DoFn.setup` and ``teardown`` count belongs to no
bundle, and does not count.  Apache Beam's ``Metrics``; there an attempt that fails may count too.
"""

from collections.abc import Iterable
from datetime import datetime
from operator import index
from typing import Any, Final, Generic, TypedDict, TypeVar

import attrs

from dataflow.errors import PipelineError
from dataflow.metric_updates import (
    RUNNING,
    Metric,
    MetricKind,
    MetricValues,
    Running,
    warn_of_thread,
)
from windowing.timestamps import to_datetime

ValueT = TypeVar("ValueT")


class Metrics:
    """Metrics by name; each may be made anew wherever it is updated, or kept.

    The namespace is a text, or a class, which stands for its module and name.  Apache Beam's ``Metrics``.
    """

    @staticmethod
    def counter(namespace: str | type, name: str) -> "Counter":
        """A number that is increased and decreased.

        Args:
            namespace: of the name.
            name: of the counter.

        Raises:
            PipelineError: one of them is empty, or something else.
        """
        return Counter(_metric(MetricKind.COUNTER, namespace, name))

    @staticmethod
    def distribution(namespace: str | type, name: str) -> "Distribution":
        """How many whole numbers there were, their sum, the least and the greatest.

        Args:
            namespace: of the name.
            name: of the distribution.

        Raises:
            PipelineError: one of them is empty, or something else.
        """
        return Distribution(_metric(MetricKind.DISTRIBUTION, namespace, name))

    @staticmethod
    def gauge(namespace: str | type, name: str) -> "Gauge":
        """The last number that it was set to; of several workers, the one that was committed last.

        Args:
            namespace: of the name.
            name: of the gauge.

        Raises:
            PipelineError: one of them is empty, or something else.
        """
        return Gauge(_metric(MetricKind.GAUGE, namespace, name))

    @staticmethod
    def string_set(namespace: str | type, name: str) -> "StringSet":
        """The different texts that were added to it; the first thousand in their order, where there are more.

        Args:
            namespace: of the name.
            name: of the set.

        Raises:
            PipelineError: one of them is empty, or something else.
        """
        return StringSet(_metric(MetricKind.STRING_SET, namespace, name))


def _metric(kind: MetricKind, namespace: str | type, name: str) -> Metric:
    spelled = _namespace(namespace)
    for what, given in (("namespace", spelled), ("name", name)):
        if not isinstance(given, str) or not given:
            raise PipelineError(
                f"the {what} of a metric must be a text, and is {given!r}",
                hint='for example df.Metrics.counter("orders", "refused"), or a class as the namespace',
            )
    return Metric(kind, spelled, name)


def _namespace(namespace: str | type) -> str:
    if isinstance(namespace, type):
        return f"{namespace.__module__}.{namespace.__name__}"
    return namespace


@attrs.frozen
class Counter:
    """A number that is increased and decreased; made by `Metrics.counter`."""

    metric: Metric

    def inc(self, n: int = 1) -> None:
        """Increase it.

        Args:
            n: by how much.

        Raises:
            TypeError: that is no whole number.
        """
        now = RUNNING.get()
        if now is None or now.updates is None:
            _not_counted(self.metric, now)
            return
        if type(n) is not int:
            n = _whole(self.metric, n)
        if now.label:
            key = (now.label, self.metric)
            now.updates[key] = now.updates.get(key, 0) + n

    def dec(self, n: int = 1) -> None:
        """Decrease it.

        Args:
            n: by how much.

        Raises:
            TypeError: that is no whole number.
        """
        self.inc(-_whole(self.metric, n))


@attrs.frozen
class Distribution:
    """Whole numbers, summed up; made by `Metrics.distribution`."""

    metric: Metric

    def update(self, value: int) -> None:
        """Add a number.

        Args:
            value: the number; of a length of time, for example its milliseconds.

        Raises:
            TypeError: it is no whole number.
        """
        now = RUNNING.get()
        if now is None or now.updates is None:
            _not_counted(self.metric, now)
            return
        if type(value) is not int:
            value = _whole(self.metric, value)
        if now.label:
            key = (now.label, self.metric)
            count, total, least, greatest = now.updates.get(key, (0, 0, value, value))
            now.updates[key] = (
                count + 1,
                total + value,
                min(least, value),
                max(greatest, value),
            )


@attrs.frozen
class Gauge:
    """A number that is set; made by `Metrics.gauge`."""

    metric: Metric

    def set(self, value: float) -> None:
        """Set it.

        Args:
            value: the number.

        Raises:
            TypeError: it is no number.
        """
        now = RUNNING.get()
        if now is None or now.updates is None:
            _not_counted(self.metric, now)
            return
        number = value if type(value) in (int, float) else _number(self.metric, value)
        if now.label:
            now.updates[now.label, self.metric] = number


@attrs.frozen
class StringSet:
    """Different texts; made by `Metrics.string_set`."""

    metric: Metric

    def add(self, value: str) -> None:
        """Add a text.

        Args:
            value: the text.

        Raises:
            TypeError: it is no text.
        """
        now = RUNNING.get()
        if now is None or now.updates is None:
            _not_counted(self.metric, now)
            return
        if not isinstance(value, str):
            raise TypeError(
                f"the string set {self.metric.name!r} takes texts, and was given {value!r}"
            )
        if now.label:
            now.updates.setdefault((now.label, self.metric), set()).add(value)


def _whole(metric: Metric, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        kind = "counter" if metric.kind is MetricKind.COUNTER else "distribution"
        raise TypeError(
            f"the {kind} {metric.name!r} takes whole numbers, and was given {value!r}"
        ) from None


def _number(metric: Metric, value: Any) -> float:
    try:
        return index(value)
    except TypeError:
        pass
    try:
        # Numbers of NumPy; a text would be read as one, and is none.
        return float(value.__float__())
    except (AttributeError, TypeError):
        raise TypeError(
            f"the gauge {metric.name!r} takes numbers, and was given {value!r}"
        ) from None


def _not_counted(metric: Metric, now: Running | None) -> None:
    if now is None:
        warn_of_thread(f"the metric {metric.name!r} of {metric.namespace!r}")


@attrs.frozen
class MetricName:
    """The name of a metric."""

    namespace: str
    name: str


@attrs.frozen
class MetricKey:
    """A metric of one transform.

    Attributes:
        step: the label of the transform.
    """

    step: str
    metric: MetricName


@attrs.frozen
class DistributionResult:
    """What has come to a distribution.

    Attributes:
        count: how many numbers.
        sum: all of them, added up.
        min: the least.
        max: the greatest.
    """

    count: int
    sum: int
    min: int
    max: int

    @property
    def mean(self) -> float:
        """The average."""
        return self.sum / self.count


@attrs.frozen
class GaugeResult:
    """What a gauge was last set to.

    Attributes:
        value: the number.
        timestamp: when that was committed.
    """

    value: float
    timestamp: datetime


@attrs.frozen
class MetricResult(Generic[ValueT]):
    """A metric of one transform, and what has come to it.

    Attributes:
        key: its name, and the label of the transform.
        committed: what is durable, exactly once.
    """

    key: MetricKey
    committed: ValueT

    @property
    def attempted(self) -> ValueT:
        """What is in ``committed`` too: attempts that fail are not counted."""
        return self.committed

    @property
    def result(self) -> ValueT:
        """What is in ``committed`` too."""
        return self.committed


class QueryResults(TypedDict):
    """Metrics by kind, each in the order of step, namespace and name."""

    counters: list[MetricResult[int]]
    distributions: list[MetricResult[DistributionResult]]
    gauges: list[MetricResult[GaugeResult]]
    string_sets: list[MetricResult[frozenset[str]]]


@attrs.frozen
class MetricsFilter:
    """Chooses metrics; by default all.  Each method returns a new filter.  Apache Beam's ``MetricsFilter``.

    Attributes:
        names, namespaces, steps: that are wanted; empty: all.
    """

    names: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()

    def with_name(self, name: str) -> "MetricsFilter":
        """Metrics of this name too."""
        return self.with_names([name])

    def with_names(self, names: Iterable[str]) -> "MetricsFilter":
        """Metrics of these names too."""
        return attrs.evolve(self, names=self.names | _several("names", names))

    def with_namespace(self, namespace: str | type) -> "MetricsFilter":
        """Metrics of this namespace too."""
        return self.with_namespaces([namespace])

    def with_namespaces(self, namespaces: Iterable[str | type]) -> "MetricsFilter":
        """Metrics of these namespaces too."""
        spelled = map(_namespace, _several("namespaces", namespaces))
        return attrs.evolve(self, namespaces=self.namespaces | frozenset(spelled))

    def with_step(self, step: str) -> "MetricsFilter":
        """Metrics of this transform too, or, of a composite one, of all that is in it."""
        return self.with_steps([step])

    def with_steps(self, steps: Iterable[str]) -> "MetricsFilter":
        """Metrics of these transforms too."""
        return attrs.evolve(self, steps=self.steps | _several("steps", steps))

    def takes(self, key: MetricKey) -> bool:
        """Whether a metric is one of those that are wanted."""
        return (
            (not self.names or key.metric.name in self.names)
            and (not self.namespaces or key.metric.namespace in self.namespaces)
            and (not self.steps or any(_is_part(each, key.step) for each in self.steps))
        )


def _several(what: str, given: Iterable[Any]) -> frozenset[Any]:
    if isinstance(given, str):
        raise PipelineError(
            f"{what} must be several texts, and are one: {given!r}",
            hint=f"use with_{what[:-1]}, or give a list",
        )
    return frozenset(given)


def _is_part(wanted: str, step: str) -> bool:
    """Whether a label has these parts, one after the other."""
    return f"/{wanted.strip('/')}/" in f"/{step}/"


class MetricResults:
    """The metrics of a run as they stood when they were read.  Apache Beam's ``MetricResults``.

    Args:
        values: by metric and transform.
    """

    COUNTERS: Final = "counters"
    DISTRIBUTIONS: Final = "distributions"
    GAUGES: Final = "gauges"
    STRINGSETS: Final = "string_sets"

    def __init__(self, values: MetricValues) -> None:
        self._values = values

    def query(self, filter: MetricsFilter | None = None) -> QueryResults:  # noqa: A002 - Beam's name
        """The metrics that a filter takes, by kind.

        Args:
            filter: by default all are returned.
        """
        wanted = filter or MetricsFilter()
        found: dict[str, list[MetricResult[Any]]] = {kind.value: [] for kind in MetricKind}
        for (step, (kind, namespace, name)), value in sorted(
            self._values.items(), key=lambda each: each[0]
        ):
            key = MetricKey(step, MetricName(namespace, name))
            if wanted.takes(key):
                found[kind].append(MetricResult(key, _result(kind, value)))
        return QueryResults(
            counters=found["counters"],
            distributions=found["distributions"],
            gauges=found["gauges"],
            string_sets=found["string_sets"],
        )

    def __repr__(self) -> str:
        lines = [
            f"{each.key.step}: {each.key.metric.namespace}.{each.key.metric.name} = {shown_metric(each.committed)}"
            for several in self.query().values()
            for each in several  # type: ignore[attr-defined]  # values of a TypedDict are objects
        ]
        return "\n".join(["MetricResults", *lines])


def shown_metric(value: Any) -> str:
    """What has come to a metric, as text for people.

    Args:
        value: as it is in a `MetricResult`.
    """
    if isinstance(value, DistributionResult):
        return f"{value.count:,} from {value.min:,} to {value.max:,}, mean {value.mean:,.6g}, sum {value.sum:,}"
    if isinstance(value, GaugeResult):
        return f"{value.value:,}"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    return f"{value:,}"


def _result(kind: MetricKind, value: Any) -> Any:
    if kind is MetricKind.DISTRIBUTION:
        return DistributionResult(*value)
    if kind is MetricKind.GAUGE:
        return GaugeResult(value[0], to_datetime(value[1]))
    return value
