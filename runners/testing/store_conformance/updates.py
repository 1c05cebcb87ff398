"""Checks of updates: what a new version of a job keeps, what goes, and who is fenced."""

from functools import partial

import attrs

from dataflow.table import TableWrite
from runners.errors import JobMismatchError, LostCommitsError, StoreError, TableMismatchError
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import Checkpoint, Reshape, TimerWrite
from runners.millwheel.model.signals import SignalMark
from runners.millwheel.store.port import (
    Committed,
    Fenced,
    JobRow,
    JobSpec,
    JobUpdate,
    RangeSpec,
    StateCounts,
    Store,
)
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOG,
    LOW,
    RANGES,
    SCORES,
    SPLIT,
    ConformanceError,
    Owner,
    StoreFactory,
    at_once,
    cell,
    cells_of,
    expect,
    expect_equal,
    expect_error,
    job_spec,
)

_TOTAL, _NEW_LOW, _NEW_SPLIT = RangeId("total", 0), RangeId("number", 0), RangeId("file", 0)
_COMMITS_MAX = 5_000
_TO_TOTAL, _TO_LOW = Channel(LOW, _TOTAL), Channel(SPLIT, LOW)


def _first() -> JobSpec:
    spec = job_spec()
    return attrs.evolve(
        spec,
        ranges=[*spec.ranges, RangeSpec(range_id=_TOTAL, keys=even_ranges(1)[0])],
        computations={"count": "sums", "read": "lines", "total": "maxima"},
    )


def _second(*names: str) -> JobSpec:
    """A version that has some computations: key ranges, but for the last, which has a split."""
    *groupings, source = names
    return attrs.evolve(
        _first(),
        fingerprint="f2",
        ranges=[
            *(RangeSpec(range_id=RangeId(each, 0), keys=even_ranges(1)[0]) for each in groupings),
            RangeSpec(range_id=RangeId(source, 0), split=b"another"),
        ],
        computations={each: f"state of {each}" for each in names},
        signals=frozenset({"stop"}),
        tables=[SCORES],
    )


def _used(store: Store) -> Owner:
    """Everything that there can be of three computations."""
    store.open_job(_first())
    owner = Owner(store, LOW, HIGH, SPLIT, _TOTAL)
    owner.commit(
        cells=[cell(b"k", b"1"), cell(b"far", b"2", RANGES[1].low)],
        timers=[TimerWrite(each, 7, b"k", b"w", "event", 5) for each in ("count", "total")],
        checkpoints=[
            Checkpoint(channel, n, 4, b"%d" % n) for channel in (_TO_TOTAL, _TO_LOW) for n in (1, 2)
        ],
        delivered={_TO_TOTAL: 1, _TO_LOW: 1},
        acknowledged={_TO_TOTAL: 1, _TO_LOW: 1},
        positions={SPLIT: b"line 9"},
        watermarks_us={LOW: 8, SPLIT: 9, _TOTAL: 7},
        signal_marks={LOW: SignalMark(1)},
        record_ids={SPLIT: [(b"seen", 3)]},
    )
    return owner


def _update(store: Store, spec: JobSpec, **kept: str) -> JobUpdate:
    job = store.read_job(JOB)
    assert job is not None
    return JobUpdate(spec=spec, kept=kept, version=job.version, counts=store.count_state(JOB))


def check_state_is_counted_by_computation(connect: StoreFactory) -> None:
    """Cells and timers of each, productions of each pair; nothing is mentioned of what there is not."""
    store = connect()
    _used(store)
    counts = StateCounts(
        cells={"count": 2},
        timers={"count": 1, "total": 1},
        in_flight={("count", "total"): 1, ("read", "count"): 1},
    )
    expect_equal(connect().count_state(JOB), counts, "what the job has")
    expect_equal(store.count_state("nobody"), StateCounts(), "what no job has")


def check_update_keeps_what_is_kept(connect: StoreFactory) -> None:
    """Under the old name or a new one: cells, timers, positions, watermarks, channels, ids, and bundle numbers."""
    store = connect()
    owner = _used(store)
    update = _update(store, _second("number", "file"), count="number", read="file")
    job = connect().update_job(update)
    expect_equal(store.read_job(JOB), job, "the job seen from another connection")
    shown = job.fingerprint, job.version, job.signals, job.is_finished
    expect_equal(shown, ("f2", 1, frozenset({"stop"}), False), "the job")
    expect_equal(dict(job.computations), dict(update.spec.computations), "its computations")
    expect_equal({*job.ranges}, {_NEW_LOW, RangeId("number", 1), _NEW_SPLIT}, "its ranges")
    low, split = job.ranges[_NEW_LOW], job.ranges[_NEW_SPLIT]
    shown_low = low.keys, low.bundle, low.owner, low.watermark_us, low.signal_mark
    expect_equal(shown_low, (RANGES[0], 1, None, 8, SignalMark(1)), "a key range")
    shown_split = split.split, split.position, split.watermark_us
    expect_equal(shown_split, (b"file 1\x00", b"line 9", 9), "a split")
    successor = Owner(store, _NEW_LOW, _NEW_SPLIT)
    expect_equal(successor.cells(_NEW_LOW), {(7, b"k"): b"1"}, "cells")
    taken, sender = successor.taken[_NEW_LOW], successor.taken[_NEW_SPLIT]
    channel = Channel(_NEW_SPLIT, _NEW_LOW)
    expect_equal([each.fire_us for each in taken.timers], [5], "timers")
    expect_equal(dict(taken.delivered), {channel: 1}, "what was delivered")
    expect_equal(list(sender.checkpoints), [Checkpoint(channel, 2, 4, b"2")], "what is in flight")
    expect_equal(dict(sender.sent), {channel: 2}, "what was sent")
    known = store.known_record_ids(JOB, _NEW_SPLIT, [b"seen", b"new"])
    expect_equal({*known}, {b"seen"}, "ids of records")
    successor.commit(cells=[cell(b"k", b"2")._replace(computation="number")])
    expect(owner.taken[LOW].row.token != low.token, "the token of a kept range has not moved")


def check_update_forgets_the_rest(connect: StoreFactory) -> None:
    """What is not kept goes with all that was on its way from and to it; what is new begins with nothing."""
    store = connect()
    _used(store)
    store.update_job(_update(store, _second("count", "read"), read="read"))
    expect_equal(store.count_state(JOB), StateCounts(), "what the job has")
    successor = Owner(store, LOW, SPLIT)
    taken, sender = successor.taken[LOW], successor.taken[SPLIT]
    row = taken.row
    shown = row.keys, row.bundle, row.watermark_us, row.signal_mark
    expect_equal(shown, (even_ranges(1)[0], 0, None, SignalMark(0)), "a range that begins anew")
    left = successor.cells(LOW), list(taken.timers), dict(taken.delivered), dict(taken.sent)
    expect_equal(left, ({}, [], {}, {}), "its state")
    expect_equal((list(sender.checkpoints), dict(sender.sent)), ([], {}), "what was sent to it")
    expect_equal(sender.row.position, b"line 9", "the position of what is kept")
    successor.commit(checkpoints=[Checkpoint(_TO_LOW, 1, 0, b"")], delivered={_TO_LOW: 1})


def check_update_lets_names_change_places(connect: StoreFactory) -> None:
    """Each keeps what is its own, whatever the other was called."""
    store = connect()
    _used(store)
    spec = _second("total", "count", "read")
    store.update_job(_update(store, spec, count="total", total="count", read="read"))
    counts = store.count_state(JOB)
    expect_equal(dict(counts.cells), {"total": 2}, "cells")
    expect_equal({*counts.in_flight}, {("total", "count"), ("read", "total")}, "what is in flight")
    expect_equal(cells_of(store, RangeId("total", 0)), {(7, b"k"): b"1"}, "cells of a range")


def check_update_fences_everybody(connect: StoreFactory) -> None:
    """Owners of before commit nothing and read nothing; what they had committed is found."""
    store, new = connect(), connect()
    owner = _used(store)
    landed = owner.production(cells=[cell(b"k", b"9")])
    expect_equal(store.commit(landed), Committed(), "a commit before the update")
    token = owner.taken[LOW].row.token
    new.update_job(_update(new, _second("count", "read"), count="count", read="read"))
    late = attrs.evolve(
        landed, fences=[attrs.evolve(each, bundle=each.bundle + 1) for each in landed.fences]
    )
    for part in (attrs.evolve(late, fences=late.fences[:1], cells=()), late):
        expect(isinstance(store.commit(part), Fenced), "an owner of before the update commits")
        expect(isinstance(store.resolve(part), Fenced), "what it did not commit is found")
    first = attrs.evolve(landed, fences=landed.fences[:1])
    expect_equal(store.resolve(first), Committed(), "what it had committed")
    expect(isinstance(store.resolve(landed), Fenced), "a commit on a range that is gone")
    for read in (
        store.read_cells(JOB, "count", {LOW: token}, [(7, b"k")]),
        store.read_cell_page(JOB, LOW, token, 0, 1),
    ):
        expect(isinstance(read, Fenced), "an owner of before the update reads cells")


def check_update_while_owners_commit(connect: StoreFactory) -> None:
    """What was committed before is kept, to the last bundle; nothing is committed afterwards."""
    store, new = connect(), connect()
    owner = _used(store)
    del owner.bundles[HIGH], owner.bundles[_TOTAL]

    def commit_on() -> int:
        for landed in range(_COMMITS_MAX):
            if isinstance(store.commit(owner.production()), Fenced):
                return landed
            for range_id in owner.bundles:
                owner.bundles[range_id] += 1
        raise ConformanceError(f"{_COMMITS_MAX} commits landed, also after the update")

    def go_over() -> JobRow:
        update = _update(new, _second("number", "read"), count="number", read="read")
        return new.update_job(update)

    landed, job = at_once([commit_on, go_over])
    for range_id in (_NEW_LOW, SPLIT):
        expect_equal(job.ranges[range_id].bundle, 1 + landed, f"bundles of {range_id}")
    expect_equal(store.read_job(JOB), job, "the job afterwards")


def check_an_old_version_gets_no_range(connect: StoreFactory) -> None:
    """Who runs another version than the job has cannot acquire, and takes nothing from who can."""
    store = connect()
    _used(store)
    store.update_job(_update(store, _second("count", "read"), count="count", read="read"))
    owner = Owner(store, LOW)
    for version in (0, 2):
        acquire = partial(connect().acquire, JOB, [LOW], "old", version)
        expect_error(JobMismatchError, acquire, f"ranges for version {version}")
    owner.commit()
    expect_equal({*store.acquire(JOB, [LOW], "new", 1)}, {LOW}, "ranges for the version there is")


def check_a_connection_follows_a_job_that_is_made_anew(connect: StoreFactory) -> None:
    """What a connection has learnt of a job does not lead it to ranges that are gone, or have another name now."""
    store, other = connect(), connect()
    _used(store)
    before = store.acquire(JOB, [_TOTAL, LOW], "old", 0)
    other.update_job(
        _update(other, _second("total", "count", "read"), count="total", total="count", read="read")
    )
    acquire = partial(store.acquire, JOB, [_TOTAL, LOW], "old", 0)
    expect_error(JobMismatchError, acquire, "ranges of the version before")
    # Each has the name of the other now.
    (taken,) = store.acquire(JOB, [LOW], "new", 1).values()
    expect_equal(taken.row.range_id, LOW, "the range")
    expect_equal(taken.row.bundle, before[_TOTAL].row.bundle, "the bundles of the range")
    for version in (1, None):
        other.reset_job(JOB)
        expect_error(StoreError, partial(store.acquire, JOB, [LOW], "old", version), "no job")
    other.open_job(_first())
    (taken,) = store.acquire(JOB, [LOW], "anew", 0).values()
    expect_equal(taken.row.bundle, 0, "the bundles of a new job")


def check_update_keeps_shapes(connect: StoreFactory) -> None:
    """Ranges that were split stay as they are, with their handovers, under a new name too."""
    store = connect()
    owner = _used(store)
    born, keys = RangeId("count", 2), even_ranges(4)
    del owner.bundles[SPLIT], owner.bundles[_TOTAL]
    owner.commit(reshape=Reshape(keys={LOW: keys[0], born: keys[1]}, handover_with=LOW))
    job = store.update_job(_update(store, _second("number", "read"), count="number", read="read"))
    new = RangeId("number", 2)
    expect_equal(job.ranges[new].keys, keys[1], "a range that was born")
    expect_equal(job.ranges[new].handover_with, _NEW_LOW, "its handover")
    expect_equal({*store.acquire(JOB, [new], "w")}, {new, _NEW_LOW}, "ranges in handover")


def check_update_is_idempotent_and_exact(connect: StoreFactory) -> None:
    """An update that is done again changes nothing; one that was decided for something else is refused."""
    store = connect()
    owner = _used(store)
    update = _update(store, _second("count", "read"), count="count", read="read")
    for other in (
        attrs.evolve(update, kept={"count": "count", "nothing": "read"}),
        attrs.evolve(update, kept={"count": "read", "read": "read"}),
        attrs.evolve(update, version=1),
        attrs.evolve(update, spec=attrs.evolve(update.spec, job="nobody")),
        attrs.evolve(update, spec=attrs.evolve(update.spec, mode="batch")),
    ):
        expect_error(StoreError, partial(store.update_job, other), "an update that cannot be")
    owner.commit(cells=[cell(b"new", b"3")])
    before = store.read_job(JOB)
    expect_error(StoreError, partial(store.update_job, update), "an update of what has changed")
    expect_equal(store.read_job(JOB), before, "the job after a refusal")
    update = attrs.evolve(update, counts=store.count_state(JOB))
    job = store.update_job(update)
    expect_equal(connect().update_job(update), job, "the same update again")
    expect_equal(store.open_job(update.spec), job, "opening the new version")
    expect_error(JobMismatchError, partial(store.open_job, _first()), "opening the old version")


def check_update_brings_tables(connect: StoreFactory) -> None:
    """New tables are there, those that are not written any more stay, and one of another shape changes nothing."""
    store = connect()
    _used(store)
    results = attrs.evolve(SCORES, name="results")
    spec = attrs.evolve(_second("count", "read"), tables=[results])
    wrong = attrs.evolve(LOG, columns={"team": str})
    refused = _update(store, attrs.evolve(spec, tables=[results, wrong]), read="read")
    before = store.read_job(JOB), store.count_state(JOB)
    expect_error(TableMismatchError, partial(store.update_job, refused), "a table of another shape")
    expect_equal((store.read_job(JOB), store.count_state(JOB)), before, "the job after a refusal")
    expect_error(StoreError, lambda: store.read_table(results), "a table of a refused update")
    store.update_job(_update(store, spec, read="read"))
    expect_equal((store.read_table(results), store.read_table(SCORES)), ([], []), "the tables")


def check_update_empties_tables(connect: StoreFactory) -> None:
    """What is the job's own is emptied, and goes if it is not written any more; what others share is refused."""
    store = connect()
    owner = _used(store)
    owner.commit(
        tables=[
            TableWrite(table=SCORES, upserts=[("red", 1)]),
            TableWrite(table=LOG, inserts=[("red", 1), ("blue", 2)]),
        ]
    )
    expect_equal(store.own_tables(JOB, [SCORES, LOG]), {"scores": 1, "score_log": 2}, "own tables")
    expect_equal(store.own_tables("nobody", [SCORES]), {}, "tables of no job")
    spec = attrs.evolve(_second("count", "read"), tables=[SCORES])
    emptied = attrs.evolve(_update(store, spec, read="read"), emptied=[SCORES, LOG])
    shared = attrs.evolve(LOG, is_shared=True)
    store.open_job(attrs.evolve(job_spec("other"), tables=[shared]))
    expect_equal(store.own_tables(JOB, [SCORES, LOG]), {"scores": 1}, "own tables, one is shared")
    before = store.read_job(JOB)
    expect_error(StoreError, partial(store.update_job, emptied), "a table of others is emptied")
    expect_equal(store.read_job(JOB), before, "the job after a refusal")
    expect_equal(len(store.read_table(LOG)), 2, "rows after a refusal")
    store.reset_job("other")
    job = store.update_job(emptied)
    expect_equal(store.read_table(SCORES), [], "a table that is written on")
    expect_error(StoreError, lambda: store.read_table(LOG), "a table that is not written any more")
    expect_equal(connect().update_job(emptied), job, "the same update again")
    # It is forgotten, so that a later version may have it.
    again = attrs.evolve(_second("count", "read"), tables=[SCORES, LOG], fingerprint="third")
    store.update_job(_update(store, again, count="count", read="read"))
    expect_equal(store.read_table(LOG), [], "a table of that name")


def check_open_refuses_other_state(connect: StoreFactory) -> None:
    """What state is made of is remembered, and noted later if it was not known."""
    store = connect()
    bare = attrs.evolve(_first(), computations={})
    expect_equal(dict(store.open_job(bare).computations), dict.fromkeys(_first().computations), "")
    known = store.open_job(_first())
    expect_equal(dict(known.computations), dict(_first().computations), "what is known now")
    other = attrs.evolve(_first(), computations={**_first().computations, "count": "lists"})
    expect_error(JobMismatchError, partial(store.open_job, other), "other state")
    expect_equal(store.open_job(bare), known, "opening without the types of state")


def check_an_update_keeps_what_ranges_know_of_each_other(connect: StoreFactory) -> None:
    """A range that goes on under another name must have come as far as others have kept of it under the former one."""
    store = connect()
    owner = _used(store)
    made = CommitMark(owner.taken[SPLIT].row.token, owner.bundles[SPLIT])
    owner.commit(cut={SPLIT: made._replace(bundle=made.bundle + 9), LOW: made, _TOTAL: made})
    store.update_job(_update(store, _second("number", "file"), count="number", read="file"))
    expect_error(
        LostCommitsError,
        partial(store.acquire, JOB, [_NEW_SPLIT], "w"),
        "a range that has gone back",
    )
