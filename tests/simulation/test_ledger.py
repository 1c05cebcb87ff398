"""What the ledger takes for a mistake, and what it does not: a watermark that passes a production on its way."""

import attrs
import pytest

import dataflow as df
from dataflow.source import SourceBatch, SplitStatus
from runners.core.stages.plan import plan
from runners.direct import DirectRunner
from runners.millwheel.control.job import job_spec
from runners.millwheel.master.slots import LEASE_TTL_MS
from runners.millwheel.model.ids import Channel, Fence, RangeId
from runners.millwheel.model.production import Checkpoint, Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import Committed
from runners.stored.partials import encode_partials
from runners.testing.manual_clock import ManualClock
from runners.testing.scripted_source import Batch, ScriptedSource
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.ledger import Ledger
from runners.testing.simulator.panes import PaneLog
from runners.testing.simulator.polls import Polls
from windowing.timestamps import MIN_TIMESTAMP_US, US_PER_SECOND
from windowing.window import Window

JOB = "sim"
CHANNEL = Channel(RangeId("read", 0), RangeId("group", 0))


@attrs.define
class Watched:
    """A ledger over a job with one split and one key range, and what the owner of the split has found in it."""

    clock: ManualClock
    ledger: Ledger
    polls: Polls

    def poll(self, status: SplitStatus) -> None:
        batch = SourceBatch(
            values=[], timestamps_us=[], position=0, watermark_us=MIN_TIMESTAMP_US, status=status
        )
        self.polls.polled("worker", "read", 0, batch)

    def advance(self, seconds: int) -> None:
        """The master has let event time come so far; the source may break its word."""
        inputs_us = {"group": seconds * US_PER_SECOND}
        self.ledger.on_watermarks(inputs_us, self.polls, can_be_late=True)


@pytest.fixture
def watched() -> Watched:
    """With a production on its way whose windows end at 60 and 120."""
    pipeline = df.Pipeline(DirectRunner())
    (
        pipeline
        | "read" >> df.Read(ScriptedSource([Batch([("key", 1)], [0], 0)]))
        | df.WindowInto(df.FixedWindows(60))
        | "group" >> df.GroupByKey()
    )
    execution, store, clock = plan(pipeline.graph()), MemoryStore(), ManualClock()
    store.open_job(job_spec(JOB, "streaming", execution, splits_desired=1, ranges_per_grouping=1))
    ledger = Ledger(store, JOB, execution, PaneLog([]), {})
    partials = [
        ("key", Window(start * US_PER_SECOND, (start + 60) * US_PER_SECOND), [1], 1)
        for start in (0, 60)
    ]
    token = store.acquire(JOB, [CHANNEL.sender], "worker")[CHANNEL.sender].row.token
    made = Production(
        job=JOB,
        fences=[Fence(range_id=CHANNEL.sender, token=token, bundle=1)],
        checkpoints=[Checkpoint(CHANNEL, 1, 0, encode_partials(partials))],
    )
    before = ledger.before(made)
    assert store.commit(made) == Committed()
    ledger.applied(made, before)
    return Watched(clock, ledger, Polls(store, JOB, execution, clock))


def test_what_was_passed_in_a_silence_is_no_mistake_when_the_silence_is_long_over(
    watched: Watched,
) -> None:
    """Its delivery takes longer than that, as where the receiver's workers die, and the watermark stays."""
    watched.poll(SplitStatus.IDLE)
    watched.advance(60)
    watched.clock.advance(2 * LEASE_TTL_MS)

    watched.advance(60)
    watched.advance(119)


def test_what_is_passed_after_a_silence_is_a_mistake(watched: Watched) -> None:
    """Also where another window of the same production was passed in it."""
    watched.poll(SplitStatus.IDLE)
    watched.advance(60)
    watched.clock.advance(2 * LEASE_TTL_MS)

    with pytest.raises(InvariantError, match=r"I4: .* is 120000000 us, but production 1"):
        watched.advance(120)


def test_what_is_passed_without_a_silence_is_a_mistake(watched: Watched) -> None:
    watched.poll(SplitStatus.ACTIVE)

    with pytest.raises(InvariantError, match=r"I4: .* is 60000000 us, but production 1"):
        watched.advance(60)
