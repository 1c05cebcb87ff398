"""The table of metrics, and what is made of it: names as Prometheus wants them, and expressions that it can read."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from runners.errors import StoreUnreachableError
from runners.observability.evidence.snapshot import StageEvidence
from runners.observability.metrics.collector import Exposition, StoreCollector
from runners.observability.metrics.documents import alert_rules, dashboard
from runners.observability.metrics.metric_spec import MetricType
from runners.observability.metrics.metric_table import METRICS
from runners.observability.metrics.readings import event_time, inherited_lag, own_lag
from runners.observability.metrics.readout import StoreReadout
from runners.testing.manual_clock import ManualClock
from tests import promtool
from tools.metrics_files import contents
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

NAMES = {spec.name for spec in METRICS}


def rules() -> Mapping[str, str]:
    [group] = alert_rules()["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def shown() -> Mapping[str, str]:
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$job", ".*")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }


def named_in(expr: str) -> set[str]:
    """The metrics that an expression selects, by Prometheus' own grammar."""
    found: set[str] = set()

    def look(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(node.name)
        for part in ("lhs", "rhs", "expr", "param", "vector_selector", "vs"):
            if getattr(node, part, None) is not None:
                look(getattr(node, part))
        for each in getattr(node, "args", None) or ():
            look(each)

    look(promql_parser.parse(expr))
    return found


def spec_of(series: str) -> str:
    return series if series in NAMES else re.sub(r"_(bucket|count|sum)$", "", series)


def test_the_files_in_git_are_of_this_table() -> None:
    stale = [str(path) for path, text in contents().items() if path.read_text("utf-8") != text]
    assert not stale, "run python -m tools.metrics_files"


def test_names_are_as_prometheus_wants_them() -> None:
    assert len(NAMES) == len(METRICS)
    for spec in METRICS:
        assert re.fullmatch(r"dataflow(_[a-z]+)+", spec.name)
        assert spec.name.endswith("_total") == (spec.type is MetricType.COUNTER), spec.name
        assert not re.search(r"_(ms|us|millis|micros|kb|mb)(_|$)", spec.name)
        assert {*spec.labels} <= {
            *("job", "stage", "slot", "state", "table", "part", "outbox"),
            *("transform", "namespace", "name"),
        }


def test_every_metric_is_shown_and_nothing_else_is() -> None:
    on_dashboard = {spec_of(each) for expr in shown().values() for each in named_in(expr)}
    alerting = {spec_of(each) for expr in rules().values() for each in named_in(expr)}
    assert on_dashboard == NAMES
    assert alerting <= NAMES
    reference = next(text for path, text in contents().items() if path.name == "metrics.md")
    assert {*re.findall(r"^\| `(dataflow_\w+)` \|", reference, re.MULTILINE)} == NAMES
    assert {*re.findall(r"^\| (Dataflow\w+) \|", reference, re.MULTILINE)} == {*rules()}


def test_each_alert_names_only_labels_that_its_metric_has() -> None:
    for spec in METRICS:
        for alert in spec.alerts:
            used = {*re.findall(r"\$labels\.(\w+)", alert.summary + alert.action)}
            assert used <= {*spec.labels}, alert.name


@pytest.mark.skipif(promtool.program() is None, reason=promtool.MISSING)
def test_prometheus_takes_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool.run("check", "rules", promtool.RULES)


def scraped(collector: StoreCollector, accept: str = "") -> dict[str, float]:
    body, _ = Exposition(collector).answer(accept)
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


@given(st.lists(st.integers(0, 10**15), min_size=3, max_size=3).map(sorted))
def test_own_and_inherited_lag_are_the_whole_lag(instants: list[int]) -> None:
    output_us, input_us, now_us = instants
    stage = StageEvidence(is_source=False, senders=["read"], input_us=input_us, output_us=output_us)
    whole = own_lag(stage, now_us) + inherited_lag(stage, now_us)
    assert whole == pytest.approx((now_us - output_us) / 1e6)
    source = StageEvidence(is_source=True, senders=[], input_us=None, output_us=output_us)
    assert own_lag(source, now_us) == pytest.approx(whole)
    assert inherited_lag(source, now_us) == 0.0


def test_a_lag_is_infinite_where_nothing_has_come_and_none_where_everything_has() -> None:
    """So a job that is stuck from its beginning is behind, and one that has come to its end is not."""
    before = StageEvidence(is_source=True, senders=[], input_us=None, output_us=MIN_TIMESTAMP_US)
    assert own_lag(before, 10**15) == float("inf")
    behind = StageEvidence(
        is_source=False, senders=["read"], input_us=MIN_TIMESTAMP_US, output_us=MIN_TIMESTAMP_US
    )
    assert (own_lag(behind, 10**15), inherited_lag(behind, 10**15)) == (0.0, float("inf"))
    over = StageEvidence(is_source=True, senders=[], input_us=None, output_us=MAX_TIMESTAMP_US)
    assert own_lag(over, 10**15) == 0.0
    assert event_time(MAX_TIMESTAMP_US) is event_time(MIN_TIMESTAMP_US) is None


def test_a_store_that_refuses_is_down_and_the_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    def refuse() -> StoreReadout:
        raise StoreUnreachableError("no connection to Postgres", detail="refused")

    collector = StoreCollector(refuse, clock)
    for _ in range(3):
        assert scraped(collector) == {"dataflow_store_up": 0, "dataflow_scrape_seconds": 0}
        clock.advance(5_000)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no connection to Postgres" in caplog.text


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.slow
def test_a_store_that_hangs_is_down_and_is_not_asked_again_meanwhile(
    released: threading.Event,
) -> None:
    """Nobody waits for longer than the time limit, and there is one thread that hangs, however many ask."""
    looks: list[int] = []

    def hang() -> StoreReadout:
        looks.append(1)
        released.wait()
        return StoreReadout(is_up=True)

    clock = ManualClock()
    collector = StoreCollector(hang, clock, timeout_s=0.05)
    for _ in range(4):
        assert scraped(collector)["dataflow_store_up"] == 0
        clock.advance(15_000)
    assert len(looks) == 1
    released.set()
    collector = StoreCollector(hang, clock)
    assert scraped(collector)["dataflow_store_up"] == 1


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    read = json.loads(json.dumps(dashboard()))
    panels = read["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {"datasource", "job"} == {each["name"] for each in read["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        covered = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not covered & taken, f"{panel['title']} is over another one"
        taken |= covered


def test_the_rules_are_yaml_of_the_same() -> None:
    assert yaml.safe_load(Path(promtool.RULES).read_text("utf-8")) == alert_rules()
