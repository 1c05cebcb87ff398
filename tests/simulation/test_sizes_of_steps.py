"""Records of any size: steps and what they write stay of a size, and what cannot is refused by name."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.core.panes import group_also_by_window
from runners.core.side_inputs import arriving_views
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import CommitOutcome
from runners.millwheel.worker.state import journal
from runners.millwheel.worker.step_limits import StepLimits
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.testing.simulator import NO_FAULTS, Fault, dice, simulate
from runners.testing.simulator.cluster import SimulatedCluster
from runners.testing.simulator.pipelines import PIPELINES
from tests.effort import by_profile, each_third
from tests.simulation.test_cell_cache import IN_CELLS

#: Of the shipped pipelines: so little that hardly anything is in one piece.
PIECE_BYTES = 150
SEEDS = by_profile(2, nightly=2_000)

RECORDS, RECORD_BYTES, KEYS = 600, 1_000, 20
#: A step is of fifty records.
SMALL = StepLimits(nbytes=50 * RECORD_BYTES, piece_bytes=10 * RECORD_BYTES, first=20)


@attrs.define
class Written:
    """The largest things in the commits of a job."""

    piece: int = 0
    whole: int = 0
    commits: int = 0

    def look(self, production: Production) -> None:
        """At a production that is about to be committed."""
        values = [each.value or b"" for each in production.cells]
        values += [each.payload for each in production.journal]
        values += [each.payload for each in production.checkpoints]
        rows = [row for write in production.tables for row in (*write.inserts, *write.upserts)]
        written = sum(map(len, values)) + sum(len(value) for row in rows for value in row[1:])
        self.commits += 1
        self.piece = max([self.piece, *map(len, values)])
        self.whole = max(self.whole, written)


class Measuring(MemoryStore):
    """A store that looks at what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Written()

    def commit(self, production: Production) -> CommitOutcome:
        self.written.look(production)
        return super().commit(production)


def large(p: df.Pipeline) -> Any:
    """Records that grow when they are read, and groups of them that are emitted again."""
    numbers = [df.TimestampedValue((n % KEYS, n), 0) for n in range(RECORDS)]
    return (
        p
        | "read" >> df.Create(numbers)
        | "grow" >> df.Map(lambda pair: (pair[0], (pair[1], "x" * RECORD_BYTES)))
    )


def one_row(key: Any, number: int, text: str) -> dict[str, Any]:
    return {"key": f"{key} {number}", "text": text}


def write_each(groups: Any) -> None:
    (
        groups
        | "each" >> df.FlatMap(lambda pair: [one_row(pair[0], *value) for value in pair[1]])
        | df.WriteToPostgres("one_row", columns={"key": str, "text": str})
    )


def run(build: Callable[[df.Pipeline], None], **options: Any) -> Measuring:
    p = df.Pipeline()
    build(p)
    store = Measuring()
    options = {"steps": SMALL, **options}
    cluster = SimulatedCluster(
        p.graph(), 0, faults=NO_FAULTS, store=store, options=WorkerOptions(**options), workers=1
    )
    cluster.run()
    (table,) = p.graph().tables()
    assert sorted(store.read_table(table)) == sorted(
        (f"{n % KEYS} {n}", "x" * RECORD_BYTES) for n in range(RECORDS)
    )
    return store


SHARDS = 8


def looked_up(p: df.Pipeline) -> None:
    """Each record in a view of all, which goes to every shard."""
    by_number = large(p) | "by number" >> df.Map(lambda pair: (pair[1][0], pair[1]))
    numbers = p | "numbers" >> df.Create(range(RECORDS))
    rows = numbers | df.Map(
        lambda n, view: one_row(n % KEYS, *view[n]), df.AsDict(by_number, shards=SHARDS)
    )
    rows | df.WriteToPostgres("one_row", columns={"key": str, "text": str})


@pytest.mark.slow
def test_a_view_on_its_way_is_bounded_by_what_a_step_takes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not by its size, of which each shard is sent all, nor is it bounded by that where its pages are made."""
    monkeypatch.setattr(group_also_by_window, "PASSED_VALUES", 10)
    monkeypatch.setattr(arriving_views, "MADE_PAGES", 4)

    store = run(looked_up)

    # What a step of the source reads is a delivery, which has no parts.
    taken_bytes = 50 * RECORD_BYTES
    assert store.written.whole < 2 * SHARDS * taken_bytes < SHARDS * RECORDS * RECORD_BYTES / 5


@pytest.mark.parametrize("is_windowed", [True, False])
def test_what_a_step_commits_is_bounded(is_windowed: bool) -> None:
    """In pieces no larger than a group, which has no parts; each step about as much as a step should have."""

    def windowed(p: df.Pipeline) -> None:
        write_each(large(p) | df.WindowInto(df.FixedWindows(60)) | "group" >> df.GroupByKey())

    def each_alone(p: df.Pipeline) -> None:
        alone = large(p) | "alone" >> df.Map(lambda pair: (pair[1][0], pair[1]))
        groups = alone | "group" >> df.GroupByKey()
        write_each(groups | df.Map(lambda pair: (pair[0] % KEYS, pair[1])))

    store = run(windowed if is_windowed else each_alone)
    group_bytes = (RECORDS // KEYS if is_windowed else 1) * RECORD_BYTES

    assert store.written.piece < max(10 * RECORD_BYTES, group_bytes) * 1.2
    # What a step takes in it may write twice (state, and what that emits), and each group that it touches as a whole.
    assert store.written.whole < 2 * (50 * RECORD_BYTES + KEYS * group_bytes * is_windowed)
    assert store.written.commits > 20


@pytest.mark.slow
def test_a_value_that_is_too_large_is_refused_by_name() -> None:
    """Before anything is committed; the job stops, and the error names the key."""

    def build(p: df.Pipeline) -> None:
        write_each(large(p) | IN_CELLS | "group" >> df.GroupByKey())

    run(build, value_bytes_max=RECORDS * RECORD_BYTES)
    with pytest.raises(df.TransformError) as failure:
        run(build, value_bytes_max=20 * RECORD_BYTES)
    message = str(failure.value)

    assert "'group'" in message
    assert "cannot keep the state of key" in message
    assert "may have 20,000" in message
    assert "value_bytes_max" in message


def test_a_record_that_is_too_large_is_refused_by_name() -> None:
    """Where it is sent."""

    def build(p: df.Pipeline) -> None:
        longer = large(p) | "longer" >> df.Map(lambda pair: (pair[0], (pair[1], pair[1][1] * 30)))
        write_each(longer | "group" >> df.GroupByKey())

    with pytest.raises(df.TransformError, match=r"(?s)'group'.*cannot be sent a value of key"):
        run(build, value_bytes_max=20 * RECORD_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 1))
def test_what_goes_in_pieces_arrives_once(pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails between them."""
    tiny = StepLimits(nbytes=4 * PIECE_BYTES, piece_bytes=PIECE_BYTES, first=1)
    monkeypatch.setattr(dice, "STEPS", (tiny,))

    assert simulate(pipeline, seeds=range(1, SEEDS + 1)).faults.total() > 0


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", each_third(PIPELINES, 2))
def test_what_is_too_large_is_refused_and_goes_on_with_a_larger_limit(pipeline: str) -> None:
    """Results are those of a run that was never refused; and nothing that the store refuses is ever sent to it."""
    faults = {Fault.SIZE_LIMIT: 1.0, Fault.CUT_COMMIT: 0.05, Fault.CRASH: 0.005, Fault.MOVE: 0.02}

    # In the last of them rows of a delivery are kept as columns beside others that are not.
    seeds = [*range(SEEDS), 13]

    assert simulate(pipeline, seeds=seeds, faults=faults).seeds == len(seeds)


def test_what_is_kept_as_columns_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a range holds is several entries of the journal, and the first is in place of what was before."""
    monkeypatch.setattr(dice, "STEPS", (StepLimits(piece_bytes=2_000),))
    monkeypatch.setattr("runners.millwheel.worker.state.journal.JOURNAL_BYTES_MAX", 3_000)

    assert simulate("typed", seeds=SEEDS).seeds == SEEDS


@pytest.mark.slow
def test_large_cells_are_compacted_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that brings cells up to date has no more of them than it should have."""
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 1)
    group_bytes = RECORDS // KEYS * RECORD_BYTES
    most = 0

    class Compacted(Measuring):
        def commit(self, production: Production) -> CommitOutcome:
            nonlocal most
            most = max(most, sum(len(each.value or b"") for each in production.cells))
            return super().commit(production)

    def build(p: df.Pipeline) -> None:
        write_each(large(p) | IN_CELLS | "group" >> df.GroupByKey())

    monkeypatch.setattr(f"{__name__}.Measuring", Compacted)
    run(build)

    assert 50 * RECORD_BYTES < most < 50 * RECORD_BYTES + 1.2 * group_bytes
