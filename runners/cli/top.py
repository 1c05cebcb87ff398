"""The command ``dataflow top``: how far each stage of a job is, as a table, and as of when.

It reads one moment of the store, so it answers when the driver does not; what only the driver knows is a dash then.
"""

import argparse
import json
from collections.abc import Callable

import attrs

from dataflow.errors import DataflowError
from dataflow.times import in_words
from runners.cli.text import find_job, print_line, print_table
from runners.millwheel.store.port import Store
from runners.observability.evidence.snapshot import latest_output_us
from runners.observability.why.evidence import Evidence
from runners.observability.why.from_store import evidence_from_store
from runners.observability.why.states import (
    State,
    count_of,
    is_old,
    lags,
    stage_state,
)
from runners.observability.why.words import instant, length
from runners.system_clock import SystemClock
from windowing.timestamps import US_PER_SECOND


@attrs.frozen(kw_only=True)
class TopRow:
    """A stage.

    Attributes:
        event_us: how far it is, in microseconds since 1970.
        inherited_lag_us: how far its input is behind the clock; None: not known.
        own_lag_us: how far it is behind its input, a source behind the clock; None: not known.
        records_per_s: None: not known.
        pending: how many productions of it are not acknowledged.
        late: how many records were too late for it.
        dead: how many were set aside.
    """

    stage: str
    state: State
    event_us: int
    inherited_lag_us: int | None
    own_lag_us: int | None
    records_per_s: float | None
    pending: int
    late: int
    dead: int


def rows_of(evidence: Evidence) -> list[TopRow]:
    """The stages of a job, senders before receivers.

    Args:
        evidence: of the job.
    """
    rows = []
    for name, found in evidence.stages.items():
        stage = attrs.evolve(found, output_us=latest_output_us(evidence.stages, name))
        # What nobody has written for long says nothing of the lag now.
        own_us, inherited_us = (None, None) if _is_past(evidence) else lags(stage, evidence.now_us)
        rows.append(
            TopRow(
                stage=name,
                state=stage_state(evidence, name, (own_us, inherited_us)),
                event_us=stage.output_us,
                inherited_lag_us=inherited_us,
                own_lag_us=own_us,
                records_per_s=None if _is_past(evidence) else stage.records_per_s,
                pending=sum(
                    each.count for each in evidence.pending if each.sender.startswith(f"{name}[")
                ),
                late=count_of(evidence.late, name),
                dead=count_of(evidence.dead, name),
            )
        )
    return rows


def show_top(store: Store, asked: argparse.Namespace) -> None:
    """Print a line for each stage of a job.

    Args:
        store: that has the job.
        asked: the parsed command line, with ``job`` and ``json``.

    Raises:
        DataflowError: there is no such job, or it has left nothing of its stages.
    """
    find_job(store, asked.job)
    evidence = evidence_from_store(store, asked.job, SystemClock())
    rows = rows_of(evidence)
    if not rows:
        raise DataflowError(
            f"job {asked.job} has left no evidence of its stages",
            detail=f"it is {evidence.state.value}, and its mode is {evidence.mode}",
            hint="of a stream there is some as soon as its driver has begun",
        )
    age_us = None if evidence.as_of_us is None else evidence.now_us - evidence.as_of_us
    if asked.json:
        print(json.dumps(top_json(evidence, rows)))
        return
    as_of = (
        "as of the last commits: its driver has written nothing"
        if age_us is None
        else f"as of {in_words(round(age_us, -6 if age_us >= US_PER_SECOND else -5))} ago"
    )
    print_line(f"{asked.job} is {evidence.state.value}, {as_of}")
    print_table(
        (
            "stage",
            "state",
            "event time",
            "lag of its input",
            "lag of its own",
            "records/s",
            "on their way",
            "late",
            "dead",
        ),
        (
            (
                row.stage,
                f"{row.state.mark} {row.state.word}",
                instant(row.event_us),
                _length(row.inherited_lag_us),
                _length(row.own_lag_us),
                "-" if row.records_per_s is None else f"{row.records_per_s:,.0f}",
                f"{row.pending:,}",
                f"{row.late:,}",
                f"{row.dead:,}",
            )
            for row in rows
        ),
    )
    for objective in evidence.objectives:
        print_line(
            f"{objective.transform}: {'fresh' if objective.is_met else 'not fresh'}, "
            f"{_length(objective.behind_us)} behind the clock, and may be {length(objective.within_us)}"
        )
    for each in evidence.unknown:
        print_line(f"unknown: {each}")


def top_json(evidence: Evidence, rows: list[TopRow]) -> dict[str, object]:
    """What the command prints as JSON.

    Args:
        evidence: of a job.
        rows: its stages.
    """
    return {
        "job": evidence.job,
        "state": evidence.state.value,
        "as_of_us": evidence.as_of_us,
        "age_us": None if evidence.as_of_us is None else evidence.now_us - evidence.as_of_us,
        "stages": [{**attrs.asdict(row), "state": row.state.word} for row in rows],
        "objectives": [attrs.asdict(each) for each in evidence.objectives],
        "unknown": [*evidence.unknown],
    }


def _is_past(evidence: Evidence) -> bool:
    return is_old(evidence) or evidence.as_of_us is None


def _length(length_us: int | None) -> str:
    return "-" if length_us is None else length(length_us)


def add_command(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add the command to a parser; ``add`` takes a name, what it does, more of that, and an example."""
    top = add(
        "top",
        "show how far each stage of a job is, and how far behind",
        "The lag of its input is inherited from the stages that send to it; the lag of its own is made there. "
        "A dash is what is not known, because the driver does not write. Productions on their way are those that are "
        "not acknowledged. watch -n1 dataflow top JOB shows it anew each second.",
        "dataflow top scores",
    )
    top.add_argument("--json", action="store_true", help="print one JSON object")
    top.set_defaults(do=show_top)
