"""A batch run is marked as finished in the store that has its rows, and in no other."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.batch.failures import is_transient
from runners.batch.runner import finish
from runners.core.stages.plan import plan
from runners.errors import LostCommitsError, StoreRestartedError, StoreUnreachableError
from runners.millwheel.control.job import job_spec
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow


def batch_job() -> tuple[Any, JobRow]:
    """A plan whose source and grouping write a table each, and its job."""
    p = df.Pipeline()
    numbers = p | "read" >> df.Create([1, 2, 3])
    numbers | df.Map(lambda n: {"n": n}) | df.WriteToPostgres("numbers", columns={"n": int})
    (
        numbers
        | df.Map(lambda n: (n % 2, n))
        | "sum" >> df.CombinePerKey(sum)
        | df.Map(lambda pair: {"key": pair[0], "sum": pair[1]})
        | df.WriteToPostgres("sums", columns={"key": int, "sum": int})
    )
    execution = plan(p.graph())
    spec = job_spec("job", "batch", execution, splits_desired=2, ranges_per_grouping=2)
    return execution, MemoryStore().open_job(spec)


def with_finished(job: JobRow, *names: str) -> JobRow:
    ranges = {
        each: attrs.evolve(row, is_finished=each.computation.split("/")[0] in names)
        for each, row in job.ranges.items()
    }
    return attrs.evolve(job, ranges=ranges)


class Prepared:
    """A run whose store is restarted before each of some moments, and has then what is given."""

    def __init__(self, restarts: Iterator[JobRow | None]) -> None:
        self.plan, self.job = batch_job()
        self._restarts, self.is_finished = restarts, False
        self._found: JobRow | None = None

    def finish(self, check: Callable[[JobRow | None, str], None]) -> None:
        for found in self._restarts:
            self._found = found
            raise StoreRestartedError("the store is another one")
        check(self.job, "here")
        self.is_finished = True

    def looked_at_again(self, check: Callable[[JobRow | None, str], None]) -> "Prepared":
        check(self._found, "here")
        return self


def test_a_store_that_was_restarted_and_has_everything_is_marked() -> None:
    whole = with_finished(batch_job()[1], "read", "sum")
    prepared: Any = Prepared(iter([whole, whole]))

    finish(prepared)

    assert prepared.is_finished


@pytest.mark.parametrize(
    ("kept", "missing"),
    [(["read"], r"sum\[0\], sum\[1\]"), (["sum"], r"read/.*\[0\]"), (None, "the job itself")],
)
def test_a_store_that_has_lost_what_was_finished_is_not_marked(
    kept: list[str] | None, missing: str
) -> None:
    job = None if kept is None else with_finished(batch_job()[1], *kept)
    prepared: Any = Prepared(iter([job]))

    with pytest.raises(LostCommitsError, match=missing):
        finish(prepared)

    assert not prepared.is_finished


def test_a_task_does_not_try_another_store_again() -> None:
    """It would be refused again; who runs the job begins again."""
    assert not is_transient(StoreRestartedError("another one"))
    assert is_transient(StoreUnreachableError("nobody there"))
