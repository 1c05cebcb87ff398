"""A run that goes on behind another: who may still commit, and what must be sent again."""

import attrs
import pytest

import dataflow as df
from dataflow.table import TableSpec, TableWrite
from runners.batch.range_writer import RangeWriter
from runners.batch.repeating import begin_run, binding_ranges, check_continuable
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.errors import FencedError, UnrepeatableError
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow
from runners.stored.places import ReadSoFar

TABLE = TableSpec(name="rows", columns={"n": int})


def execution(*, is_marked: bool = False) -> ExecutionPlan:
    pipeline = df.Pipeline(DirectRunner())
    keyed = pipeline | "read" >> df.Create([1, 2]) | "key" >> df.Map(_marked if is_marked else _key)
    (
        keyed
        | "one" >> df.GroupByKey()
        | "two" >> df.GroupByKey()
        | "row" >> df.Map(lambda pair: {"n": pair[0]})
        | "rows" >> df.WriteToPostgres("rows", columns=dict(TABLE.columns))
    )
    keyed | "apart" >> df.GroupByKey()
    return plan(pipeline.graph())


def _key(value: int) -> tuple[int, int]:
    return value, value


@df.nondeterministic
def _marked(value: int) -> tuple[int, int]:
    return value, value


def opened(store: MemoryStore, planned: ExecutionPlan) -> JobRow:
    spec = job_spec("job", "batch", planned, splits_desired=1, ranges_per_grouping=2)
    return begin_run(store, store.open_job(spec))


def committed(store: MemoryStore, job: JobRow, range_id: RangeId, *, rows: int = 0) -> None:
    with RangeWriter(store, "job", range_id, "an attempt", run=job.version) as writer:
        writer.write(
            [TableWrite(table=TABLE, inserts=[(each,) for each in range(rows)])] * (rows > 0)
        )
        writer.commit(is_last=True, sent={0: 7})


def names(found: frozenset[RangeId]) -> set[str]:
    return {str(each) for each in found}


def test_digests_bind_once_there_are_rows_of_what_they_are_about() -> None:
    store, planned = MemoryStore(), execution()
    job = opened(store, planned)
    for name in ("one", "apart", planned.graph.transforms[0].label):
        committed(store, job, RangeId(name, 0))

    assert not binding_ranges(planned, opened(store, planned).ranges)

    committed(store, opened(store, planned), RangeId("two", 1), rows=1)

    bound = binding_ranges(planned, opened(store, planned).ranges)
    assert names(bound) == {"read/Read(MemorySource)[0]", "one[0]", "one[1]", "two[1]"}


def test_what_binds_must_be_sent_again_and_what_does_not_is_overwritten() -> None:
    store, planned = MemoryStore(), execution()
    range_id = RangeId("one", 0)
    committed(store, opened(store, planned), range_id)
    run = opened(store, planned).version

    with (
        RangeWriter(store, "job", range_id, "bound", run=run) as writer,
        pytest.raises(UnrepeatableError, match="emitted other records"),
    ):
        writer.commit(is_last=True, sent={0: 8})
    with RangeWriter(store, "job", range_id, "free", run=run, is_binding=False) as writer:
        assert writer.read_so_far == ReadSoFar()
        writer.commit(is_last=True, sent={0: 8})
    # From here on it is what this run has sent.
    with (
        RangeWriter(store, "job", range_id, "again", run=run, is_binding=False) as writer,
        pytest.raises(UnrepeatableError, match="emitted other records"),
    ):
        writer.commit(is_last=True, sent={0: 7})


def test_an_attempt_of_an_earlier_run_neither_begins_nor_commits() -> None:
    store, planned = MemoryStore(), execution()
    earlier = opened(store, planned)
    range_id = RangeId("two", 0)
    with RangeWriter(store, "job", range_id, "early", run=earlier.version) as writer:
        opened(store, planned)
        with pytest.raises(FencedError):
            writer.commit(is_last=True)

    with (
        pytest.raises(FencedError, match="is being run anew"),
        RangeWriter(store, "job", range_id, "late", run=earlier.version),
    ):
        raise AssertionError

    assert not store.read_job("job").ranges[range_id].is_finished  # type: ignore[union-attr]


def test_the_first_run_is_the_job_as_it_was_created_and_each_other_a_version_of_its_own() -> None:
    store, planned = MemoryStore(), execution()
    spec = job_spec("job", "batch", planned, splits_desired=1, ranges_per_grouping=2)
    # Two drivers at the same moment: both have opened the job before one of them begins.
    created, found = store.open_job(spec), store.open_job(spec)

    versions = [begin_run(store, each).version for each in (created, found)]

    assert versions == [created.version, created.version + 1]
    assert opened(store, planned).version == created.version + 2


def test_a_run_keeps_what_the_job_has() -> None:
    store, planned = MemoryStore(), execution()
    first = opened(store, planned)
    committed(store, first, RangeId("two", 1), rows=3)

    second = opened(store, planned)

    assert second.version == first.version + 1
    row = second.ranges[RangeId("two", 1)]
    assert row.is_finished
    assert attrs.evolve(second, version=0, ranges={}) == attrs.evolve(first, version=0, ranges={})
    assert len(store.read_table(TABLE)) == 3


def test_marked_code_is_not_continued_behind_rows() -> None:
    store, planned = MemoryStore(), execution(is_marked=True)
    job = opened(store, planned)
    check_continuable(planned, job, binding_ranges(planned, job.ranges))
    committed(store, job, RangeId("two", 1), rows=1)
    job = opened(store, planned)

    with pytest.raises(
        UnrepeatableError, match=r"cannot be continued(.|\n)*'key'.*nondeterministic"
    ):
        check_continuable(planned, job, binding_ranges(planned, job.ranges))


def test_marked_code_that_sends_nothing_is_continued() -> None:
    """A read without a grouping behind it goes on where its commits end: nothing of it is emitted twice."""
    store, pipeline = MemoryStore(), df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Create([1, 2])
        | "row" >> df.Map(_marked_row)
        | "rows" >> df.WriteToPostgres("rows", columns=dict(TABLE.columns))
    )
    planned = plan(pipeline.graph())
    job = opened(store, planned)
    (read,) = planned.sources()
    committed(store, job, RangeId(read.name, 0), rows=1)
    job = opened(store, planned)
    bound = binding_ranges(planned, job.ranges)

    assert bound
    check_continuable(planned, job, bound)


@df.nondeterministic
def _marked_row(value: int) -> dict[str, int]:
    return {"n": value}
