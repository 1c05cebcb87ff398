"""The command line `dataflow`, on a store in memory: what it prints, its exit status, and its secrets."""

import json

import pytest

from runners import cli
from runners.cli import main
from runners.millwheel.ids import Fence, RangeId
from runners.millwheel.key_range import even_ranges
from runners.millwheel.production import DeadLetter, LateRecord, Production
from runners.millwheel.signals import Signal
from runners.millwheel.store.memory import MemoryStore
from runners.millwheel.store.port import JobSpec, RangeSpec, Store
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

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

    monkeypatch.setattr(cli, "open_store", open_store)
    return store


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


def test_jobs_are_a_table(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    open_job(store)
    open_job(store, "a batch", "batch")
    commit(store, watermarks_us={RANGE: 1_500_000})
    store.finish_job("a batch")

    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "job      mode       state       watermark                         ranges open  listens to",
        "a batch  batch      finished    -                                 1 of 1       -",
        "scores   streaming  unfinished  1970-01-01T00:00:01.500000+00:00  1 of 1       flush, peek",
    ]


def test_no_jobs_are_said_to_be_none(
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


def test_dead_letters_say_what_failed(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line each; the traceback where there is room for it."""
    open_job(store)
    assert main(["dead", "scores"]) == 0
    assert capsys.readouterr().out == "no dead letters in job scores\n"
    letter = DeadLetter(
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["signal", "score", "flush"], ["no job 'score'", "jobs are: old, replay, scores"]),
        (["late", "score"], ["no job 'score'", "--store"]),
        (["signal", "scores", "flsh"], ["no trigger listens", "'flush', 'peek'"]),
        (["signal", "replay", "flush"], ["runs in batch"]),
        (["signal", "old", "flush"], ["finished", "too late"]),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    store: MemoryStore, capsys: pytest.CaptureFixture[str], arguments: list[str], said: list[str]
) -> None:
    open_job(store)
    open_job(store, "old")
    open_job(store, "replay", "batch")
    store.finish_job("old")

    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert all(part in err for part in said), err


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

    assert cli._without_secrets(advice) == advice


@pytest.mark.parametrize("dsn", [DSN.replace("localhost:5432", "localhost:1"), "post://a:s3cret@b"])
def test_a_store_that_is_not_there(
    dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_CONNECT_TIMEOUT_S", 0.0)

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


@pytest.mark.parametrize("arguments", [[], ["signal"], ["jobs"], ["late"]])
def test_help_has_an_example(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--help"])

    assert left.value.code == 0
    assert "example" in capsys.readouterr().out
