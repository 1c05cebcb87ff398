"""What a worker prints of what is logged in it."""

import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.worker_log import LEVEL_VARIABLE, log_as, wanted_level

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


def test_the_level_is_the_drivers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    assert wanted_level() == "INFO"
    monkeypatch.setenv(LEVEL_VARIABLE, "warning")
    assert wanted_level() == "WARNING"
    monkeypatch.setenv(LEVEL_VARIABLE, "loud")
    with pytest.raises(df.PipelineError, match="no level of logging"):
        wanted_level()
