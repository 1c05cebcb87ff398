"""What user code logs: with the transform that was running, the worker and the job, where the driver's `logging` is.

A worker sends each record to its driver, which hands it to the logger of the same name as if it had been logged there
(`log_again`); where the driver has configured no handler the record is on its stderr.  What cannot be sent, and what a
process logs in which user code is only tried, is on the worker's stderr.

Each record has ``dataflow_transform``, ``dataflow_worker`` and ``dataflow_job``, for formatters and filters; and in a
stream ``dataflow_ranges`` and ``dataflow_production``, the input that a worker was at, and ``dataflow_trace``.
The level is that of the runner's ``log_level``, else of the variable DATAFLOW_LOG_LEVEL where the driver was started,
else INFO.  No logger of the driver has its level changed, but by a run in memory that was given a level.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dataflow.errors import PipelineError
from dataflow.metric_updates import running
from runners.log_format import JsonFormatter, StderrHandler, is_json, use_format

LEVEL_VARIABLE = "DATAFLOW_LOG_LEVEL"
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(dataflow_where)s] %(message)s"
#: What a record has of the place where it was logged.
_SENT = ("name", "levelno", "levelname", "created", "pathname", "lineno", "funcName", "process")
_WHERE = ("dataflow_transform", "dataflow_worker", "dataflow_job")
_AT = ("dataflow_ranges", "dataflow_production", "dataflow_trace")

#: Sends a record as bytes; returns whether it could.
Send = Callable[[bytes], bool]


def checked_level(level: str | None) -> str | None:
    """The level that a runner was given, as `logging` names it; None for none.

    Raises:
        PipelineError: there is no such level.
    """
    return None if level is None else _known(level, "log_level")


def wanted_level(given: str | None = None) -> str:
    """The level that the user of this driver wants to see.

    Args:
        given: to the runner; None: that of the environment.

    Raises:
        PipelineError: the variable names no level.
    """
    return given or _known(os.environ.get(LEVEL_VARIABLE) or "INFO", LEVEL_VARIABLE)


def _known(level: Any, what: str) -> str:
    name = str(level).upper()
    if name not in logging.getLevelNamesMapping():
        raise PipelineError(
            f"{what} is no level of logging: {name!r}",
            hint="give DEBUG, INFO, WARNING, ERROR or CRITICAL",
        )
    return name


class _StderrHandler(StderrHandler):
    """Writes records with their place."""

    def __init__(self) -> None:
        super().__init__()
        self._text, self._json = logging.Formatter(_FORMAT, "%H:%M:%S"), JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        transform, worker, job = (getattr(record, name, "") for name in _WHERE)
        where = [f"transform {transform!r}"] * bool(transform)
        record.dataflow_where = ", ".join([*where, *filter(None, [worker]), *_of_job(job)])
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """The record in the format of this process."""
        return (self._json if is_json() else self._text).format(record)


def _of_job(job: str) -> list[str]:
    return [f"job {job!r}"] if job else []


class _WorkerHandler(_StderrHandler):
    """The one handler of this module in a worker's process.

    Attributes:
        worker, job: change with the task.
        send: to the driver; None: there is no way to it.
        sent: how many records were sent.
    """

    worker = job = ""
    send: Send | None = None
    sent = 0
    _process = 0

    def handles_for(self, worker: str, job: str, send: Send | None) -> None:
        """Handle what is logged from here on as this worker; see `log_as`."""
        self.worker, self.job, self.send, self._process = worker, job, send, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        _note(record, self.worker, self.job)
        # A process that was forked from this one, to try user code in, has no part in its connections.
        if self.send is None or os.getpid() != self._process or not self._sent(record, self.send):
            super().emit(record)

    def _sent(self, record: logging.LogRecord, send: Send) -> bool:
        try:
            is_sent = send(_encoded(record))
        except Exception:  # noqa: BLE001 - what is logged must not be what fails
            return False
        self.sent += is_sent
        return is_sent


def _note(record: logging.LogRecord, worker: str, job: str) -> None:
    now = running()
    found = (now.label, worker, job, *_input_of(now.step), now.trace)
    for name, value in zip((*_WHERE, *_AT), found, strict=True):
        setattr(record, name, value)


def _input_of(step: Any) -> tuple[str, str]:
    """The ranges of what a worker is at, and its production: which of its sender, or the next bundle of a split."""
    if not step:
        return "", ""
    ranges = ", ".join(dict.fromkeys(map(str, step)))
    numbers = [
        f"{each.sender or each.ranges[0]} {each.first}"
        + ("" if each.last in (None, each.first) else f" to {each.last}")
        for each in step
    ]
    return ranges, ", ".join(numbers)


def _encoded(record: logging.LogRecord) -> bytes:
    text = record.getMessage()
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    fields = {name: getattr(record, name) for name in (*_SENT, *_WHERE, *_AT)}
    fields |= _extra(record)
    blob: bytes = msgspec.msgpack.encode(
        {**fields, "msg": _plain(text), "exc_text": record.exc_text and _plain(record.exc_text)}
    )
    return blob


_OWN = frozenset(vars(logging.makeLogRecord({}))) | {
    *_SENT,
    *_WHERE,
    *_AT,
    "dataflow_where",
    "message",
    "asctime",
    "taskName",
}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What the code gave as ``extra``; a value that no message has is a text."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else repr(value)
        for name, value in vars(record).items()
        if name not in _OWN
    }


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class _OfJob(msgspec.Struct):
    """Of what a worker has sent, the name of its job."""

    dataflow_job: str


def job_of(blob: bytes) -> str:
    """The job whose worker has sent a record.

    Args:
        blob: as it has sent it.
    """
    return msgspec.msgpack.decode(blob, type=_OfJob).dataflow_job


def log_again(blob: bytes) -> None:
    """Hand what a worker has logged to the logger of that name in this process, or to stderr if nobody listens.

    Args:
        blob: as a worker has sent it.
    """
    record = logging.makeLogRecord(msgspec.msgpack.decode(blob))
    logger = logging.getLogger(record.name)
    if logger.hasHandlers():
        logger.handle(record)
    elif not logger.disabled:
        _StderrHandler().handle(record)


def log_as(
    worker: str, level: str, job: str = "", send: Send | None = None, log_format: str | None = None
) -> None:
    """Have this process log what is of ``level`` or above, as this worker; again for each task.

    Args:
        worker: the name that each record has.
        level: as `logging` names it.
        job: that the worker works for.
        send: to the driver; None: what is logged is on stderr.
        log_format: of stderr; None: as it is.
    """
    root, handler = logging.getLogger(), _worker_handler()
    if handler is None:
        handler = _WorkerHandler()
        root.addHandler(handler)
    use_format(log_format)
    handler.handles_for(worker, job, send)
    root.setLevel(level)


def records_sent() -> int:
    """How many records this process has sent to drivers."""
    handler = _worker_handler()
    return 0 if handler is None else handler.sent


def _worker_handler() -> _WorkerHandler | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, _WorkerHandler)), None)


@contextmanager
def logging_in_place(level: str | None, job: str, log_format: str | None = None) -> Iterator[None]:
    """Log what runs in this process with its transform, and leave levels and handlers as they were behind the block.

    Args:
        level: what is of this level or above is logged, on stderr if there is no handler; None: as `logging` is set up.
        job: that runs.
        log_format: of stderr, from here on; None: as it is.
    """
    use_format(log_format)
    _note_transforms()
    now = running()
    outer, now.job = now.job, job
    try:
        with _at_level(level):
            yield
    finally:
        now.job = outer


@contextmanager
def _at_level(level: str | None) -> Iterator[None]:
    if level is None:
        yield
        return
    root = logging.getLogger()
    outer, handler = root.level, None if root.hasHandlers() else _StderrHandler()
    root.setLevel(level)
    if handler is not None:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(outer)
        if handler is not None:
            root.removeHandler(handler)


def _note_transforms() -> None:
    """Have each record of this process name the transform that runs; a process does so once and for all."""
    make = logging.getLogRecordFactory()
    if getattr(make, "notes_transforms", False):
        return

    def noting(*args: Any, **fields: Any) -> logging.LogRecord:
        record = make(*args, **fields)
        if running().label:
            _note(record, "direct", running().job)
        return record

    noting.notes_transforms = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(noting)
