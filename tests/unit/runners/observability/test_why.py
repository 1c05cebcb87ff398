"""What `explain` makes of a snapshot, whatever the order of its stages, and however old its reports are."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.observability.evidence.snapshot import (
    RangeEvidence,
    RangeState,
    SplitEvidence,
    StageEvidence,
    WorkerEvidence,
    senders_first,
)
from runners.observability.why.chain import chain_of
from runners.observability.why.evidence import Evidence, KeySeen, WindowSeen
from runners.observability.why.explain import Question, explain
from runners.observability.why.explanation import CauseKind
from windowing.window import Window

S = 1_000_000
NOW_US = 1_711_886_640 * S
#: A job that catches up: an hour behind.
READ_US = NOW_US - 3600 * S


def stage_of(senders: Sequence[str], **fields: Any) -> StageEvidence:
    fields = {"output_us": READ_US, **fields}
    return StageEvidence(
        is_source=not senders,
        senders=senders,
        **{"input_us": READ_US if senders else None, **fields},
    )


@st.composite
def graphs(draw: st.DrawFn) -> Mapping[str, StageEvidence]:
    """Stages, each with senders among those before it, under names that say nothing, in any order."""
    names = draw(
        st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=6, unique=True)
    )
    found = {}
    for at, name in enumerate(names):
        senders = draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else []
        found[name] = stage_of(senders)
    return {name: found[name] for name in draw(st.permutations(names))}


@given(stages=graphs(), data=st.data())
def test_the_order_of_stages_makes_no_difference(
    stages: Mapping[str, StageEvidence], data: Any
) -> None:
    """A jsonb has its own order of keys; the answer is the same, of a key that every stage has too."""
    shuffled = {name: stages[name] for name in data.draw(st.permutations([*stages]))}
    places = {name: at for at, name in enumerate(senders_first(shuffled))}
    assert all(places[sender] < places[name] for name in places for sender in stages[name].senders)

    seen = WindowSeen(window=Window(0, 60 * S), pending=1)
    answers = [
        explain(
            Evidence(
                job="j",
                now_us=NOW_US,
                stages=each,
                key=KeySeen(
                    key="red",
                    windows={name: [seen] for name in each if not each[name].is_source},
                )
                if has_key
                else None,
            ),
            Question(key="red" if has_key else None),
        )
        for has_key in (False, True)
        for each in (stages, shuffled)
    ]
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    fed = {sender for each in stages.values() for sender in each.senders}
    assert answers[2].asked.stage not in fed or stages[answers[2].asked.stage or ""].is_source


def catching_up(
    behind_us: int, before_us: int | None, *, worker: WorkerEvidence | None = None
) -> Evidence:
    """A source that reads, a sum that is `behind_us` behind its input, and a table of totals."""
    common: dict[str, Any] = {"slot": 0, "state": RangeState.OWNED, "worker": "w", "index": 0}
    at_us = READ_US - behind_us
    poll = SplitEvidence(polled_us=NOW_US, record_us=NOW_US, backlog_records=9_000)
    return Evidence(
        job="j",
        now_us=NOW_US,
        as_of_us=NOW_US,
        stages={
            "read": stage_of(()),
            "revenue": stage_of(("read",), output_us=at_us, input_before_us=before_us),
            "totals": stage_of(("revenue",), input_us=at_us, output_us=at_us),
        },
        ranges={
            "read[0]": RangeEvidence(
                stage="read", output_us=READ_US, processed_us=READ_US, poll=poll, **common
            ),
            "revenue[0]": RangeEvidence(
                stage="revenue",
                output_us=at_us,
                processed_us=at_us,
                reported_us=NOW_US - S,
                **common,
            ),
            "totals[0]": RangeEvidence(
                stage="totals", output_us=at_us, processed_us=at_us, **common
            ),
        },
        workers=[worker or WorkerEvidence(slot=0, worker="w", reported_us=NOW_US)],
    )


@pytest.mark.parametrize("behind_us", [0, 300_000, 40 * S])
def test_a_lag_of_a_moment_is_no_cause(behind_us: int) -> None:
    """What it is behind is less than what its input has gone since the snapshot before, at whatever speed."""
    chain = chain_of(catching_up(behind_us, READ_US - max(behind_us, S)), "totals")

    assert [each.name for each in chain] == ["totals", "revenue", "read[0]"]
    assert chain[-1].cause is CauseKind.READING
    assert [each.value_us for each in chain] == sorted(each.value_us for each in chain)


@pytest.mark.parametrize("before_us", [None, READ_US, READ_US - 200_000])
def test_a_lag_that_stays_is_the_cause(before_us: int | None) -> None:
    """It has not come to where its input was a snapshot ago; or nobody knows where that was."""
    chain = chain_of(catching_up(300_000, before_us), "totals")

    assert (chain[-1].name, chain[-1].cause) == ("revenue[0]", CauseKind.BEHIND_ITS_INPUT)


def test_a_silent_worker_is_the_cause_from_the_first_moment() -> None:
    silent = WorkerEvidence(slot=0, worker="w", reported_us=NOW_US - 10 * S)
    chain = chain_of(catching_up(300_000, READ_US - S, worker=silent), "totals")

    assert chain[-1].cause is CauseKind.WORKER_SILENT
    assert chain[-1].value_us == READ_US - 300_000
