"""What is made of the table of metrics for people and programs: a reference, a dashboard of Grafana, and alert rules.

The files in git are written by ``python -m tools.metrics_files``; a test says when they are not of this table any more.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from runners.observability.metrics.metric_spec import Alert, MetricSpec, Panel
from runners.observability.metrics.metric_table import METRICS
from runners.observability.metrics.readout import JOBS_MAX, USER_METRICS_MAX

#: The dashboard and the rules, as they are installed with this package.
GENERATED = files(__package__) / "generated"
DASHBOARD_FILE, RULES_FILE = "grafana-dashboard.json", "prometheus-rules.yml"

_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

_INTRODUCTION = f"""\
# Metrics

What Prometheus gets to know of jobs, and [how to have it ask](how-to/watch-with-prometheus.md).
This page is made of `runners/observability/metrics/metric_table.py` by `python -m tools.metrics_files`.

* The number of series is bounded: by jobs (the first {JOBS_MAX} unfinished ones by name), stages, slots of workers, tables, and {USER_METRICS_MAX} metrics of user code in a job. No key, record, range or split is a label.
* Counters begin anew with what counts: with the driver, or, where there is a label `slot`, with the worker in that slot.
* Fields are those of the snapshot (`runners/observability/evidence/snapshot.py`) that a driver writes once a second; all else is read of tables and views of the store.
""".splitlines()  # noqa: E501 - a line of Markdown is a sentence


def reference() -> str:
    """The reference of all metrics, in Markdown."""
    lines = [
        *_INTRODUCTION,
        "",
        "| Metric | Type | Labels | What it is | From | When it is high |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_row, METRICS),
        "",
        "## Alerts",
        "",
        "| Alert | Severity | When | For | What it says | What to do |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_alert_row, _alerts()),
    ]
    return "\n".join(lines) + "\n"


def _row(spec: MetricSpec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels) or "-"
    cells = (f"`{spec.name}`", spec.type.value, labels, spec.help, f"`{spec.source}`", spec.high)
    return _cells(cells)


def _alert_row(alert: Alert) -> str:
    cells = (alert.name, alert.severity, f"`{alert.expr}`", alert.for_, alert.summary, alert.action)
    return _cells(cells)


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _alerts() -> list[Alert]:
    return [alert for spec in METRICS for alert in spec.alerts]


def alert_rules() -> Mapping[str, Any]:
    """The alert rules, as Prometheus takes them."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.for_,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.action},
        }
        for alert in _alerts()
    ]
    return {"groups": [{"name": "dataflow", "rules": rules}]}


def dashboard() -> Mapping[str, Any]:
    """The dashboard, as Grafana imports or provisions it."""
    sections: dict[str, dict[str, list[Panel]]] = {}
    for spec in METRICS:
        panel = spec.panel
        sections.setdefault(panel.section, {}).setdefault(panel.title, []).append(panel)
    panels: list[Mapping[str, Any]] = []
    top = 0
    for section, titles in sections.items():
        panels.append(
            {
                "id": len(panels) + 1, "type": "row", "title": section, "collapsed": False,
                "panels": [], "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
            }
        )  # fmt: skip
        top += 1
        for number, (title, shown) in enumerate(titles.items()):
            column, row = number % (_COLUMNS // _WIDTH), number // (_COLUMNS // _WIDTH)
            place = {"x": column * _WIDTH, "y": top + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, title, shown, place))
        top += -(-len(titles) // (_COLUMNS // _WIDTH)) * _HEIGHT
    return {
        "uid": "dataflow-jobs",
        "title": "Dataflow jobs",
        "tags": ["dataflow"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _panel(
    number: int, title: str, shown: list[Panel], place: Mapping[str, int]
) -> Mapping[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": shown[0].unit or "short"}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": panel.expr,
                "legendFormat": panel.legend or "__auto",
            }
            for index, panel in enumerate(shown)
        ],
    }


def _variables() -> list[Mapping[str, Any]]:
    query = "label_values(dataflow_job_driven, job)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "job", "type": "query", "label": "Job", "datasource": _DATASOURCE, "refresh": 2,
            "query": {"query": query, "refId": "job"}, "definition": query, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]  # fmt: skip
