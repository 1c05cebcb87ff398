"""What Prometheus gets of real jobs: healthy, stuck, stopped and dead; and the alerts that follow from it."""

import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient

from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.reader import ReadOnlyStore
from runners.system_clock import SystemClock
from runners.ui.app import make_app
from runners.ui.guard import Access
from runners.ui.metrics_site import make_metrics_app
from tests import promtool
from tests.processes import descendants, in_a_group, kill
from tests.promtool import Scrape, assert_evaluates, assert_firing
from tests.unit.runners.observability.test_metric_table import rules, shown
from tests.waiting import until

pytestmark = pytest.mark.postgres

BASE = "http://127.0.0.1"
JOB = (("job", "observed"),)


@contextmanager
def exporter(dsn: str, **access: object) -> Iterator[TestClient]:
    app = make_metrics_app(ReadOnlyStore(dsn), SystemClock(), Access(**access))  # type: ignore[arg-type]
    with TestClient(app, base_url=BASE) as client:
        yield client


def make_tables(dsn: str) -> None:
    """Have the store made, as the first job would."""
    with closing(PostgresStore(dsn)) as store:
        store.read_jobs()


def scrape(client: TestClient) -> Scrape:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return Scrape.of(answer.text, time.time())


def scrapes(client: TestClient, count: int = 3) -> list[Scrape]:
    """Several scrapes, seconds apart, so that what grows with the clock is seen to."""
    found = [scrape(client)]
    while len(found) < count:
        until(lambda: time.time() - found[-1].at > 3)
        found.append(scrape(client))
    return found


def test_it_is_as_closed_as_the_page(store_dsn: str) -> None:
    """No other site, no token that is wrong, nothing but GET; the token as Prometheus sends it."""
    make_tables(store_dsn)
    with exporter(store_dsn, token="secret-token-4711") as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"authorization": "Bearer secret"}).status_code == 401
        right = {"authorization": "Bearer secret-token-4711"}
        assert client.get("/metrics", headers=right).status_code == 200
        assert client.post("/metrics", headers=right).status_code == 405
        assert client.get("/metrics", headers={**right, "host": "evil.example"}).status_code == 400
    with TestClient(
        make_app(ReadOnlyStore(store_dsn), SystemClock(), Access()), base_url=BASE
    ) as page:
        answer = page.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert "dataflow_store_up 1.0" in answer.text


def test_a_server_that_does_not_answer_is_down_within_the_time_of_a_scrape(tmp_path: Path) -> None:
    """It takes the connection, and that is all: as one that is stopped, or behind a network that is cut."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dsn = make_conninfo("", host="127.0.0.1", port=port, user="nobody", dbname="nothing")
        with exporter(dsn) as client:
            before_s = time.monotonic()
            found = scrape(client)
            assert time.monotonic() - before_s < 10
    assert found.values["dataflow_store_up", ()] == 0
    assert {name for name, _ in found.values} == {"dataflow_store_up", "dataflow_scrape_seconds"}
    if promtool.program() is not None:
        assert_firing(tmp_path, [found], {"DataflowStoreDown"})


def test_a_login_without_rights_is_no_store_that_is_down(store_dsn: str) -> None:
    """What may not be read is named; all else is there."""
    make_tables(store_dsn)
    with psycopg.connect(store_dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS half_reader")
        admin.execute("CREATE ROLE half_reader")
        admin.execute("GRANT USAGE ON SCHEMA dataflow TO half_reader")
        admin.execute("GRANT SELECT ON dataflow.jobs, dataflow.schema_versions TO half_reader")
        store = ReadOnlyStore(store_dsn, role="half_reader")
        with TestClient(make_metrics_app(store, SystemClock(), Access()), base_url=BASE) as client:
            found = scrape(client)
        admin.execute("DROP OWNED BY half_reader")
        admin.execute("DROP ROLE half_reader")
    unread = {
        dict(labels)["part"]: value
        for (name, labels), value in found.values.items()
        if name == "dataflow_unread"
    }
    assert found.values["dataflow_store_up", ()] == 1
    assert unread["productions"] == 1
    assert unread["job_counts"] == 0
    assert found.values["dataflow_jobs", (("state", "unfinished"),)] == 0


class Observed:
    """A driver in a process of its own, and what Prometheus gets of its job."""

    def __init__(self, client: TestClient, log: Path) -> None:
        self._client, self._log = client, log

    def value(self, name: str, *labels: tuple[str, str]) -> float | None:
        found = scrape(self._client).values
        return found.get((name, tuple(sorted((*JOB, *labels)))))

    def wait_for(self, name: str, least: float, *labels: tuple[str, str]) -> None:
        until(
            lambda: (self.value(name, *labels) or 0.0) >= least,
            lambda: f"{name}: {self.value(name, *labels)}\n{self._log.read_text()[-2_000:]}",
        )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(promtool.program() is None, reason=promtool.MISSING)
def test_a_job_that_is_well_stuck_stopped_and_dead(store_dsn: str, tmp_path: Path) -> None:
    """Each state of a real job has its alerts and no others, and all that is shown of it is there."""
    hang, log = tmp_path / "hang", tmp_path / "driver.log"
    words = [sys.executable, "-m", "tests.observed_job", store_dsn, str(hang), "--workers", "1"]
    # With a second worker the first one would lose its ranges to it, and then that would hang as well.
    make_tables(store_dsn)
    with in_a_group(words, log) as family, exporter(store_dsn) as client:
        job = Observed(client, log)
        user = (("namespace", "observed"), ("transform", "watched"))
        job.wait_for("dataflow_user_counter", 25, ("name", "seen"), *user)
        job.wait_for("dataflow_stage_event_time_timestamp_seconds", 1, ("stage", "count"))
        job.wait_for("dataflow_commit_seconds_count", 1, ("slot", "0"))
        well = scrapes(client)
        assert_firing(tmp_path, well, set())
        assert_all_shown(tmp_path, well)
        assert_counts_only_grow(well)

        hang.touch()
        until(lambda: longest_step(scrape(client)) > 5, log.read_text)
        stuck = scrapes(client)
        assert_firing(tmp_path, stuck, {"DataflowWorkerStuck", "DataflowEventTimeStuck"})

        family.send_signal(signal.SIGSTOP)
        until(lambda: age_of_snapshot(job) > 3)
        silent = {"DataflowDriverSilent", "DataflowEventTimeStuck"}
        assert_firing(tmp_path, scrapes(client), silent)

        kill([*descendants(family), family])
        until(lambda: job.value("dataflow_job_driven") == 0)
        # What was on its way when it died is still there.
        left = {"DataflowUnacknowledged"}
        assert_firing(tmp_path, scrapes(client), {"DataflowJobNotRunning"}, ignored=left)


def age_of_snapshot(job: Observed) -> float:
    return time.time() - (job.value("dataflow_snapshot_timestamp_seconds") or 0.0)


def longest_step(found: Scrape) -> float:
    """Of a worker that is in user code."""
    steps = [
        value for (name, _), value in found.values.items() if name == "dataflow_worker_step_seconds"
    ]
    return max(steps, default=0.0)


#: Shown where there is something that this job does not have: a backlog, a sink, what is unacknowledged now, skew.
NOT_OF_THIS_JOB = (
    "Backlog", "Rows that wait for sinks", "Sinks fail for", "Age of the oldest unacknowledged production",
    "Unacknowledged productions", "Key ranges that nobody has", "Skew of key ranges", "Sets of texts",
    "Time without a record",
)  # fmt: skip


def assert_all_shown(folder: Path, found: list[Scrape]) -> None:
    """Every panel of the dashboard has something to show, and every alert can be evaluated."""
    exprs = {
        title: expr for title, expr in shown().items() if not title.startswith(NOT_OF_THIS_JOB)
    }
    assert_evaluates(folder, found, exprs)
    assert rules()


def assert_counts_only_grow(found: list[Scrape]) -> None:
    for before, after in pairwise(found):
        for key, value in before.values.items():
            if key[0].endswith(("_total", "_bucket", "_count")):
                assert after.values[key] >= value, key
