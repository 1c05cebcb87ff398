"""DriverLog: where the workers of this process's jobs send what is logged in them.

One for all jobs of the process, made when the first one starts: an encrypted socket, to which only who has its key can
send, and a thread that hands each record to `logging` (`runners.worker_log`).
"""

import atexit
import logging
import os
import threading
from collections import Counter
from functools import cache

import attrs

from runners.millwheel.wire.zmq_transport import JobKeys, ZmqSender, ZmqTransport, own_host
from runners.worker_log import job_of, log_again

_POLL_MS = 200
#: How long a run waits at its end for what is still on its way.
_QUIET_S, _WAITS_MAX = 0.05, 20
_LOG = logging.getLogger(__name__)


@attrs.frozen
class LogTarget:
    """Where a worker sends what is logged in it; travels with its task.

    Attributes:
        job: the name of its job.
        address: of the driver's log.
    """

    job: str
    address: str
    keys: JobKeys = attrs.field(repr=False)

    def send(self, record: bytes) -> bool:
        """Send a record, from the process and thread that calls; returns whether there was room for it."""
        return _sender(self.address, self.keys, os.getpid()).send(record)


@cache
def _sender(address: str, keys: JobKeys, process: int) -> ZmqSender:
    """The way from one process; another one that was forked from it has its own."""
    sender = ZmqSender(keys, address)

    def close() -> None:
        if os.getpid() == process:
            sender.close()

    atexit.register(close)
    return sender


class DriverLog:
    """Receives what workers log, in a thread of its own.

    Args:
        host: of the interface at which workers reach this process.
    """

    def __init__(self, host: str) -> None:
        self._keys = JobKeys.generate()
        self._transport = ZmqTransport(self._keys, own_host(host))
        #: How many records have come, by job.
        self._received: Counter[str] = Counter()
        self._comes = threading.Condition()
        threading.Thread(target=self._run, name="dataflow-log", daemon=True).start()

    def target(self, job: str) -> LogTarget:
        """Where the workers of a job send what is logged in them."""
        return LogTarget(job, self._transport.address, self._keys)

    def received(self, job: str) -> int:
        """How many records of a job have come so far."""
        with self._comes:
            return self._received[job]

    def await_records(self, job: str, count: int) -> None:
        """Wait until so many records of a job have come, a moment at most: what is lost does not come.

        Args:
            job: its name.
            count: how many, with all that had come before it was run.
        """
        with self._comes:
            self._comes.wait_for(lambda: self._received[job] >= count, _WAITS_MAX * _QUIET_S)

    def await_rest(self) -> None:
        """Wait for what is on its way, where it is not known how much that is: until nothing has come for a moment."""
        wait = threading.Event()
        for _ in range(_WAITS_MAX):
            before = self._received.total()
            wait.wait(_QUIET_S)
            if self._received.total() == before:
                return

    def _run(self) -> None:
        while True:
            for blob in self._transport.receive(_POLL_MS):
                try:
                    log_again(blob)
                except Exception:  # noqa: BLE001 - a filter or handler of the user's; other records must be seen
                    _LOG.exception("what a worker has logged cannot be logged")
                with self._comes:
                    self._received[job_of(blob)] += 1
                    self._comes.notify_all()


@cache
def driver_log(host: str) -> DriverLog:
    """The log of this process; ``host``: as Spark calls the driver's."""
    return DriverLog(host)
