"""Commands that tell where a job is and why: what they print of a store, whether or not a driver has left anything."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from runners.cli import command_line
from runners.cli.command_line import main
from runners.millwheel.model.events import Actor, EventKind, JobEvent
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.troubles import Trouble, TroubleKind
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import (
    BlockedSession,
    JobSpec,
    JobSummary,
    OldSnapshot,
    RangeSpec,
    Store,
)
from runners.millwheel.versions.state_shape import StateShape
from runners.observability.evidence.snapshot import (
    Doing,
    DriverEvidence,
    FreshnessObjective,
    HotKey,
    JobSnapshot,
    Phase,
    RangeEvidence,
    RangeState,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
)
from runners.observability.why.explanation import CauseKind, WhyExplanation
from runners.relay.outbox import LaneFailure, LaneStatus
from runners.testing.manual_clock import ManualClock

DSN = "postgresql://me@db.example.org/flights"
NOON_US = 1_711_886_640_000_000  # 2024-03-31T12:04:00Z
S = 1_000_000
READ, SUM = RangeId("read", 0), RangeId("sum", 0)
SHAPES = {
    "read": StateShape({}),
    "sum": StateShape(
        {
            "window_fn": f"FixedWindows(size_us={120 * S}, offset_us=0)",
            "trigger": "DefaultTrigger()",
            "allowed_lateness": "0",
        },
        senders=("read",),
        tables={"rows": "scores"},
    ),
}


class Driven(MemoryStore):
    """A store whose jobs have a driver, or have none."""

    driver: str | None = "host, process 7"

    def read_jobs(self) -> Sequence[JobSummary]:
        return [attrs.evolve(each, driver=self.driver) for each in super().read_jobs()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> Driven:
    store = Driven(clock)
    (keys,) = even_ranges(1)
    store.open_job(
        JobSpec(
            job="scores",
            mode="streaming",
            fingerprint="f",
            ranges=[
                RangeSpec(range_id=READ, split=b"split"),
                RangeSpec(range_id=SUM, keys=keys),
            ],
            computations={name: shape.encoded() for name, shape in SHAPES.items()},
        )
    )
    monkeypatch.setenv("DATAFLOW_STORE", DSN)

    def open_store(dsn: str, *, connect_timeout_s: float) -> Store:
        return store

    monkeypatch.setattr(command_line, "open_store", open_store)
    return store


def snapshot(phase: Phase = Phase.RUNNING, record_s: int = 41) -> JobSnapshot:
    """One split that has read up to 12:05:12, a minute behind its last record, and one grouping."""
    at_us = NOON_US + 200 * S
    read_us = NOON_US + 72 * S
    poll = SplitEvidence(polled_us=at_us - S, record_us=at_us - record_s * S)
    common: dict[str, Any] = {"slot": 0, "state": RangeState.OWNED, "worker": "w", "index": 0}
    return JobSnapshot(
        job="scores",
        job_version=0,
        taken_us=at_us,
        driver=DriverEvidence(
            name="host, process 7", started_us=0, phase=phase, workers=1, workers_ready=1
        ),
        watermark_us=read_us,
        slowest_source_us=read_us,
        stages={
            "read": StageEvidence(
                is_source=True, senders=(), input_us=None, output_us=read_us, records=120
            ),
            "sum": StageEvidence(
                is_source=False, senders=("read",), input_us=read_us, output_us=read_us
            ),
        },
        ranges={
            "read[0]": RangeEvidence(
                stage="read", output_us=read_us, processed_us=read_us, poll=poll, **common
            ),
            "sum[0]": RangeEvidence(stage="sum", output_us=read_us, processed_us=read_us, **common),
        },
        workers=[WorkerEvidence(slot=0, worker="w", reported_us=at_us, heartbeat_us=at_us)],
    )


def note(store: Driven, found: JobSnapshot) -> None:
    store.note_snapshot("scores", found.write(), found.taken_us)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    return output(capsys, "why", "scores", *arguments)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def test_it_names_the_split_that_holds(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot())
    shown = printed(capsys, "--window", "2024-03-31T12:04:00Z/2024-03-31T12:06:00Z")
    first, second, *_ = shown.splitlines()

    assert first == (
        "2024-03-31T12:04:00+00:00 to 2024-03-31T12:06:00+00:00 has not ended for 'sum'; "
        "'sum' is at 2024-03-31T12:05:12+00:00, 48 seconds before it"
    )
    assert second.startswith(
        "held by: split read[0] is at 2024-03-31T12:05:12+00:00: its last record"
    )
    assert "41 seconds ago" in second
    assert "\nheld by:\n  'sum' is at" in shown


def test_all_is_well(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot(record_s=1))
    shown = printed(capsys)

    assert shown.startswith(
        "nothing is due: the next window of 'sum' ends at 2024-03-31T12:06:00+00:00, "
        "in 48 seconds of event time; event time goes on, and all is well\n"
    )


def test_it_answers_when_the_driver_is_dead(
    store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    note(store, snapshot())
    store.note_troubles(
        "scores", [Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom\nand more")]
    )
    store.driver = None
    clock.advance(41_000)
    shown = printed(capsys)

    first, second, *_ = shown.splitlines()
    assert first == (
        "nobody runs job scores: its driver, host, process 7, has written nothing for 41 seconds"
    )
    assert second.endswith("at sum[0]: boom")
    assert "hint: run it again: it goes on where it was" in shown


def test_a_driver_that_is_silent(
    store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    note(store, snapshot())
    clock.advance(41_000)

    assert "has written nothing for 41 seconds" in printed(capsys)


def test_a_job_that_is_being_paused(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot(Phase.PAUSING))

    assert "job scores is being paused: its sources are not read" in printed(capsys)


def test_a_store_without_a_snapshot(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    """An older driver has left none: what is shown is as of the last commits, and that is said."""
    shown = printed(capsys)

    assert "read[0] has no owner" in shown
    assert "unknown: the driver has left no snapshot of what it knows" in shown


def test_a_snapshot_of_a_later_version(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    store.note_snapshot("scores", b'{"version": 99}', 1)

    assert "unknown: what the driver has left cannot be read" in printed(capsys)


def test_a_key_that_nobody_has_seen(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot())
    shown = printed(capsys, "--key", "red")

    assert "no record of red has come to 'sum'" in shown
    assert "its sources have read 120 records, of any key" in shown


def test_json_is_the_same_object(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot())
    found = WhyExplanation.of_json(json.loads(printed(capsys, "--transform", "scores", "--json")))

    assert found.cause is CauseKind.WAITS_FOR_RECORD
    assert found.asked.stage == "sum"
    assert [each.name for each in found.chain] == ["sum", "read[0]"]


@pytest.mark.parametrize("window", ["noon", "2024-03-31T12:04:00Z/never"])
def test_what_is_no_window_is_refused(
    store: Driven, capsys: pytest.CaptureFixture[str], window: str
) -> None:
    assert main(["why", "scores", "--window", window]) == 2
    assert "is no window" in capsys.readouterr().err


def test_a_transform_that_is_not_there_is_refused(
    store: Driven, capsys: pytest.CaptureFixture[str]
) -> None:
    note(store, snapshot())

    assert main(["why", "scores", "--transform", "nobody"]) == 2
    error = capsys.readouterr().err
    assert "there is no transform 'nobody' in job scores" in error
    assert "its stages are: 'read', 'sum'" in error


def test_top_has_a_line_for_each_stage(store: Driven, capsys: pytest.CaptureFixture[str]) -> None:
    note(store, snapshot())
    assert main(["top", "scores"]) == 0
    first, header, read, sums = capsys.readouterr().out.splitlines()

    assert first == "scores is running, as of 0 seconds ago"
    assert header.split("  ")[0] == "stage"
    assert " ".join(read.split()).startswith(
        "read ! behind 2024-03-31T12:05:12+00:00 0 seconds 2 minutes"
    )
    assert "» waits for its input" in sums


def test_top_knows_what_is_old(
    store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the driver of a moment ago knew is how things are; what it knew six seconds ago is not."""
    note(store, snapshot())
    states = []
    for advance_ms in (800, 6_000):
        clock.advance(advance_ms)
        assert main(["top", "scores", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        states.append([(each["state"], each["own_lag_us"]) for each in found["stages"]])

    assert states[0] == [("behind", 128_800_000), ("waits for its input", 0)]
    assert states[1] == [("unknown", None), ("unknown", None)]
    assert found["age_us"] == 6_800_000
    assert main(["top", "scores"]) == 0
    assert "as of 7 seconds ago" in capsys.readouterr().out


def test_top_of_a_store_without_a_snapshot(
    store: Driven, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "scores"]) == 0
    shown = capsys.readouterr().out

    assert "as of the last commits" in shown
    assert "○ unknown" in shown


def test_a_probe(store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is for a probe, and the line for whoever reads its log."""
    note(store, snapshot())

    assert main(["check", "scores", "--fresh-within", "129s"]) == 0
    assert (
        capsys.readouterr().out
        == "fresh: 'sum' of job scores is 2 minutes 8 seconds behind the clock, and may be 2 minutes 9 seconds\n"
    )
    assert main(["check", "scores", "--fresh-within", "127s"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "not fresh: 'sum' of job scores is 2 minutes 8 seconds behind the clock, and may be 2 minutes 7 seconds: "
    )
    assert "held by: split read[0]" in line

    clock.advance(6_000)
    assert main(["check", "scores", "--fresh-within", "1h"]) == 2
    assert "it is not known how fresh job scores is" in capsys.readouterr().err
    store.driver = None
    assert main(["check", "scores", "--fresh-within", "1h"]) == 2
    assert "job scores is not running" in capsys.readouterr().err
    store.finish_job("scores")
    assert main(["check", "scores", "--fresh-within", "1h"]) == 0


def test_a_probe_of_the_driver_alone(
    store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """However far a job is behind, a restart would bring it no further; one of a silent driver would."""
    assert main(["check", "scores", "--alive"]) == 2
    assert "has reported nothing yet" in capsys.readouterr().err
    note(store, snapshot())
    assert main(["check", "scores", "--fresh-within", "1s"]) == 2
    capsys.readouterr()
    assert main(["check", "scores", "--alive"]) == 0
    assert capsys.readouterr().out == "alive: job scores is running\n"

    clock.advance(6_000)
    assert main(["check", "scores", "--alive"]) == 2
    assert "the driver of job scores has reported nothing for 6 seconds" in capsys.readouterr().err
    store.driver = None
    assert main(["check", "scores", "--alive"]) == 2
    assert "not alive: job scores is not running" in capsys.readouterr().err
    store.finish_job("scores")
    assert main(["check", "scores", "--alive"]) == 0
    for more in ([], ["scores", "--strict"], ["scores", "--fresh-within", "5s"]):
        assert main(["check", "--alive", *more]) == 2
        assert "dataflow check JOB --alive" in capsys.readouterr().err


def declared(within_s: int) -> JobSnapshot:
    """What a driver writes of a pipeline that declares how fresh its rows are."""
    objective = FreshnessObjective(
        transform="rows",
        stage="sum",
        within_us=within_s * S,
        behind_us=128 * S,
        is_met=within_s >= 128,
    )
    return attrs.evolve(snapshot(), objectives=[objective])


def test_a_probe_of_what_is_declared(
    store: Driven, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option; by the command, beside the stages, and where somebody asks why."""
    note(store, declared(130))
    assert main(["check", "scores"]) == 0
    assert "fresh: 'rows' of job scores is 2 minutes 8 seconds behind" in capsys.readouterr().out
    note(store, declared(60))
    assert main(["check", "scores"]) == 2
    assert (
        "not fresh: 'rows' of job scores is 2 minutes 8 seconds behind the clock, and may be 1 minute: "
        in (capsys.readouterr().err)
    )
    assert "rows: not fresh, 2 minutes 8 seconds behind the clock" in output(
        capsys, "top", "scores"
    )
    assert "not met, 2 minutes 8 seconds behind, by 'rows'" in output(capsys, "why", "scores")
    assert main(["check", "scores", "--fresh-within", "3m"]) == 0
    capsys.readouterr()

    monkeypatch.setattr(
        store,
        "old_snapshots",
        lambda _: [
            OldSnapshot(holder="session 7", application="a", user="b", state="idle", age_s=99.0)
        ],
    )
    assert main(["check", "scores", "--fresh-within", "3m"]) == 0
    assert (
        "store, long transaction: session 7 (a, user b, idle) has held a snapshot for 1 minute 39 seconds"
        in (capsys.readouterr().out)
    )
    assert main(["check", "scores", "--fresh-within", "3m", "--strict"]) == 2


@pytest.mark.parametrize("arguments", [["scores"], ["--fresh-within", "5s"], ["--strict"]])
def test_a_probe_needs_a_job_and_a_time(
    store: Driven, capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    note(store, snapshot())
    assert main(["check", *arguments]) == 2
    assert "--fresh-within 5s" in capsys.readouterr().err


def test_advice_of_a_job_and_of_one_of_which_nothing_is_known(
    store: Driven, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "scores"]) == 2
    assert "its driver has left no snapshot" in capsys.readouterr().err
    note(store, snapshot())
    assert "nothing is advised: the driver has only just begun to look" in output(
        capsys, "advise", "scores"
    )
    found = snapshot()
    ranges = {
        "read[0]": attrs.evolve(found.ranges["read[0]"], records_per_s=4_000.0),
        "sum[0]": attrs.evolve(found.ranges["sum[0]"], records_per_s=9_000.0, keys=(0, 2**64 - 1)),
    }
    workers = [*found.workers, WorkerEvidence(slot=1, worker="v")]
    driver = attrs.evolve(found.driver, workers=2, workers_ready=2)
    note(store, attrs.evolve(found, ranges=ranges, workers=workers, driver=driver))
    shown = output(capsys, "advise", "scores")
    assert "1. move read[0] to slot 1: its worker has more to do than others" in shown
    assert "dataflow move scores 'read[0]' 1 --wait" in shown
    assert "records/s of the workers: 13,000, 0 before, 9,000, 4,000 after" in shown
    first = json.loads(output(capsys, "advise", "scores", "--json"))["steps"][0]
    assert (first["kind"], first["command"]) == ("move", "dataflow move scores 'read[0]' 1 --wait")
    clock.advance(6_000)
    assert main(["advise", "scores"]) == 2
    assert "nobody knows the load of job scores now" in capsys.readouterr().err


KEY, PASSWORD, RECORD = "anna@example.org", "hunter2", "4111-1111"
#: All of the three, as an error says them.
REASON = (
    f"ValueError: no score in {RECORD} of {KEY}: postgresql://me:{PASSWORD}@db/x\n"
    f'  File "/home/me/jobs/scores.py", line 12, in parse\n    raise ValueError("{RECORD}")'
)


class WithTroubles(Driven):
    """A store that has a key, a record and a password wherever there can be one."""

    def read_lanes(self, job: str) -> Sequence[LaneStatus]:
        failure = LaneFailure(since_us=0, last_us=S, tries=3, reason=REASON)
        return [
            LaneStatus(
                outbox="o.scores",
                sink="send",
                number=0,
                waiting=2,
                oldest_us=0,
                delivered=None,
                failure=failure,
            )
        ]

    def blocked_sessions(self) -> Sequence[BlockedSession]:
        query = f"UPDATE users SET password = '{PASSWORD}' WHERE mail = '{KEY}'"
        return [BlockedSession(session=1, holder=2, query=query, age_s=60.0)]


def with_troubles(clock: ManualClock) -> WithTroubles:
    store = WithTroubles(clock)
    (keys,) = even_ranges(1)
    parts = {
        "window_fn": f"OwnWindows(of={KEY!r})",
        "trigger": f"OwnTrigger({RECORD!r})",
        "aggregation": f"functools.partial(dial, {PASSWORD!r})",
    }
    store.open_job(
        JobSpec(
            job="scores",
            mode="streaming",
            fingerprint=PASSWORD,
            signals=frozenset({KEY}),
            ranges=[
                RangeSpec(range_id=READ, split=f"topic?password={PASSWORD}".encode()),
                RangeSpec(range_id=SUM, keys=keys),
            ],
            computations={
                "read": SHAPES["read"].encoded(),
                "sum": StateShape(parts, senders=("read",)).encoded(),
            },
        )
    )
    store.note_troubles("scores", [Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason=REASON)])
    store.note_event(
        "scores",
        JobEvent(
            kind=EventKind.START,
            actor=Actor.DRIVER,
            who="host, process 7",
            reason=REASON,
            details={"key": KEY},
        ),
    )
    found = snapshot()
    hot = HotKey(key_hash=123_456_789_012_345, count=9, error=0, of=10, key=KEY)
    ranges = {
        name: attrs.evolve(each, hot_keys=[hot], hashes=[hot.key_hash])
        for name, each in found.ranges.items()
    }
    waiting = attrs.evolve(
        found.workers[0],
        heartbeat_received_us=found.taken_us,
        committing_us=found.taken_us - 30 * S,
        doing=Doing(stage="sum", since_us=found.taken_us, transform="sum"),
    )
    note(store, attrs.evolve(found, ranges=ranges, workers=[waiting]))
    return store


@pytest.mark.parametrize("driver", ["host, process 7", None])
def test_a_bundle_has_no_key_and_no_password(
    monkeypatch: pytest.MonkeyPatch,
    clock: ManualClock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    driver: str | None,
) -> None:
    """Whoever finds the fault has the class of an error and the place, and not what it says."""
    store = with_troubles(clock)
    store.driver = driver
    monkeypatch.setenv("DATAFLOW_STORE", f"postgresql://me:{PASSWORD}@db.example.org/flights")
    monkeypatch.setattr(command_line, "open_store", lambda dsn, *, connect_timeout_s: store)
    out = tmp_path / "x.zip"
    assert main(["bundle", "scores", "-o", str(out)]) == 0
    printed_names = capsys.readouterr().out
    with zipfile.ZipFile(out) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}

    for name, text in files.items():
        assert name in printed_names
        for secret in (KEY, PASSWORD, RECORD, "123456789012345", "/home/me"):
            assert secret not in text, (name, text)
    assert json.loads(files["troubles.json"])[0]["errors"] == "ValueError; scores.py:12 in parse"
    assert json.loads(files["versions.json"])["store"] == "memory"
    assert json.loads(files["snapshot.json"])["document"]["ranges"].keys() == {"read[0]", "sum[0]"}
    assert json.loads(files["job.json"])["stages"]["sum"]["trigger"] == "of your own"
    assert "which runs: UPDATE\n" in files["why.txt"] or driver is None
    assert WhyExplanation.of_json(json.loads(files["why.json"])).asked.job == "scores"

    assert main(["bundle", "scores", "-o", str(out)]) == 2
    assert "name a file that is not there yet" in capsys.readouterr().err
