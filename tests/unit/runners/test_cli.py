"""The command line `dataflow`, on a store in memory: what it prints, its exit status, and its secrets."""

import json
import re
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

import dataflow as df
from dataflow.metric_updates import Metric, MetricKind, MetricOf
from dataflow.table import TableSpec, TableWrite
from runners import registry
from runners.cli import command_line, main
from runners.core.ground import dead_letters
from runners.millwheel.model.ids import Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import (
    Counted,
    LateRecord,
    Production,
    Reshape,
    StoredDeadLetter,
)
from runners.millwheel.model.requests import Answer, Request, Verb
from runners.millwheel.model.signals import Signal
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobSpec, OldSnapshot, RangeSpec, SplitsChange, Store
from runners.relay.outbox import LaneFailure, LaneStatus, VisibleBatch
from runners.stored.framing import Format, writing
from runners.stored.metrics import encode_metrics
from runners.system_clock import SystemClock
from tests.waiting import until
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_timestamp_us
from windowing.window import Window

RANGE = RangeId("sum", 0)
DSN = "postgresql://me:s3cret@localhost:5432/flights"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every connection string leads to."""
    store = MemoryStore()
    monkeypatch.setenv("DATAFLOW_STORE", DSN)

    def open_store(dsn: str, *, connect_timeout_s: float) -> Store:
        assert dsn == DSN
        return store

    monkeypatch.setattr(command_line, "open_store", open_store)
    return store


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of this machine, in microseconds since 1970, as the commands read it."""
    return lambda now_us: monkeypatch.setattr(SystemClock, "now_us", lambda _: int(now_us))


def open_job(store: MemoryStore, job: str = "scores", mode: str = "streaming") -> None:
    (keys,) = even_ranges(1)
    store.open_job(
        JobSpec(
            job=job,
            mode=mode,
            fingerprint="f",
            ranges=[RangeSpec(range_id=RANGE, keys=keys)],
            signals=frozenset({"flush", "peek"}) if mode == "streaming" else frozenset(),
        )
    )


def commit(store: MemoryStore, **changes: object) -> None:
    row = store.acquire("scores", [RANGE], "me")[RANGE].row
    fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
    store.commit(Production(job="scores", fences=[fence], **changes))  # type: ignore[arg-type]


def late(key: str, count: int, end_us: int = 60_000_000) -> LateRecord:
    return LateRecord(
        transform="sum",
        key=key,
        window_start_us=MIN_TIMESTAMP_US if end_us == MAX_TIMESTAMP_US else 0,
        window_end_us=end_us,
        watermark_us=90_500_000,
        payload=b"never looked at",
        count=count,
    )


def test_signal_is_sent_and_numbered(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)

    assert main(["signal", "scores", "flush"]) == 0
    assert main(["signal", "scores", "peek", "--store", DSN]) == 0
    assert store.read_signals("scores", 0) == [Signal(1, "flush"), Signal(2, "peek")]
    assert capsys.readouterr() == (
        "signal 1 of job scores: flush\nsignal 2 of job scores: peek\n", ""
    )  # fmt: skip


def test_jobs_are_a_table(
    store: MemoryStore, set_clock: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    open_job(store, "a batch", "batch")
    commit(store, watermarks_us={RANGE: 1_500_000})
    store.finish_job("a batch")
    set_clock(201_500_000)

    assert main(["jobs"]) == 0
    assert [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()] == [
        ["job", "mode", "state", "driver", "watermark", "lag", "ranges open", "listens to"],
        ["a batch", "batch", "finished", "-", "-", "-", "0 of 1", "-"],
        [
            "scores",
            "streaming",
            "unfinished",
            "-",
            "1970-01-01T00:00:01.500000+00:00",
            "3 minutes behind",
            "1 of 1",
            "flush, peek",
        ],
    ]


def test_jobs_are_objects_for_programs(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "--json"]) == 0
    assert capsys.readouterr().out == ""
    open_job(store)
    open_job(store, "a batch", "batch")
    commit(store, watermarks_us={RANGE: 1_500_000})
    store.finish_job("a batch")

    assert main(["jobs", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["job"], first["state"], first["watermark"]) == ("a batch", "finished", None)
    assert second == {
        "job": "scores",
        "mode": "streaming",
        "state": "unfinished",
        "driver": None,
        "watermark": "1970-01-01T00:00:01.500000+00:00",
        "open_ranges": 1,
        "ranges": 1,
        "signals": ["flush", "peek"],
    }


def test_a_job_that_is_over_or_has_not_begun_has_no_lag(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for job, watermark_us in (("over", 1_500_000), ("begun", MAX_TIMESTAMP_US)):
        open_job(store, job)
        row = store.acquire(job, [RANGE], "me")[RANGE].row
        fence = Fence(range_id=RANGE, token=row.token, bundle=row.bundle + 1)
        store.commit(Production(job=job, fences=[fence], watermarks_us={RANGE: watermark_us}))
    store.finish_job("over")

    assert main(["jobs"]) == 0
    out = capsys.readouterr().out
    assert "the end of time" in out
    assert "behind" not in out
    assert "ahead" not in out


def test_check_prints_what_an_upgrade_would_do(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of jobs in its own format, in one that it reads, in a later one, and in one from before there were numbers."""
    for number, job in enumerate(("ancient", "old", "current", "future")):
        open_job(store, job)
        stored = store._jobs[job]
        stored.spec = attrs.evolve(stored.spec, stored_format=number)

    with writing(Format(number=2, readers={1: lambda _, fields: fields})):
        assert main(["check"]) == 2

    out, error = capsys.readouterr()
    first, _, *lines = out.splitlines()
    assert first == "this version of dataflow-model writes format 2, and reads 1 and 2"
    printed = {line.split()[0]: line for line in lines}
    assert "none" in printed["ancient"]
    assert "fresh=True" in printed["ancient"]
    assert "goes on, and is in format 2 from then on" in printed["old"]
    assert printed["current"].endswith("goes on")
    assert printed["future"].endswith("is refused: it needs a later version")
    assert "cannot go on with 2 of 4 jobs" in error
    assert "ancient, future" in error
    assert [each.stored_format for each in store.read_jobs()] == [0, 2, 3, 1]


def test_check_is_content_where_all_jobs_go_on(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "no jobs\n"
    open_job(store)
    assert main(["check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("goes on")


def test_check_names_who_has_an_old_snapshot(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names are another program's, and do not reach the terminal as they are."""
    asked = list[float]()

    def old_snapshots(older_than_s: float) -> list[OldSnapshot]:
        asked.append(older_than_s)
        return [
            OldSnapshot(
                holder="session 4711",
                application="pg_dump\x1b[2J",
                user="me",
                state="idle in transaction",
                age_s=185.2,
            )
        ]

    monkeypatch.setattr(store, "old_snapshots", old_snapshots)
    open_job(store)

    assert main(["check"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "session 4711" in line
    assert "pg_dump\\x1b[2J, user me, idle in transaction" in line
    assert "for 3 minutes" in line
    assert asked == [60.0]


def test_no_jobs_are_reported_as_none(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs"]) == 0

    assert capsys.readouterr().out == "no jobs\n"


def test_late_records_are_rows_and_counts(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key cannot write to the terminal."""
    open_job(store)
    commit(store, late=[late("'a'", 2), late("'\x1b[2J'", 1, MAX_TIMESTAMP_US)])

    assert main(["late", "scores"]) == 0
    rows, counts = capsys.readouterr().out.split("\n\n")
    header, first, second = rows.splitlines()
    assert header.split("  ")[0] == "transform"
    assert "'a'" in first
    assert "1970-01-01T00:01:00+00:00  1970-01-01T00:01:30.500000+00:00  2" in first
    assert "\x1b" not in second
    assert "the beginning of time" in second
    assert counts.split() == ["transform", "late", "records", "sum", "3"]


METRICS = {
    MetricOf("sum/inner", Metric(MetricKind.COUNTER, "scores", "refused")): 1_200,
    MetricOf("read", Metric(MetricKind.DISTRIBUTION, "scores", "points")): (2, 8, 3, 5),
    MetricOf("read", Metric(MetricKind.GAUGE, "limits", "open")): (0.5, 90_500_000),
    MetricOf("read", Metric(MetricKind.STRING_SET, "scores", "\x1b[2J")): frozenset("ab"),
}


def test_metrics_are_rows(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A name cannot write to the terminal."""
    open_job(store)
    assert main(["metrics", "scores"]) == 0
    assert capsys.readouterr().out == "no metrics in job scores\n"
    commit(store, metrics=Counted(encode_metrics(METRICS)))

    assert main(["metrics", "scores"]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [[each.strip() for each in line if each] for line in lines] == [
        ["transform", "namespace", "name", "value"],
        ["sum/inner", "scores", "refused", "1,200"],
        ["read", "scores", "points", "2 from 3 to 5, mean 4, sum 8"],
        ["read", "limits", "open", "0.5"],
        ["read", "scores", "'\\x1b[2J'", "a, b"],
    ]
    assert main(["metrics", "scores", "--step", "inner", "--name", "refused", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "kind": "counters",
        "transform": "sum/inner",
        "namespace": "scores",
        "name": "refused",
        "value": 1_200,
    }
    assert main(["metrics", "scores", "--json"]) == 0
    values = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
    assert values == [
        1_200,
        {"count": 2, "sum": 8, "min": 3, "max": 5},
        {"value": 0.5, "timestamp": "1970-01-01T00:01:30.500000+00:00"},
        ["a", "b"],
    ]


def test_rows_of_a_table_are_shown_in_the_order_of_its_key(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = TableSpec(name="totals", columns={"team": str, "at": datetime}, key=("team",))
    (keys,) = even_ranges(1)
    ranges = [RangeSpec(range_id=RANGE, keys=keys)]
    spec = JobSpec(job="scores", mode="batch", fingerprint="f", ranges=ranges, tables=[totals])
    store.open_job(spec)
    assert main(["rows", "totals"]) == 0
    assert capsys.readouterr().out == "table totals has no rows\n"
    rows = [("red", datetime(2024, 1, 2, tzinfo=UTC)), ("a\nb", None)]
    commit(store, tables=[TableWrite(table=totals, upserts=rows)])
    assert main(["rows", "totals"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "team    at",
        "'a\\nb'  -",
        "red     2024-01-02T00:00:00+00:00",
    ]
    assert main(["rows", "totals", "--json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"team": "a\nb", "at": None}
    assert main(["rows", "total"]) == 2
    assert "its result tables are: totals" in capsys.readouterr().err


def test_late_records_as_json_are_one_object_a_line(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    commit(store, late=[late("'a'", 2), late("'b\n'", 1)])

    assert main(["late", "scores", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "transform": "sum",
        "key": "'a'",
        "window_start": "1970-01-01T00:00:00+00:00",
        "window_end": "1970-01-01T00:01:00+00:00",
        "watermark": "1970-01-01T00:01:30.500000+00:00",
        "count": 2,
    }
    assert second["key"] == "'b\n'"


def test_dead_letters_name_what_failed(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line each; the traceback where there is room for it."""
    open_job(store)
    assert main(["dead", "scores"]) == 0
    assert capsys.readouterr().out == "no dead letters in job scores\n"
    letter = StoredDeadLetter(
        stage="read",
        error="transform 'parse' (job.py:12) raised ValueError: no\n  detail: element: 'x'",
        traceback="Traceback ...",
        tries=3,
        timestamp_us=0,
        payload=b"",
    )
    commit(store, dead=[letter])

    assert main(["dead", "scores"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["stage", "time", "tries", "error"]
    assert row.endswith("transform 'parse' (job.py:12) raised ValueError: no")
    assert main(["dead", "scores", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["traceback"] == "Traceback ..."


def test_contents_are_shown_on_demand(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    letter = StoredDeadLetter(
        stage="read", error="no", traceback="", tries=3, timestamp_us=0, payload=b"", contents="17"
    )
    commit(store, late=[attrs.evolve(late("'a'", 2), contents="('a', 1)")], dead=[letter])

    assert main(["late", "scores", "--contents"]) == 0
    assert "('a', 1)" in capsys.readouterr().out
    assert main(["dead", "scores", "--contents", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["contents"] == "17"


def test_purge_deletes_by_age_and_prints_how_many(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    commit(store, late=[late("'a'", 2), late("'b'", 1)])

    assert main(["purge", "scores"]) == 2
    assert "there is nothing to purge: no kind of records was given" in capsys.readouterr().err
    assert main(["purge", "scores", "--late", "1.5h", "--dead", "all"]) == 0
    assert capsys.readouterr().out == (
        "0 late records of job scores are deleted\n0 dead letters of job scores are deleted\n"
    )
    assert main(["purge", "scores", "--late", "all"]) == 0
    assert capsys.readouterr().out == "2 late records of job scores are deleted\n"
    assert main(["late", "scores"]) == 0
    assert capsys.readouterr().out == "no late records in job scores\n"
    with pytest.raises(SystemExit):
        main(["purge", "scores", "--late", "soon"])
    printed = capsys.readouterr().err
    assert "'soon' is not a duration" in printed
    assert "'30 days', P2W, or all" in printed
    assert "timedelta" not in printed


@pytest.mark.parametrize(
    ("age", "expected_s"),
    [
        ("90m", 5_400),
        ("1.5h", 5_400),
        ("30d", 2_592_000),
        ("2w", 1_209_600),
        ("all", 0),
        ("30 days", 2_592_000),
        ("PT90M", 5_400),
        ("1 hour 30 minutes", 5_400),
    ],
)
def test_an_age_is_any_duration(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, age: str, expected_s: float
) -> None:
    open_job(store)
    asked: list[float] = []

    def purge(*_: Any, older_than_s: float) -> int:
        asked.append(older_than_s)
        return 0

    monkeypatch.setattr(store, "purge", purge)

    assert main(["purge", "scores", "--late", age]) == 0
    assert asked == [expected_s]


@pytest.mark.parametrize("age", ["-1h", "3", "1 month", "P1Y"])
def test_what_is_no_age_is_refused(
    store: MemoryStore, age: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    with pytest.raises(SystemExit):
        main(["purge", "scores", f"--late={age}"])

    assert repr(age) in capsys.readouterr().err


class Corrections:
    """A user's module for `dataflow replay`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.fails = False

    def add(self, rows: Sequence[Mapping[str, Any]], name: str) -> None:
        self.calls.append((name, [row["element"].value for row in rows]))
        if self.fails:
            raise ZeroDivisionError


@pytest.fixture
def corrections(monkeypatch: pytest.MonkeyPatch) -> Corrections:
    module: Corrections = Corrections()
    monkeypatch.setitem(sys.modules, "corrections", module)
    return module


def dead_letter(element: object) -> StoredDeadLetter:
    letter = dead_letters.DeadLetter(
        stage="read", element=element, timestamp_us=0, window=Window(0, 1), sign=1, error="",
        traceback="", tries=1,
    )  # fmt: skip
    return StoredDeadLetter.of(letter)


def test_replay_hands_over_the_same_records_until_it_is_done(
    store: MemoryStore, corrections: Corrections, capsys: pytest.CaptureFixture[str]
) -> None:
    """What comes meanwhile is for the next time, and what was not replayed stays."""
    open_job(store)
    commit(store, dead=[dead_letter(1), dead_letter("two")])
    arguments = ["replay", "scores", "corrections:add", "--dead"]
    corrections.fails = True
    assert main(arguments) == 2
    assert "corrections:add raised ZeroDivisionError" in capsys.readouterr().err
    commit(store, dead=[dead_letter(3)])
    corrections.fails = False
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert "no dead letters in job scores" not in capsys.readouterr().out
    assert main(arguments) == 0
    assert "no dead letters in job scores" in capsys.readouterr().out

    names, elements = zip(*corrections.calls, strict=True)
    assert elements == ([1, "two"], [1, "two"], [3])
    assert names[0] == names[1] != names[2]


def test_replay_can_keep_what_it_replays(
    store: MemoryStore, corrections: Corrections, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    commit(store, dead=[dead_letter(1)])
    assert main(["replay", "scores", "corrections:add", "--dead", "--keep"]) == 0
    assert len(store.read_dead_letters("scores")) == 1


@pytest.mark.parametrize("function", ["nowhere:add", "json:nothing", "json", "json:__doc__"])
def test_replay_needs_a_function(
    store: MemoryStore, function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    assert main(["replay", "scores", function]) == 2
    assert function in capsys.readouterr().err


def test_ranges_are_a_table(
    store: MemoryStore, set_clock: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    commit(store, watermarks_us={RANGE: 1_500_000})
    set_clock(86_401_500_000)

    assert main(["ranges", "scores"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("range   first key hash")
    assert row.split() == [
        "sum[0]", "0x0000000000000000", "0xffffffffffffffff", "me",
        "1970-01-01T00:00:01.500000+00:00", "1", "day", "behind", "-", "-", "-", "open",
    ]  # fmt: skip


def test_a_split_is_shown_with_its_last_poll(
    store: MemoryStore, set_clock: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was asked and had nothing differs from one that was not, and from one that is gone."""
    splits = [RangeSpec(range_id=RangeId("read", n), split=b"%d" % n) for n in range(3)]
    store.open_job(
        JobSpec(job="scores", mode="streaming", fingerprint="f", ranges=splits, tables=())
    )
    second = 1_000_000
    quiet = SplitPoll(polled_us=99 * second, record_us=40 * second, backlog=df.Backlog(records=0))
    waits = SplitPoll(polled_us=10 * second, backlog=df.Backlog(size_bytes=1_500, age_us=second))
    store.note_polls("scores", {RangeId("read", 0): quiet, RangeId("read", 1): waits})
    store.change_splits(
        SplitsChange(
            job="scores",
            version=0,
            computation="read",
            known=3,
            added=[],
            watermark_us=0,
            removed=[RangeId("read", 2)],
        )
    )
    set_clock(100 * second)

    assert main(["ranges", "scores"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    at = head.index("last poll")
    assert [re.split("  +", row[at:]) for row in rows] == [
        ["a few seconds ago", "1 minute ago", "0 records", "open"],
        ["1 minute ago", "-", "2 kB, since 1 second", "open"],
        ["-", "-", "-", "removed, not ended yet"],
    ]


def test_a_range_that_cannot_move_is_shown_with_the_one_it_waits_for(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    low, high = even_ranges(2)
    keys = {RANGE: low, RangeId("sum", 1): high}
    commit(store, reshape=Reshape(keys=keys, handover_with=RANGE))

    assert main(["ranges", "scores"]) == 0
    _, kept, born = capsys.readouterr().out.splitlines()
    assert kept.split()[-1] == "open"
    assert born.startswith("sum[1]")
    assert born.endswith("in handover with sum[0]")


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["move", "scores", "sum[0]", "1"], Request(Verb.MOVE, ("sum[0]", "1"))),
        (["split", "scores", "sum[0]"], Request(Verb.SPLIT, ("sum[0]",))),
        (["split", "scores", "sum[0]", "0x10"], Request(Verb.SPLIT, ("sum[0]", "16"))),
        (["merge", "scores", "sum[0]", "a [b][1]"], Request(Verb.MERGE, ("sum[0]", "a [b][1]"))),
        (["drain", "scores"], Request(Verb.DRAIN)),
        (["cancel", "scores"], Request(Verb.CANCEL)),
    ],
)
def test_a_job_is_asked(
    store: MemoryStore,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    request_: Request,
) -> None:
    open_job(store)

    assert main(arguments) == 0
    (found,) = store.read_requests("scores", 0)
    assert (found.request, found.answer) == (request_, None)
    assert capsys.readouterr() == (f"request 1 of job scores: {request_}\n", "")


def once_asked(store: MemoryStore, act: Callable[[], None]) -> threading.Thread:
    """A thread that does something as soon as the job has a request."""

    def wait_and_act() -> None:
        until(lambda: store.read_requests("scores", 0))
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "status"),
    [(Answer(is_done=True, text="it is"), 0), (Answer(is_done=False, text="no neighbours"), 2)],
)
def test_who_waits_gets_the_answer(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], answer: Answer, status: int
) -> None:
    open_job(store)
    answering = once_asked(store, lambda: store.answer_request("scores", 1, answer))

    assert main(["merge", "scores", "sum[0]", "sum[1]", "--wait"]) == status
    printed = "".join(capsys.readouterr())
    assert answer.text in printed
    assert "Traceback" not in printed
    answering.join()


def test_who_waits_for_a_drain_learns_of_the_end(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    ending = once_asked(store, lambda: store.finish_job("scores", is_drained=True))

    assert main(["drain", "scores", "--wait"]) == 0
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "drained"
    ending.join()


def test_who_waits_for_a_job_that_is_reset_is_notified(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    resetting = once_asked(store, lambda: store.reset_job("scores"))

    assert main(["drain", "scores", "--wait"]) == 2
    assert "was reset" in capsys.readouterr().err
    resetting.join()


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["ranges", "score"], ["no job 'score'"]),
        (["drain", "score"], ["no job 'score'"]),
        (["drain", "replay"], ["runs in batch"]),
        (["cancel", "old"], ["is finished"]),
        (["split", "scores", "sum"], ["'sum' is not the name of a range", "dataflow ranges"]),
        (["move", "scores", "sum[0]", "-1"], ["no slot -1"]),
        (["signal", "score", "flush"], ["no job 'score'", "jobs are: old, replay, scores"]),
        (["late", "score"], ["no job 'score'", "--store"]),
        (["signal", "scores", "flsh"], ["no trigger listens", "'flush', 'peek'"]),
        (["signal", "replay", "flush"], ["runs in batch"]),
        (["signal", "old", "flush"], ["finished", "too late"]),
    ],
)
def test_what_cannot_be_done_is_reported_without_a_traceback(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], arguments: list[str], printed: list[str]
) -> None:
    open_job(store)
    open_job(store, "old")
    open_job(store, "replay", "batch")
    store.finish_job("old")

    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert all(part in err for part in printed), err


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", DSN],
        [DSN],
        ["signal", DSN, "flush"],
        ["late", "host=localhost password=s3cret user=me"],
        ["late", "host=localhost password='s3cret' user=me"],
        ["jobs", "postgresql://me:s3cret/with@more:s3cret@localhost/flights"],
    ],
)
def test_a_password_in_the_wrong_place_is_not_repeated(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as left:
        status = int(left.code or 0)

    assert status == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "s3cret" not in err
    assert "***" in err


def test_the_advice_of_how_to_write_a_dsn_stays_readable() -> None:
    advice = "write postgresql://user:password@host:port/database"

    assert command_line._without_secrets(advice) == advice


@pytest.mark.parametrize("dsn", [DSN.replace("localhost:5432", "localhost:1"), "post://a:s3cret@b"])
def test_a_store_that_is_not_there(
    dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "_CONNECT_TIMEOUT_S", 0.0)

    assert main(["jobs", "--store", dsn]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "what to do:" in err
    assert "Traceback" not in err
    assert "s3cret" not in err


def test_interrupting_it_is_no_error(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_jobs(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryStore, "read_jobs", read_jobs)

    assert main(["jobs"]) == 130
    assert capsys.readouterr() == ("", "")


def test_the_page_about_streams_has_commands_that_exist(store: MemoryStore) -> None:
    """Each is typed as it stands there, but for the waiting."""
    page = Path(__file__).parents[3] / "docs/how-to/run-a-stream.md"
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    open_job(store)

    assert len(commands) == 10
    for program, *arguments in commands:
        assert program == "dataflow"
        assert main([each for each in arguments if each != "--wait"]) == 0
    verbs = [each.request.verb for each in store.read_requests("scores", 0)]
    assert verbs == [Verb.MOVE, Verb.SPLIT, Verb.MERGE, Verb.DRAIN, Verb.CANCEL]


@pytest.mark.parametrize(
    "arguments", [[], *([each] for each in ("signal", "jobs", "late", "ranges", *Verb))]
)
def test_help_has_an_example(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--help"])

    assert left.value.code == 0
    assert "example" in capsys.readouterr().out


class NoLock:
    """The lock of a job that nobody runs."""

    def hold(self) -> None:
        """Have it."""

    def release(self) -> None:
        """Let it go."""


def with_tables(store: MemoryStore, job: str, *tables: TableSpec) -> None:
    store.open_job(JobSpec(job=job, mode="batch", fingerprint="f", ranges=[], tables=tables))


def test_a_job_is_forgotten_with_what_is_its_own_and_only_when_asked_to(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "open_store", lambda _: store)
    monkeypatch.setattr(registry, "job_lock", lambda *_: NoLock())
    own = TableSpec(name="own", columns={"n": int})
    common = TableSpec(name="common", columns={"n": int}, is_shared=True)
    with_tables(store, "scores", own, common)
    with_tables(store, "other", common)

    assert main(["forget", "scores"]) == 2
    printed = capsys.readouterr().err
    assert "dropped: own; " in printed
    assert "stay as they are: common" in printed
    assert "--yes" in printed
    assert store.read_job("scores") is not None

    assert main(["forget", "scores", "--yes"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "job scores is forgotten",
        "tables dropped: own",
        "tables left as they are: common",
    ]
    assert store.read_job("scores") is None
    assert [table.name for table in store.result_tables("other")] == ["common"]
    assert main(["forget", "scores", "--yes"]) == 2


def test_why_prints_the_latest_reasons_first(
    store: MemoryStore, set_clock: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """In full, with how often and when."""
    open_job(store)
    assert main(["troubles", "scores"]) == 0
    assert "no worker of job scores is known to have ended" in capsys.readouterr().out
    death = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom\nmore of it", count=3)
    store.note_troubles("scores", [death])
    store.note_troubles("scores", [Trouble(kind=TroubleKind.WAIT, place="slot 1", reason="a lock")])
    set_clock(to_timestamp_us(store.read_troubles("scores")[0].last_at) + 200_000_000)
    assert main(["troubles", "scores"]) == 0
    printed = capsys.readouterr().out

    assert " UTC, 3 minutes ago: a worker waits" in printed
    assert printed.index("a worker waits at slot 1: a lock") < printed.index(
        "a worker ended at sum[0]"
    )
    assert "(3 times): boom\nmore of it" in printed


def test_a_mistaken_command_names_the_others_as_they_are_written(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["mov"])
    printed = capsys.readouterr().err

    assert "move" in printed
    assert "Verb" not in printed


def test_what_waits_for_sinks_is_shown_and_check_refuses_a_lane_that_fails_for_long(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_job(store)
    assert main(["sinks", "scores"]) == 0
    assert capsys.readouterr().out == "nothing has waited for a sink of job scores\n"
    now_us = SystemClock().now_us()
    quiet = LaneStatus(
        outbox="dataflow_outbox.scores/topic",
        sink="topic",
        number=0,
        waiting=0,
        oldest_us=None,
        delivered=7,
        failure=None,
    )
    visible = VisibleBatch(
        first_us=now_us - 400_000_000, last_us=now_us - 310_000_000, visible_us=now_us - 130_000_000
    )
    reason = "OSError: no route\x1b[2J\nmore"
    failure = LaneFailure(since_us=now_us - 200_000_000, last_us=now_us, tries=40, reason=reason)
    failing = attrs.evolve(
        quiet,
        number=1,
        waiting=12_345,
        oldest_us=now_us - 200_000_000,
        failure=failure,
        visible=visible,
    )
    lanes = [quiet, failing]
    monkeypatch.setattr(store, "read_lanes", lambda job: lanes if job == "scores" else [])

    assert main(["sinks", "scores"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["topic", "0", "0", "-", "7", "-", "-", "-"]
    assert "12,345" in second
    assert re.search(r" 7 +5 minutes ago +2 minutes ago +'first failed", second)
    assert "first failed 3 minutes ago, 40 times" in second
    assert "OSError: no route" in second
    assert "\x1b" not in second
    assert "more" not in second
    assert main(["check"]) == 0, "a sink that is restarted"
    capsys.readouterr()

    lanes[1] = attrs.evolve(failing, failure=attrs.evolve(failure, since_us=now_us - 301_000_000))
    assert main(["check"]) == 2
    out, error = capsys.readouterr()
    assert "lane 1 of topic in job scores, for which 12,345 rows wait" in out
    assert "sinks of 1 of 1 jobs have failed for five minutes or longer" in error
    store.finish_job("scores")
    assert main(["check"]) == 0
