"""A writer that owns the one range of a new job, and commits to the Postgres store as a worker does."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import CellWrite, Checkpoint, Production, TimerWrite
from runners.millwheel.store.port import CellKey, Committed, Fenced, JobSpec, RangeSpec
from runners.millwheel.store.postgres import PostgresStore

#: How many cells a page has that is read.
BUNDLE = 10_000
#: What a counter of a window takes, about.
VALUE = b"v" * 60
ONLY, SOURCE = RangeId("count", 0), RangeId("read", 0)
OUT, IN = Channel(ONLY, ONLY), Channel(SOURCE, ONLY)


class Writer:
    """Owns the one range of a new job."""

    def __init__(self, store: PostgresStore) -> None:
        ranges = [
            RangeSpec(range_id=ONLY, keys=even_ranges(1)[0]),
            RangeSpec(range_id=SOURCE, split=b""),
        ]
        store.open_job(JobSpec(job="job", mode="streaming", fingerprint="", ranges=ranges))
        self._store = store
        self._token = store.acquire("job", [ONLY], "me")[ONLY].row.token
        self._bundle = 0

    def commit(self, **parts: Any) -> float:
        """Commit the next bundle; how long that took, in seconds."""
        self._bundle += 1
        fence = Fence(range_id=ONLY, token=self._token, bundle=self._bundle)
        production = Production(job="job", fences=[fence], **parts)
        started_s = time.perf_counter()
        assert self._store.commit(production) == Committed()
        return time.perf_counter() - started_s

    def small(self) -> float:
        """A commit of ten records for a few keys, as a busy stream has them; in seconds."""
        number = self._bundle + 1
        cells = [CellWrite("count", key, b"key %d" % key, VALUE) for key in range(10)]
        timer = TimerWrite("count", 1, b"key 1", b"w%d" % number, "event", number)
        gone = TimerWrite("count", 1, b"key 1", b"w%d" % (number - 1), "event", None)
        return self.commit(
            cells=cells,
            timers=[timer, gone],
            checkpoints=[Checkpoint(OUT, number, 0, b"p" * 500)],
            acknowledged={OUT: number - 1},
            delivered={IN: number},
            watermarks_us={ONLY: number},
        )

    def pages(self) -> Iterator[Mapping[CellKey, bytes]]:
        """All cells of the range, page by page."""
        first_hash = 0
        while True:
            page = self._store.read_cell_page("job", ONLY, self._token, first_hash, BUNDLE)
            assert not isinstance(page, Fenced)
            if not page:
                return
            yield page
            first_hash = max(page)[0] + 1
