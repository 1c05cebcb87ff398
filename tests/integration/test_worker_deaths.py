"""Records that end or hang the process that works on them, and workers that die otherwise: all of it is reported."""

import ctypes
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

import dataflow as df
from runners.errors import JobFailedError
from runners.millwheel.model.troubles import TroubleKind
from runners.registry import open_store
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.streaming_jobs import Streaming
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

RECORDS = 40
#: Where the bad record is.
BAD = 17
COLUMNS = {"key": int, "total": int}
_ADD_COLUMN = """
    ALTER TABLE totals ADD COLUMN added int NOT NULL DEFAULT 0;
    ALTER TABLE totals ALTER COLUMN added DROP DEFAULT
"""
#: As for a role that has lost its right: that of the tests has them all.
_REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'permission denied for table totals' USING ERRCODE = '42501';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON totals EXECUTE FUNCTION refuse()
"""


@pytest.fixture
def streaming(store_dsn: str, spark_master: str) -> Streaming:
    return Streaming(store_dsn, spark_master)


def leave() -> None:
    os._exit(3)


def leave_as_if_all_were_well() -> None:
    os._exit(0)


def crash() -> None:
    ctypes.string_at(0)


def ask_to_leave() -> None:
    sys.exit(4)


def never_return() -> None:
    while True:
        time.sleep(0.01)


def bad_records(end: Callable[[], None]) -> Callable[[df.Pipeline], None]:
    """Sums by key of two splits, in one of which a record ends the process."""

    def strike(value: int) -> tuple[int, int]:
        if value == BAD:
            end()
        return value % 3, value

    def build(p: df.Pipeline) -> None:
        scripts = [
            [
                Batch(list(range(start, start + 10)), [start] * 10)
                for start in range(0, RECORDS, 10)
            ],
            [Batch([100 + n], [n]) for n in range(50)],
        ]
        (
            p
            | "read" >> df.Read(ScriptedSource(*scripts))
            | "strike" >> df.Map(strike)
            | "sum" >> df.CombinePerKey(sum)
            | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
            | "write" >> df.WriteToPostgres("totals", columns=COLUMNS, key=["key"])
        )

    return build


def expected() -> dict[int, int]:
    values = [n for n in (*range(RECORDS), *range(100, 150)) if n != BAD]
    return {key: sum(n for n in values if n % 3 == key) for key in range(3)}


@pytest.mark.parametrize(
    ("end", "step_timeout", "why"),
    [
        (leave, 60.0, "exit code 3"),
        pytest.param(leave_as_if_all_were_well, 60.0, "exit code 0", marks=pytest.mark.nightly),
        (crash, 60.0, "signal 11 (SIGSEGV)"),
        pytest.param(ask_to_leave, 60.0, "exit code 4", marks=pytest.mark.nightly),
        # More than the other records take, on any machine.
        (never_return, 4.0, "took longer than 4 seconds"),
    ],
)
def test_a_record_that_ends_its_process_is_a_dead_letter(
    streaming: Streaming, end: Callable[[], None], step_timeout: float, why: str
) -> None:
    """And all others count."""
    result = streaming.run(bad_records(end), tries_per_record=2, step_timeout=step_timeout)

    assert {row["key"]: row["total"] for row in result.read_table("totals")} == expected()
    [letter] = result.dead_letters()
    assert letter["element"].value == BAD
    assert why in letter["error"]
    with closing(open_store(streaming.store)) as store:
        troubles = store.read_troubles("job")
    assert any("read[0]" in each.trouble.place for each in troubles)


def test_a_record_that_ends_its_process_ends_the_job_where_there_are_no_tries(
    streaming: Streaming, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside a split that is read on all the while; the error says where, and how it ended."""
    with caplog.at_level(logging.WARNING), pytest.raises(JobFailedError) as failed:
        streaming.run(bad_records(leave))

    assert "read[0]" in str(failed.value)
    assert "exit code 3" in str(failed.value)
    assert "exit code 3" in caplog.text


@pytest.mark.parametrize("breakage", ["NOT NULL", "revoke"])
def test_what_the_store_refuses_is_reported(
    streaming: Streaming, caplog: pytest.LogCaptureFixture, breakage: str
) -> None:
    """In the log, in the store, and in the error that ends the job."""
    statement, message = {
        "NOT NULL": (_ADD_COLUMN, "added"),
        "revoke": (_REFUSE, "permission denied for table totals"),
    }[breakage]
    result = streaming.start(slow_sums, records_per_second=100)
    until(lambda: len(result.read_table("totals")) > 0)
    with psycopg.connect(streaming.store, autocommit=True) as admin:
        admin.execute(statement.encode())
    with caplog.at_level(logging.WARNING), pytest.raises(JobFailedError) as failed:
        result.wait_until_finish()

    assert message in str(failed.value)
    assert message in caplog.text
    with closing(open_store(streaming.store)) as store:
        assert any(message in each.trouble.reason for each in store.read_troubles("job"))


def test_a_locked_table_is_waited_for_and_that_is_reported(
    streaming: Streaming, caplog: pytest.LogCaptureFixture
) -> None:
    """While it lasts: whoever looks at the job sees what it waits for."""
    result = streaming.start(slow_sums, records_per_second=100)
    until(lambda: len(result.read_table("totals")) > 0)
    with caplog.at_level(logging.WARNING):
        with psycopg.connect(streaming.store) as locker:
            locker.execute("LOCK TABLE totals IN ACCESS EXCLUSIVE MODE")
            with closing(open_store(streaming.store)) as store:
                until(
                    lambda: any(
                        each.trouble.kind is TroubleKind.WAIT and "lock" in each.trouble.reason
                        for each in store.read_troubles("job")
                    )
                )
        until(lambda: "a worker waits at slot" in caplog.text)
    result.cancel()


@pytest.mark.nightly
def test_a_worker_for_which_spark_has_no_room_is_missed(
    streaming: Streaming, caplog: pytest.LogCaptureFixture
) -> None:
    """Of three workers only two fit on two cores: the third's ranges wait for ever, and that is reported."""
    with caplog.at_level(logging.WARNING):
        result = streaming.start(slow_sums, workers=3, records_per_second=100)
        with closing(open_store(streaming.store)) as store:
            until(
                lambda: any(
                    each.trouble.kind is TroubleKind.WAIT
                    and each.trouble.reason.startswith("no worker is there for it\n2 of 3 are")
                    for each in store.read_troubles("job")
                )
            )
        until(lambda: "no worker is there for it" in caplog.text)
    result.cancel()


def slow_sums(p: df.Pipeline) -> None:
    scripts = [[Batch([n], [n * 1_000_000], n * 1_000_000) for n in range(5_000)]]
    (
        p
        | "read" >> df.Read(ScriptedSource(*scripts))
        | "key" >> df.Map(lambda n: (n % 3, n))
        | "seconds" >> df.WindowInto(df.FixedWindows(5))
        | "sum" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns=COLUMNS)
    )
