"""The command ``dataflow why``: why a window has not fired, in a sentence, and what holds event time back.

It reads one moment of the store, and changes nothing.  Nothing is unpickled unless a pipeline is named, whose code is
then imported, as `dataflow run` does.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

from dataflow.pipeline import Pipeline
from runners.cli.named import find_named
from runners.cli.text import find_job, print_line
from runners.core.stages.plan import ExecutionPlan, plan
from runners.millwheel.store.port import Store
from runners.observability.why.asking import question
from runners.observability.why.explain import explain
from runners.observability.why.from_store import evidence_from_store
from runners.system_clock import SystemClock


def show_why(store: Store, asked: argparse.Namespace) -> None:
    """Print why something has not fired.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job``, ``key``, ``window``, ``transform``, ``pipeline`` and ``json``.
    """
    find_job(store, asked.job)
    wanted = question(asked.key, asked.window, asked.transform)
    execution = None if asked.pipeline is None else _plan_of(asked.pipeline)
    evidence = evidence_from_store(store, asked.job, SystemClock(), key=wanted.key, plan=execution)
    found = explain(evidence, wanted)
    if asked.json:
        print(json.dumps(found.as_json()))
        return
    for line in found.lines():
        print_line(line)


def _plan_of(named: str) -> ExecutionPlan:
    found: Any = find_named(named, "pipeline")
    if isinstance(found, Pipeline):
        return plan(found.graph())
    pipeline = Pipeline()
    found(pipeline)
    return plan(pipeline.graph())


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    why = add(
        "why",
        "show why nothing has come out, or not of a key: the reason in a sentence, and what holds event time back",
        "It looks at what the store has, so it answers when the driver does not. Keys are shown only if one is given. "
        "Begin with docs/how-to/find-out-why.md.",
        "dataflow why scores --key red --window 2024-03-31T12:04:00Z",
    )
    why.add_argument("--key", metavar="KEY", help="a key: a text, or what Python writes for it")
    why.add_argument(
        "--window",
        metavar="WINDOW",
        help="an instant that is in it, or its two ends with a slash between; by default the first with records",
    )
    why.add_argument(
        "--transform",
        metavar="LABEL",
        help="a transform, or a table; by default the last that waits",
    )
    why.add_argument(
        "--pipeline",
        metavar="MODULE:PIPELINE",
        help="the pipeline of the job: then the state of its triggers and values of its classes can be read",
    )
    why.add_argument("--json", action="store_true", help="print one JSON object")
    why.set_defaults(do=show_why)
