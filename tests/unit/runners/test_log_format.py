"""Logs as JSON: one object a line, whatever is logged, and with the place where it was."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as df
from dataflow.errors import PipelineError
from runners import log_format
from runners.cli import main
from runners.log_format import JsonFormatter, checked_format, use_format
from runners.worker_log import log_again, log_as

RESERVED = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=5,
)


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers[:] = []
    monkeypatch.setattr(log_format._Chosen, "format", None)
    use_format("json")
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@given(
    st.text(st.characters(codec=None)),
    st.dictionaries(st.text(min_size=1).filter(lambda name: name not in RESERVED), VALUES),
)
def test_whatever_is_logged_is_one_line_of_json(message: str, extra: dict[str, Any]) -> None:
    """Also text that is none, numbers that JSON has not, and objects that nobody knows."""
    record = logging.makeLogRecord({**extra, "msg": message, "levelname": "INFO", "name": "x"})
    record.thing = object()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert found["level"] == "INFO"
    assert found["message"] == message.encode("utf-8", "backslashreplace").decode()
    assert "object object" in found["thing"]


def test_what_json_has_not_is_a_text_and_the_rest_stays_as_it_is() -> None:
    record = logging.makeLogRecord({"msg": "x", "order": 17, "thing": object(), "of": {1: 2.5}})
    found = json.loads(JsonFormatter().format(record))
    assert (found["order"], found["of"]) == (17, {"1": 2.5})
    assert found["thing"].startswith("<object object")


def test_an_exception_is_a_field(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        int("a\nb")
    except ValueError:
        logging.getLogger("mine").exception("it failed", extra={"order": 17})
    [found] = lines_of(capsys.readouterr().err)
    assert found["exception"].endswith(r"10: 'a\nb'")
    assert (found["message"], found["order"], found["logger"]) == ("it failed", 17, "mine")
    assert found["time"].endswith("+00:00")


def test_what_a_worker_logs_keeps_its_place_and_what_the_code_gave(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On its way to the driver as well."""
    sent: list[bytes] = []

    def send(blob: bytes) -> bool:
        sent.append(blob)
        return True

    logging.getLogger().handlers.clear()
    log_as("slot 1", "INFO", "scores", send)
    logging.getLogger("users.own").info("here", extra={"order": 17, "path": Path("/x")})
    assert capsys.readouterr().err == "", "it is in the worker's log, too"
    logging.getLogger().handlers.clear()
    log_again(sent[0])
    [found] = lines_of(capsys.readouterr().err)
    assert (found["worker"], found["job"], found["order"]) == ("slot 1", "scores", 17)
    assert "x" in found["path"]


def seen(value: int) -> int:
    logging.getLogger("users.own").warning("value %s", value)
    return value


def test_a_run_in_memory_takes_it_as_an_option(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with df.Pipeline("direct", job="scores", log_format="json") as p:
        p | df.Create([7]) | "seen" >> df.Map(seen)
    [found] = lines_of(capsys.readouterr().err)
    assert (found["message"], found["transform"], found["job"]) == ("value 7", "seen", "scores")


def test_an_error_of_a_command_is_a_line_too(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "no.such.module:pipeline", "--log-format", "json"]) == 2
    [found] = lines_of(capsys.readouterr().err)
    assert found["level"] == "ERROR"
    assert "no.such.module" in found["message"]


def test_an_interruption_is_no_error(
    as_json: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever stops a service, as systemd and Kubernetes do with each upgrade, is not to be alarmed."""
    (tmp_path / "interrupted_pipeline.py").write_text(
        "import dataflow as df\n\ndef stop(x):\n    raise KeyboardInterrupt\n\n"
        "def build(p):\n    p | df.Create([1]) | df.Map(stop)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    assert main(["run", "interrupted_pipeline:build", "--log-format", "json"]) == 130
    *_, found = lines_of(capsys.readouterr().err)
    assert found["level"] == "WARNING"
    assert found["message"].startswith("interrupted: ")


@pytest.mark.slow
def test_another_format_is_refused() -> None:
    with pytest.raises(PipelineError, match="give text or json"):
        checked_format("xml")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from runners.cli import main; sys.exit(main(['jobs']))",
        ],
        env={"DATAFLOW_LOG_FORMAT": "xml", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "DATAFLOW_LOG_FORMAT is no format of logs: 'xml'" in done.stderr
