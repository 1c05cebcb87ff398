"""The page, over a real store: what it says of jobs in each state, also when nobody runs them, and whom it refuses."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from html.parser import HTMLParser
from typing import Any

import attrs
import psycopg
import pytest
from starlette.testclient import TestClient

from dataflow.coders import encode_key, hash_key
from runners.core.ground.lineage import LineageEntry, LineageKind, SplitOrigin
from runners.core.tables.row_keys import key_of_texts
from runners.errors import UnsuitableStoreError
from runners.millwheel.cell_codec import encode_cell_key, encode_window
from runners.millwheel.model.events import Actor, EventKind, JobEvent
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import (
    CellWrite,
    LateRecord,
    Production,
    StoredDeadLetter,
    TimerWrite,
)
from runners.millwheel.store.port import Committed, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.job_lock import JobLock
from runners.millwheel.store.postgres.reader import ReadOnlyStore, Statement
from runners.observability.evidence.snapshot import (
    DriverEvidence,
    JobSnapshot,
    Phase,
    RangeEvidence,
    RangeState,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
)
from runners.observability.why.from_store import evidence_from_store
from runners.system_clock import SystemClock
from runners.ui.app import make_app
from runners.ui.guard import Access
from runners.ui.reads import QUERIES
from runners.ui.sampling import EventTimeSample
from runners.ui.templating import address
from windowing.window import Window

pytestmark = pytest.mark.postgres

READ, SUM = RangeId("read", 0), RangeId("sum", 0)
SECOND_US = 1_000_000
SECRET_KEY, SECRET_RECORD = "secret-user-17", "secret-record-4711"
PAGES = ("", "/windows", "/rows", "/kept", "/ranges", "/workers", "/events")


class Page(HTMLParser):
    """What a browser would have: rows of tables by their headers, elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self._cell.append(data)

    def row(self, name: str) -> list[str]:
        """The row that begins with a name."""
        [found, *_] = [row for table in self.tables for row in table[1:] if row[0].startswith(name)]
        return found


@attrs.frozen
class Shop:
    """A store with a job in it, and the page over it."""

    store: PostgresStore
    dsn: str

    def client(self, **access: Any) -> TestClient:
        app = make_app(ReadOnlyStore(self.dsn), SystemClock(), Access(**access))
        return TestClient(app, base_url="http://127.0.0.1:8042")

    def commit(self, **parts: Any) -> None:
        taken = self.store.acquire("job", [READ, SUM], "worker")
        fences = [
            Fence(range_id=each, token=row.row.token, bundle=row.row.bundle + 1)
            for each, row in taken.items()
        ]
        assert self.store.commit(Production(job="job", fences=fences, **parts)) == Committed()

    def note(self, behind_us: int, **changes: Any) -> None:
        """What a driver writes of a job whose split is so far behind."""
        now_us = SystemClock().now_us()
        self.store.note_snapshot("job", snapshot(now_us, behind_us, **changes).write(), now_us)


def snapshot(now_us: int, behind_us: int, *, poll_age_us: int = 0) -> JobSnapshot:
    event_us = now_us - behind_us
    worker = "host, process 1"
    ranges = {
        str(each): RangeEvidence(
            stage=each.computation,
            index=0,
            slot=0,
            state=RangeState.OWNED,
            worker=worker,
            output_us=event_us,
            processed_us=event_us,
            reported_us=now_us,
            poll=SplitEvidence(polled_us=now_us - poll_age_us, record_us=now_us - poll_age_us)
            if each == READ
            else None,
        )
        for each in (READ, SUM)
    }
    return JobSnapshot(
        job="job",
        job_version=0,
        taken_us=now_us,
        driver=DriverEvidence(
            name="host, process 7",
            started_us=now_us,
            phase=Phase.RUNNING,
            workers=1,
            workers_ready=1,
        ),
        watermark_us=event_us,
        slowest_source_us=event_us,
        stages={
            "read": StageEvidence(
                is_source=True, senders=[], input_us=None, output_us=event_us, records=70
            ),
            "sum": StageEvidence(
                is_source=False,
                senders=["read"],
                input_us=event_us,
                output_us=event_us,
                records=70,
                records_per_s=12.0,
            ),
        },
        ranges=ranges,
        workers=[
            WorkerEvidence(
                slot=0,
                worker=worker,
                is_ready=True,
                reported_us=now_us,
                lease_ttl_ms=10_000,
                heartbeat_us=now_us,
                heartbeat_received_us=now_us,
            )
        ],
    )


@pytest.fixture
def shop(store_dsn: str) -> Iterator[Shop]:
    with closing(PostgresStore(store_dsn)) as store:
        ranges = [
            RangeSpec(range_id=READ, split=b"s"),
            RangeSpec(range_id=SUM, keys=even_ranges(1)[0]),
        ]
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="f", ranges=ranges))
        yield Shop(store, store_dsn)


@pytest.fixture
def driver(shop: Shop) -> Iterator[JobLock]:
    lock = JobLock(shop.dsn, "job")
    lock.hold()
    yield lock
    lock.release()


def page(client: TestClient, path: str) -> Page:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


def test_a_healthy_job_is_up_to_date(shop: Shop, driver: JobLock) -> None:
    shop.note(2 * SECOND_US)
    with shop.client() as client:
        shown = page(client, "/jobs/job")
        read = client.get("/jobs/job.json").json()
    assert "up to date" in shown.row("read")[1]
    assert "up to date" in shown.row("sum")[1]
    assert [stage["inherited_lag_us"] > SECOND_US for stage in read["stages"]] == [False, True]
    assert read["stages"][0]["own_lag_us"] > SECOND_US
    assert read["head"]["is_driven"]
    assert not read["head"]["is_old"]
    assert "of the driver" not in shown.text


def test_the_page_answers_when_the_driver_is_dead(shop: Shop, driver: JobLock) -> None:
    """What it knew last is shown as old, what is in the store as it is."""
    shop.note(3_600 * SECOND_US)
    with psycopg.connect(shop.dsn, autocommit=True) as admin:
        admin.execute(
            "UPDATE dataflow.job_snapshots SET written_at = written_at - INTERVAL '90 min'"
        )
    driver.release()
    with shop.client() as client:
        shown = page(client, "/jobs/job")
        for path in PAGES:
            text = page(client, f"/jobs/job{path}").text
            # Also on a machine that takes its time until it has made the last of the pages.
            assert re.search(r"1 hour 3\d minutes( \d+ seconds?)? old", text), text
        overview = page(client, "/jobs")
    assert "not running" in overview.row("job")[1]
    assert "not running" in shown.row("sum")[1]
    assert "nobody runs job job" in shown.text


def test_a_silent_driver_and_one_that_never_wrote_differ(shop: Shop, driver: JobLock) -> None:
    with shop.client() as client:
        assert "has left no evidence" in page(client, "/jobs/job").text
        assert "unknown" in page(client, "/jobs").row("job")[-1]
    shop.note(0)
    with psycopg.connect(shop.dsn, autocommit=True) as admin:
        admin.execute("UPDATE dataflow.job_snapshots SET written_at = written_at - INTERVAL '90 s'")
    with shop.client() as client:
        assert "driver silent" in page(client, "/jobs").row("job")[1]


@pytest.mark.parametrize(
    ("forward", "word"), [(0.0, "stuck"), (0.5, "falling behind"), (10.0, "catching up")]
)
def test_what_is_behind_is_stuck_or_comes_nearer(
    shop: Shop, driver: JobLock, monkeypatch: pytest.MonkeyPatch, forward: float, word: str
) -> None:
    """By the samples that the page's program has taken."""
    shop.note(3_600 * SECOND_US)
    now_us = SystemClock().now_us()
    event_us = now_us - 3_600 * SECOND_US
    samples = [
        EventTimeSample(
            at_us=now_us - back * SECOND_US,
            event_us=dict.fromkeys(("read", "sum"), event_us - int(forward * back * SECOND_US)),
        )
        for back in range(15, -1, -1)
    ]
    monkeypatch.setattr("runners.ui.sampling.Sampling.of", lambda self, job: samples)
    with shop.client() as client:
        shown = page(client, "/jobs/job")
        assert word in page(client, "/jobs").row("job")[1]
    assert word in shown.row("read")[1]
    assert sum(tag == "circle" for tag, _ in shown.elements) == 2


def test_samples_grow_while_nobody_drives_the_job(shop: Shop) -> None:
    app = make_app(ReadOnlyStore(shop.dsn), SystemClock(), Access())
    with TestClient(app, base_url="http://localhost") as client:
        from tests.waiting import until  # noqa: PLC0415 - beside its only use

        until(lambda: len(client.get("/jobs/job.json").json()["samples"]) >= 2)


def with_secrets(shop: Shop) -> None:
    key = encode_key(SECRET_KEY)
    window = Window(0, 10 * SECOND_US)
    cell = encode_cell_key(window, key)
    late = LateRecord(
        transform="sum",
        key=SECRET_KEY,
        window_start_us=0,
        window_end_us=10 * SECOND_US,
        watermark_us=99 * SECOND_US,
        payload=b"x",
        count=3,
        contents=SECRET_RECORD,
    )
    dead = StoredDeadLetter(
        stage="sum",
        error=f"ValueError: {SECRET_RECORD}",
        traceback=SECRET_RECORD,
        tries=3,
        timestamp_us=0,
        payload=b"x",
        contents=SECRET_RECORD,
    )
    shop.commit(
        cells=[CellWrite(computation="sum", key_hash=hash_key(key), cell_key=cell, value=b"1")],
        timers=[
            TimerWrite(
                computation="sum",
                key_hash=hash_key(key),
                cell_key=cell,
                tag=encode_window(window),
                domain="event",
                fire_us=10 * SECOND_US,
            )
        ],
        late=[late],
        dead=[dead],
    )


def test_keys_and_records_are_shown_to_nobody_who_has_not_asked(shop: Shop) -> None:
    with_secrets(shop)
    paths = [f"/jobs/job{path}{form}" for path in PAGES for form in ("", ".json")]
    with shop.client() as client:
        for path in paths:
            assert not re.search("secret-", client.get(path).text), path
        refused = client.get("/jobs/job/windows", params={"key": SECRET_KEY}).text
        assert "--show-keys" in refused
        assert SECRET_KEY not in Page(refused).text
        kept = page(client, "/jobs/job/kept")
        assert [row[1:] for row in kept.tables[0][1:]] == [["dead letter", "1"], ["too late", "3"]]
        assert "ValueError" in kept.text
    with shop.client(show_keys=True) as client:
        assert SECRET_RECORD in page(client, "/jobs/job/kept").text
        found = client.get("/jobs/job/windows.json", params={"key": SECRET_KEY}).json()
    assert [span["kind"] for span in found["spans"]] == ["window", "timer", "late"]
    assert found["tables"]["key_cells"][0]["window_end"] == 10 * SECOND_US


def test_late_and_dead_records_have_the_command_that_replays_them(shop: Shop) -> None:
    with_secrets(shop)
    with shop.client() as client:
        commands = client.get("/jobs/job/kept.json").json()["commands"]
        text = page(client, "/jobs/job/kept").text
    assert commands["dead"] == "dataflow replay job MODULE:FUNCTION --dead"
    assert all(command in text for command in commands.values())


def test_every_page_is_the_same_as_json_and_accessible(shop: Shop, driver: JobLock) -> None:
    """Tables have headers and captions, states have words, there are landmarks, and each SQL link leads somewhere."""
    shop.note(0)
    shop.store.note_event(
        "job",
        JobEvent(
            kind=EventKind.START,
            actor=Actor.DRIVER,
            who="host",
            subject=None,
            reason="<b>asked & inputs</b>",
        ),
    )
    with shop.client() as client:
        for path in ("/jobs", *(f"/jobs/job{path}" for path in PAGES)):
            shown = page(client, path)
            tags = [tag for tag, _ in shown.elements]
            assert {"main", "header", "nav", "h1"} <= {*tags}, path
            assert tags.count("caption") == tags.count("table"), path
            scopes = [found.get("scope") for tag, found in shown.elements if tag == "th"]
            assert {*scopes} <= {"col", "row"}, path
            ids = [found["id"] for _, found in shown.elements if "id" in found]
            assert len(ids) == len({*ids}), path
            assert not [
                found for _, found in shown.elements if "style" in found or "onclick" in found
            ]
            assert [
                tag for tag, found in shown.elements if tag == "script" and "src" not in found
            ] == []
            assert ("meta", {"http-equiv": "refresh", "content": "5"}) in shown.elements
            for tag, found in shown.elements:
                if tag == "a" and (href := found.get("href") or "").startswith("/"):
                    assert client.get(href).status_code == 200, href
            assert isinstance(json.loads(client.get(f"{path}.json").text), dict)
        assert "<b>" not in client.get("/jobs/job/events").text
        assert "asked & inputs" in page(client, "/jobs/job/events").text
        assert "refresh" not in str(page(client, "/jobs?refresh=off").elements[4:7])


def test_the_chain_is_bold_in_the_graph(shop: Shop, driver: JobLock) -> None:
    shop.note(3_600 * SECOND_US, poll_age_us=600 * SECOND_US)
    with shop.client() as client:
        shown = page(client, "/jobs/job")
        found = client.get("/jobs/job.json").json()
    assert found["chain"] == ["sum", "read"]
    bold = [
        each["class"]
        for tag, each in shown.elements
        if tag == "g" and "held" in (each.get("class") or "")
    ]
    assert len(bold) == 3
    assert found["explanation"]["chain"][-1]["name"] == "read[0]"


def test_only_get_from_known_hosts_is_answered(shop: Shop) -> None:
    with shop.client() as client:
        assert client.get("/jobs", headers={"host": "evil.example"}).status_code == 400
        assert client.get("/jobs", headers={"host": "localhost:9"}).status_code == 200
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, "/jobs").status_code == 405
        answer = client.get("/jobs")
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert client.get("/static/..%2Fapp.py").status_code == 404
        assert client.get("/jobs/other").status_code == 404


def test_without_the_token_nothing_is_answered(shop: Shop) -> None:
    with shop.client(token="t0ken") as client:
        assert client.get("/jobs").status_code == 401
        assert client.get("/static/ui.css").status_code == 401
        assert client.get("/jobs?token=wrong").status_code == 401
        given = client.get("/jobs?token=t0ken&refresh=off", follow_redirects=False)
        assert given.headers["location"] == "/jobs?refresh=off"
        assert "HttpOnly" in given.headers["set-cookie"]
        assert client.get("/jobs").status_code == 200


def with_lineage(shop: Shop) -> None:
    """A sum of a key that was emitted early and replaced, and is a row."""
    about: dict[str, Any] = {
        "key": "'red'",
        "key_hash": hash_key(encode_key("red")),
        "window_start_us": 0,
        "window_end_us": 60 * SECOND_US,
        "now_us": 70 * SECOND_US,
    }

    def of_key(kind: LineageKind, at_s: int, **more: Any) -> LineageEntry:
        of_both: dict[str, Any] = {
            "kind": kind,
            "transform": "sum",
            "watermark_us": at_s * SECOND_US,
        }
        return LineageEntry(**about, **of_both, **more)

    read = SplitOrigin("read", "scores.csv", "17")
    early = of_key(LineageKind.PANE, 20, timing="early", reason="1 of 1 records", elements=["5"])
    last = attrs.evolve(
        early, index=1, timing="on_time", reason="the end was reached", elements=["8"]
    )
    key = key_of_texts(["red"])
    row = attrs.evolve(
        last,
        kind=LineageKind.ROW,
        transform="totals",
        key=key.text,
        key_hash=key.hash,
        origin=last.as_origin,
    )
    given = ["1970-01-01T00:00:10+00:00 5", "1970-01-01T00:00:40+00:00 3"]
    shop.commit(
        lineage=[
            of_key(LineageKind.INPUT, 10, origin=read, elements=given[:1]),
            early,
            of_key(LineageKind.INPUT, 40, origin=read, elements=given[1:]),
            attrs.evolve(early, sign=-1, reason="", timing="on_time"),
            last,
            row,
        ]
    )


def test_a_row_and_the_panes_of_its_key_are_explained(shop: Shop) -> None:
    """By table and key, and by a link from each pane; the JSON of the address has the same."""
    with_lineage(shop)
    with shop.client(show_keys=True) as client:
        asked = {"table": "totals", "key": "red"}
        shown = page(client, "/jobs/job/rows?table=totals&key=red").text
        read = client.get("/jobs/job/rows.json", params=asked).json()["explanation"]
        of_key = page(client, "/jobs/job/windows?key=red")
        lines = client.get("/jobs/job/windows.json", params={"key": "red"}).json()
        links = [
            each["href"]
            for _, each in of_key.elements
            if "transform=sum" in (each.get("href") or "")
        ]
        panes = [page(client, str(link)).text for link in links]
        missing = page(client, "/jobs/job/rows?table=totals&key=blue").text
    for text in ("Fired because the end was reached", "scores.csv", "00:00:40+00:00 3"):
        assert text in shown
    assert "Replaced pane 0 (early), which fired because 1 of 1 records" in shown
    assert read["pane"]["inputs"][0]["elements"] == [
        "1970-01-01T00:00:10+00:00 5",
        "1970-01-01T00:00:40+00:00 3",
    ]
    assert [pane["sign"] for pane in lines["panes"]] == [1, -1, 1]
    kinds = [each["kind"] for each in lines["spans"]]
    assert [kinds.count(each) for each in ("record", "pane", "minus pane")] == [2, 2, 1]
    assert len(panes) == 2
    assert "Fired because 1 of 1 records" in panes[1]
    assert "00:00:40+00:00 3" not in panes[1]
    assert "nothing is recorded of a row of table 'totals'" in missing


def test_rows_and_keys_are_hidden_unless_they_may_be_seen(shop: Shop) -> None:
    with_lineage(shop)
    with shop.client() as client:
        for path in ("/jobs/job/rows?table=totals&key=red", "/jobs/job/windows?key=red"):
            text = page(client, path).text
            assert "--show-keys" in text
            assert "scores.csv" not in text
            assert "early" not in text


@pytest.mark.parametrize("name", ["a/b", "a.json", "a/windows", "50 % & ü?#+", "v1.2", "a%2Fb"])
def test_a_job_of_any_name_has_all_its_addresses(shop: Shop, name: str) -> None:
    """The overview leads to it, and each page to its JSON."""
    ranges = [RangeSpec(range_id=READ, split=b"s")]
    shop.store.open_job(JobSpec(job=name, mode="streaming", fingerprint="f", ranges=ranges))
    with shop.client() as client:
        links = [each.get("href") for _, each in page(client, "/jobs").elements]
        tabs = {
            str(each["href"])
            for link in links
            if link and link.startswith("/jobs/")
            for tag, each in page(client, link).elements
            if tag == "a" and (each.get("href") or "").startswith(f"{address('jobs', name)}")
        }
        own = {each for each in tabs if "?" not in each and not each.endswith(".json")}
        assert len(own) == len(PAGES)
        for path in own:
            assert client.get(path).status_code == 200, path
            assert client.get(f"{path}.json").json()["head"]["job"] == name
            shown = page(client, f"{path}?refresh=off")
            hrefs = [str(each["href"]) for tag, each in shown.elements if tag == "a"]
            assert f"{path}.json?refresh=off" in hrefs
            assert f"{path}?" in hrefs


def test_sql_has_json(shop: Shop) -> None:
    with shop.client() as client:
        read = client.get("/sql/lineage.json", params={"job": "job"}).json()
        assert read["job"] == "job"
        assert ":'job'" in read["sql"]
        assert "%(" not in read["sql"]
        assert client.get("/sql/nothing.json").status_code == 404
        links = [each.get("href") for _, each in page(client, "/sql/jobs?job=job").elements]
        assert "/sql/jobs.json?job=job" in links


def test_its_connections_cannot_write(shop: Shop) -> None:
    with closing(ReadOnlyStore(shop.dsn)) as reader, pytest.raises(Exception, match="read-only"):
        reader.read({"x": Statement(text="DELETE FROM dataflow.jobs", parameters={})})


def test_a_role_that_may_select_is_enough(shop: Shop) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE ui_reader")
        try:
            admin.execute("GRANT USAGE ON SCHEMA dataflow TO ui_reader")
            admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA dataflow TO ui_reader")
            found = {name: read_as(shop, "ui_reader", name) for name in QUERIES}
            with (
                closing(ReadOnlyStore(shop.dsn, role="ui_reader")) as reader,
                closing(reader.as_port()) as port,
            ):
                seen = evidence_from_store(port, "job", SystemClock(), key="k").key
                with pytest.raises(Exception, match=r"read-only|permission"):
                    port.purge("job", "late")
        finally:
            admin.execute("DROP OWNED BY ui_reader")
            admin.execute("DROP ROLE ui_reader")
    assert {name: rows for name, rows in found.items() if rows} == {}
    assert seen is not None


def read_as(shop: Shop, role: str, name: str) -> str:
    """Why a query finds nothing out; empty: it does."""
    parameters: Mapping[str, object] = {
        "job": "job",
        "key": "k",
        "hashes": [1],
        "kind": "row",
        "transform": "t",
    }
    with closing(ReadOnlyStore(shop.dsn, role=role)) as reader:
        return reader.read({name: Statement(text=QUERIES[name], parameters=parameters)})[
            name
        ].reason


def test_a_statement_that_takes_too_long_is_unknown_and_the_others_are_there(shop: Shop) -> None:
    with closing(ReadOnlyStore(shop.dsn, statement_timeout_ms=50)) as reader:
        found = reader.read(
            {
                "slow": Statement(text="SELECT pg_sleep(60)", parameters={}),
                "quick": Statement(text="SELECT 1 AS one", parameters={}),
            }
        )
    assert found["slow"].rows is None
    assert "statement timeout" in found["slow"].reason
    assert found["quick"].rows == [{"one": 1}]


def test_a_store_of_an_older_version_is_refused_and_stays_as_it_is(empty_dsn: str) -> None:
    with closing(ReadOnlyStore(empty_dsn)) as reader, pytest.raises(UnsuitableStoreError):
        reader.read({})
    with psycopg.connect(empty_dsn) as admin:
        assert admin.execute("SELECT to_regnamespace('dataflow')").fetchone() == (None,)


def test_an_unreachable_store_is_shown_as_that(shop: Shop) -> None:
    app = make_app(
        ReadOnlyStore("host=127.0.0.1 port=1 password=hushhush"), SystemClock(), Access()
    )
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.get("/jobs")
    assert answer.status_code == 503
    assert "no connection to Postgres" in answer.text
    assert "hushhush" not in answer.text
