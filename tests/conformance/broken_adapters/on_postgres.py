"""Breakages of the Postgres adapter alone: each is one change to its code or to a statement of it."""

from collections.abc import Callable

import pytest

from runners.millwheel.production import Production
from runners.millwheel.store.port import Fenced
from runners.millwheel.store.postgres import PostgresStore
from runners.millwheel.store.postgres.catalog import JobIds

#: What is changed, until the test ends.
Breakage = Callable[[pytest.MonkeyPatch], None]


def looks_up_fenced_ranges_only(patch: pytest.MonkeyPatch) -> None:
    """Knows a receiver of its productions only if it was there when the connection looked last."""

    def numbers(store: PostgresStore, production: Production) -> JobIds | Fenced:
        ids = store._ids.get(production.job)
        fenced = [fence.range_id for fence in production.fences]
        if ids is None or not ids.ranges.keys() >= set(fenced):
            ids = store._load(production.job)
        for range_id in fenced:
            if ids is None or range_id not in ids.ranges:
                return Fenced(range_id)
        assert ids is not None
        return ids

    patch.setattr(PostgresStore, "_ids_of", numbers)
