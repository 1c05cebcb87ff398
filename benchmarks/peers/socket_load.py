"""Events at a rate for programs that read a socket: a line ``user,created`` for each, when it is due.

``created`` is the instant, in microseconds, when the event was *to be* created, so a reader that makes the sender wait
does not look faster for it (no coordinated omission).

    python -m benchmarks.peers.socket_load TASK FILE_DESCRIPTOR

The descriptor is a socket that listens; the first connection gets everything, and the process ends when it is sent.
"""

import socket
import sys
import time
from itertools import islice
from random import Random

from benchmarks.task import Task
from benchmarks.workloads import SEED, users

_FIRST_AFTER_US = 200_000
_PAUSE_S = 0.001


def main() -> None:
    """Send everything."""
    task = Task.from_command_line()
    pending = users(task.records, Random(SEED))
    with socket.socket(fileno=int(sys.argv[2])) as listening:
        connection, _ = listening.accept()
    with connection:
        start_us, sent = time.time_ns() // 1_000 + _FIRST_AFTER_US, 0
        while sent < task.records:
            due = (time.time_ns() // 1_000 - start_us) * task.rate // 1_000_000 + 1
            batch = list(islice(pending, max(0, min(due, task.records) - sent)))
            lines = [
                f"{user},{start_us + (sent + index) * 1_000_000 // task.rate}\n"
                for index, user in enumerate(batch)
            ]
            connection.sendall("".join(lines).encode())
            sent += len(batch)
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
