"""Checks of what user code has counted."""

import attrs

from runners.errors import StoreError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.model.production import Counted
from runners.millwheel.store.port import Fenced, JobUpdate, RangeSpec
from runners.testing.store_conformance.world import (
    HIGH,
    JOB,
    LOW,
    SPLIT,
    Owner,
    StoreFactory,
    expect,
    expect_equal,
    expect_error,
    job_spec,
    opened,
)


def check_metrics_of_a_stream(connect: StoreFactory) -> None:
    """Each commit adds what it has counted; one that is fenced adds nothing."""
    store = opened(connect)
    store.open_job(job_spec("second"))
    owner = Owner(store, LOW)
    expect_equal(list(store.read_metrics(JOB)), [], "metrics when nothing is counted")
    owner.commit(metrics=Counted(b"1\x00"))
    owner.commit()
    owner.commit(metrics=Counted(b"2"))
    expect_equal(list(connect().read_metrics(JOB)), [b"1\x00", b"2"], "metrics, oldest first")
    late = owner.production(metrics=Counted(b"3"))
    Owner(store, LOW)
    expect(isinstance(store.commit(late), Fenced), "a former owner commits")
    expect_equal(list(store.read_metrics(JOB)), [b"1\x00", b"2"], "metrics of a fenced commit")
    expect_equal(list(store.read_metrics("second")), [], "metrics of another job")
    expect_equal(list(store.read_metrics("nobody")), [], "metrics of an unknown job")
    store.reset_job("second")
    store.reset_job(JOB)
    opened(connect)
    expect_equal(list(store.read_metrics(JOB)), [], "metrics of a job made anew")


def check_metrics_after_an_update(connect: StoreFactory) -> None:
    """An update keeps what was counted, also by what is gone."""
    store = opened(connect)
    owner = Owner(store, LOW)
    owner.commit(metrics=Counted(b"stream"))
    owner.commit(metrics=Counted(b"low", LOW))
    job = store.read_job(JOB)
    assert job is not None
    spec = attrs.evolve(
        job_spec(fingerprint="f2"),
        ranges=[RangeSpec(range_id=RangeId("other", 0), keys=even_ranges(1)[0])],
    )
    update = JobUpdate(spec=spec, kept={}, version=job.version, counts=store.count_state(JOB))
    store.update_job(update)
    expect_equal(list(store.read_metrics(JOB)), [b"stream", b"low"], "metrics after an update")
    Owner(store, RangeId("other", 0)).commit(metrics=Counted(b"new"))
    expect_equal(list(store.read_metrics(JOB)), [b"stream", b"low", b"new"], "and of what is new")


def check_folded_metrics(connect: StoreFactory) -> None:
    """What is of no range becomes one; what ranges may count anew stays as it is."""
    store = opened(connect)
    owner = Owner(store, LOW, SPLIT)
    joined: list[list[bytes]] = []

    def fold(payloads: object) -> bytes:
        joined.append(list(payloads))  # type: ignore[call-overload]
        return b"+".join(joined[-1])

    store.fold_metrics(JOB, fold)
    owner.commit(metrics=Counted(b"1"))
    owner.commit(metrics=Counted(b"split", SPLIT))
    store.fold_metrics(JOB, fold)
    expect_equal(joined, [], "folds of none and of one")
    owner.commit(metrics=Counted(b"2"))
    owner.commit(metrics=Counted(b"3"))
    store.fold_metrics(JOB, fold)
    expect_equal(joined, [[b"1", b"2", b"3"]], "what was folded")
    expect_equal(sorted(store.read_metrics(JOB)), [b"1+2+3", b"split"], "metrics, folded")
    owner.commit(metrics=Counted(b"4"))
    store.fold_metrics(JOB, fold)
    expect_equal(sorted(store.read_metrics(JOB)), [b"1+2+3+4", b"split"], "metrics, folded again")
    store.fold_metrics("nobody", fold)


def check_metrics_counted_anew(connect: StoreFactory) -> None:
    """A range that counts anew replaces what it has counted, and nothing else."""
    store = opened(connect)
    owner = Owner(store, LOW, HIGH)
    owner.commit(metrics=Counted(b"low", LOW))
    owner.commit(metrics=Counted(b"more", LOW))
    owner.commit(metrics=Counted(b"high", HIGH, is_anew=True))
    owner.commit(metrics=Counted(b"stream"))
    expect_equal(
        list(store.read_metrics(JOB)), [b"low", b"more", b"high", b"stream"], "metrics of ranges"
    )
    owner.commit(metrics=Counted(b"anew", LOW, is_anew=True))
    expect_equal(
        list(store.read_metrics(JOB)), [b"high", b"stream", b"anew"], "metrics, counted anew"
    )
    one = Owner(store, LOW)
    stray = one.production(metrics=Counted(b"stray", HIGH))
    expect_error(StoreError, lambda: store.commit(stray), "metrics of a range without a fence")
    huge = attrs.evolve(one.production(metrics=Counted(b"x" * 100)))
    store.value_bytes_max = 99
    expect_error(StoreError, lambda: store.commit(huge), "metrics that are too large")
