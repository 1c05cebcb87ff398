"""Checks of the lineage that a job records."""

import attrs

from runners.core.ground.lineage import LineageEntry, LineageKind, PaneOrigin, SplitOrigin
from runners.millwheel.store.port import Fenced
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    job_spec,
    opened,
)

_DAY_S = 86_400.0
#: Beyond what a signed number of the store can hold.
_HASH = (1 << 64) - 5
_PANE = LineageEntry(
    kind=LineageKind.PANE,
    transform="count",
    key="'ann'",
    key_hash=_HASH,
    window_start_us=-10,
    window_end_us=10,
    sign=-1,
    count=3,
    index=2,
    timing="late",
    accumulation="discarding",
    watermark_us=20,
    now_us=30,
    reason="AfterCount(count=3)",
    elements=("1", "\u00e9, ['x']"),
)
_INPUT = attrs.evolve(
    _PANE, kind=LineageKind.INPUT, origin=SplitOrigin("read", "file '1'", "line 7"), elements=()
)
_ROW = attrs.evolve(
    _PANE,
    kind=LineageKind.ROW,
    transform="scores",
    origin=PaneOrigin("count", "'ann'", _HASH, -10, 10, 2),
)


def check_lineage_is_read_as_it_was_recorded(connect: StoreFactory) -> None:
    """Every field, by kind, transform and key, oldest first; one that is fenced leaves nothing."""
    store = opened(connect)
    store.open_job(attrs.evolve(job_spec("other"), tables=[]))
    owner = Owner(store, LOW)
    second = attrs.evolve(_PANE, index=3, sign=+1)
    owner.commit(lineage=[_INPUT, _PANE, _ROW, attrs.evolve(_PANE, key_hash=5)])
    owner.commit()
    owner.commit(lineage=[second])
    found = connect().read_lineage(JOB, LineageKind.PANE, "count", _HASH)
    expect_equal([each.entry for each in found], [_PANE, second], "panes of a key, oldest first")
    expect(found[0].number < found[1].number, "numbers of entries do not grow")
    job = store.read_job(JOB)
    assert job is not None
    expect_equal({each.version for each in found}, {job.version}, "the version of the job")
    for entry in (_INPUT, _ROW):
        (same,) = store.read_lineage(JOB, entry.kind, entry.transform, _HASH)
        expect_equal(same.entry, entry, "an entry")
    expect_equal(list(store.read_lineage(JOB, LineageKind.ROW, "count", _HASH)), [], "no such row")
    for job_name in ("other", "nobody"):
        found = store.read_lineage(job_name, LineageKind.PANE, "count", _HASH)
        expect_equal(list(found), [], f"lineage of {job_name}")
    late = owner.production(lineage=[second])
    Owner(store, LOW)
    expect(isinstance(store.commit(late), Fenced), "a former owner commits")
    found = store.read_lineage(JOB, LineageKind.PANE, "count", _HASH)
    expect_equal(len(found), 2, "entries after a commit that was fenced")


def check_text_of_lineage_is_kept_whatever_it_is(connect: StoreFactory) -> None:
    """What Postgres cannot keep as text is kept as something readable."""
    store = opened(connect)
    odd = "\x00 \ud800 \U0001f600"
    entry = attrs.evolve(
        _PANE, key=odd, reason=odd, elements=(odd,), origin=SplitOrigin(odd, odd, odd)
    )
    Owner(store, LOW).commit(lineage=[entry])
    (found,) = store.read_lineage(JOB, LineageKind.PANE, "count", _HASH)
    expect("\U0001f600" in found.entry.key, "text that can be kept is gone")
    expect_equal(found.entry.count, 3, "the count")


def check_lineage_is_purged(connect: StoreFactory) -> None:
    """By age, in any number, and with the job."""
    store = opened(connect)
    owner = Owner(store, HIGH)
    owner.commit(lineage=[_PANE, _INPUT, _ROW])
    expect_equal(connect().purge(JOB, "lineage", older_than_s=_DAY_S), 0, "what is a day old")
    expect_equal(connect().purge(JOB, "lineage"), 3, "all of it")
    expect_equal(connect().purge(JOB, "lineage"), 0, "again")
    owner.commit(lineage=[_PANE])
    store.reset_job(JOB)
    opened(connect)
    found = store.read_lineage(JOB, LineageKind.PANE, "count", _HASH)
    expect_equal(list(found), [], "lineage of a job made anew")
