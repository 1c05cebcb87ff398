"""Checks of the troubles of a job that a store keeps."""

from runners.millwheel.model.troubles import TROUBLES_MAX, Trouble, TroubleKind
from runners.testing.store_conformance.world import (
    JOB,
    StoreFactory,
    expect_equal,
    job_spec,
    opened,
)


def check_troubles_are_counted(connect: StoreFactory) -> None:
    """Troubles are counted by kind, place and first line; the last reason is kept, the latest trouble comes first."""
    store = opened(connect)
    death = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom\nfirst")
    wait = Trouble(kind=TroubleKind.WAIT, place="sum[0]", reason="boom")
    store.note_troubles(JOB, [death])
    store.note_troubles(JOB, [wait])
    again = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom\nsecond \0", count=3)
    store.note_troubles(JOB, [again])
    found = connect().read_troubles(JOB)
    expect_equal(
        [(each.trouble.kind, each.trouble.reason, each.trouble.count) for each in found],
        [(TroubleKind.DEATH, "boom\nsecond \\x00", 4), (TroubleKind.WAIT, "boom", 1)],
        "the troubles",
    )
    times = [found[0].first_at, found[1].last_at, found[0].last_at]
    expect_equal(times, sorted(times), "their times")


def check_troubles_are_bounded(connect: StoreFactory) -> None:
    """Where every death has a reason of its own, the latest are kept."""
    store = opened(connect)
    for number in range(TROUBLES_MAX + 3):
        kind = TroubleKind.DEATH
        store.note_troubles(JOB, [Trouble(kind=kind, place="sum[0]", reason=f"reason {number}")])
    found = store.read_troubles(JOB)
    expect_equal(len(found), TROUBLES_MAX, "how many are kept")
    expect_equal(found[0].trouble.reason, f"reason {TROUBLES_MAX + 2}", "the latest")
    expect_equal(found[-1].trouble.reason, "reason 3", "the oldest")


def check_troubles_go_with_their_job(connect: StoreFactory) -> None:
    """A job that is reset has had none; those of a job that does not exist are reported to nobody."""
    store = opened(connect)
    trouble = Trouble(kind=TroubleKind.DEATH, place="sum[0]", reason="boom")
    store.note_troubles(JOB, [trouble])
    store.note_troubles("nobody", [trouble])
    expect_equal(list(store.read_troubles("nobody")), [], "of an unknown job")
    store.reset_job(JOB)
    store.open_job(job_spec())
    expect_equal(list(store.read_troubles(JOB)), [], "of a job that was reset")
