"""What a worker prints of what is logged in it."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.millwheel.wire.zmq_transport import JobKeys
from runners.spark.driver_log import driver_log
from runners.worker_log import (
    LEVEL_VARIABLE,
    _WorkerHandler,
    log_again,
    log_as,
    records_sent,
    wanted_level,
)
from tests.waiting import until

LOG = logging.getLogger("users.module")
SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())


class Logged(df.DoFn):
    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(SEEN)) -> Any:
        LOG.info("with state %s", element[1])
        yield element


def logged(element: Any) -> Any:
    LOG.debug("not to be seen")
    LOG.info("element %s", element[1])
    return element


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    found = logging.getLogger()
    handlers, level = list(found.handlers), found.level
    # A simulated batch has its workers in this process, which may have logged here before.
    found.handlers[:] = [each for each in handlers if not isinstance(each, _WorkerHandler)]
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)


def test_it_names_the_worker_and_the_transform(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for attempt in (1, 2):
        log_as(f"slot 3, attempt {attempt}", "INFO")
    with df.Pipeline(DirectRunner()) as p:
        pairs = p | df.Create([("k", 7)])
        (
            pairs
            | "outer" >> df.Map(logged)
            | "inner" >> df.Map(logged)
            | "state" >> df.ParDo(Logged())
        )
    LOG.warning("afterwards")

    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    worker = "slot 3, attempt 2"
    assert lines == [
        f"INFO users.module [transform 'outer', {worker}] element 7",
        f"INFO users.module [transform 'inner', {worker}] element 7",
        f"INFO users.module [transform 'state', {worker}] with state 7",
        f"WARNING users.module [{worker}] afterwards",
    ]


def test_a_later_task_of_the_process_logs_to_its_own_stderr(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_tasks = [io.StringIO(), io.StringIO()]
    for task, stderr in enumerate(of_tasks):
        monkeypatch.setattr(sys, "stderr", stderr)
        log_as(f"slot {task}, attempt 1", "INFO")
        LOG.info("task %d", task)
    lines = [each.getvalue().split(" ", 1)[1] for each in of_tasks]
    assert lines == [f"INFO users.module [slot {task}, attempt 1] task {task}\n" for task in (0, 1)]


def sent_by(
    worker: str, log: Callable[[], Any], *, job: str = "scores", is_sent: bool = True
) -> list[bytes]:
    """What a worker sends of what is logged."""
    sent: list[bytes] = []

    def send(blob: bytes) -> bool:
        sent.append(blob)
        return is_sent

    log_as(worker, "INFO", job, send)
    log()
    return sent


def log_often(times: int) -> None:
    for _ in range(times):
        LOG.info("seen")


def fail(element: Any) -> None:
    try:
        {}[element]
    except KeyError:
        LOG.exception("with %s", element)


def test_a_worker_sends_what_is_logged_and_the_driver_logs_it(
    root: logging.Logger, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> None:
        with df.Pipeline(DirectRunner()) as p:
            p | df.Create([7]) | "look" >> df.Map(fail)

    handlers = list(root.handlers)
    root.handlers[:] = []
    (blob,) = sent_by("slot 3", run)
    root.handlers[:] = handlers
    root.setLevel(logging.ERROR + 1)
    log_again(blob)

    (record,) = caplog.records
    places = [getattr(record, f"dataflow_{name}") for name in ("transform", "worker", "job")]
    assert places == ["look", "slot 3", "scores"]
    assert (record.name, record.levelname, record.funcName) == ("users.module", "ERROR", "fail")
    assert record.getMessage() == "with 7"
    assert "KeyError: 7" in (record.exc_text or "")
    assert root.level == logging.ERROR + 1
    assert capsys.readouterr().err == ""


def test_without_a_handler_the_driver_writes_it(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers[:] = []
    (blob,) = sent_by("slot 3", lambda: LOG.info("seen"))
    root.handlers[:] = []
    log_again(blob)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split(" ", 1)[1] == "INFO users.module [slot 3, job 'scores'] seen"


def test_what_cannot_be_sent_is_on_the_workers_stderr(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is logged in a process that was forked to try user code in."""
    sent_by("slot 3", lambda: LOG.info("not sent"), is_sent=False)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    LOG.info("tried")
    lines = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["not sent", "tried"]


@pytest.mark.slow
def test_records_go_through_a_socket_that_only_a_worker_can_send_to(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = driver_log("127.0.0.1")
    target = log.target("scores")
    handlers = list(root.handlers)
    (blob,) = sent_by("slot 3", lambda: LOG.info("seen"))
    root.handlers[:] = handlers
    stranger = attrs.evolve(target, keys=JobKeys.generate())
    caplog.clear()

    assert log is driver_log("127.0.0.1")
    assert not stranger.send(blob)
    assert all(target.send(blob) for _ in range(100))
    until(lambda: len(caplog.records) >= 100, lambda: caplog.text)
    assert [each.getMessage() for each in caplog.records] == ["seen"] * 100


def test_who_waits_for_records_of_a_job_has_them_all(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = driver_log("127.0.0.1")
    handlers = list(root.handlers)
    sent_before = records_sent()
    blobs = sent_by("slot 3", partial(log_often, 20))
    assert records_sent() - sent_before == len(blobs) == 20
    others = sent_by("slot 3", lambda: LOG.info("other"), job="others")
    root.handlers[:] = handlers
    before = log.received("scores")
    caplog.clear()

    assert all(map(log.target("others").send, others))
    assert all(map(log.target("scores").send, blobs))
    log.await_records("scores", before + 20)

    assert [each.getMessage() for each in caplog.records].count("seen") == 20
    assert log.received("scores") == before + 20


def test_a_record_that_no_handler_can_take_does_not_stop_the_others(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = driver_log("127.0.0.1")

    def run() -> None:
        LOG.info("first")
        LOG.info("second")

    handlers = list(root.handlers)
    blobs = sent_by("slot 3", run)
    root.handlers[:] = handlers

    def refuse(record: logging.LogRecord) -> bool:
        if record.getMessage() == "first":
            raise ValueError("no")
        return True

    caplog.clear()
    LOG.addFilter(refuse)
    try:
        assert all(map(log.target("scores").send, blobs))
        until(lambda: len(caplog.records) >= 2, lambda: caplog.text)
    finally:
        LOG.removeFilter(refuse)
    texts = [each.getMessage() for each in caplog.records]
    assert texts == ["what a worker has logged cannot be logged", "second"]


def test_the_direct_runner_notes_the_transform_and_leaves_logging_alone(
    root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    root.setLevel(logging.WARNING)
    with df.Pipeline("direct", job="scores") as p:
        p | df.Create([7]) | "look" >> df.Map(fail) | "log" >> df.LogElements()
    (record,) = caplog.records
    assert getattr(record, "dataflow_transform", "") == "look"
    assert getattr(record, "dataflow_job", "") == "scores"
    assert root.level == logging.WARNING


def test_the_direct_runner_has_a_level_while_it_runs(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    with df.Pipeline("direct", job="scores", log_level="info") as p:
        p | df.Create([("k", 7)]) | "look" >> df.Map(logged)
    LOG.info("not to be seen")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split(" ", 1)[1] == (
        "INFO users.module [transform 'look', direct, job 'scores'] element 7"
    )
    assert root.level == logging.WARNING
    assert root.handlers == []


@pytest.mark.parametrize("kind", ["direct", "batch", "streaming"])
def test_a_level_that_there_is_not_is_refused(kind: str) -> None:
    with pytest.raises(df.PipelineError) as caught:
        df.Pipeline(kind, job="scores", log_level="loud")
    assert str(caught.value) == (
        "log_level is no level of logging: 'LOUD'\n"
        "  what to do: give DEBUG, INFO, WARNING, ERROR or CRITICAL"
    )


def test_the_level_is_the_drivers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    assert wanted_level() == "INFO"
    monkeypatch.setenv(LEVEL_VARIABLE, "warning")
    assert wanted_level() == "WARNING"
    assert wanted_level("DEBUG") == "DEBUG"
    monkeypatch.setenv(LEVEL_VARIABLE, "loud")
    with pytest.raises(df.PipelineError, match="no level of logging"):
        wanted_level()
