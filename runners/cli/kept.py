"""The commands ``late``, ``dead``, ``purge`` and ``replay``: what a job keeps of records that are in no result.

`replay` alone unpickles: it runs the user's own function over the records, in this process.
"""

import argparse
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dataflow.errors import DataflowError, TimeError
from runners.cli.named import find_named
from runners.cli.text import find_job, print_table
from runners.millwheel.store.port import KeptKind, Store
from runners.stored.letters import stored_dead_mapping, stored_late_mapping
from windowing.errors import error_text
from windowing.timestamps import format_timestamp, to_duration_us

_AGES = "say for example 90m, 12h, '30 days', P2W, or all"
_NAMES: Mapping[KeptKind, str] = {"late": "late records", "dead": "dead letters"}


def show_late(store: Store, asked: argparse.Namespace) -> None:
    """Print what a job has dropped as too late, and how much of it each transform has.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and how to print.
    """
    find_job(store, asked.job)
    rows = [_late_row(record, asked.contents) for record in store.read_late(asked.job)]
    if asked.json:
        for row in rows:
            print(json.dumps(row))
        return
    if not rows:
        print(f"no late records in job {asked.job}")
        return
    print_table([name.replace("_", " ") for name in rows[0]], (row.values() for row in rows))
    print()
    print_table(("transform", "late records"), store.read_late_counts(asked.job).items())


def show_dead(store: Store, asked: argparse.Namespace) -> None:
    """Print the records that made user code fail, and why.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and how to print.
    """
    find_job(store, asked.job)
    letters = store.read_dead_letters(asked.job)
    if asked.json:
        for letter in letters:
            print(json.dumps(_dead_row(letter, asked.contents)))
        return
    if not letters:
        print(f"no dead letters in job {asked.job}")
        return
    rows = [_dead_row(letter, asked.contents) for letter in letters]
    for row in rows:
        del row["traceback"]
        row["error"] = row["error"].partition("\n")[0]
    print_table(rows[0], (row.values() for row in rows))


def purge(store: Store, asked: argparse.Namespace) -> None:
    """Delete late records and dead letters of a job that are old enough.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and the ages, in seconds.
    """
    find_job(store, asked.job)
    ages: Mapping[KeptKind, float | None] = {"late": asked.late, "dead": asked.dead}
    if all(age is None for age in ages.values()):
        raise DataflowError(
            "there is nothing to purge: no kind of records was given",
            hint="give --late AGE, --dead AGE, or both; --late 30d keeps those of the last thirty days",
        )
    for kind, older_than_s in ages.items():
        if older_than_s is not None:
            count = store.purge(asked.job, kind, older_than_s=older_than_s)
            print(f"{count} {_NAMES[kind]} of job {asked.job} are deleted")


def replay(store: Store, asked: argparse.Namespace) -> None:
    """Hand late records or dead letters to a function of the user's, and delete them when it has returned.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``, the function and what it is to get.
    """
    find_job(store, asked.job)
    kind: KeptKind = "dead" if asked.dead else "late"
    function = _function(asked.function)
    up_to, rows = _begin(store, asked.job, kind)
    if up_to is None:
        print(f"no {_NAMES[kind]} in job {asked.job}")
        return
    name = f"{asked.job} replay of {_NAMES[kind]} up to {up_to}"
    print(f"{len(rows)} {_NAMES[kind]} go to {asked.function}, as {name!r}", flush=True)
    try:
        function(rows, name)
    except DataflowError:
        raise
    except Exception as error:
        raise DataflowError(
            f"{asked.function} raised {type(error).__name__}: {error_text(error)}",
            detail="".join(traceback.format_exception(error)).strip(),
            hint="nothing was deleted; the same command hands it the same records again",
        ) from error
    if not asked.keep:
        store.purge(asked.job, kind, up_to=up_to)
    store.end_replay(asked.job, kind)
    print("they are replayed" + ("" if asked.keep else ", and deleted"))


def _begin(
    store: Store, job: str, kind: KeptKind
) -> tuple[int | None, Sequence[Mapping[str, Any]]]:
    """The last number of a replay, and its rows as in `PipelineResult`; the same again for one that was cut off."""
    while (up_to := store.begin_replay(job, kind)) is not None:
        stored = store.read_late(job) if kind == "late" else store.read_dead_letters(job)
        shown = stored_late_mapping if kind == "late" else stored_dead_mapping
        rows = [shown(row) for row in stored if row["number"] <= up_to]
        if rows:
            return up_to, rows
        # A replay was cut off after it had deleted its rows, so only its mark is left.
        store.end_replay(job, kind)
    return None, ()


def _function(named: str) -> Callable[[Sequence[Mapping[str, Any]], str], object]:
    found = find_named(named, "function")
    if not callable(found):
        raise DataflowError(
            f"{named!r} is no function but {found!r}", hint="it is called with the rows and a name"
        )
    function: Callable[[Sequence[Mapping[str, Any]], str], object] = found
    return function


def _age_s(text: str) -> float:
    """An age as people write it, in seconds."""
    if text == "all":
        return 0.0
    try:
        age_us = to_duration_us(text)
    except TimeError as error:
        # The hint is about Python: there are no timedeltas on a command line.
        raise argparse.ArgumentTypeError(f"{error.fact}: {_AGES}") from None
    if age_us < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative: {_AGES}")
    return age_us / 1_000_000


def _dead_row(letter: Mapping[str, Any], with_contents: bool) -> dict[str, Any]:  # noqa: FBT001 - the flag of the command
    row = {
        "stage": letter["stage"],
        "time": format_timestamp(letter["timestamp_us"]),
        "tries": letter["tries"],
        "error": letter["error"],
        "traceback": letter["traceback"],
    }
    return {**row, "contents": letter["contents"]} if with_contents else row


def _late_row(record: Mapping[str, Any], with_contents: bool) -> dict[str, Any]:  # noqa: FBT001 - likewise
    row = {
        "transform": record["transform"],
        "key": record["key"],
        "window_start": format_timestamp(record["window_start_us"]),
        "window_end": format_timestamp(record["window_end_us"]),
        "watermark": format_timestamp(record["watermark_us"]),
        "count": record["count"],
    }
    return {**row, "contents": record["contents"]} if with_contents else row


def add_commands(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the commands to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    late = add(
        "late",
        "show the records that a job dropped because they came after their window had expired",
        "How many there were stays known when they are purged.",
        "dataflow late scores --contents --json | head",
    )
    late.set_defaults(do=show_late)
    dead = add(
        "dead",
        "show the dead letters of a job: records that user code or a reader failed on, however often it was tried",
        "--json shows their tracebacks too.",
        "dataflow dead scores --json | jq -r .traceback",
    )
    dead.set_defaults(do=show_dead)
    purging = add(
        "purge",
        "delete the late records or dead letters of a job that are older than an age",
        "The job may be running. The streaming runner does this by itself with keep_late= and keep_dead=.",
        "dataflow purge scores --late 30d --dead all",
    )
    purging.add_argument(
        "--late",
        metavar="AGE",
        type=_age_s,
        help="delete late records older than this: 12h, '30 days', P2W; or all",
    )
    purging.add_argument(
        "--dead", metavar="AGE", type=_age_s, help="delete dead letters older than this, likewise"
    )
    purging.set_defaults(do=purge)
    replaying = add(
        "replay",
        "hand late records to a function of yours, and delete them when it has returned",
        "FUNCTION(rows, name) is called in this process, with what late_records() or dead_letters() of a result "
        "return. If the command is interrupted, the same command calls it with the same rows and name again: a "
        "batch job of that name writes its results once.",
        "dataflow replay scores corrections:add_late",
    )
    replaying.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="function to call; its module is found from this directory",
    )
    replaying.add_argument(
        "--dead", action="store_true", help="hand over dead letters instead of late records"
    )
    replaying.add_argument(
        "--keep", action="store_true", help="do not delete the records afterwards"
    )
    replaying.set_defaults(do=replay)
    for parser in (late, dead):
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")
        parser.add_argument(
            "--contents", action="store_true", help="show the records themselves too, shortened"
        )
