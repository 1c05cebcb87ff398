"""A key range of a backfill is committed part by part: no part twice, none left out, wherever an attempt dies."""

from typing import Any

import attrs
import pytest

import dataflow as df
from runners.batch.backfill.key_parts import PARTS
from runners.batch.backfill.settings import backfill_settings
from runners.batch.range_task import RangeTask, TaskSettings
from runners.core.stages.plan import ExecutionPlan, plan
from runners.direct import DirectRunner
from runners.errors import BackfillError, UnrepeatableError
from runners.millwheel.control.backfill_progress import is_loaded, mark_of
from runners.millwheel.control.job import job_spec
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome, RangeRow
from runners.stored.letters import stored_dead_mapping
from runners.testing.scripted_source import Batch, ScriptedSource

KEYS = 40
SECOND_US = 1_000_000
#: Each key twice in a minute that is over when the backfill ends, and once in one that is not.
SCRIPT = [
    Batch([(key, at) for key in range(KEYS)], [at * SECOND_US] * KEYS, at * SECOND_US)
    for at in (0, 30, 70)
]
SUM = RangeId("sum", 0)


class DyingError(Exception):
    """The machine of the attempt is gone."""


class DyingStore:
    """Lets so many commits through; with the next one the attempt dies, before or after it."""

    def __init__(self, inner: MemoryStore, commits: int, *, is_after: bool) -> None:
        self._inner, self._left, self._is_after = inner, commits, is_after

    def commit(self, production: Production) -> CommitOutcome:
        self._left -= 1
        if self._left >= 0:
            return self._inner.commit(production)
        if self._is_after:
            self._inner.commit(production)
        raise DyingError

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)


def graph_of(*, is_chained: bool = False, roll: Any = None) -> df.Pipeline:
    p = df.Pipeline(DirectRunner())
    sums = (
        p
        | "read" >> df.Read(ScriptedSource(SCRIPT))
        | "windows" >> df.WindowInto(df.FixedWindows(60))
        | "sum" >> df.CombinePerKey(sum)
    )
    if roll is not None:
        sums = sums | "roll" >> df.Map(roll)
    (
        sums
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("sums", columns={"key": int, "total": int})
    )
    if is_chained:
        sums | "again" >> df.GroupByKey()
    return p


def of_batches(backfill: TaskSettings, batch_records: int) -> TaskSettings:
    end: Any = backfill.end
    return attrs.evolve(backfill, end=attrs.evolve(end, batch_records=batch_records))


@attrs.frozen
class Begun:
    """A job whose source is read: what is on its way to the one range of its sums."""

    store: MemoryStore
    execution: ExecutionPlan
    backfill: TaskSettings
    sent: list[bytes]

    @classmethod
    def of(cls, p: df.Pipeline, batch_records: int = 12, tries: int | None = None) -> "Begun":
        store, execution = MemoryStore(), plan(p.graph())
        spec = job_spec("sim", "streaming", execution, splits_desired=1, ranges_per_grouping=1)
        job = store.open_job(spec)
        backfill = backfill_settings(execution, job, until_us=None, now_us=0, tries=tries)
        backfill = of_batches(backfill, batch_records)
        source = RangeId("read", 0)
        split = job.ranges[source].split
        assert split is not None
        reader = RangeTask(backfill, execution, source, lambda: store, "reader")
        sent = [each for _, each in reader.read_split(split)]
        return cls(store, execution, backfill, sent)

    def attempt(self, store: Any, spill_bytes: int) -> list[Any]:
        """What one attempt at the range sends."""
        owner = f"attempt {id(store)}"
        settings = attrs.evolve(self.backfill, spill_bytes=spill_bytes)
        task = RangeTask(settings, self.execution, SUM, lambda: store, owner)
        return list(task.group(self.sent))

    @property
    def row(self) -> RangeRow:
        job = self.store.read_job("sim")
        assert job is not None
        return job.ranges[SUM]

    def dead(self) -> list[Any]:
        found = map(stored_dead_mapping, self.store.read_dead_letters("sim"))
        return sorted(each["element"].value for each in found)

    def rows(self) -> list[tuple[Any, ...]]:
        (table,) = self.execution.graph.tables()
        return sorted(map(tuple, self.store.read_table(table)))


def commits(spill_bytes: int) -> int:
    begun = Begun.of(graph_of())
    begun.attempt(begun.store, spill_bytes)
    return begun.row.bundle


def test_what_fits_is_one_commit_and_what_does_not_is_several() -> None:
    assert commits(1 << 40) == 1
    assert commits(0) > 3


@pytest.mark.slow
@pytest.mark.parametrize("spill_bytes", [0, 1 << 40])
@pytest.mark.parametrize("is_chained", [False, True])
@pytest.mark.parametrize("is_after", [False, True])
def test_an_attempt_that_dies_at_any_commit_is_continued(
    *, is_after: bool, is_chained: bool, spill_bytes: int
) -> None:
    p, all_commits = graph_of(is_chained=is_chained), commits(0)
    whole = Begun.of(p)
    first = whole.attempt(whole.store, 1 << 40)
    for number in range(all_commits):
        begun = Begun.of(p)
        with pytest.raises(DyingError):
            begun.attempt(DyingStore(begun.store, number, is_after=is_after), 0)
        done = number + is_after
        assert begun.row.bundle == done
        assert is_loaded(begun.row) == (done == all_commits)
        again = begun.attempt(begun.store, spill_bytes)

        assert begun.rows() == whole.rows() == [(key, 30) for key in range(KEYS)]
        assert begun.store.statistics("sim") == whole.store.statistics("sim")
        mark = mark_of(begun.row)
        assert mark is not None
        assert (mark.records, mark.is_end) == (PARTS, True)
        # Somebody who is behind needs all of it once more; else there is nobody to receive it.
        assert again == first
    assert whole.store.statistics("sim")["cells"] == KEYS


def test_a_range_that_is_loaded_is_worked_off_again_for_others_and_written_once() -> None:
    begun = Begun.of(graph_of(is_chained=True))
    first = begun.attempt(begun.store, 0)
    before = begun.row

    assert begun.attempt(begun.store, 300) == first != []
    assert begun.row.bundle == before.bundle
    assert begun.rows() == [(key, 30) for key in range(KEYS)]


def test_other_batches_than_before_write_no_part_twice() -> None:
    """What is written ends a batch, so that each is either written or not."""
    begun = Begun.of(graph_of(is_chained=True))
    with pytest.raises(DyingError):
        begun.attempt(DyingStore(begun.store, 2, is_after=False), 0)
    other = attrs.evolve(begun, backfill=of_batches(begun.backfill, 1 << 40))
    other.attempt(begun.store, 0)

    assert begun.rows() == [(key, 30) for key in range(KEYS)]
    assert begun.store.statistics("sim")["cells"] == KEYS


@df.nondeterministic
def rolled(pair: tuple[int, int]) -> tuple[int, int]:
    return pair


def test_what_rolls_dice_is_not_sent_again_to_others() -> None:
    begun = Begun.of(graph_of(is_chained=True, roll=rolled))
    with pytest.raises(DyingError):
        begun.attempt(DyingStore(begun.store, 1, is_after=False), 0)

    with pytest.raises(
        BackfillError, match=r"sum\[0\].*cannot be processed again\n.*'roll'"
    ) as caught:
        begun.attempt(begun.store, 0)
    assert "fresh=True" in str(caught.value)


@pytest.mark.parametrize("commits", [0, 1])
def test_what_rolls_dice_goes_on_where_nobody_has_received_it(commits: int) -> None:
    """Before anything is committed, or where the range is the last."""
    begun = Begun.of(graph_of(is_chained=commits == 0, roll=rolled))
    with pytest.raises(DyingError):
        begun.attempt(DyingStore(begun.store, commits, is_after=False), 0)
    begun.attempt(begun.store, 0)

    assert begun.rows() == [(key, 30) for key in range(KEYS)]


class Victims:
    """Fails on every tenth key; which of them it is can be changed."""

    rest = 3

    def __call__(self, pair: tuple[int, int]) -> tuple[int, int]:
        if pair[0] % 10 == type(self).rest:
            raise ValueError("not today")
        return 0, pair[1]


VICTIMS = [(key, 30) for key in range(KEYS) if key % 10 == Victims.rest]


@pytest.mark.slow
@pytest.mark.parametrize("is_chained", [False, True])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_group_that_fails_is_one_letter_wherever_an_attempt_dies(
    *, is_after: bool, is_chained: bool
) -> None:
    p = graph_of(is_chained=is_chained, roll=Victims())
    for number in range(commits(0)):
        begun = Begun.of(p, tries=1)
        with pytest.raises(DyingError):
            begun.attempt(DyingStore(begun.store, number, is_after=is_after), 0)
        begun.attempt(begun.store, 0)

        assert begun.rows() == [(0, 30)] * (KEYS - len(VICTIMS))
        assert begun.dead() == VICTIMS


def test_groups_that_fail_in_place_of_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many in each window: what is sent to one key for them cannot be distinguished."""
    begun = Begun.of(graph_of(is_chained=True, roll=Victims()), tries=1)
    begun.attempt(begun.store, 0)
    monkeypatch.setattr(Victims, "rest", Victims.rest + 1)

    with pytest.raises(UnrepeatableError, match="again on others of the same"):
        begun.attempt(begun.store, 0)
    assert begun.dead() == VICTIMS
