"""Kill the job and its worker with -9 while requests come and go: what was answered with 200 counts once."""

import itertools
import os
import random
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread

import pytest
import urllib3

from tests.http_server import Target, http_target
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.waiting import WAIT_MAX_S, until

KILLS = ["everything", "driver", "worker"]
USERS = 7
#: Sum and count of each user.
Sums = dict[str, tuple[int, int]]


class Client:
    """Sends requests one after the other, each with a key, and again until it is answered with 200."""

    def __init__(self, url: str) -> None:
        self._url, self._is_stopped = url, Event()
        self.answered: list[int] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """When the last request has been answered: otherwise nobody knows whether it counts."""
        self._is_stopped.set()
        self._thread.join(WAIT_MAX_S)
        assert not self._thread.is_alive(), f"request {len(self.answered)} is not answered"

    def _run(self) -> None:
        with urllib3.PoolManager(retries=False, timeout=5) as pool:
            for number in itertools.count():
                while not self._is_answered(pool, number):
                    time.sleep(0.02)
                self.answered.append(number)
                if self._is_stopped.wait(0.005):
                    return

    def _is_answered(self, pool: urllib3.PoolManager, number: int) -> bool:
        try:
            answer = pool.request(
                "POST",
                self._url,
                json={"user": f"u{number % USERS}", "n": number},
                headers={"Idempotency-Key": f"request {number}"},
            )
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def sums(self) -> Sums:
        found, counts = Counter[str](), Counter[str]()
        for number in self.answered:
            found[f"u{number % USERS}"] += number
            counts[f"u{number % USERS}"] += 1
        return {user: (found[user], counts[user]) for user in counts}


def sums(target: Target) -> Sums:
    """What the requests leave: each is added or taken away, and what is taken away was there."""
    standing = Counter[tuple[str, int, int]]()
    for row in target.values:
        entry = row["user"], row["sum"], row["count"]
        standing[entry] += row["sign"]
        assert standing[entry] in {0, 1}, entry
    return {user: (total, count) for (user, total, count), left in standing.items() if left}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_was_answered_counts_once_whatever_is_killed(store_dsn: str, tmp_path: Path) -> None:
    """A client may have sent what was kept and not answered; it sends that again, with its key."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    plans, log = chance.sample(KILLS, len(KILLS)), tmp_path / "job.log"
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]

    def fate(_: bytes) -> int | None:
        return chance.choice([None, 500, 503]) if chance.random() < 0.05 else 200

    with http_target(fate) as target:
        client = Client(f"http://127.0.0.1:{port}/")
        command = [
            sys.executable, "-m", "tests.http_job", str(tmp_path / "spool"), str(port), target.url,
            store_dsn,
        ]  # fmt: skip
        while True:
            with in_a_group(command, log) as family:
                while plans:
                    more_than(target, len(target.bodies), log)
                    what = plans.pop()
                    print(what)
                    if what == "worker":
                        kill([chance.choice(workers_of(family, log.read_text))])
                    else:
                        kill([*descendants(family), family] if what == "everything" else [family])
                        break
                else:
                    more_than(target, len(target.bodies), log)
                    client.stop()
                    until(
                        lambda: sums(target) == client.sums(),
                        lambda: f"{sums(target)}\n{client.sums()}\n{log.read_text()[-20_000:]}",
                    )
                    assert len(client.sums()) == USERS
                    assert family.is_running()
                    return


def more_than(target: Target, before: int, log: Path) -> None:
    """Wait for more requests."""
    until(lambda: len(target.bodies) > before, log.read_text)
