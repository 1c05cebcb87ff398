"""A law about what a worker sends to itself (ADR 0054), or hands on within a round (ADR 0112): it is taken in once.

The commit that makes a production may take it in as well, or a later one does.  Between rounds both ends of such a
channel are in memory as they are in the store, so that either of them can get another owner.
"""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyRange
from runners.millwheel.model.production import JournalEntry
from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobSpec, RangeSpec
from runners.millwheel.worker.committer import Committer
from runners.millwheel.worker.courier import Courier
from runners.millwheel.worker.handed_on import HandedOn
from runners.millwheel.worker.outgoing import Outgoing
from runners.millwheel.worker.owned_range import OwnedRange
from runners.millwheel.worker.step_limits import STEP_LIMITS
from runners.millwheel.worker.worker_step import WorkerStep
from runners.testing.local_network import LocalNetwork
from runners.testing.manual_clock import ManualClock
from tests.effort import by_profile

READ, SUM = RangeId("read", 0), RangeId("sum", 0)
SPEC = JobSpec(
    job="job",
    mode="streaming",
    fingerprint="",
    ranges=[
        RangeSpec(range_id=READ, keys=None, split=b"0"),
        RangeSpec(range_id=SUM, keys=KeyRange(0, KEY_SPACE_END), split=None),
    ],
    tables=[],
)


class OwnProductions(RuleBasedStateMachine):
    """A reader and a counter in one worker; one of them, or both, may get another owner at any time.

    **Law:** what was read is counted once, in its order, whoever takes over what, and whatever is in a commit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.store.open_job(SPEC)
        self.ranges: dict[RangeId, OwnedRange] = {}
        self.read_count = 0
        self.round_bytes_max = STEP_LIMITS.nbytes

    @initialize(round_bytes_max=st.sampled_from([1, 2, STEP_LIMITS.nbytes]))
    def begin(self, round_bytes_max: int) -> None:
        self.round_bytes_max = round_bytes_max
        self.begin_worker()

    def begin_worker(self) -> None:
        endpoint, clock = LocalNetwork().endpoint("w"), ManualClock()
        outgoing = Outgoing(endpoint)
        self.ranges.clear()
        self.courier = Courier(self.ranges, outgoing, clock)
        self.committer = Committer(
            "job", "w", self.store, self.courier, outgoing, clock, {}, self.round_bytes_max,
            send=lambda each: each.sender.send(each.payloads, hold_us=each.hold_us),
        )  # fmt: skip
        self.take([READ, SUM])

    def take(self, range_ids: Sequence[RangeId]) -> None:
        for each in range_ids:
            self.courier.inbox.forget(each)
        taken = self.store.acquire("job", range_ids, "w")
        self.ranges.update({each: OwnedRange.taken(found) for each, found in taken.items()})
        if READ in range_ids:
            self.resend()

    @rule()
    def resend(self) -> None:
        self.courier.send_all_of([READ])

    @rule()
    @precondition(lambda self: not self.committer._handed_on)
    def read(self) -> None:
        reader = self.ranges[READ]
        sent = reader.send([(SUM, b"%d" % self.read_count)], hold_us=0)
        self.read_count += 1
        position = {READ: b"%d" % self.read_count}
        self.committer.commit(
            WorkerStep(ranges={READ: reader}, checkpoints=sent, positions=position)
        )

    @rule()
    def hand_on(self) -> None:
        reader, payload = self.ranges[READ], b"%d" % self.read_count
        self.read_count += 1
        self.committer.commit(
            WorkerStep(
                ranges={READ: reader},
                handed_on=[HandedOn("sum", reader, 0, len(payload), None, [(SUM, payload)])],
                positions={READ: b"%d" % self.read_count},
            )
        )

    @rule(most=st.integers(1, 3), bytes_max=st.integers(0, 5))
    def count(self, most: int, bytes_max: int) -> None:
        counter = self.ranges[SUM]
        if handed_on := self.committer.take_handed_on("sum", bytes_max):
            payloads = [payload for each in handed_on for _, payload in each.payloads]
            entries = [JournalEntry(SUM, 1, payload) for payload in payloads]
            self.committer.commit(
                WorkerStep(ranges={SUM: counter}, journal=entries, takes_handed_on=True)
            )
            return
        found = counter.accept(self.courier.inbox.take(SUM.computation, most))
        if found:
            last = {each.channel: each.sequence for each in found}
            entries = [JournalEntry(SUM, 1, each.payload) for each in found]
            step = WorkerStep(
                ranges={SUM: counter}, journal=entries, taken_in=last, delivered=last,
                origins={each.channel: each.origin for each in found},
            )  # fmt: skip
            self.committer.commit(step, list(last))

    @rule()
    def commit(self) -> None:
        self.committer.commit_round()

    @rule(range_id=st.sampled_from([READ, SUM]))
    def move(self, range_id: RangeId) -> None:
        """Change an owner as where a range is released: all is durable before, and the other range stays in memory."""
        self.commit()
        self.committer.confirm()
        self.take([range_id])

    @rule()
    def die(self) -> None:
        job = self.store.read_job("job")
        assert job is not None
        self.read_count = int(job.ranges[READ].position or 0)
        self.begin_worker()

    @rule()
    def wait(self) -> None:
        self.committer.confirm()

    def teardown(self) -> None:
        self.commit()
        self.resend()
        for _ in range(2):
            self.count(1_000, 0)
            self.commit()
        self.committer.confirm()
        journal = self.store.acquire("job", [SUM], "w")[SUM].journal
        assert [*journal] == [b"%d" % number for number in range(self.read_count)]


TestOwnProductions = OwnProductions.TestCase
TestOwnProductions.settings = settings(max_examples=by_profile(20, ci=200, nightly=10_000))
