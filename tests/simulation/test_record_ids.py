"""Records that come several times, over the real master and workers, some of which die: each counts once.

And the tests are tested: without the table behind the filter, or with ids that are forgotten early, they fail.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from runners.core.stages.deduplication import Deduplicated, Deduplicator
from runners.direct import DirectRunner
from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.worker.dedup import seen_ids as record_ids
from runners.millwheel.worker.dedup.seen_ids import SeenIds
from runners.millwheel.worker.worker_options import WorkerOptions
from runners.stored.letters import stored_late_mapping
from runners.testing.simulator import SimulationError, simulate
from runners.testing.simulator.scripts import retrying
from tests.effort import costly
from tests.simulation.test_worker_crashes import COLUMNS, Cluster, row

Patch = pytest.MonkeyPatch
SEEDS_MAX = 1_500


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: Patch) -> None:
    """A filter is loaded in several steps."""
    monkeypatch.setattr(record_ids, "PAGE_IDS", 3)


@costly()
@given(
    seed=st.integers(0, 2**32),
    slack_s=st.sampled_from([0, 60, 600]),
    expected_ids=st.sampled_from([1, 1_000]),
    rate=st.sampled_from([0.01, 0.9]),
    crash_rate=st.sampled_from([0.0, 0.1]),
    is_weak=st.booleans(),
)
def test_every_id_counts_once(
    seed: int, slack_s: int, expected_ids: int, rate: float, crash_rate: float, is_weak: bool
) -> None:
    """What has come is the script's own business: it is not asked how the direct runner sees it.

    Weak productions commit late, and promise this only where nothing fails.
    """
    source = retrying(Random(seed), slack_s)
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read"
        >> df.Read(
            source,
            record_ids=df.RecordIds(
                of=lambda record: f"number {record[1]}",
                slack=slack_s,
                expected_ids=expected_ids,
                false_positive_rate=rate,
            ),
        )
        | "minutes"
        >> df.WindowInto(
            df.FixedWindows(60),
            accumulation_mode=df.AccumulationMode.DISCARDING,
            allowed_lateness=7200,
        )
        | "group" >> df.GroupByKey()
        | "flat" >> df.FlatMap(lambda pair: [(pair[0], value) for value in pair[1]])
        | "row" >> df.Map(row)
        | "rows" >> df.WriteToPostgres("rows", columns=COLUMNS)
    )
    guarantees = Guarantees(strong_productions=not is_weak or bool(crash_rate))
    options = WorkerOptions(guarantees={"read": guarantees})
    cluster = Cluster(pipeline.graph(), seed, crash_rate, options=options)
    cluster.run()
    (table,) = pipeline.graph().tables()
    emitted = [int(each[3]) for each in cluster.store.read_table(table)]
    late = [stored_late_mapping(each) for each in cluster.store.read_late("sim")]
    sent = [record for script in source._scripts for batch in script for record in batch.values]

    assert sorted(emitted) == sorted({number for _, number in sent}), f"seed={seed}"
    # Of what comes behind the horizon nobody can know whether it is a copy; here it always is.
    assert {each["transform"] for each in late} <= {"read"}
    copies = Counter(sent) - Counter(set(sent))
    assert Counter(each["element"].value for each in late) <= copies
    statistics = cluster.store.statistics("sim")
    assert (0, 0, 0) == tuple(statistics[each] for each in ("cells", "timers", "checkpoints"))
    assert statistics["record_ids"] == 0
    if not crash_rate:
        counts = cluster.master.statistics().record_ids
        assert counts.duplicates == copies.total() - len(late)


@pytest.mark.slow
def test_the_shipped_pipeline_drops_copies_and_asks_in_vain() -> None:
    """Else there would be nothing to find in it."""
    counted = Counter[str]()
    deduplicate = Deduplicator.deduplicate

    def counting(self: Deduplicator, bundle: Any, known: Any, *, watermark_us: int) -> Deduplicated:
        deduplicated = deduplicate(self, bundle, known, watermark_us=watermark_us)
        counted.update(duplicates=deduplicated.duplicates, late=len(deduplicated.late))
        return deduplicated

    known = SeenIds._known

    def asking(seen: SeenIds, digests: Sequence[bytes]) -> Collection[bytes]:
        before = seen._counts.false_maybes
        answer = known(seen, digests)
        counted["false maybes"] += seen._counts.false_maybes - before
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deduplicator, "deduplicate", counting)
        patch.setattr(SeenIds, "_known", asking)
        simulate("retries", seeds=25)

    assert counted["duplicates"] > 25
    assert counted["late"] > 5
    assert counted["false maybes"] > 5


def take_maybe_for_yes(patch: Patch) -> None:
    """A false positive drops a record."""

    def known(seen: SeenIds, digests: Sequence[bytes]) -> Collection[bytes]:
        return seen._ask(digests) if seen._loaded is not None else seen._filter.maybes(digests)

    patch.setattr(SeenIds, "_known", known)


def collect_early(patch: Patch) -> None:
    """Ids are forgotten as soon as the watermark is there, without the slack."""
    collect = SeenIds.collect

    def early(seen: SeenIds, watermark_us: int) -> int | None:
        until_us = collect(seen, watermark_us)
        return None if until_us is None else watermark_us

    patch.setattr(SeenIds, "collect", early)


def collect_early_in_the_store(patch: Patch) -> None:
    """Early collection where only what comes of it can be seen."""
    read = MemoryStore._record_ids

    def early(store: MemoryStore, job: str, range_id: Any) -> Any:
        kept = dict(read(store, job, range_id))
        watermark_us = store._jobs[job].ranges[range_id].watermark_us or 0
        return {digest: at_us for digest, at_us in kept.items() if at_us >= watermark_us}

    patch.setattr(MemoryStore, "_record_ids", early)


def trust_an_empty_filter(patch: Patch) -> None:
    """The filter of a new owner is taken for whole."""
    init = SeenIds.__init__

    def broken(seen: SeenIds, *arguments: Any) -> None:
        init(seen, *arguments)
        seen._loaded = None

    patch.setattr(SeenIds, "__init__", broken)


def overlook_copies_in_a_batch(patch: Patch) -> None:
    """Only what was committed before is a copy."""
    deduplicate = Deduplicator.deduplicate

    def broken(self: Deduplicator, bundle: Any, known: Any, *, watermark_us: int) -> Deduplicated:
        deduplicated = [
            deduplicate(self, bundle.take([index], [value]), known, watermark_us=watermark_us)
            for index, value in enumerate(bundle.values)
        ]
        indexes = [index for index, each in enumerate(deduplicated) if each.ids]
        return Deduplicated(
            bundle=bundle.take(indexes, [bundle.values[index] for index in indexes]),
            ids=[new for each in deduplicated for new in each.ids],
            duplicates=sum(each.duplicates for each in deduplicated),
            late=[late for each in deduplicated for late in each.late],
            dead=(),
        )

    patch.setattr(Deduplicator, "deduplicate", broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "invariant"),
    [
        (collect_early, "I8:"),
        # By the second commit of an id, or, where no id needs to be kept any more, by what comes out.
        (collect_early_in_the_store, "I[18]:"),
        (overlook_copies_in_a_batch, "I[18]:"),
        (take_maybe_for_yes, "I1:"),
        (trust_an_empty_filter, "I[18]:"),
    ],
)
def test_simulator_rejects(
    mutation: Callable[[Patch], None], invariant: str, monkeypatch: Patch
) -> None:
    mutation(monkeypatch)

    with pytest.raises(SimulationError, match=rf"(?s)seed \d+: {invariant}.*replay: .* --seed \d+"):
        simulate("retries", seeds=SEEDS_MAX)
