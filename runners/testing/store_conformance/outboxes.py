"""Checks of the outboxes of a store: lanes, and the batches that leave them."""

from collections.abc import Sequence

import attrs

from dataflow.sink import LANE, SIGN, VALUE, Batching
from dataflow.table import TableSpec, TableWrite
from runners.errors import StoreError
from runners.millwheel.store.port import Fenced, JobRow, JobUpdate, Store
from runners.relay.job_outboxes import outbox_name
from runners.relay.outbox import (
    PARTIAL,
    TAKEN,
    LanePlace,
    OutboxBatch,
    TakenLane,
    VisibleBatch,
)
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    expect_error,
    job_spec,
)

OUTBOX = TableSpec(
    name=outbox_name(JOB, "sink"),
    columns={LANE: int, SIGN: int, VALUE: bytes},
    is_outbox=True,
)
FIRST = LanePlace(job=JOB, sink="sink", outbox=OUTBOX, number=0)
SECOND = attrs.evolve(FIRST, number=1)


def check_rows_leave_a_lane_in_order(connect: StoreFactory) -> None:
    """Each lane has its own rows, in the order of the commits; a batch stays until it is delivered, then it is gone."""
    store, owner = _opened(connect)
    _append(owner, (0, 1, b"a"), (1, 1, b"b"))
    _append(owner, (0, -1, b"a"), (0, 1, b"c"))
    relay = connect()
    lane = relay.take_lane(FIRST)
    expect_equal((lane.number, lane.is_in_flight), (0, False), "a new lane")
    _expect_batch(relay, lane, 0, 1, [(1, b"a"), (-1, b"a"), (1, b"c")])
    _append(owner, (0, 1, b"d"))
    _expect_batch(relay, lane, 0, 1, [(1, b"a"), (-1, b"a"), (1, b"c")])
    expect_equal(store.count_waiting(FIRST), 4, "what waits")
    _expect_batch(relay, lane, 1, 2, [(1, b"d")])
    expect_equal(store.count_waiting(FIRST), 1, "what waits behind a delivered batch")
    expect_equal(relay.next_batch(lane, 2), None, "the batch of an empty lane")
    expect_equal(relay.next_batch(lane, 2), None, "the batch of a lane that stays empty")
    expect_equal(store.count_waiting(FIRST), 0, "what waits at last")
    _expect_batch(relay, relay.take_lane(SECOND), 0, 1, [(1, b"b")])
    _append(owner, (0, 1, b"e"))
    _expect_batch(relay, lane, 2, 3, [(1, b"e")])


def check_a_batch_is_the_same_for_the_next_relay(connect: StoreFactory) -> None:
    """Who takes a lane gets the batch in flight as it was, and its former relay gets nothing more."""
    _, owner = _opened(connect)
    _append(owner, (0, 1, b"a"), (0, 1, b"b"))
    former, relay = connect(), connect()
    before = former.take_lane(FIRST)
    _expect_batch(former, before, 0, 1, [(1, b"a"), (1, b"b")])
    _append(owner, (0, 1, b"c"))
    lane = relay.take_lane(FIRST)
    expect(lane.token > before.token, "a lane that is taken has no higher token")
    expect_equal((lane.number, lane.is_in_flight), (1, True), "the lane")
    expect_equal(lane.writer, before.writer, "the name of the lane in the sink")
    expect_equal(former.next_batch(before, 1), TAKEN, "the next batch of who has lost the lane")
    _expect_batch(relay, lane, 0, 1, [(1, b"a"), (1, b"b")])
    _expect_batch(relay, lane, 1, 2, [(1, b"c")])
    expect_equal(relay.next_batch(lane, 2), None, "the last batch")
    expect_equal(relay.next_batch(lane, 3), TAKEN, "the batch after one that was never sent")
    last = former.take_lane(FIRST)
    expect_equal((last.number, last.is_in_flight), (2, False), "a lane without a batch in flight")
    expect_equal(relay.next_batch(lane, 2), TAKEN, "the next batch of who has lost an idle lane")


def check_a_lane_waits_until_a_batch_is_full(connect: StoreFactory) -> None:
    """Fewer rows than fill a batch are taken only when they are due; what is delivered is noted nevertheless."""
    store, owner = _opened(connect)
    for place, each in ((FIRST, Batching(max_rows=2)), (SECOND, Batching(max_bytes=600))):
        relay, row = connect(), (place.number, 1, bytes(200))
        lane = relay.take_lane(place)
        expect_equal(relay.next_batch(lane, 0, each, is_due=False), None, "a lane without rows")
        _append(owner, row)
        expect_equal(relay.next_batch(lane, 0, each, is_due=False), PARTIAL, "one row")
        _append(owner, row, row, row)
        batch = relay.next_batch(lane, 0, each, is_due=False)
        expect(isinstance(batch, OutboxBatch), "a full batch waits")
        assert isinstance(batch, OutboxBatch)
        expect_equal((batch.number, len(batch.rows)), (1, 2), "a full batch")
        expect_equal(relay.next_batch(lane, 0, each, is_due=False), batch, "a batch in flight")
        _append(owner, row)
        relay.next_batch(lane, 1, each, is_due=False)
        expect_equal(relay.next_batch(lane, 2, each, is_due=False), PARTIAL, "one row more")
        expect_equal(store.count_waiting(place), 1, "what waits behind two full batches")
        batch = relay.next_batch(lane, 2, each)
        expect(isinstance(batch, OutboxBatch), "a batch that is due waits")
        expect_equal(relay.next_batch(lane, 3, each, is_due=False), None, "the last batch")
        expect_equal(store.count_waiting(place), 0, "what waits at last")


def check_an_outbox_has_what_is_committed(connect: StoreFactory) -> None:
    """Rows of a production that is fenced never leave."""
    store, owner = _opened(connect)
    stale = owner.production(tables=[TableWrite(table=OUTBOX, inserts=[(0, 1, b"stale")])])
    successor = Owner(store, LOW, name="successor")
    _append(successor, (0, 1, b"a"))
    expect_equal(store.commit(stale), Fenced(LOW), "the commit of a former owner")
    relay = connect()
    _expect_batch(relay, relay.take_lane(FIRST), 0, 1, [(1, b"a")])


def check_a_lane_goes_with_its_job(connect: StoreFactory) -> None:
    """A job that is begun anew has a lane with another name in the sink, and numbers from 1; no job, no lane."""
    store, owner = _opened(connect)
    _append(owner, (0, 1, b"a"))
    before = store.take_lane(FIRST)
    _expect_batch(store, before, 0, 1, [(1, b"a")])
    store.reset_job(JOB)
    expect_error(StoreError, lambda: store.take_lane(FIRST), "a lane of a job that is gone")
    _, owner = _opened(connect)
    _append(owner, (0, 1, b"b"))
    expect_equal(store.next_batch(before, 1), TAKEN, "a batch of the lane of a job that is gone")
    lane = store.take_lane(FIRST)
    expect(lane.writer != before.writer, "a job begun anew has the lane of the former one")
    expect_equal((lane.number, lane.is_in_flight), (0, False), "the lane of a job begun anew")
    _expect_batch(store, lane, 0, 1, [(1, b"b")])


def check_owners_write_to_one_outbox(connect: StoreFactory) -> None:
    """Rows of several ranges leave once each, in the order of each range."""
    store, low = _opened(connect)
    high = Owner(connect(), HIGH)
    for number in range(3):
        _append(low, (0, 1, b"low%d" % number))
        _append(high, (0, 1, b"high%d" % number))
    lane, left, delivered = store.take_lane(FIRST), list[bytes](), 0
    while isinstance(batch := store.next_batch(lane, delivered), OutboxBatch):
        left += [value for _, value in batch.rows]
        delivered = batch.number
    for name in (b"low", b"high"):
        of_range = [value for value in left if value.startswith(name)]
        expect_equal(of_range, [name + b"%d" % each for each in range(3)], "the rows of a range")
    expect_equal(len(left), 6, "how many rows have left")


def check_what_waits_is_seen(connect: StoreFactory) -> None:
    """How many rows wait in each lane, how far the sink is, and since when and why a lane fails until it does not."""
    store, owner = _opened(connect)
    expect_equal(store.read_lanes(JOB), [], "lanes of an outbox that nobody has used")
    expect_equal(store.read_lanes("nobody"), [], "lanes of no job")
    _append(owner, (0, 1, b"a"), (1, 1, b"b"))
    expect_equal(_seen(store), [(0, 1, None), (1, 1, None)], "what waits before anything is sent")
    written_us = store.read_lanes(JOB)[0].oldest_us
    lane = store.take_lane(FIRST)
    store.next_batch(lane, 0)
    expect_equal(_seen(store), [(0, 1, 0), (1, 1, None)], "what waits while a batch is in flight")
    store.next_batch(lane, 1)
    expect_equal(_seen(store), [(0, 0, 1), (1, 1, None)], "what waits behind a batch")
    _expect_visible(store, written_us)
    before = _visible(store)
    _append(owner, (0, 1, b"c"))
    store.next_batch(lane, 1)
    expect_equal(_visible(store), before, "how fresh a lane is while a batch is in flight")
    store.next_batch(lane, 2)
    _expect_fresher(_visible(store), before)
    store.note_failure(FIRST, "one")
    store.note_failure(FIRST, "another")
    store.note_failure(SECOND, "one")
    store.note_failure(SECOND, None)
    first, second = store.read_lanes(JOB)
    expect_equal(second.failure, None, "the failure of a lane that is sent again")
    failure = first.failure
    assert failure is not None
    expect_equal((failure.tries, failure.reason), (2, "another"), "the failure of a lane")
    expect(failure.since_us <= failure.last_us, "a lane has failed last before it did first")
    expect_equal(first.outbox, OUTBOX.name, "the table of a lane")
    store.reset_job(JOB)
    expect_error(StoreError, lambda: store.note_failure(FIRST, "late"), "a failure of no job")


def _visible(store: Store) -> VisibleBatch | None:
    """How fresh the first lane is."""
    return store.read_lanes(JOB)[0].visible


def _expect_fresher(later: VisibleBatch | None, before: VisibleBatch | None) -> None:
    """Check that a batch that was written behind another one is what a lane shows."""
    if before is None:
        return
    assert later is not None
    expect(before.visible_us <= later.first_us, "the former batch is shown as the last one")
    expect(later.last_us <= later.visible_us, "a row is visible before it is written")


def _expect_visible(store: Store, written_us: int | None) -> None:
    """Check how fresh the first lane is, of which one row was delivered; not in a store that keeps no times."""
    first, second = store.read_lanes(JOB)
    expect_equal(second.visible, None, "how fresh a lane is that has sent nothing")
    if written_us is None:
        return
    visible = first.visible
    assert visible is not None
    expect_equal(
        (visible.first_us, visible.last_us), (written_us, written_us), "when it was written"
    )
    expect(visible.visible_us > written_us, "a row is visible before it is written")


def check_an_outbox_whose_rows_go_has_new_lanes(connect: StoreFactory) -> None:
    """A sink that comes back after an update has dropped its outbox is sent everything, under another name."""
    store, owner = _opened(connect)
    _append(owner, *[(0, 1, b"a")] * 5)
    before = store.take_lane(FIRST)
    store.next_batch(before, 0)
    store.next_batch(before, 1)
    _updated(store, [], emptied=[OUTBOX])
    expect_equal(store.read_lanes(JOB), [], "lanes of an outbox that is gone")
    expect_equal(store.next_batch(before, 1), TAKEN, "the next batch of a lane that is gone")
    _updated(store, [OUTBOX])
    _append(Owner(store, LOW), (0, 1, b"b"))
    lane = store.take_lane(FIRST)
    expect(lane.writer != before.writer, "a sink that comes back has the lane of the former one")
    _expect_batch(store, lane, 0, 1, [(1, b"b")])


def _updated(
    store: Store, tables: Sequence[TableSpec], emptied: Sequence[TableSpec] = ()
) -> JobRow:
    job = store.read_job(JOB)
    assert job is not None
    spec = job_spec()
    return store.update_job(
        JobUpdate(
            spec=attrs.evolve(
                spec,
                tables=[*spec.tables, *tables],
                fingerprint=f"version {job.version + 1}",
            ),
            kept={name: name for name in job.computations},
            version=job.version,
            counts=store.count_state(JOB),
            emptied=emptied,
        )
    )


def _seen(store: Store) -> list[tuple[int, int, int | None]]:
    return [(each.number, each.waiting, each.delivered) for each in store.read_lanes(JOB)]


def _opened(connect: StoreFactory) -> tuple[Store, Owner]:
    store, spec = connect(), job_spec()
    store.open_job(attrs.evolve(spec, tables=[*spec.tables, OUTBOX]))
    return store, Owner(store, LOW)


def _append(owner: Owner, *rows: tuple[int, int, bytes]) -> None:
    owner.commit(tables=[TableWrite(table=OUTBOX, inserts=list(rows))])


def _expect_batch(
    store: Store, lane: TakenLane, delivered: int, number: int, rows: Sequence[tuple[int, bytes]]
) -> None:
    batch = store.next_batch(lane, delivered)
    expect(isinstance(batch, OutboxBatch), f"there is no batch {number}")
    assert isinstance(batch, OutboxBatch)
    expect_equal((batch.number, list(map(tuple, batch.rows))), (number, list(rows)), "a batch")
