"""What is known of a split's polls is the same, however they are divided among owners and reports."""

from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.source import SourceBatch
from runners.millwheel.model.split_poll import SplitPoll
from windowing.timestamps import MIN_TIMESTAMP_US


def batch(records: int, left: int) -> SourceBatch:
    return SourceBatch(
        values=range(records),
        timestamps_us=[0] * records,
        position=0,
        watermark_us=MIN_TIMESTAMP_US,
        backlog=df.Backlog(records=left),
    )


@given(
    polls=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans(), st.booleans()),
        min_size=1,
    )
)
def test_the_last_poll_and_the_last_record_are_known(
    polls: list[tuple[int, int, bool, bool]],
) -> None:
    """Each poll has records and a backlog, and may be the first of another owner, or reported."""
    worker: SplitPoll | None = None
    master: SplitPoll | None = None
    reported: list[tuple[int, int, int]] = []
    unreported: list[tuple[int, int, int]] = []
    for now_us, (records, left, is_new_owner, is_reported) in enumerate(polls):
        if is_new_owner:
            # What the former owner has not reported is not known to anybody.
            worker, unreported = None, []
        worker = SplitPoll.of(batch(records, left), now_us, before=worker)
        unreported.append((now_us, records, left))
        if is_reported:
            master = worker.following(master)
            reported += unreported
            unreported = []

    if not reported:
        assert master is None
        return
    with_records = [now_us for now_us, records, _ in reported if records]
    assert master == SplitPoll(
        polled_us=reported[-1][0],
        record_us=with_records[-1] if with_records else None,
        backlog=df.Backlog(records=reported[-1][2]),
    )
