"""The format of what this program writes to stderr: text for people, or one JSON object a line for programs.

The format is that of a runner's ``log_format``, else of the variable DATAFLOW_LOG_FORMAT, else text; it is the same for
a whole process, as its stderr is.  JSON has ``time`` (ISO 8601 in UTC), ``level``, ``logger``, ``message``, where a
record has them ``job``, ``worker``, ``transform``, ``ranges``, ``production`` and ``trace_id``, what the code gave as
``extra``, and of an exception ``exception``.  Handlers of the user's own are left as they are; `JsonFormatter` is for
those too.
"""

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from dataflow.errors import PipelineError

FORMAT_VARIABLE: Final = "DATAFLOW_LOG_FORMAT"
TEXT, JSON = "text", "json"
#: What `runners.worker_log` notes of the place where a record was logged, and what JSON calls it.
PLACE: Final = {
    "dataflow_job": "job",
    "dataflow_worker": "worker",
    "dataflow_transform": "transform",
    "dataflow_ranges": "ranges",
    "dataflow_production": "production",
    "dataflow_trace": "trace_id",
}
_OF_LOGGING = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName", "dataflow_where")
}


class JsonFormatter(logging.Formatter):
    """A record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name in PLACE:
                if value:
                    fields[PLACE[name]] = value
            elif name not in _OF_LOGGING:
                fields.setdefault(name, value)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _line(fields)


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records to stderr."""

    @property
    def stream(self) -> TextIO:
        """The stderr of this moment: a process that serves several tasks may have been given another since."""
        return sys.stderr

    @stream.setter
    def stream(self, ignored: TextIO) -> None:
        """What the base class is given at its start is not kept."""


def _line(fields: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        # Keys of a dict, text that is none, or a value in itself: what is logged must not be what fails.
        plain = {str(name): _plain(str(value)) for name, value in fields.items()}
        return msgspec.json.encode(plain).decode()


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class _Chosen:
    """What a runner or the command line of this process was given; None: neither was given anything."""

    format: str | None = None


def checked_format(log_format: str | None) -> str | None:
    """The format that a runner was given; None for none.

    Raises:
        PipelineError: there is no such format.
    """
    return None if log_format is None else _known(log_format, "log_format")


def use_format(log_format: str | None) -> None:
    """Have this process write its stderr in a format from here on; in JSON also what nobody else handles.

    Args:
        log_format: None: leave it as it is.
    """
    if log_format is not None:
        _Chosen.format = log_format
    root = logging.getLogger()
    if is_json() and not root.hasHandlers():
        handler = StderrHandler()
        handler.setFormatter(JsonFormatter())
        root.addHandler(handler)


def wanted_format() -> str:
    """The format of this process.

    Raises:
        PipelineError: the variable names none.
    """
    return _Chosen.format or _known(os.environ.get(FORMAT_VARIABLE) or TEXT, FORMAT_VARIABLE)


def is_json() -> bool:
    """Whether this process writes JSON."""
    return wanted_format() == JSON


def _known(log_format: str, what: str) -> str:
    if log_format not in (TEXT, JSON):
        raise PipelineError(
            f"{what} is no format of logs: {log_format!r}", hint=f"give {TEXT} or {JSON}"
        )
    return log_format


def json_line(logger: str, level: int, message: str, **extra: object) -> str:
    """What is no record of `logging` as a line of JSON: an error of a command, or a line of progress.

    Args:
        logger: who writes it.
        level: as `logging` numbers them.
        message: the text.
        extra: more fields.
    """
    record = logging.makeLogRecord(
        {"name": logger, "levelno": level, "levelname": logging.getLevelName(level), **extra}
    )
    record.msg = message
    return JsonFormatter().format(record)
