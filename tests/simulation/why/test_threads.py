"""What people asked on other engines when nothing came out, on simulated jobs: the sentence has the cause.

| thread | symptom | test |
| --- | --- | --- |
| beam#31085 | no watermark until each split has had a record | `test_splits_that_have_never_had_a_record` |
| beam#31390 | an empty source sends no watermark on | `test_a_source_that_is_empty_and_idle` |
| flink FLINK-5479 | idle by what rule, since when | `test_a_source_that_is_empty_and_idle` |
| flink FLINK-25818 | more readers than partitions | `test_workers_that_have_nothing_hold_nothing` |
| flink FLINK-32496 | a source is not asked | `test_a_source_that_is_not_asked` |
| flink FLINK-38477 | some splits finished, others idle | `test_finished_and_idle_are_not_the_same` |
| numaflow#3424 | small steps back drop the report | `test_a_reader_whose_watermark_goes_back_a_little` |
| the same | why a newer report is not taken | `test_reports_that_are_not_taken` |
| numaflow#1872 | slower with each partition | `test_one_of_very_many_splits`, `test_a_driver_that_does_not_keep_up` |
| numaflow#251 | dead after all workers had gone | `test_workers_that_are_all_gone` |
| numaflow#3399 | slow processing taken for idleness | `test_a_slow_worker_is_not_an_idle_source` |
| quix-streams#790 | the last window never closes | `test_the_last_window_waits_for_a_record` |
| ksql#9840 | results late by the default lateness | `test_a_trigger_that_waits_for_the_expiry` |
| kafka-streams-examples#441 | suppress emits nothing | `test_the_last_window_waits_for_a_record` |
| bytewax#221 | which clock decides | `test_the_clock_decides` |
| paimon#2160 | emitted only with the next commit | `test_a_commit_that_does_not_come` |
| feldera#3164 | late, and within the lateness | `test_a_window_that_has_fired` |
| risingwave#20834 | a session does not close | `test_a_session_names_the_time_that_it_waits_for` |
| beam#23129, #18530 | where is the watermark? | `test_the_watermark_of_each_stage_is_shown` |
| spark SPARK-45539 | an error where the declaration is missing | `test_what_could_never_fire_is_refused` |
| spark #28607 and others | were records dropped, how many? | `test_dropped_records_are_counted` |
| risingwave#15093, #13122 | skew | `test_a_hot_key` |
| materialize#3546 | stuck, or at capacity? | `test_a_worker_that_is_busy` |
| risingwave#25200 | idle and well, or stalled? | `test_quiet_and_stalled_are_not_the_same` |
| pulsar#5866 | a trigger of one's own | `test_which_part_of_a_trigger_is_not_satisfied` |
"""

from functools import partial
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.millwheel.wire.messages import Report
from runners.observability.evidence.snapshot import Doing, DriverEvidence, Phase
from runners.observability.why.explain import explain
from runners.observability.why.explanation import CauseKind, HolderKind
from runners.testing.simulator.evidence import evidence_of
from tests.gated_jobs import US_PER_S, Cluster, Gate, started, stop_worker, two_sums

pytestmark = pytest.mark.slow

SECOND = US_PER_S
#: More than a worker needs to be called silent, and less than its lease.
SILENT_MS = 6_000


class Tenfold(df.Trigger):
    """A trigger of a user's: every ten records."""

    def initial_state(self) -> int:
        return 0

    def on_elements(self, state: Any, window: Any, elements: df.Elements, clocks: Any) -> Any:
        return state + elements.size

    def should_fire(self, state: Any, window: Any, clocks: Any) -> bool:
        return bool(state >= 10)

    def on_fire(self, state: Any, window: Any, clocks: Any) -> Any:
        return df.Progress(0)

    def next_timers(self, state: Any, window: Any, clocks: Any) -> Any:
        return df.TriggerTimers()


def totals(windows: df.WindowFn, **strategy: Any) -> Any:
    """One grouping by one key, ``red``."""

    def build(p: df.Pipeline, source: df.Source) -> None:
        (
            p
            | "read" >> df.Read(source)
            | "red" >> df.Map(lambda pair: ("red", 1))
            | "windows" >> df.WindowInto(windows, **strategy)
            | "total" >> df.CombinePerKey(sum)
            | "row" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
            | "rows" >> df.WriteToPostgres("rows", columns={"key": str, "sum": int})
        )

    return build


def come_to(build: Any, second: int, *, splits: int = 1, seed: int = 1) -> Cluster:
    """A job whose event time has come to a second, and stays there."""
    cluster = Cluster(seed, Gate(), build, splits=splits)
    cluster.open_to(second, range(splits))
    cluster.run_to(lambda: cluster.at("total") == second)
    cluster.run_for(1_000)
    return cluster


def fixed(**strategy: Any) -> Any:
    return totals(df.FixedWindows(10), **strategy)


DISCARDING = df.AccumulationMode.DISCARDING


def test_splits_that_have_never_had_a_record() -> None:
    cluster = Cluster(1, Gate(), two_sums, splits=3)
    cluster.open_to(5, [0])
    cluster.run_for(12_000)
    found = cluster.why()

    assert found.cause is CauseKind.NEVER_READ
    assert found.leaf is not None
    assert {found.leaf.name, *found.leaf.as_far} == {"read[1]", "read[2]"}
    assert "has never had a record, and its reader does not say that it is idle" in found.sentence


def test_a_source_that_is_empty_and_idle() -> None:
    cluster = Cluster(1, Gate(idle={0, 1}), two_sums)
    cluster.run_for(8_000)
    found = cluster.why()

    assert found.cause is CauseKind.ALL_IDLE
    assert "idle for" in found.sentence
    assert "by the word of its reader" in found.sentence
    assert any("idle_follows_clock" in hint for hint in found.hints)


def test_workers_that_have_nothing_hold_nothing() -> None:
    cluster = Cluster(1, Gate(), fixed(), splits=1, workers=4)
    cluster.open_to(30, [0])
    cluster.run_to(lambda: cluster.at("total") == 30)
    found = cluster.why()

    assert found.cause is CauseKind.NOTHING_DUE
    assert found.leaf is not None
    assert found.leaf.name == "read[0]"


def test_a_source_that_is_not_asked() -> None:
    cluster = come_to(fixed(), 15)
    cluster.master.is_pausing = True
    cluster.run_for(12_000)
    found = cluster.why(key="red")

    assert found.cause is CauseKind.NOT_POLLED
    assert "was not asked for" in found.sentence
    assert "skew_limit" in found.sentence


def test_finished_and_idle_are_not_the_same() -> None:
    cluster = Cluster(1, Gate(ended={0}, idle={1}), two_sums)
    cluster.open_to(20, [0])
    cluster.open_to(15, [1])
    cluster.run_for(8_000)
    found = cluster.why()

    assert found.cause is CauseKind.ALL_IDLE
    assert found.leaf is not None
    assert (found.leaf.name, found.leaf.as_far) == ("read[1]", ())
    cluster.gate.ended.add(1)
    cluster.run_for(3_000)
    assert cluster.is_over or cluster.why().cause is CauseKind.ENDED


def test_workers_that_are_all_gone() -> None:
    cluster = started(3)
    for number in (0, 1):
        stop_worker(cluster, number)
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)
    found = cluster.why()

    assert found.cause is CauseKind.WORKER_SILENT
    assert "has sent nothing for" in found.sentence


def test_a_slow_worker_is_not_an_idle_source() -> None:
    """Its splits were idle by their reader's word, which ends with the worker's silence."""
    cluster = Cluster(2, Gate(idle={0, 1}), two_sums)
    cluster.open_to(20)
    cluster.run_to(lambda: cluster.at("all") == 20)
    for process in cluster.workers:
        assert process is not None
        process.is_paused = True
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)
    found = cluster.why()

    assert found.cause is CauseKind.WORKER_SILENT
    for process in cluster.workers:
        assert process is not None
        process.is_paused = False


def test_the_last_window_waits_for_a_record() -> None:
    cluster = come_to(fixed(), 25)
    cluster.run_for(8_000)
    found = cluster.why(key="red")

    assert found.cause is CauseKind.WAITS_FOR_RECORD
    assert found.asked.window == df.Window(20 * SECOND, 30 * SECOND)
    first, second = found.sentence.split("\n")
    assert "it fires when event time reaches 1970-01-01T00:00:30+00:00" in first
    assert "'total' is at 1970-01-01T00:00:25+00:00, 5 seconds before it" in first
    assert second.startswith("held by: split read[0] is at 1970-01-01T00:00:25+00:00")
    assert any("SplitStatus.IDLE" in hint for hint in found.hints)


def test_a_trigger_that_waits_for_the_expiry() -> None:
    day = 24 * 3_600
    never = fixed(trigger=df.Never(), allowed_lateness=day, accumulation_mode=DISCARDING)
    cluster = come_to(never, 25)
    found = cluster.why(key="red", window="1970-01-01T00:00:05Z")

    assert found.cause is CauseKind.NEVER
    assert "it never fires, and all is emitted when the window expires" in found.sentence
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["its state goes"].startswith("1970-01-02T00:00:10+00:00, in 23 hours 59 minutes")


def test_the_clock_decides() -> None:
    clock = df.Repeatedly(df.AfterProcessingTime(3_600))
    cluster = come_to(fixed(trigger=clock, accumulation_mode=DISCARDING), 15)
    found = cluster.why(key="red", window="1970-01-01T00:00:12Z")

    assert found.cause is CauseKind.CLOCK
    assert "of the clock, in 59 minutes" in found.sentence
    assert found.chain == ()


def test_a_commit_that_does_not_come() -> None:
    """What was read is in a commit that nobody gets an answer to: the worker that waits for it is named."""
    cluster = started(1)
    process = cluster.workers[0]
    assert process is not None
    process.is_paused = True
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)
    evidence = evidence_of(cluster)
    at_us = evidence.now_us
    workers = [
        attrs.evolve(
            each, heartbeat_us=at_us, heartbeat_received_us=at_us, committing_us=at_us - 9_000_000
        )
        if each.worker == process.name
        else each
        for each in evidence.workers
    ]
    found = explain(attrs.evolve(evidence, workers=workers), cluster.asked(transform="all"))

    assert found.cause is CauseKind.COMMIT_WAITS
    assert f"{process.name} has waited for 9 seconds for a commit" in found.sentence
    process.is_paused = False


def test_a_window_that_has_fired() -> None:
    late = fixed(allowed_lateness=3_600, accumulation_mode=DISCARDING)
    cluster = come_to(late, 25)
    found = cluster.why(key="red", window="1970-01-01T00:00:05Z")

    assert found.cause is CauseKind.EMITTED
    assert "has fired: 1 pane, and no record has come since" in found.sentence


def test_a_session_names_the_time_that_it_waits_for() -> None:
    cluster = come_to(totals(df.Sessions(60)), 25)
    found = cluster.why(key="red")

    # The last record came at 24 seconds, and a minute is the gap.
    assert found.asked.window == df.Window(0, 84 * SECOND)
    assert "it fires when event time reaches 1970-01-01T00:01:24+00:00" in found.sentence


def test_the_watermark_of_each_stage_is_shown() -> None:
    cluster = Cluster(1, Gate(), two_sums)
    assert "the beginning of time" in cluster.why(transform="sum").sentence
    cluster.open_to(20)
    cluster.run_to(lambda: cluster.at("all") == 20)
    for stage in ("sum", "all"):
        facts = {fact.name: fact.value for fact in cluster.why(transform=stage).facts}
        assert facts["event time"] == "1970-01-01T00:00:20+00:00"
        assert "lag of its input" in facts


def test_what_could_never_fire_is_refused() -> None:
    """When it is built, with the transform and the line; not in a run."""
    p = df.Pipeline()
    pairs = p | "read" >> df.Read(Cluster(1, Gate(), two_sums).source) | df.Map(lambda each: each)
    with pytest.raises(df.PipelineError, match="'nothing ever'") as refused:
        pairs | "nothing ever" >> df.GroupByKey()
    assert "test_threads.py" in str(refused.value)


def test_dropped_records_are_counted() -> None:
    """A split that was idle comes back with what its neighbour has long passed."""
    cluster = Cluster(1, Gate(idle={1}), fixed(), splits=2)
    cluster.open_to(40, [0])
    cluster.run_to(lambda: cluster.at("total") == 40)
    cluster.open_to(5, [1])
    cluster.run_to(lambda: sum(cluster.store.read_late_counts("sim").values()) == 5)
    found = cluster.why(key="red", window=df.Window(0, 10 * SECOND))

    assert found.cause is CauseKind.KEY_LATE
    assert "5 records of red for" in found.sentence
    assert "came too late for 'total', and are in no result" in found.sentence
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["records too late"] == "5"


def test_a_worker_that_is_busy() -> None:
    cluster = started(1)
    process = cluster.workers[1]
    assert process is not None
    process.is_paused = True
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)
    evidence = evidence_of(cluster)
    at_us = evidence.now_us
    doing = Doing(stage="sum", transform="one", since_us=at_us - 12_000_000, record=6, records=40)
    workers = [
        attrs.evolve(each, heartbeat_us=at_us, heartbeat_received_us=at_us, doing=doing)
        if each.worker == process.name
        else each
        for each in evidence.workers
    ]
    found = explain(attrs.evolve(evidence, workers=workers), cluster.asked(transform="all"))

    assert found.cause is CauseKind.WORKER_BUSY
    what = f"{process.name} has been in the code of 'one' for 12 seconds, at record 7 of 40"
    assert what in found.sentence
    process.is_paused = False


def test_quiet_and_stalled_are_not_the_same() -> None:
    """It was asked a moment ago and has had nothing for long; or it is not asked."""
    cluster = come_to(fixed(), 15)
    cluster.run_for(8_000)
    quiet = cluster.why()
    assert quiet.cause is CauseKind.WAITS_FOR_RECORD
    assert "its last record came" in quiet.sentence
    cluster.master.is_pausing = True
    cluster.run_for(12_000)
    stalled = cluster.why()

    assert stalled.cause is CauseKind.NOT_POLLED
    assert "was not asked for" in stalled.sentence
    assert "its last record came" in stalled.sentence


def test_which_part_of_a_trigger_is_not_satisfied() -> None:
    both = df.Repeatedly(df.AfterAll(Tenfold(), df.AfterCount(2)))
    cluster = come_to(fixed(trigger=both, accumulation_mode=DISCARDING), 15)
    found = cluster.why(key="red", window="1970-01-01T00:00:12Z")

    assert found.cause is CauseKind.OWN_TRIGGER
    assert "Tenfold" in found.sentence
    tree = [line.strip() for line in str(found).splitlines()]
    assert "✓ 5 of 2 records" in tree
    assert any(line.startswith("· ") and "a trigger of your own" in line for line in tree)


def test_records_that_are_missing() -> None:
    three = df.Repeatedly(df.AfterCount(30))
    cluster = come_to(fixed(trigger=three, accumulation_mode=DISCARDING), 15)
    found = cluster.why(key="red", window="1970-01-01T00:00:12Z")

    assert found.cause is CauseKind.RECORDS
    assert "it waits for 5 of 30 records" in found.sentence


def test_a_key_that_has_never_come() -> None:
    """It was seen in the first stage under its own name, and never in the second."""
    cluster = come_to(fixed(), 15)
    found = cluster.why(key="blue")

    assert found.cause is CauseKind.KEY_UNSEEN
    assert "no record of blue has come to 'total'" in found.sentence
    assert "its sources have read" in found.sentence


def test_nothing_is_due() -> None:
    cluster = come_to(fixed(), 12)
    cluster.open_to(13, [0])
    cluster.run_to(lambda: cluster.at("total") == 13)
    found = cluster.why()

    assert found.cause is CauseKind.NOTHING_DUE
    assert "nothing is due: the next window of 'total' ends at 1970-01-01T00:00:20+00:00" in (
        found.sentence
    )
    assert "in 7 seconds of event time" in found.sentence
    assert "red" not in str(found.as_json()), "keys are shown only if one is given"


def test_a_transform_that_is_not_there_is_refused() -> None:
    cluster = come_to(fixed(), 15)
    with pytest.raises(df.DataflowError, match="no transform 'nobody'"):
        cluster.why(transform="nobody")
    assert cluster.why(transform="rows").asked.stage == "total"
    found = cluster.why(transform="rows")
    assert found.chain[-1].kind is HolderKind.SPLIT


def is_near(cluster: Cluster, second: int) -> bool:
    return cluster.at("total") >= second - 1


def test_a_reader_whose_watermark_goes_back_a_little() -> None:
    """Small steps back are no reason to stop: the split is where it was at most, and it is named as ever."""
    cluster = Cluster(1, Gate(jitter_us=1_500_000), fixed(), splits=1)
    for second in range(1, 26):
        cluster.open_to(second, [0])
        cluster.run_to(partial(is_near, cluster, second - 1))
    cluster.run_for(8_000)
    found = cluster.why(key="red")

    assert found.cause is CauseKind.WAITS_FOR_RECORD
    assert cluster.at("total") >= 24
    assert found.leaf is not None
    assert found.leaf.name == "read[0]"


def test_reports_that_are_not_taken() -> None:
    """A worker that goes on reporting of a range of another slot: it is not silent, and not believed."""
    cluster = started(1)
    stubborn, other = cluster.workers
    assert stubborn is not None
    assert other is not None
    foreign = next(
        each
        for each, slot in cluster.master.ranges.items()
        if slot == 1 and each.computation != "read"
    )
    take = cluster.master._on_report

    def with_a_foreign_range(report: Report) -> None:
        if report.worker == stubborn.name:
            report = attrs.evolve(report, watermarks_us={**report.watermarks_us, foreign: 0})
        take(report)

    cluster.master._on_report = with_a_foreign_range  # type: ignore[method-assign]
    cluster.open_to(40)
    cluster.run_for(SILENT_MS)
    found = cluster.why()

    assert found.cause is CauseKind.REPORTS_REFUSED
    assert f"reports of {stubborn.name}, which has" in found.sentence
    assert "have not been taken for" in found.sentence
    assert (
        f"it reports of ranges that are in other slots, or no more, and it was asked to release: {foreign}"
        in (found.sentence)
    )
    cluster.master._on_report = take  # type: ignore[method-assign]
    cluster.run_to(lambda: cluster.at("all") == 40)
    assert cluster.why().cause is not CauseKind.REPORTS_REFUSED


def test_one_of_very_many_splits() -> None:
    """Of many that go on the one that does not is named; and how old the oldest report is."""
    splits, behind = 60, 37
    cluster = Cluster(1, Gate(), fixed(), splits=splits)
    cluster.open_to(15, range(splits))
    cluster.run_to(lambda: cluster.at("total") == 15)
    cluster.open_to(40, [each for each in range(splits) if each != behind])
    cluster.run_for(8_000)
    found = cluster.why()

    assert found.leaf is not None
    assert (found.leaf.name, found.leaf.as_far) == (f"read[{behind}]", ())
    assert cluster.at("total") == 15
    (oldest,) = [fact.value for fact in found.facts if fact.name == "oldest report"]
    assert oldest.endswith("ranges in all")


@pytest.mark.parametrize("silent_ms", [0, 3_500, 6_900])
def test_a_driver_that_does_not_keep_up(silent_ms: int) -> None:
    """The driver is named, and no worker: reports of workers wait for its next round, so silence means nothing."""
    cluster = come_to(fixed(), 15)
    cluster.open_to(16, [0])
    cluster.run_to(lambda: cluster.at("total") == 16)
    evidence = evidence_of(cluster)
    driver = DriverEvidence(
        name="host",
        started_us=0,
        phase=Phase.RUNNING,
        workers=2,
        workers_ready=2,
        longest_round_ms=4_000,
    )
    at_us = evidence.now_us if evidence.as_of_us is None else evidence.as_of_us
    reported_us = at_us - 1_000 * silent_ms
    workers = [attrs.evolve(each, reported_us=reported_us) for each in evidence.workers]
    found = explain(attrs.evolve(evidence, driver=driver, workers=workers), cluster.asked())

    assert found.cause is CauseKind.DRIVER_BUSY
    assert "the driver takes 4 seconds for a round" in found.sentence
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["longest round of the driver"] == "4 seconds"


def skewed(p: df.Pipeline, source: df.Source) -> None:
    """Two groupings, of which the first has one key alone."""
    (
        p
        | "read" >> df.Read(source)
        | "red" >> df.Map(lambda pair: ("red", 1))
        | "windows"
        >> df.WindowInto(
            df.FixedWindows(1),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=DISCARDING,
        )
        | "sum" >> df.CombinePerKey(sum)
        | "one" >> df.Map(lambda pair: (0, pair[1]))
        | "all" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
        | "rows" >> df.WriteToPostgres("rows", columns={"key": int, "sum": int})
    )


def test_a_hot_key() -> None:
    """All records have one key: the range that has it, and the key, are part of why its worker does not keep up."""
    cluster = Cluster(1, Gate(), skewed, shows_keys=True)
    cluster.open_to(400)
    cluster.run_to(lambda: cluster.at("all") == 400)
    cluster.run_for(2_000)
    evidence = evidence_of(cluster)
    (name,) = [name for name, each in evidence.ranges_of("sum") if each.records]
    owner = next(
        each for each in cluster.workers if each and each.name == evidence.ranges[name].worker
    )
    splits = [each for each in cluster.master.ranges if each.computation == "read"]
    cluster.master.move(splits, 1 - evidence.ranges[name].slot)
    cluster.run_to(lambda: all(map(cluster.master.is_stable, splits)))
    owner.is_paused = True
    cluster.open_to(800)
    cluster.run_for(SILENT_MS)
    found = cluster.why(transform="all")
    owner.is_paused = False

    assert found.cause is CauseKind.WORKER_SILENT
    assert (
        f"{name} has 100% of all records of 'sum', 100% of which are of one key, 'red'"
        in found.sentence
    )
    facts = {fact.name: fact.value for fact in cluster.why(transform="sum").facts}
    assert facts["busiest range"].startswith(f"{name} has taken in 100% of that")
    assert facts[f"frequent keys of {name}"] == "'red' about 100%"
