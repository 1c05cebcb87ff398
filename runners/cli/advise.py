"""The command ``dataflow advise``: what would spread the load of a job better, what that would do, and what it costs.

It changes nothing: it prints the commands that would.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from dataflow.errors import DataflowError
from runners.cli.text import find_job, print_line
from runners.errors import StoreError
from runners.millwheel.store.port import JobRow, Store
from runners.observability.advice.advise import Advice, AdviceKind, JobAdvice, advise
from runners.observability.evidence.snapshot import JobSnapshot, Phase
from runners.observability.why.states import OLD_US
from runners.observability.why.words import length


def show_advice(store: Store, asked: argparse.Namespace) -> None:
    """Print what is advised for a job.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and ``json``.

    Raises:
        DataflowError: there is no such job, or nobody knows its load now.
    """
    find_job(store, asked.job)
    found = advice_of(store, asked.job)
    if asked.json:
        print(json.dumps(attrs.asdict(found)))
        return
    for line in lines_of(found):
        print_line(line)


def advice_of(store: Store, job: str) -> JobAdvice:
    """What is advised for a job.

    Args:
        store: that has the job.
        job: its name.

    Raises:
        DataflowError: nobody knows its load now.
    """
    stored, row = store.read_snapshot(job), store.read_job(job)
    snapshot = None if stored is None else JobSnapshot.read(stored.document)
    if row is None or snapshot is None or stored is None:
        raise DataflowError(
            f"nobody knows the load of job {job}: its driver has left no snapshot",
            hint="of a stream there is one as soon as its driver has begun, unless it runs with evidence=False",
        )
    if stored.age_s * 1e6 > OLD_US or snapshot.driver.phase is not Phase.RUNNING:
        raise DataflowError(
            f"nobody knows the load of job {job} now",
            detail=f"its driver has written last {length(round(stored.age_s * 1e6))} ago, and was "
            f"{snapshot.driver.phase.value} then",
            hint=f"dataflow why {job} says what is the matter",
        )
    return advise(snapshot, _next_indexes(row), _state_bytes(store, job))


def _next_indexes(row: JobRow) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for each in row.ranges:
        found[each.computation] = max(found.get(each.computation, 0), each.index + 1)
    return found


def _state_bytes(store: Store, job: str) -> Mapping[str, int]:
    try:
        with store.at_one_moment():
            return {str(each): nbytes for each, nbytes in store.state_sizes(job).items()}
    except StoreError:
        # A store that is too large to be looked through in a moment.
        return {}


def lines_of(found: JobAdvice) -> Iterator[str]:
    """What is advised, line by line.

    Args:
        found: for a job.
    """
    yield f"{found.job}: {len(found.loads)} workers have {_loads(found.loads)} records/s"
    if found.reason is not None:
        yield f"nothing is advised: {found.reason}"
    for number, step in enumerate(found.steps, 1):
        yield ""
        yield f"{number}. {step.text}"
        if step.command is not None:
            yield f"   {step.command}"
        yield f"   {_effect(step)}"
        yield f"   {_cost(step)}"
    if found.steps and found.balances:
        yield ""
        yield "its driver does this by itself (balance=True) when the load has been so for some seconds"
    elif any(each.command for each in found.steps):
        yield ""
        yield "with balance=True its driver does this by itself"


def _effect(step: Advice) -> str:
    if step.command is None:
        before, after = (
            ", ".join(f"{each:.0%}" for each in some) for some in (step.before, step.after)
        )
        return f"at work: {before} now, about {after} then"
    return f"records/s of the workers: {_loads(step.before)} before, {_loads(step.after)} after"


def _loads(loads: Sequence[float]) -> str:
    return ", ".join(f"{each:,.0f}" for each in loads)


def _cost(step: Advice) -> str:
    if step.command is None:
        return "cost: the job is paused and run again"
    cost = step.cost
    if step.kind is AdviceKind.SPLIT:
        return "cost: nothing moves yet; its worker takes the range over again"
    state = (
        "state of an unknown size"
        if cost.state_bytes is None
        else f"{cost.state_bytes:,} bytes of state"
    )
    pause = (
        "not known, as no range has moved since the driver began"
        if cost.pause_us is None
        else f"at most {length(cost.pause_us)} in half of {cost.moves:,} moves"
    )
    return f"cost: nobody has the range for a while ({pause}); {state} to be read"


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    advice = add(
        "advise",
        "show what would spread the load of a job better, what that would do, and what it would cost",
        "Ranges to move, split or merge, and workers to add or leave out, as the balancer of a job would have it if "
        "the load stays as it was in the last second. It changes nothing, and prints the commands that do.",
        "dataflow advise scores",
    )
    advice.add_argument("--json", action="store_true", help="print one JSON object")
    advice.set_defaults(do=show_advice)
