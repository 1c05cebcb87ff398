"""Workers of a running job are killed and stopped, in the worst moments there are; the job goes on and is right."""

import signal
import time

import psutil
import pytest

from tests.fault_harness import Fences, Watch, within
from tests.integration.faults.conftest import FaultJob, process_of
from tests.processes import kill, spark_workers

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.faults]

#: From kill -9 of a worker until its successor has committed.
WORKER_RECOVERY_S = 5.0
#: From SIGSTOP of a worker until another has its ranges and commits on them: its lease, and then as above.
STOPPED_RECOVERY_S = 15.0


def victim(watch: Watch, slot: int = 0) -> tuple[str, psutil.Process]:
    """The worker of a slot: what it is called in the store, and its process."""
    owners = {row.owner for row in watch.fences().values() if row.owner}
    owner = next(each for each in owners if each.startswith(f"slot {slot},"))
    return owner, process_of(owner)


def wait_for_successor(watch: Watch, owner: str, killed_s: float) -> float:
    """Wait until others own all that the worker owned and have committed on its source; return the seconds."""
    mine = {name for name, row in watch.fences().items() if row.owner == owner}
    taken: Fences = {}

    def is_recovered() -> bool:
        now = watch.fences()
        if any(now[name].owner == owner for name in mine):
            return False
        for name in mine:
            if name not in taken or taken[name].token != now[name].token:
                taken[name] = now[name]  # type: ignore[index]
        return any(now[name].is_source and now[name].bundle > taken[name].bundle for name in mine)

    watch.wait(is_recovered, what=f"successor of {owner}")
    return time.monotonic() - killed_s


def test_killed_workers_are_replaced_within_seconds(faulty: FaultJob, watch: Watch) -> None:
    """kill -9 between commits, inside COMMIT, and of the successor while it takes over."""
    faulty.start(records=2_400)
    recovery_s = {}

    owner, process = victim(watch)
    kill([process])
    recovery_s["between commits"] = wait_for_successor(watch, owner, time.monotonic())

    watch.wait_for_sources()
    owner, process = victim(watch, slot=1)
    with watch.closed_gate():
        watch.wait_for_commits(2)
        kill([process])
    recovery_s["inside COMMIT"] = wait_for_successor(watch, owner, time.monotonic())

    watch.wait_for_sources()
    owner, process = victim(watch)
    _, survivor = victim(watch, slot=1)
    with watch.closed_gate():
        kill([process])
        before = set(watch.wait_for_commits(1))
        # The other's commit waits there too; a third session is the successor's, or the dead one's last.
        watch.wait(
            lambda: len(set(watch.sessions_in_commit()) | before) >= 2,
            what="takeover",
        )
        time.sleep(0.5)
        kill([each for each in spark_workers(psutil.Process()) if each.pid != survivor.pid])
    recovery_s["while taking over"] = wait_for_successor(watch, owner, time.monotonic())

    faulty.finish()
    print(f"recovery from kill -9 of a worker, in seconds: {recovery_s}")
    assert max(recovery_s.values()) < within(WORKER_RECOVERY_S), recovery_s


def test_a_killed_worker_that_has_everything_is_replaced(faulty: FaultJob, watch: Watch) -> None:
    """kill -9 of the one worker of a gathered job, between commits and inside COMMIT; then it is gathered still."""
    faulty.start(records=3_000, gather=True)
    watch.wait(lambda: len(owners_of(watch)) == 1, what="gathering")
    recovery_s = {}

    (owner,) = owners_of(watch)
    kill([process_of(owner)])
    recovery_s["between commits"] = wait_for_successor(watch, owner, time.monotonic())

    watch.wait_for_sources()
    (owner,) = owners_of(watch)
    with watch.closed_gate():
        watch.wait_for_commits(1)
        kill([process_of(owner)])
    recovery_s["inside COMMIT"] = wait_for_successor(watch, owner, time.monotonic())
    watch.wait_for_sources()
    assert len(owners_of(watch)) == 1

    faulty.finish()
    print(f"recovery from kill -9 of the worker that has everything, in seconds: {recovery_s}")
    assert max(recovery_s.values()) < within(WORKER_RECOVERY_S), recovery_s


def test_a_stopped_worker_does_no_harm(faulty: FaultJob, watch: Watch) -> None:
    """SIGSTOP inside COMMIT until others have its ranges, then SIGCONT: all that it still does is fenced."""
    faulty.start(records=3_000)
    owner, zombie = victim(watch)
    with watch.closed_gate():
        watch.wait_for_commits(2)
        zombie.send_signal(signal.SIGSTOP)
    try:
        recovery_s = wait_for_successor(watch, owner, time.monotonic())
        assert not watch.open_work()["sessions idle in a transaction"]
    finally:
        zombie.send_signal(signal.SIGCONT)
    watch.wait_for_sources()
    back_s = watch.wait(lambda: is_shared(watch, owner), what="second worker")

    faulty.finish()
    print(f"recovery from SIGSTOP: {recovery_s:.2f} s; two workers {back_s:.2f} s after SIGCONT")
    assert recovery_s < within(STOPPED_RECOVERY_S)


def owners_of(watch: Watch) -> set[str]:
    """The workers that own ranges."""
    return {row.owner for row in watch.fences().values() if row.owner}


def is_shared(watch: Watch, gone: str) -> bool:
    """Whether two workers own ranges again, and the one that is gone none."""
    owners = owners_of(watch)
    return len(owners) == 2 and gone not in owners
