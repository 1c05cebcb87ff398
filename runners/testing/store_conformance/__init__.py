"""What every store must do, as a list of functions: the definition of a correct adapter.

`CHECKS` is for test suites, ours and those of people who write an adapter.
Each check takes a `StoreFactory`: every call of it gives another connection to one store, which is
empty when the check starts.
A check returns when the store behaves and raises `ConformanceError` when not.

    for check in CHECKS:
        check(connect_to_an_empty_store)

No test framework is needed.
The suite is itself tested: it must reject deliberately broken adapters.
ADR 0004; the invariants are those of the port.
"""

from collections.abc import Callable, Sequence

from runners.testing.store_conformance import (
    changes,
    channel_ends,
    channels,
    evidence,
    fences,
    formats,
    jobs,
    journal,
    keeping,
    lineage,
    metrics,
    not_knowing,
    outboxes,
    reading,
    record_ids,
    requests,
    rows,
    shapes,
    signals,
    sizes,
    splits,
    state,
    troubles,
    under_way,
    updates,
)
from runners.testing.store_conformance.world import ConformanceError, StoreFactory

__all__ = ["CHECKS", "ConformanceError", "StoreFactory"]

#: The suite, in reading order.
CHECKS: Sequence[Callable[[StoreFactory], None]] = tuple(
    check
    for module in (
        jobs,
        fences,
        state,
        reading,
        journal,
        sizes,
        channels,
        channel_ends,
        shapes,
        splits,
        updates,
        formats,
        record_ids,
        rows,
        changes,
        keeping,
        lineage,
        metrics,
        signals,
        requests,
        troubles,
        evidence,
        outboxes,
        not_knowing,
        under_way,
    )
    for name, check in vars(module).items()
    if name.startswith("check_")
)
