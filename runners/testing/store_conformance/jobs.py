"""Checks of jobs: opening, finishing, resetting, counting, closing."""

from functools import partial

import attrs

from dataflow.table import TableWrite
from runners.errors import JobMismatchError, StoreError, TableOwnedError
from runners.millwheel.model.ids import Channel, RangeId
from runners.millwheel.model.production import Checkpoint, TimerWrite
from runners.millwheel.store.port import Fenced, RangeSpec
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    RANGES,
    SCORES,
    SPLIT,
    Owner,
    StoreFactory,
    at_once,
    cell,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)


def check_open_creates_the_job(connect: StoreFactory) -> None:
    """A new job has its ranges, at bundle 0, with nobody's name on them."""
    store = connect()
    expect_equal(store.read_job(JOB), None, "a job that was never opened")
    job = store.open_job(job_spec())
    expect_equal(list(job.ranges), [LOW, HIGH, SPLIT], "ranges in the order given")
    expect_equal((job.job, job.mode, job.fingerprint), (JOB, "streaming", "f1"), "the job")
    expect(not job.is_finished, "a new job is finished")
    expect(job.is_new, "a job that was just created is not new")
    low, split = job.ranges[LOW], job.ranges[SPLIT]
    expect_equal((low.keys, low.split), (RANGES[0], None), "a key range")
    expect_equal((split.keys, split.split), (None, b"file 1\x00"), "a split")
    for row in job.ranges.values():
        state = (row.bundle, row.owner, row.position, row.watermark_us, row.is_finished)
        expect_equal(state, (0, None, None, None, False), f"a new range {row.range_id}")
    expect_equal(connect().read_job(JOB), job, "the job seen from another connection")


def check_open_is_idempotent_and_keeps_ranges(connect: StoreFactory) -> None:
    """Opening again changes nothing, and stored ranges and splits win over those of the spec."""
    store = opened(connect)
    owner = Owner(store, LOW, SPLIT)
    owner.commit(positions={SPLIT: b"line 9"}, watermarks_us={LOW: 5})
    before = store.read_job(JOB)
    again = connect().open_job(job_spec())
    expect_equal(again, before, "opening again")
    expect(not again.is_new, "a job that is there already is new")
    other = attrs.evolve(job_spec(), ranges=[RangeSpec(range_id=RangeId("read", 7), split=b"new")])
    expect_equal(connect().open_job(other), before, "opening with other ranges")
    owner.commit()


def check_open_refuses_another_pipeline(connect: StoreFactory) -> None:
    """A name belongs to one pipeline and mode; a refusal changes nothing."""
    store = opened(connect)
    before = store.read_job(JOB)
    for spec in (job_spec(fingerprint="f2"), job_spec(mode="batch")):
        expect_error(JobMismatchError, partial(store.open_job, spec), "another pipeline")
    expect_equal(store.read_job(JOB), before, "the job after a refusal")


def check_open_refuses_names_that_are_no_text(connect: StoreFactory) -> None:
    """NUL and lone surrogates have no place in a name."""
    store = connect()
    for name in ("a\0b", "\ud800"):
        expect_error(StoreError, partial(store.open_job, job_spec(name)), f"the name {name!a}")


def check_open_by_many_drivers_at_once(connect: StoreFactory) -> None:
    """Drivers that open the job at the same time all get the same one, which is new to one of them."""
    stores = [connect() for _ in range(4)]
    jobs = at_once([partial(store.open_job, job_spec()) for store in stores])
    for job in jobs:
        expect_equal(job, jobs[0], "the job that two drivers opened")
    expect_equal(sum(job.is_new for job in jobs), 1, "drivers to whom the job is new")


def check_finish_job(connect: StoreFactory) -> None:
    """Finishing is seen by others, may be repeated, and needs a job."""
    store = opened(connect)
    store.finish_job(JOB)
    store.finish_job(JOB)
    job = connect().read_job(JOB)
    expect(job is not None and job.is_finished, "a finished job is not finished")
    expect_error(StoreError, lambda: store.finish_job("nobody"), "finishing an unknown job")


def check_reset_forgets_everything(connect: StoreFactory) -> None:
    """After a reset there is no job, no state, no table it created; others are untouched."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("bystander"), tables=[]))
    owner = Owner(store, LOW)
    channel = Channel(LOW, HIGH)
    landed = owner.commit(
        cells=[cell(b"k", b"1")],
        timers=[TimerWrite("count", 7, b"k", b"w", "event", 1)],
        checkpoints=[Checkpoint(channel, n, 0, b"") for n in (1, 2)],
        acknowledged={channel: 1},
        delivered={Channel(HIGH, LOW): 1},
        tables=[TableWrite(table=SCORES, upserts=[("red", 1)])],
    )
    store.reset_job("nobody")
    connect().reset_job(JOB)
    expect_equal(store.read_job(JOB), None, "the job after a reset")
    expect_equal(set(store.statistics(JOB).values()), {0}, "its statistics")
    expect(store.read_job("bystander") is not None, "another job was reset, too")
    expect_error(StoreError, lambda: store.read_table(SCORES), "its table")
    expect_equal(store.commit(owner.production()), Fenced(LOW), "its former owner")
    expect(isinstance(store.resolve(landed), Fenced), "what it had committed")
    store.open_job(job_spec())
    old = attrs.evolve(landed, cells=())
    for _ in range(3):
        new = Owner(store, LOW, name="new")
        found = new.cells(), dict(new.taken[LOW].sent)
        expect_equal(found, ({}, {}), "the new job's state")
        expect_equal(store.commit(owner.production()), Fenced(LOW), "the old owner, new job")
        expect_equal(store.commit(old), Fenced(LOW), "an old commit, delayed into the new job")
    expect_equal(store.read_table(SCORES), [], "the new job's table")


def check_reset_keeps_tables_of_others(connect: StoreFactory) -> None:
    """A table that another job writes stays; the last job that goes takes it along."""
    store = opened(connect)
    store.open_job(job_spec("second"))
    Owner(store, LOW).commit(tables=[TableWrite(table=SCORES, upserts=[("red", 1)])])
    store.reset_job(JOB)
    expect_equal(store.read_table(SCORES), [("red", 1)], "the table of the second job")
    store.reset_job("second")
    expect_error(StoreError, lambda: store.read_table(SCORES), "the table of no job")


def check_tables_have_owners(connect: StoreFactory) -> None:
    """A table of another job is refused unless it is shared; its owner, and whether it has rows, is known."""
    store = opened(connect)
    spec = job_spec("second")
    own = [attrs.evolve(each, is_shared=False) for each in spec.tables]
    refused = attrs.evolve(spec, tables=own)
    expect_error(TableOwnedError, lambda: store.open_job(refused), "another job's table")
    expect_equal(store.read_job("second"), None, "a job whose table was refused")
    twice = attrs.evolve(own[0], name="written_twice")
    third = attrs.evolve(spec, job="third", tables=[twice, twice])
    expect_equal(store.open_job(third).job, "third", "a job two of whose transforms write a table")
    Owner(store, LOW).commit(tables=[TableWrite(table=SCORES, upserts=[("red", 1)])])
    alone = {each.name.split(".")[-1]: each for each in store.result_tables(JOB)}
    expect_equal(set(alone), {"scores", "score_log"}, "tables of the job")
    expect(all(each.is_own for each in alone.values()), "tables that it has made are its own")
    expect_equal([alone["scores"].has_rows, alone["score_log"].has_rows], [True, False], "rows")
    connect().open_job(job_spec("second"))
    for job, is_created, other in [(JOB, True, "second"), ("second", False, JOB)]:
        for table in store.result_tables(job):
            found = table.is_created, list(table.others), table.is_own
            expect_equal(found, (is_created, [other], False), f"{table.name} of {job}")
    # The first owner keeps it, whatever is declared later.
    store.open_job(job_spec())
    store.open_job(refused)
    store.reset_job(JOB)
    expect(all(each.is_own for each in store.result_tables("second")), "what was left to a job")
    expect_equal(list(store.result_tables(JOB)), [], "tables of a job that is gone")


def check_rows_are_read_by_the_name_of_their_table(connect: StoreFactory) -> None:
    """Rows come by the name of a table, in the order of its key; a table of no job is refused."""
    store = opened(connect)
    rows = [("red", 1), ("blue", 2), ("green", 3)]
    Owner(store, LOW).commit(tables=[TableWrite(table=SCORES, upserts=rows)])
    in_order = [{"team": team, "total": total} for team, total in sorted(rows)]
    expect_equal(store.read_rows("scores"), in_order, "rows of a table")
    expect_equal(store.read_rows("scores", 2), in_order[:2], "its first rows")
    expect_equal(store.read_rows("score_log"), [], "rows of an empty table")
    for other in ("score", "jobs", "dataflow.jobs", 'scores"', ""):
        expect_error(StoreError, partial(store.read_rows, other), f"rows of {other!r}")


def check_statistics(connect: StoreFactory) -> None:
    """Every kind is counted, for one job, and zero for one that is not there."""
    store = opened(connect)
    kinds = {"cells", "timers", "checkpoints", "channels", "record_ids", "late", "dead"}
    kinds |= {"journal", "open_ranges"}
    unknown = store.statistics("nobody")
    expect_equal((set(unknown), set(unknown.values())), (kinds, {0}), "of an unknown job")
    empty = {**dict.fromkeys(kinds, 0), "open_ranges": 3}
    expect_equal(dict(store.statistics(JOB)), empty, "of a new job")


def check_close_is_idempotent(connect: StoreFactory) -> None:
    """Closing twice is fine and does not close the other connections."""
    store, other = opened(connect), connect()
    store.close()
    store.close()
    expect(other.read_job(JOB) is not None, "another connection was closed, too")
    other.close()
