"""F24: jobs that are drained at a random moment, whatever dies on the way; and other requests to them."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import (
    DRAINED,
    FINISHED,
    GONE,
    Answer,
    Request,
    Verb,
    merge,
    move,
    split,
)
from runners.stored.letters import stored_late_mapping
from runners.stored.places import decode_position
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.scripts import guessing, truthful
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, build, row, scripted

DRAIN = Request(Verb.DRAIN)
VALUES = {"key": str, "start": float, "end": float, "values": str}


def build_lists(p: df.Pipeline, source: df.Source) -> None:
    """Every pane with its values, each of which is emitted once."""
    (
        p
        | "read" >> df.Read(source)
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            trigger=df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=30,
        )
        | "group" >> df.GroupByKey()
        | "row" >> df.Map(row)
        | "write" >> df.WriteToPostgres("panes", columns=VALUES)
    )


def build_sums(p: df.Pipeline, source: df.Source) -> None:
    """Sums by the minute, and sessions that can merge after they fired."""
    pairs = p | "read" >> df.Read(source)
    for name, windows, mode, grouping in (
        ("sums", df.FixedWindows(60), "ACCUMULATING", df.CombinePerKey(sum)),
        ("groups", df.Sessions(30), "ACCUMULATING_AND_RETRACTING", df.GroupByKey()),
    ):
        (
            pairs
            | f"windows of {name}"
            >> df.WindowInto(
                windows,
                trigger=df.AfterWatermark(early=df.AfterCount(2), late=df.AfterCount(1)),
                accumulation_mode=df.AccumulationMode[mode],
            )
            | name >> grouping
            | f"row of {name}" >> df.Map(row)
            | f"write {name}"
            >> df.WriteToPostgres(name, columns=COLUMNS, key=["key", "start", "end"])
        )


class DrainedCluster(Cluster):
    """Is asked to drain at a moment that the seed decides."""

    def run(self) -> None:
        left = self.random.choice([0, 5, 20, 60, 200])

        def is_reached() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self.run_until(is_reached)
        self.send_request(DRAIN)
        super().run()

    def positions(self) -> list[int]:
        """How many batches of each script have been read."""
        job = self.store.read_job("sim")
        assert job is not None
        rows = [each for _, each in sorted(job.ranges.items()) if each.split is not None]
        return [0 if each.position is None else decode_position(each.position) for each in rows]


def read_by(cluster: DrainedCluster, source: ScriptedSource) -> ScriptedSource:
    """The part of the scripts that was read."""
    positions = cluster.positions()
    return ScriptedSource(
        *(script[:end] for script, end in zip(source._scripts, positions, strict=True))
    )


@costly(cells=2)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_what_was_read_is_in_a_pane_or_late_once(crash_rate: float, seed: int) -> None:
    """With watermarks that are wrong, and sources that fall silent."""
    source = guessing(Random(seed))
    pipeline = df.Pipeline(DirectRunner())
    build_lists(pipeline, source)
    cluster = DrainedCluster(pipeline.graph(), seed, crash_rate)
    cluster.run()
    (table,) = pipeline.graph().tables()
    emitted: Counter[Any] = Counter()
    for each in cluster.store.read_table(table):
        emitted.update(int(text) for text in each[3].strip("[]").split(",") if text)
    for record in map(stored_late_mapping, cluster.store.read_late("sim")):
        element = record["element"]
        emitted.update(record["payload"] if element is None else [element.value[1]])
    read: Counter[Any] = Counter(
        value
        for script in read_by(cluster, source)._scripts
        for batch in script
        for _, value in batch.values
    )

    assert emitted == read, f"seed={seed}"
    job = cluster.store.read_job("sim")
    assert job is not None
    answers = [request.answer for request in cluster.store.read_requests("sim", 0)]
    # The job may be finished before anybody has asked.
    assert (job.is_drained, answers) in ((True, [DRAINED]), (False, [FINISHED]), (False, []))
    if not job.is_drained:
        assert cluster.positions() == [len(script) for script in source._scripts]


@pytest.mark.slow
def test_moments_are_early_and_late() -> None:
    """Of these tests: they drain jobs before, while and after they have read their input."""
    unread = set()
    for seed in range(20):
        source = guessing(Random(seed))
        pipeline = df.Pipeline(DirectRunner())
        build_lists(pipeline, source)
        cluster = DrainedCluster(pipeline.graph(), seed, 0.0)
        cluster.run()
        lengths = [len(script) for script in source._scripts]
        unread.add((any(cluster.positions()), cluster.positions() < lengths))

    assert unread == {(False, True), (True, True), (True, False)}


@costly(cells=2)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("crash_rate", [0.0, 0.1])
def test_every_open_window_emits_what_it_has(crash_rate: float, seed: int) -> None:
    """The tables are those of a run in memory over what was read; watermarks and sessions included."""
    source = truthful(Random(seed))
    pipeline = df.Pipeline(DirectRunner())
    build_sums(pipeline, source)
    cluster = DrainedCluster(pipeline.graph(), seed, crash_rate)
    cluster.run()
    direct = df.Pipeline(DirectRunner())
    build_sums(direct, read_by(cluster, source))
    expected = direct.run()

    for spec in pipeline.graph().tables():
        rows = {tuple(each.values()) for each in expected.read_table(spec.name)}
        assert rows == set(cluster.store.read_table(spec)), f"seed={seed}"


class Endless(ScriptedSource):
    """Plays a script, and says that it goes on."""

    @property
    def is_bounded(self) -> bool:
        return False


@pytest.mark.parametrize("read", [0, 1, 2])
def test_the_result_of_nothing_is_emitted_where_a_drained_source_has_had_nothing(read: int) -> None:
    """And is not where there was something, which the trigger may have emitted before."""
    nothing = Batch([], [], 5)
    script = [*[nothing] * (2 - read), *(Batch([n], [n], 5) for n in range(read)), *[nothing] * 999]
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(Endless(script))
        | df.WindowInto(
            df.GlobalWindows(),
            trigger=df.Repeatedly(df.AfterCount(1)),
            accumulation_mode=df.AccumulationMode.DISCARDING,
        )
        | df.CombineGlobally(len)
        | "row" >> df.Map(lambda number: {"number": number})
        | "write" >> df.WriteToPostgres("numbers", columns={"number": int})
    )
    cluster = Cluster(pipeline.graph(), 7, 0.0)
    loads = cluster.master.statistics
    cluster.run_until(lambda: loads().workers_ready == 2 and loads().records_read >= 1 + read)
    cluster.send_request(DRAIN)
    cluster.run()

    (table,) = pipeline.graph().tables()
    rows = [each[0] for each in cluster.store.read_table(table)]
    assert (sum(rows), 0 in rows) == (read, not read)


def test_the_end_of_a_split_may_be_lost_again_before_the_driver_knows() -> None:
    """The store goes back behind a commit, and event time goes on by it: the driver that notices begins again."""
    law: Any = test_what_was_read_is_in_a_pane_or_late_once

    law.hypothesis.inner_test(crash_rate=0.1, seed=330606)


def test_a_job_that_was_asked_to_drain_does_when_its_driver_has_died() -> None:
    """Whoever is asked, the next one does it; what else was asked is not done twice."""
    source = truthful(Random(3))
    pipeline = df.Pipeline(DirectRunner())
    build_sums(pipeline, source)
    cluster = Cluster(pipeline.graph(), 3, 0.0)
    cluster.run_until(lambda: cluster.master.statistics().workers_ready == 2)
    (name,) = {each.computation for each in cluster.master.key_ranges if "sums" in str(each)}
    asked = [move(f"{name}[0]", 1), split(f"{name}[1]"), DRAIN]
    for each in asked:
        cluster.send_request(each)
    cluster.start_driver()
    cluster.driver.look()
    assert [each.answer for each in cluster.store.read_requests("sim", 0)] == [GONE, GONE, None]
    cluster.run()

    assert cluster.store.read_requests("sim", 2)[0].answer == DRAINED


@pytest.mark.slow
def test_ranges_are_changed_on_request() -> None:
    """Each answer names what was done, and it was; what cannot be done is reported, too."""
    batches = [[(number, 10 * number)] for number in range(60)]
    pipeline = df.Pipeline(DirectRunner())
    build(pipeline, scripted(batches, 0))
    cluster = Cluster(pipeline.graph(), 5, 0.0)
    cluster.run_until(lambda: cluster.master.statistics().workers_ready == 2)

    def ask(request: Request) -> str:
        number = cluster.send_request(request)

        def found() -> Answer | None:
            return cluster.store.read_requests("sim", number - 1)[0].answer

        cluster.run_until(lambda: found() is not None)
        answer = found()
        assert answer is not None
        return f"{answer.is_done}: {answer.text}"

    assert ask(move("sum[0]", 1)) == "True: sum[0] is in slot 1"
    assert cluster.master.ranges[RangeId("sum", 0)] == 1
    assert ask(split("sum[0]", 1 << 60)) == "True: sum[0] is split, the new one is sum[3]"
    assert cluster.master.key_ranges[RangeId("sum", 3)].low == 1 << 60
    assert ask(merge("sum[1]", "sum[2]")) == "True: sum[1] has the keys of sum[2]"
    assert ask(merge("sum[1]", "sum[0]")).startswith("False: ")
    assert ask(split("nobody[0]")) == "False: there is no range nobody[0]"
    assert ask(move("sum[0]", 7)).startswith("False: there is no slot 7")
    number = cluster.send_request(DRAIN)
    cluster.run()
    assert cluster.store.read_requests("sim", number - 1)[0].answer == DRAINED
    assert FINISHED not in [each.answer for each in cluster.store.read_requests("sim", 0)]
