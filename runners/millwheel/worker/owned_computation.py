"""Computations: what a worker does with the ranges it owns, one step at a time.

A step takes what has come (records of a source, deliveries, due timers) and returns a `WorkerStep`, which the worker
commits before it sends anything of it.  There are two kinds: `SourceComputation` reads, `GroupingComputation` groups.

MillWheel, sections 4 and 5; the semantics are `runners.core`'s.
"""

from collections.abc import Iterable, Mapping

from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.model.counts import CacheCounts, Counts, IdCounts
from runners.millwheel.model.guarantees import BOTH
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.worker.confirmed_reads import StateTable
from runners.millwheel.worker.grouping_computation import GroupingComputation
from runners.millwheel.worker.router import Router
from runners.millwheel.worker.source_computation import SourceComputation
from runners.millwheel.worker.worker_options import WorkerOptions

Computation = SourceComputation | GroupingComputation


def build_computations(
    job: str,
    plan: ExecutionPlan,
    router: Router,
    store: StateTable,
    options: WorkerOptions,
) -> dict[str, Computation]:
    """A computation for each stage of the plan, owning nothing yet; the store is only read.

    Args:
        job: its name.
        plan: the pipeline.
        router: divides what all of them send.
        store: only read.
        options: the cache of state is divided in equal parts among the groupings.

    Returns:
        The computations by their names; user code is not set up yet.
    """
    tries, cache_bytes = options.tries, options.state_cache_bytes
    groupings = sum(not stage.is_source for stage in plan.stages.values())
    if cache_bytes is not None and groupings:
        # In equal parts: it is not known yet which of them will have much state.
        cache_bytes //= groupings
    computations: dict[str, Computation] = {}
    for name, stage in plan.stages.items():
        guarantees = options.guarantees.get(name, BOTH)
        if stage.is_source:
            computations[name] = SourceComputation(
                job,
                plan,
                stage,
                router,
                store,
                tries=tries,
                guarantees=guarantees,
                steps=options.steps,
            )
        else:
            computations[name] = GroupingComputation(
                job,
                plan,
                stage,
                router,
                store,
                tries=tries,
                guarantees=guarantees,
                # State that is not committed yet must not be read again from the store, which has an older one.
                cache_bytes=cache_bytes if guarantees.strong_productions else None,
                steps=options.steps,
                value_bytes_max=options.value_bytes_max,
                shows_keys=options.shows_keys,
            )
    return computations


def counts_of(computations: Iterable[Computation], committed: Mapping[str, int]) -> Counts:
    """The counts of a worker: of all its computations, and of its `Committer`.

    Args:
        computations: all that the worker has.
        committed: the counts of its `Committer`, by name: "read", "late", "dead", "stragglers", "long_ms" and
            "long_rounds".
    """
    ids, cells = IdCounts(), CacheCounts()
    loads: dict[RangeId, RangeLoad] = {}
    for each in computations:
        loads.update(each.meter.loads)
        if isinstance(each, SourceComputation):
            ids += each.id_counts
        else:
            cells += each.state.cache_counts
    return Counts(
        records_read=committed["read"],
        records_late=committed["late"],
        records_dead=committed["dead"],
        stragglers=committed["stragglers"],
        long_ms=committed["long_ms"],
        long_rounds=committed["long_rounds"],
        record_ids=ids,
        cell_cache=cells,
        loads=loads,
    )
