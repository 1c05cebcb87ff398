"""The floor of S2: the least program that makes the promises of ours, under the same load.

Two processes, a socket and Postgres.  The reader commits each bundle together with its position, and sends it only then
(a strong production).  The counter takes every bundle in once, commits its counts, their rows and the number of the
bundle in one transaction, and acknowledges it only then; the reader deletes what is acknowledged with its next commit.
Both commits are refused to whoever has an older token than the fence.

Left out is what makes a stream of it: watermarks, timers, key ranges that move, compaction, recovery, reports, users'
transforms.  What ours takes by what this takes is the price of those, on this machine.
"""

import multiprocessing
import pickle
import time
from collections import Counter
from multiprocessing.connection import wait

import psycopg
import zmq

from benchmarks.peers.ours_latency import export_counts
from benchmarks.peers.ours_load import RateSource, visitors
from benchmarks.task import Task

#: From starting the processes until the first record exists.
_LEAD_S = 2
_TOKEN = 1
#: Records that one bundle has at most, as in ours.
_RECORDS_MAX = 10_000
#: How long the reader sleeps where no record is due.
_PAUSE_S = 0.0005
_STOP_TIMEOUT_MS = 60_000

_SCHEMA = """
CREATE TABLE fence (id int PRIMARY KEY, token bigint, bundle bigint, position bigint) WITH (fillfactor = 50);
CREATE TABLE production (bundle bigint PRIMARY KEY, payload bytea);
CREATE TABLE journal (bundle bigint PRIMARY KEY, entry bytea);
CREATE TABLE counts (user_id bigint, count bigint, created_us bigint);
INSERT INTO fence VALUES (0, 1, 0, 0), (1, 1, 0, 0);

CREATE FUNCTION next_bundle(who int, mine bigint, number bigint, reached bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE fence SET bundle = number, position = reached
    WHERE id = who AND token = mine AND bundle = number - 1;
    IF NOT FOUND THEN RAISE EXCEPTION 'fenced'; END IF;
END $$;

CREATE FUNCTION produce(mine bigint, number bigint, reached bigint, made bytea, since bigint, until bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM next_bundle(0, mine, number, reached);
    INSERT INTO production VALUES (number, made);
    DELETE FROM production WHERE bundle > since AND bundle <= until;
END $$;

CREATE FUNCTION take_in(
    mine bigint, number bigint, delivered bigint, changed bytea, users bigint[], seen bigint[], created bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM next_bundle(1, mine, number, delivered);
    INSERT INTO journal VALUES (number, changed);
    INSERT INTO counts SELECT * FROM unnest(users, seen, created);
END $$;
"""


def read(task: Task, source: RateSource, to_counter: str, to_reader: str) -> None:
    """Read the load to its end, and wait until all of it is acknowledged."""
    context = zmq.Context()
    with (
        psycopg.connect(task.store, autocommit=True) as store,
        context.socket(zmq.PUSH) as out,
        context.socket(zmq.PULL) as acknowledged,
    ):
        out.connect(to_counter)
        acknowledged.bind(to_reader)
        reader = source.open(0, None, fence=0)
        number = until = deleted = 0
        is_finished = False
        while until < number or not is_finished:
            while acknowledged.poll(0):
                until = int(acknowledged.recv())
            batch = reader.read(_RECORDS_MAX)
            if not batch.values:
                time.sleep(_PAUSE_S)
                continue
            number, is_finished = number + 1, batch.position == source.records
            payload = pickle.dumps(batch.values, 5)
            store.execute(
                "SELECT produce(%s, %s, %s, %b, %s, %s)",
                (_TOKEN, number, batch.position, payload, deleted, until),
            )
            deleted = until
            out.send(pickle.dumps((number, payload), 5))


def count(task: Task, records: int, to_counter: str, to_reader: str) -> None:
    """Count the visits of each user until so many records have come."""
    context = zmq.Context()
    with (
        psycopg.connect(task.store, autocommit=True) as store,
        context.socket(zmq.PULL) as arriving,
        context.socket(zmq.PUSH) as acknowledge,
    ):
        arriving.bind(to_counter)
        acknowledge.connect(to_reader)
        counts: Counter[int] = Counter()
        number = delivered = taken = 0
        while taken < records:
            users, seen, created = list[int](), list[int](), list[int]()
            for last, payload in _arrived(arriving):
                if last <= delivered:
                    continue
                delivered = last
                for user, created_us in pickle.loads(payload):  # noqa: S301 - this program wrote it
                    counts[user] += 1
                    users.append(user)
                    seen.append(counts[user])
                    created.append(created_us)
            number, taken = number + 1, taken + len(users)
            changed = pickle.dumps({user: counts[user] for user in users}, 5)
            store.execute(
                "SELECT take_in(%s, %s, %s, %b, %s, %s, %s)",
                (_TOKEN, number, delivered, changed, users, seen, created),
            )
            acknowledge.send(b"%d" % delivered)


def _arrived(arriving: "zmq.Socket[bytes]") -> list[tuple[int, bytes]]:
    """Every message that is there; waits for the first."""
    if not arriving.poll(_STOP_TIMEOUT_MS):
        raise TimeoutError("nothing more comes")
    messages = [arriving.recv()]
    while arriving.poll(0):
        messages.append(arriving.recv())
    return [pickle.loads(each) for each in messages]  # noqa: S301 - this program wrote it


def run(task: Task) -> None:
    """Count under the load of a task, and leave a line for each row: user, count, created, committed."""
    with psycopg.connect(task.store, autocommit=True) as store:
        store.execute(_SCHEMA)
    visitors(task.records)
    start_us = time.time_ns() // 1_000 + _LEAD_S * 1_000_000
    source = RateSource(start_us=start_us, per_second=task.rate, records=task.records)
    sockets = [f"ipc://{task.scratch}/{name}" for name in ("to-counter", "to-reader")]
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=read, args=(task, source, *sockets)),
        fork.Process(target=count, args=(task, task.records, *sockets)),
    ]
    for process in processes:
        process.start()
    # The other one would wait for ever for one that has failed.  Asked once: to wait for none would take for ever too.
    while alive := [process.sentinel for process in processes if process.is_alive()]:
        wait(alive)
        if any(process.exitcode for process in processes):
            for process in processes:
                process.terminate()
            raise SystemExit("a process of the floor has failed")
    export_counts(task)
    task.report(rows_for_each_record=True)


if __name__ == "__main__":
    run(Task.from_command_line())
