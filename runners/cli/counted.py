"""The command that shows the metrics of a job: what its user code has counted."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dataflow.metrics import (
    DistributionResult,
    GaugeResult,
    MetricResult,
    MetricResults,
    MetricsFilter,
    shown_metric,
)
from runners.cli.text import find_job, print_table
from runners.millwheel.store.port import Store
from runners.stored.metrics import metrics_of


def show_metrics(store: Store, asked: argparse.Namespace) -> None:
    """Print the metrics of a job.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``, what is wanted and how to print.
    """
    find_job(store, asked.job)
    wanted = MetricsFilter(frozenset(asked.name), frozenset(asked.namespace), frozenset(asked.step))
    results: Mapping[str, Any] = dict(
        MetricResults(metrics_of(store.read_metrics(asked.job))).query(wanted)
    )
    found = [(kind, each) for kind, several in results.items() for each in several]
    if asked.json:
        for kind, each in found:
            print(json.dumps({"kind": kind, **_row(each)}))
        return
    if not found:
        print(f"no metrics in job {asked.job}")
        return
    print_table(
        ("transform", "namespace", "name", "value"),
        (
            (
                each.key.step,
                each.key.metric.namespace,
                each.key.metric.name,
                shown_metric(each.committed),
            )
            for _, each in found
        ),
    )


def _row(result: MetricResult[Any]) -> dict[str, Any]:
    value = result.committed
    if isinstance(value, DistributionResult):
        value = attrs.asdict(value)
    elif isinstance(value, GaugeResult):
        value = {"value": value.value, "timestamp": value.timestamp.isoformat()}
    elif isinstance(value, frozenset):
        value = sorted(value)
    return {"transform": result.key.step, **attrs.asdict(result.key.metric), "value": value}


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    metrics = add(
        "metrics",
        "show what the user code of a job has counted with df.Metrics",
        "Each effect counts once, from the beginning of the job; it may be running now or not.",
        "dataflow metrics scores --name refused",
    )
    metrics.set_defaults(do=show_metrics)
    for option, what in (
        ("step", "transform, or a composite one"),
        ("namespace", "namespace"),
        ("name", "name"),
    ):
        metrics.add_argument(
            f"--{option}",
            metavar=option.upper(),
            action="append",
            default=[],
            help=f"only metrics of this {what}; may be given several times",
        )
    metrics.add_argument("--json", action="store_true", help="print one JSON object per line")
