"""What waits for sinks: the command that shows it, and the lanes that have failed for long."""

import argparse
from collections.abc import Callable, Iterator

from dataflow.times import ago
from runners.cli.text import find_job, print_line, print_table
from runners.millwheel.store.port import Store
from runners.relay.outbox import LaneFailure
from runners.system_clock import SystemClock

#: A sink that is restarted is back by then.
FAILING_LONG_US = 5 * 60 * 1_000_000


def show_sinks(store: Store, asked: argparse.Namespace) -> None:
    """Print a line for each lane of a job's sinks.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``.
    """
    find_job(store, asked.job)
    lanes, now_us = store.read_lanes(asked.job), SystemClock().now_us()
    if not lanes:
        print(f"nothing has waited for a sink of job {asked.job}")
        return
    print_table(
        ("sink", "lane", "waiting", "oldest", "last batch", "written", "visible", "state"),
        (
            (
                lane.sink or f"({lane.outbox})",
                lane.number,
                f"{lane.waiting:,}",
                "-" if lane.oldest_us is None else ago(lane.oldest_us, now_us),
                lane.delivered or "-",
                "-" if lane.visible is None else ago(lane.visible.last_us, now_us),
                "-" if lane.visible is None else ago(lane.visible.visible_us, now_us),
                _state(lane.failure, now_us),
            )
            for lane in lanes
        ),
    )


def failing_for_long(store: Store, job: str) -> Iterator[str]:
    """A line for each lane of a job that nobody could send for long.

    Args:
        store: that has the job.
        job: its name.
    """
    now_us = SystemClock().now_us()
    for lane in store.read_lanes(job):
        failure = lane.failure
        if failure is not None and now_us - failure.since_us >= FAILING_LONG_US:
            yield f"{lane.title} in job {job}, for which {lane.waiting:,} rows wait, {_state(failure, now_us)}"


def print_waiting(store: Store, jobs: list[str]) -> list[str]:
    """Print a line for each lane that has failed for long; returns the jobs that have one.

    Args:
        store: that has the jobs.
        jobs: their names.
    """
    failing = []
    for job in jobs:
        lines = list(failing_for_long(store, job))
        for line in lines:
            print_line(line)
        failing += [job] if lines else []
    return failing


def _state(failure: LaneFailure | None, now_us: int) -> str:
    if failure is None:
        return "-"
    headline = failure.reason.partition("\n")[0]
    return (
        f"first failed {ago(failure.since_us, now_us)}, {failure.tries:,} times, "
        f"last {ago(failure.last_us, now_us)}: {headline}"
    )


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    sinks = add(
        "sinks",
        "show what waits for the sinks of a job",
        "For each lane of a sink: how many rows wait and since when; the number of the last batch that the sink has, "
        "when the last of its rows was written to the outbox, and since when the batch is known to be visible in the "
        "sink; and since when and why the lane cannot be sent. The job may be running now or not.",
        "dataflow sinks scores",
    )
    sinks.set_defaults(do=show_sinks)
