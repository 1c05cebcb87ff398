"""The command ``dataflow bundle``: what is known of a job in one file, to be sent to somebody who is to find a fault.

**Invariant:** no key, no record and no password is in it.  What may have one is left out, and not searched for one:
messages of errors, of which the classes and the places in the code stay; texts of statements; positions and splits of
sources, values of signals and options of connectors.  Labels of transforms, names of tables, hosts and workers stay.
"""

import argparse
import json
import platform
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import attrs

import windowing
from dataflow import distribution
from dataflow.errors import DataflowError
from runners.cli.text import find_job, print_line
from runners.cli.top import rows_of, top_json
from runners.core.ground.clock import Clock
from runners.errors import StoredFormatError
from runners.millwheel.store.port import JobRow, Store
from runners.millwheel.versions.state_shape import StateShape
from runners.observability.evidence.snapshot import JobSnapshot, SplitEvidence
from runners.observability.why.described_triggers import described_trigger
from runners.observability.why.evidence import Evidence
from runners.observability.why.explain import Question, explain
from runners.observability.why.from_store import evidence_from_store
from runners.system_clock import SystemClock

_EVENTS_MAX = 1_000
_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Warning)\b")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([\w.<>]+)')
_OWN = "of your own"


def without_values(reason: str) -> str:
    """The classes of errors that a text names, and the places in the code; its messages may quote a record.

    Args:
        reason: such as what a worker has ended by.
    """
    names = dict.fromkeys(_ERROR.findall(reason))
    places = [
        f"{PurePath(file).name}:{line} in {function}"
        for file, line, function in _FRAME.findall(reason)
    ]
    return "; ".join([*names, *places]) or "(not shown)"


def redacted(evidence: Evidence) -> Evidence:
    """The evidence without what may be of a record.

    Args:
        evidence: of a job, of no key.
    """
    return attrs.evolve(
        evidence,
        troubles=[
            attrs.evolve(each, headline=without_values(each.headline)) for each in evidence.troubles
        ],
        sinks=[
            each if each.reason is None else attrs.evolve(each, reason=without_values(each.reason))
            for each in evidence.sinks
        ],
        blocked=[
            attrs.evolve(each, query=" ".join(each.query.split()[:1])) for each in evidence.blocked
        ],
        changes=[
            attrs.evolve(each, reason=without_values(each.reason)) for each in evidence.changes
        ],
        ranges={
            name: attrs.evolve(
                each,
                hot_keys=[attrs.evolve(key, key=None, key_hash=0) for key in each.hot_keys],
                hashes=(),
                poll=_without_outage(each.poll),
            )
            for name, each in evidence.ranges.items()
        },
    )


def _without_outage(poll: SplitEvidence | None) -> SplitEvidence | None:
    """A poll whose outage does not say what was to be read."""
    if poll is None or poll.outage is None:
        return poll
    error = without_values(poll.outage_error or "")
    return attrs.evolve(poll, outage="its input", outage_error=error)


def bundle_of(store: Store, job: str, clock: Clock) -> Mapping[str, str]:
    """The files of a bundle, by name.

    Args:
        store: that has the job.
        job: its name.
        clock: that of this machine.

    Raises:
        StoreError: there is no such job, or the store cannot be read.
    """
    evidence = redacted(evidence_from_store(store, job, clock))
    explanation = explain(evidence, Question())
    row = store.read_job(job)
    assert row is not None, "evidence is of a job that is there"
    found: dict[str, object] = {
        "why.json": explanation.as_json(),
        "top.json": top_json(evidence, rows_of(evidence)),
        "snapshot.json": _snapshot(store, job, evidence),
        "job.json": _job(row),
        "events.json": list(_events(store, job)),
        "troubles.json": list(_troubles(store, job)),
        "ranges.json": list(_ranges(store, row)),
        "channels.json": [attrs.asdict(each) for each in evidence.pending],
        "sinks.json": list(_sinks(store, job)),
        "versions.json": {
            "package": f"{distribution.NAME} {distribution.VERSION}",
            "python": platform.python_version(),
            "system": platform.platform(),
            "store": store.version(),
        },
    }
    files = {name: json.dumps(value, indent=1) + "\n" for name, value in found.items()}
    return {"why.txt": "".join(f"{line}\n" for line in explanation.lines()), **files}


def _snapshot(store: Store, job: str, evidence: Evidence) -> object:
    stored = store.read_snapshot(job)
    if stored is None:
        return None
    try:
        snapshot = JobSnapshot.read(stored.document)
    except StoredFormatError as error:
        return {"unreadable": error.fact}
    clean = redacted(attrs.evolve(evidence, ranges=snapshot.ranges)).ranges
    return {
        "age_s": stored.age_s,
        "document": json.loads(attrs.evolve(snapshot, ranges=clean).write()),
    }


def _job(row: JobRow) -> Mapping[str, object]:
    """What the job is: what the store has of its options, and that of them which can hold no value."""
    shapes = {
        name: None if text is None else StateShape.decoded(text)
        for name, text in row.computations.items()
    }
    return {
        "job": row.job,
        "mode": row.mode,
        "version": row.version,
        "stored_format": row.stored_format,
        "is_finished": row.is_finished,
        "is_drained": row.is_drained,
        "signals": len(row.signals),
        "stages": {
            name: None
            if shape is None
            else {"senders": [*shape.senders], **dict(_described(shape.parts))}
            for name, shape in shapes.items()
        },
    }


def _described(parts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What of the parts of a stage is of this package, and described by numbers."""
    window_fn, trigger = parts.get("window_fn"), parts.get("trigger")
    if window_fn is not None:
        is_known = hasattr(windowing, window_fn.partition("(")[0]) and "'" not in window_fn
        yield "window_fn", window_fn if is_known else _OWN
    if trigger is not None:
        is_known = described_trigger(trigger) is not None and "'" not in trigger
        yield "trigger", trigger if is_known else _OWN
    if parts.get("allowed_lateness", "").isdecimal():
        yield "allowed_lateness", parts["allowed_lateness"]


def _events(store: Store, job: str) -> Iterator[Mapping[str, object]]:
    for stored in store.read_events(job, _EVENTS_MAX):
        event = stored.event
        yield {
            "at": stored.at.isoformat(),
            "kind": event.kind.value,
            "actor": event.actor.value,
            "who": event.who,
            "subject": event.subject,
            "errors": without_values(event.reason),
        }


def _troubles(store: Store, job: str) -> Iterator[Mapping[str, object]]:
    for stored in store.read_troubles(job):
        yield {
            "first_at": stored.first_at.isoformat(),
            "last_at": stored.last_at.isoformat(),
            "kind": stored.trouble.kind.value,
            "place": stored.trouble.place,
            "count": stored.trouble.count,
            "errors": without_values(stored.trouble.reason),
        }


def _ranges(store: Store, row: JobRow) -> Iterator[Mapping[str, object]]:
    polls = store.read_polls(row.job)
    for range_id, each in sorted(row.ranges.items()):
        poll = polls.get(range_id)
        yield {
            "range": str(range_id),
            "first_hash": None if each.keys is None else each.keys.low,
            "end_hash": None if each.keys is None else each.keys.high,
            "token": each.token,
            "bundle": each.bundle,
            "owner": each.owner,
            "watermark_us": each.watermark_us,
            "percentile_us": each.percentile_us,
            "handover_with": None if each.handover_with is None else str(each.handover_with),
            "is_finished": each.is_finished,
            "is_removed": each.is_removed,
            "poll": None if poll is None else attrs.asdict(poll),
        }


def _sinks(store: Store, job: str) -> Iterator[Mapping[str, object]]:
    for lane in store.read_lanes(job):
        fields: dict[str, Any] = attrs.asdict(lane)
        if lane.failure is not None:
            fields["failure"]["reason"] = without_values(lane.failure.reason)
        yield fields


def write_bundle(store: Store, asked: argparse.Namespace) -> None:
    """Write a bundle to a file that is not there yet.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and ``out``.

    Raises:
        DataflowError: there is no such job, or the file is there, or cannot be written.
    """
    find_job(store, asked.job)
    files = bundle_of(store, asked.job, SystemClock())
    try:
        with zipfile.ZipFile(asked.out, "x", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    except OSError as error:
        raise DataflowError(
            f"the bundle of job {asked.job} cannot be written to {asked.out}",
            detail=error.strerror or str(error),
            hint="name a file that is not there yet, in a folder that is",
        ) from error
    print_line(f"{asked.out}: {', '.join(files)}")


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    bundle = add(
        "bundle",
        "write what is known of a job to one file, for whoever is to find a fault",
        "It has why, the driver's snapshot, events, troubles, ranges, channels, sinks and versions. No key, no record "
        "and no password is in it: of errors it has classes and places in the code, and not what they say. Names of "
        "transforms, tables, hosts and workers are in it.",
        "dataflow bundle scores -o scores.zip",
    )
    bundle.add_argument("-o", "--out", metavar="FILE", required=True, help="the zip file to write")
    bundle.set_defaults(do=write_bundle)
