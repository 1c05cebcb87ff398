"""A session that holds a snapshot of the database: commits look at as few pages as without it."""

import pytest

from benchmarks import held_snapshot, stores

pytestmark = pytest.mark.postgres

#: So many that each row which is updated in place would be spread over several pages, again and again.
COMMITS, WINDOW = 1_600, 200
#: Pages of a table that a commit may look at in addition, as where versions of a generation are on several.
MORE_PAGES = 5.0


@pytest.mark.parametrize("shape", ["entry", "sent"])
def test_commits_do_not_look_through_what_a_snapshot_keeps(shape: str) -> None:
    """Pages are counted by the server, so it does not matter what else the machine does."""
    with (
        stores.server_at(None) as server,
        stores.database(server, "free") as free,
        stores.database(server, "snapshot") as other,
    ):
        found = held_snapshot.measure((free, other), shape, COMMITS, WINDOW, rate=0)

    for table, pages in found.snapshot_pages.items():
        # Cells are overwritten in place, by a compaction of the journal now and then.
        if table != "cells":
            assert pages <= found.free_pages[table] + MORE_PAGES, (table, found)
