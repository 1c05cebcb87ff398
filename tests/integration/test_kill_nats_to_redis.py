"""Kill the job, a worker, and the servers on both sides with -9: every message counts once in the sums, at any time."""

import itertools
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import redis

from dataflow.io.nats_streams.client import NatsClient, NatsServer
from tests.nats_to_redis_job import LANES, STREAM, SUMS
from tests.processes import descendants, in_a_group, kill, workers_of
from tests.stream_servers import NatsTestServer, RedisTestServer, running
from tests.waiting import until

KILLS = ["everything", "driver", "worker", "NATS", "Redis"]
USERS = 7
#: Sum and count of each user.
Sums = dict[str, tuple[int, int]]


class Publisher:
    """Publishes messages until it is stopped; what the server has acknowledged counts."""

    def __init__(self, url: str) -> None:
        self._server = NatsServer(url=url)
        self._is_stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        numbers = itertools.count()
        while not self._is_stopped.is_set():
            with suppress(Exception), closing(self._server) as client:
                while not self._is_stopped.wait(0.005):
                    number = next(numbers)
                    body = json.dumps({"user": f"u{number % USERS}", "n": number}).encode()
                    client._wait_for(client._ask(f"{STREAM}.orders", body))
            self._is_stopped.wait(0.05)  # the server was killed


@contextmanager
def closing(server: NatsServer) -> Iterator[NatsClient]:
    client = server.connect()
    try:
        yield client
    finally:
        client.close()


def published(url: str) -> Sums:
    """What the stream has, by Python alone."""
    found: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with closing(NatsServer(url=url)) as client:
        start = 1
        while messages := client.messages(STREAM, start=start, subject=">", count=5_000):
            start = int((messages[-1].headers or {})["Nats-Sequence"]) + 1
            for each in messages:
                row = json.loads(each.data)
                found[row["user"]] += row["n"]
                counts[row["user"]] += 1
    return {user: (found[user], counts[user]) for user in counts}


def sums(url: str) -> Sums:
    """What the entries leave: each is added or taken away, and what is taken away was there."""
    standing = Counter[tuple[str, int, int]]()
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for lane in range(LANES):
            for _, row in client.xrange(f"{SUMS}:{lane}"):
                entry = row["user"], int(row["sum"]), int(row["count"])
                standing[entry] += int(row["sign"])
                assert standing[entry] in {0, 1}, entry
    left = [entry for entry, number in standing.items() if number]
    assert len({user for user, _, _ in left}) == len(left), left
    return {user: (total, count) for user, total, count in left}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sums_survive_kills_of_job_and_servers(store_dsn: str, tmp_path: Path) -> None:
    """Whoever dies, and whenever, the entries in Redis are the sums of the messages in NATS."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    plans, log = chance.sample(KILLS, len(KILLS)), tmp_path / "job.log"
    with running(NatsTestServer) as nats, running(RedisTestServer) as target:
        with closing(NatsServer(url=nats.url)) as client:
            config = {"name": STREAM, "subjects": [f"{STREAM}.>"], "storage": "file"}
            client.api(f"STREAM.CREATE.{STREAM}", {**config, "allow_direct": True})
        publisher = Publisher(nats.url)
        publisher.start()
        command = [sys.executable, "-m", "tests.nats_to_redis_job", nats.url, target.url, store_dsn]

        def entries() -> int:
            with redis.Redis.from_url(target.url) as client:
                return sum(client.xlen(f"{SUMS}:{lane}") for lane in range(LANES))

        while True:
            with in_a_group(command, log) as family:
                while plans:
                    more_than(entries, entries(), log)
                    what = plans.pop()
                    print(what)
                    if what in {"NATS", "Redis"}:
                        (nats if what == "NATS" else target).crash()
                    elif what == "worker":
                        kill([chance.choice(workers_of(family, log.read_text))])
                    else:
                        kill([*descendants(family), family] if what == "everything" else [family])
                        break
                else:
                    more_than(entries, entries(), log)
                    publisher.stop()
                    assert_right(nats, target, log)
                    assert family.is_running()
                    return


def more_than(entries: Callable[[], int], before: int, log: Path) -> None:
    """Wait for more entries."""
    until(lambda: entries() > before, log.read_text)


def assert_right(nats: NatsTestServer, target: RedisTestServer, log: Path) -> None:
    """Wait until the sums are right, and then see that all users are there."""
    expected = published(nats.url)
    until(
        lambda: sums(target.url) == expected,
        lambda: f"{sums(target.url)}\n{expected}\n{log.read_text()[-20_000:]}",
    )
    assert len(expected) == USERS
