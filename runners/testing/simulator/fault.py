"""Fault: what the simulator can do to a job.

The numbers are those of the fault matrix that the core is built against:

| fault | here |
| --- | --- |
| F1 worker killed at a named point | `Fault.CRASH` at every `SyncPoint` |
| F2 ambiguous commit | `Fault.LOST_REPLY`: `Indeterminate`, landed or not; `Fault.SLOW_COMMIT`, `Fault.CUT_COMMIT` |
| F3 driver killed | `Fault.DRIVER_CRASH`: between and inside the steps of the master |
| F4 executor lost, task tried again | `Fault.ZOMBIE`: a second worker for a slot whose first lives on |
| F5, F16 store restarts, refuses, times out | `Fault.OUTAGE`: every verb raises for a while; `Fault.REFUSED` |
| F6 a standby that lags takes over, a backup is restored | `Fault.LOST_COMMITS`: all goes back together |
| F6 a part of the database is restored by itself | `Fault.LOST_PART`: that of one computation goes back |
| F8 network cut, slow | `Fault.DELAY`, `Fault.PARTITION`, `Fault.STORE_CUT` |
| F8 one-way loss, half-open connections | `Fault.ONE_WAY`, `Fault.HALF_OPEN` |
| F9 zombie writer | `Fault.PAUSE` at every `SyncPoint`, often replaced meanwhile |
| F10 delayed commit | `Fault.LATE_COMMIT`: it lands when it likes, or is refused |
| F11 clocks jump, drift | `Fault.CLOCK_JUMP`: the wall clock of one process, an hour either way; `Fault.CLOCK_DRIFT` |
| F12, F13 delivered twice, in another order | `Fault.DUPLICATE`; links have delays of their own |
| F14 Bloom filter full, or lost | the pipeline `retries`: tiny filters, which are lost with each worker |
| F20 ranges move, split and merge while the job runs | `Fault.MOVE`, `Fault.SPLIT`, `Fault.MERGE` |
| F22 idle sources | in the scripts of the pipelines (`runners.testing.simulator.scripts`) |
| F23 faults during recovery | points before and after a takeover; nothing waits for a recovery to end |

Left to tests on real processes, because there is no process, disk or server here: F7 (a replica), F15
(disk full), F19 (slow consumers), F25 (bloat) and F26 (refused settings).  F17 (poison records), F21 (changes of the
graph) and F24 (drain) change what the results are, so they are arguments of `simulate` instead: ``tries``, ``update``
and ``drain``.  F18 (user code that is not deterministic) is a matter of the pipeline: one whose functions roll dice.
"""

from enum import StrEnum


class Fault(StrEnum):
    """One kind of fault; see the table above."""

    #: A worker dies at a sync point.
    CRASH = "crash"
    #: A worker stops at a sync point, for anything up to twenty seconds, and then goes on as if nothing had happened.
    PAUSE = "pause"
    #: A worker is taken for dead, and replaced, though it is not.
    ZOMBIE = "zombie"
    #: The driver dies; another one finds the job in the store, while the old workers go on for a while.
    DRIVER_CRASH = "driver-crash"
    #: The connection dies around a commit: its outcome is unknown.
    LOST_REPLY = "lost-reply"
    #: The same, and the commit reaches the store later; or it reaches it twice, the second time later.
    LATE_COMMIT = "late-commit"
    #: A commit takes long inside the store, with its fences locked, and its connection is gone: a worker that takes its
    #: ranges over waits for it, or ends it.
    SLOW_COMMIT = "slow-commit"
    #: A commit gave way to others too often (lock time-outs, deadlocks), and is refused; nothing else is.
    REFUSED = "refused"
    #: The connection dies in the middle of what a commit writes, as in a COPY: its fences stay locked until the store
    #: has noticed, and then nothing of it has happened.
    CUT_COMMIT = "cut-commit"
    #: Workers and store take small values only, until one that is larger is refused by name; then the user allows more.
    SIZE_LIMIT = "size-limit"
    #: The store refuses everything for a while.
    OUTAGE = "outage"
    #: The store is at an earlier moment: a standby that lagged has taken over, or a backup was restored.
    LOST_COMMITS = "lost-commits"
    #: The store's part of one computation is at an earlier moment, without a restart.
    LOST_PART = "lost-part"
    #: Messages take time, on each link another.
    DELAY = "delay"
    #: A connection breaks: what is on its way on one link is gone.
    LOSS = "loss"
    #: A message arrives once more, later; only a delivery or an acknowledgement out of its order.
    DUPLICATE = "duplicate"
    #: One process cannot be reached, and reaches nobody, for a while.
    PARTITION = "partition"
    #: What one process sends, or what it is sent, is lost, for a while or for good; the other direction works.
    ONE_WAY = "one-way"
    #: A connection whose other end is gone: it accepts messages, for a while, and nothing arrives.
    HALF_OPEN = "half-open"
    #: One worker cannot reach the store, for a while or for good, and everybody else can; messages go to and fro.
    STORE_CUT = "store-cut"
    #: The master has ranges go from one worker to another.
    MOVE = "move"
    #: The master has a key range divided.
    SPLIT = "split"
    #: The master has two key ranges united.
    MERGE = "merge"
    #: The wall clock of a process jumps, forward or back.
    CLOCK_JUMP = "clock-jump"
    #: The clocks of each process run faster or slower than the others, and its monotonic one begins anywhere.
    CLOCK_DRIFT = "clock-drift"


#: Every kind but one; each run has some of them.  `Fault.SIZE_LIMIT` is asked for by name: most pipelines have a value
#: above so small a limit soon, so the run would begin with an error and a restart, in place of what others need.
ALL_FAULTS = frozenset(Fault) - {Fault.SIZE_LIMIT}
#: Kinds of which no worker dies: what they change is arranged between the master and the workers.
ARRANGED_FAULTS = frozenset({Fault.MOVE, Fault.SPLIT, Fault.MERGE, Fault.DELAY})
#: No fault at all: only the order in which things happen differs from seed to seed.
NO_FAULTS: frozenset[Fault] = frozenset()


class SyncPoint(StrEnum):
    """A point inside a step of a worker, at which it can die or be paused.

    They are where a worker uses one of its ports (source, store, network), so production code knows nothing of them.
    """

    BEFORE_READ = "before-read"
    AFTER_READ = "after-read"
    #: A step needs cells that are not in memory.
    BEFORE_LOAD = "before-load"
    #: User code has run, nothing is durable.
    BEFORE_COMMIT = "before-commit"
    #: All is durable, and the worker does not know it.
    COMMIT_SENT = "commit-sent"
    #: After the commit, before others are notified: deliveries, acknowledgements, reports, one by one.
    BEFORE_SEND = "before-send"
    #: Recovery, before and after the ranges change hands.
    BEFORE_TAKEOVER = "before-takeover"
    AFTER_TAKEOVER = "after-takeover"
    #: A commit with an unknown outcome is looked up.
    BEFORE_RESOLVE = "before-resolve"
