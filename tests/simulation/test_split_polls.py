"""Whoever looks at a job can tell a split that has nothing from one that is not asked."""

from collections.abc import Sequence

import attrs
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.model.split_poll import SplitPoll
from tests.simulation.test_worker_crashes import Cluster
from windowing.timestamps import MIN_TIMESTAMP_US

pytestmark = pytest.mark.slow

#: The workers have reported several times by then.
LOOK_MS = 2_000


@attrs.frozen
class Bursts(df.Source):
    """Two splits without an end: one has so many records at once, the other never any."""

    records: int
    is_bounded = False

    def splits(self, desired: int) -> Sequence[int]:
        return [0, self.records]

    def open(self, split: int, position: int | None, *, fence: int) -> df.SourceReader:
        return _BurstsReader(split, position or 0)


class _BurstsReader(df.SourceReader):
    def __init__(self, end: int, position: int) -> None:
        self._end, self._next = end, position

    def read(self, max_records: int) -> df.SourceBatch:
        start, self._next = self._next, min(self._next + max_records, self._end)
        return df.SourceBatch(
            values=range(start, self._next),
            timestamps_us=[0] * (self._next - start),
            position=self._next,
            watermark_us=MIN_TIMESTAMP_US,
            status=df.SplitStatus.ACTIVE if start < self._next else df.SplitStatus.IDLE,
            backlog=df.Backlog(records=self._end - self._next),
        )


def polls_of(cluster: Cluster) -> list[SplitPoll]:
    """The polls of the empty split and of the other one, in this order."""
    splits = cluster.master.statistics().splits
    return sorted(splits.values(), key=lambda poll: poll.record_us or 0)


def run_for(cluster: Cluster, ms: int) -> None:
    """Let time go on."""
    until_ms = cluster.clock.monotonic_ms() + ms
    cluster.run_until(lambda: cluster.clock.monotonic_ms() >= until_ms)


def run_until_polled_after(cluster: Cluster, before: Sequence[SplitPoll]) -> None:
    """Let time go on until each split was asked again; it is an error if that never happens."""
    cluster.run_until(
        lambda: all(
            after.polled_us > each.polled_us
            for each, after in zip(before, polls_of(cluster), strict=True)
        )
    )


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_paused_split_is_not_asked_and_a_quiet_one_is(seed: int) -> None:
    p = df.Pipeline(DirectRunner())
    (
        p
        | df.Read(Bursts(200))
        | df.Map(lambda number: (number % 7, number))
        | df.WindowInto(df.FixedWindows(60))
        | df.GroupByKey()
    )
    cluster = Cluster(p.graph(), seed, 0.0)
    cluster.run_until(lambda: cluster.master.statistics().records_read == 200)
    cluster.run_until(
        lambda: [each.backlog for each in polls_of(cluster)] == [df.Backlog(records=0)] * 2
    )
    quiet = polls_of(cluster)
    assert [each.record_us is None for each in quiet] == [True, False]
    run_until_polled_after(cluster, quiet)
    assert [each.record_us for each in polls_of(cluster)] == [each.record_us for each in quiet]

    cluster.master.is_pausing = True
    cluster.run_until(lambda: cluster.master.is_paused)
    run_for(cluster, LOOK_MS)
    paused = polls_of(cluster)
    run_for(cluster, LOOK_MS)
    assert polls_of(cluster) == paused
    assert cluster.clock.now_us() - max(each.polled_us for each in paused) >= LOOK_MS * 1_000

    cluster.master.is_pausing = False
    run_until_polled_after(cluster, paused)
