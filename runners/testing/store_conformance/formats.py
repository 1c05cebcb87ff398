"""Checks of formats: a job has the number of the format of its bytes, and code that does not read it is refused."""

from functools import partial

import attrs

from runners.errors import JobMismatchError, StoredFormatError
from runners.millwheel.store.port import JobSpec, JobUpdate
from runners.testing.store_conformance.world import (
    JOB,
    LOW,
    SPLIT,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    expect_error,
    job_spec,
)


def _spec(number: int, *older: int, job: str = JOB) -> JobSpec:
    """The job as code would open it that writes a format, and reads older ones too."""
    readable = frozenset({number, *older})
    return attrs.evolve(job_spec(job), stored_format=number, readable_formats=readable)


def check_a_job_has_its_format(connect: StoreFactory) -> None:
    """The format is that of the code which has created the job, for each who opens it and each who lists jobs."""
    store = connect()
    expect_equal(store.open_job(_spec(3)).stored_format, 3, "the format of a new job")
    job = connect().read_job(JOB)
    expect(job is not None and job.stored_format == 3, "the format seen from another connection")
    expect_equal([each.stored_format for each in store.read_jobs()], [3], "in a list of jobs")


def check_newer_code_goes_on_and_older_code_gets_nothing(connect: StoreFactory) -> None:
    """Code that reads a job's format has the job in its own from then on, with all state; a former owner is fenced."""
    store = connect()
    before = store.open_job(_spec(3))
    Owner(store, LOW, SPLIT).commit(positions={SPLIT: b"line 9"}, watermarks_us={LOW: 5})
    stored = store.read_job(JOB)
    assert stored is not None
    job = connect().open_job(_spec(4, 3))
    wanted = attrs.evolve(stored, stored_format=4, version=before.version + 1)
    expect_equal(job, wanted, "the job after an upgrade")
    expect_equal(store.read_job(JOB), job, "the job seen from another connection")
    acquire = partial(store.acquire, JOB, [LOW], "old", before.version)
    expect_error(JobMismatchError, acquire, "a range for the version before the upgrade")
    expect_equal({*store.acquire(JOB, [LOW], "new", job.version)}, {LOW}, "a range after it")
    expect_equal(connect().open_job(_spec(4, 3)), store.read_job(JOB), "opening again")


def check_a_format_that_is_not_read_is_refused(connect: StoreFactory) -> None:
    """A format that is older or newer is refused; nothing is changed, also not by an update."""
    store = connect()
    before = store.open_job(_spec(3))
    for spec in (_spec(2, 1), _spec(4), _spec(5, 4)):
        expect_error(StoredFormatError, partial(connect().open_job, spec), "another format")
        kept = {range_id.computation: range_id.computation for range_id in before.ranges}
        counts = store.count_state(JOB)
        update = JobUpdate(spec=spec, kept=kept, version=before.version, counts=counts)
        expect_error(StoredFormatError, partial(connect().update_job, update), "an update to it")
    expect_equal(store.read_job(JOB), before, "the job after a refusal")
    store.reset_job(JOB)
    expect_equal(store.open_job(_spec(4)).stored_format, 4, "a job that was started over")


def check_an_update_takes_its_format_along(connect: StoreFactory) -> None:
    """A new version of a job is in the format of the code that updates it."""
    store = connect()
    job = store.open_job(_spec(3))
    kept = {range_id.computation: range_id.computation for range_id in job.ranges}
    spec = attrs.evolve(_spec(4, 3), fingerprint="f2")
    counts = store.count_state(JOB)
    update = JobUpdate(spec=spec, kept=kept, version=job.version, counts=counts)
    row = store.update_job(update)
    expect_equal((row.stored_format, row.version), (4, job.version + 1), "an updated job")
