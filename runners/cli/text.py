"""What the commands of ``dataflow`` share: finding a job, tables of text, and how far behind something is."""

from collections.abc import Iterable
from math import ceil

from dataflow import times
from dataflow.source import Backlog
from runners.errors import StoreError
from runners.millwheel.store.port import JobSummary, Store
from runners.registry import STORE_VARIABLE
from runners.system_clock import SystemClock
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, format_timestamp


def find_job(store: Store, name: str) -> JobSummary:
    """The job of that name.

    Args:
        store: whose jobs are searched.
        name: as on the command line.

    Raises:
        StoreError: there is none.
    """
    jobs = {job.job: job for job in store.read_jobs()}
    if name not in jobs:
        raise StoreError(
            f"there is no job {name!r} in this store",
            detail=f"its jobs are: {', '.join(jobs)}" if jobs else "it has no jobs at all",
            hint=f"run the job once, or choose its store with --store or ${STORE_VARIABLE}",
        )
    return jobs[name]


def print_table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Columns of text, two blanks apart; on one line each, so that other programs can read them.

    Args:
        header: the titles of the columns.
        rows: a text for each column.
    """
    lines = [[_shown(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_line(text: str) -> None:
    """Print a text on one line; what a terminal would obey is escaped."""
    print(_shown(text))


def shown_watermark(watermark_us: int | None, *, is_finished: bool) -> tuple[str, str]:
    """A watermark as an instant, and how far it is behind the clock of this machine; a dash for what it is not.

    Args:
        watermark_us: in microseconds since 1970; None: not known.
        is_finished: whether the input has ended.
    """
    if watermark_us is None:
        return "-", "-"
    shown = format_timestamp(watermark_us)
    if is_finished or not MIN_TIMESTAMP_US < watermark_us < MAX_TIMESTAMP_US:
        return shown, "-"
    return shown, times.behind(watermark_us, SystemClock().now_us())


def shown_backlog(backlog: Backlog | None) -> str:
    """What is still to be read of a split, as far as its source knows; a dash where it does not.

    Args:
        backlog: as of the last poll.
    """
    if backlog is None:
        return "-"
    parts = (
        *([f"{backlog.records:,} records"] if backlog.records is not None else []),
        *([f"{ceil(backlog.size_bytes / 1_000):,} kB"] if backlog.size_bytes is not None else []),
        *([f"since {times.in_words(backlog.age_us)}"] if backlog.age_us else []),
    )
    return ", ".join(parts) or "-"


def _shown(cell: object) -> str:
    """A value on one line; what a terminal would obey is escaped."""
    text = str(cell)
    return text if text.isprintable() else ascii(text)
