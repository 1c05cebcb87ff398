"""explain: the answer to "why has this not fired?", from evidence alone: no clock, no store, no chance.

Causes are looked for in one order, and the first that holds is the sentence: whether anybody runs the job; whether a
record of the key has come, or was dropped; what its window has emitted, and what its trigger waits for; and then, where
that is event time, who holds it.
"""

from collections.abc import Sequence

import attrs

from runners.errors import UnknownTransformError
from runners.observability.evidence.snapshot import Phase
from runners.observability.why.chain import chain_of
from runners.observability.why.evidence import Evidence, JobState, KeySeen, WindowSeen
from runners.observability.why.explanation import Asked, CauseKind, Fact, Holder, WhyExplanation
from runners.observability.why.facts import event_time_us, facts_of, heat
from runners.observability.why.leaves import of_range, of_worker
from runners.observability.why.words import (
    distance,
    instant,
    length,
    number,
    shown_leaf,
    window_text,
)
from triggers.awaited import Awaited, AwaitedKind
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import Window

#: What the driver writes about once a second; older evidence is of a driver that does not get on.
SILENT_DRIVER_US = 15_000_000
#: Leaves at which event time goes on by itself.
HEALTHY = frozenset({CauseKind.READING, CauseKind.ENDED})
#: A round of a driver takes milliseconds; from here on what it has been sent waits for it.
SLOW_ROUND_MS = 2_000
#: Timers fire within a round of their worker; one that is due for longer than this does not.
OVERDUE_US = 5_000_000
#: Leaves that would go on with the next round of the driver.
_WAIT_FOR_DRIVER = HEALTHY | {CauseKind.NOT_REPORTED, CauseKind.BEHIND_ITS_INPUT}

_HINTS = {
    CauseKind.NOT_RUNNING: "run it again: it goes on where it was",
    CauseKind.ALL_IDLE: "event time goes on with the next record; if it should go on without one, take a source "
    "that knows the time (for Kafka idle_follows_clock=True, else event time by arrival), or fire by the clock too, "
    "with df.AfterAny(df.AfterWatermark(), df.AfterProcessingTime(...))",
    CauseKind.WAITS_FOR_RECORD: "event time goes on with the next record of this split; a reader that knows that there "
    "is nothing reports SplitStatus.IDLE, and holds nothing back then",
    CauseKind.NEVER_READ: "is the input empty? a split without a record holds event time at its beginning until its "
    "reader reports SplitStatus.IDLE or the end",
    CauseKind.INPUT_AWAY: "it is tried again by itself, and nothing is lost; look at what is to be read, from "
    "the machines of the workers; dataflow troubles JOB has what failed before",
    CauseKind.NOT_POLLED: "a split that is not asked may have anything; look at the backlog of its receivers, and at "
    "skew_limit",
    CauseKind.RANGE_WITHOUT_OWNER: "a worker needs a free task slot of Spark; dataflow troubles JOB has why "
    "workers ended",
    CauseKind.WORKER_SILENT: "when its lease ends its ranges go to another worker, if there is one",
    CauseKind.WORKER_BUSY: "step_timeout ends code that takes too long; tries_per_record sets such a record aside",
    CauseKind.REPORTS_REFUSED: "a worker is asked to release what is not its own, and does so within seconds; if "
    "it does not, end its executor, and its ranges go to another one",
    CauseKind.DRIVER_BUSY: "give the driver a core of its own; fewer splits, or fewer ranges, are fewer reports",
    CauseKind.OVERDUE: "its worker has more to do than it can: dataflow advise JOB says what would help",
    CauseKind.COMMIT_WAITS: "look at the session that it waits for in pg_stat_activity",
    CauseKind.KEY_LATE: "dataflow late JOB --contents shows them; allow more lateness, or more disorder at the source",
    CauseKind.NEVER: "give it a trigger that fires, or let its windows end",
    CauseKind.MAY_GROW: "dataflow drain JOB ends it",
    CauseKind.PAUSED: "run it again when it has paused: it goes on where it was",
}


@attrs.frozen(kw_only=True)
class Question:
    """What somebody wants to know.

    Attributes:
        key: as text; None: of no key.
        window: its bounds, or an instant that is in it (both the same); None: any.
        transform: a transform, or a table that is written; None: the last stage that has something to wait for.
    """

    key: str | None = None
    window: Window | None = None
    transform: str | None = None


def explain(evidence: Evidence, question: Question) -> WhyExplanation:
    """The answer.

    Args:
        evidence: of the job.
        question: what is asked.

    Raises:
        UnknownTransformError: there is no such transform.
    """
    stage = _stage_of(evidence, question)
    window = None if question.window is None else _meant(evidence, question.window, stage)
    asked = Asked(job=evidence.job, stage=stage, key=question.key, window=window)
    found = _first(evidence, asked)
    hints = [_HINTS[found.cause]] if found.cause in _HINTS else []
    return attrs.evolve(
        found,
        hints=(*found.hints, *hints),
        facts=(*found.facts, *facts_of(evidence, stage)),
        as_of_us=evidence.as_of_us,
        unknown=(*evidence.unknown, *found.unknown),
    )


def _first(evidence: Evidence, asked: Asked) -> WhyExplanation:
    """The first cause that holds."""
    found = _of_job(evidence, asked)
    if found is not None and found.cause is CauseKind.FINISHED and evidence.key is not None:
        # What was dropped is in no result of a job that is finished either.
        return _of_dropped(evidence, evidence.key, asked) or found
    if found is None and evidence.key is not None and asked.stage is not None:
        found = _of_key(evidence, evidence.key, asked)
    if found is None:
        found = _of_time(evidence, asked)
    return found


def _stage_of(evidence: Evidence, question: Question) -> str | None:
    """The stage that the question is about."""
    stages, wanted = evidence.stages, question.transform
    if wanted is not None:
        labels = {**evidence.labels, **{name: name for name in stages}}
        matches = [labels[wanted]] if wanted in labels else []
        matches = matches or [at for label, at in labels.items() if label.endswith(f"/{wanted}")]
        if not matches:
            raise UnknownTransformError(
                f"there is no transform {wanted!r} in job {evidence.job}",
                detail=f"its stages are: {', '.join(map(repr, stages)) or 'not known'}; "
                f"transforms and tables in them: {', '.join(map(repr, evidence.labels)) or 'not known'}",
                hint="name one of them",
            )
        return matches[0]
    if not stages:
        return None
    key = evidence.key
    if key is not None:
        with_state = _with_windows(evidence, key)
        with_state += [each.stage for each in key.dropped]
        if with_state:
            return with_state[-1]
    senders = {sender for stage in stages.values() for sender in stage.senders}
    last = [name for name, each in stages.items() if name not in senders and not each.is_source]
    # Nobody is interested in a source, unless there is nothing else.
    last = last or [name for name in stages if not stages[name].is_source] or [*stages]
    return min(last, key=lambda name: event_time_us(evidence, name))


def _with_windows(evidence: Evidence, key: KeySeen) -> list[str]:
    """The stages that have windows of a key, senders before receivers."""
    return [name for name in evidence.stages if key.windows.get(name)]


def _meant(evidence: Evidence, window: Window, stage: str | None) -> Window:
    """The window that an instant is in, if the key has state of one; else as it was given."""
    if window.start_us != window.end_us or evidence.key is None:
        return window
    known = [each.window for each in evidence.key.windows.get(stage or "", ())]
    known += [each.window for each in evidence.key.dropped if each.stage == stage]
    return next((each for each in known if window.start_us in each), window)


def _answer(
    evidence: Evidence, asked: Asked, cause: CauseKind, sentence: str, chain: Sequence[Holder] = ()
) -> WhyExplanation:
    return WhyExplanation(
        asked=asked, sentence=sentence, cause=cause, now_us=evidence.now_us, chain=tuple(chain)
    )


def _of_job(evidence: Evidence, asked: Asked) -> WhyExplanation | None:
    """Q1: whether anybody runs the job."""
    job = evidence.job
    if evidence.state in (JobState.FINISHED, JobState.DRAINED):
        text = f"job {job} is {evidence.state.value}: every window has emitted what it had"
        if evidence.state is JobState.DRAINED:
            text += ", and what its sources had not read by then is in no result"
        return _answer(evidence, asked, CauseKind.FINISHED, text)
    if evidence.state is JobState.NOT_RUNNING:
        text = f"nobody runs job {job}{_last_sign(evidence)}"
        deaths = [each for each in evidence.troubles if each.kind == "death"]
        if deaths:
            age = length(evidence.now_us - deaths[0].at_us)
            text += f"\nthe last thing that went wrong, {age} ago, at {deaths[0].place}: {deaths[0].headline}"
        return _answer(evidence, asked, CauseKind.NOT_RUNNING, text)
    if evidence.mode == "batch":
        ended = sum(each.is_ended for each in evidence.ranges.values())
        text = (
            f"job {job} is a batch: every window fires once, when all of the input has been read; "
            f"{ended:,} of {number(len(evidence.ranges), 'range')} are done"
        )
        return _answer(evidence, asked, CauseKind.BATCH, text)
    age_us = 0 if evidence.as_of_us is None else evidence.now_us - evidence.as_of_us
    if age_us > SILENT_DRIVER_US:
        text = (
            f"the driver of job {job} has the job, and has written nothing for {length(age_us)}: "
            "it is stopped, or does not reach the store"
        )
        return _answer(evidence, asked, CauseKind.DRIVER_SILENT, text)
    phase = None if evidence.driver is None else evidence.driver.phase
    if phase in (Phase.PAUSING, Phase.RETRACTING):
        what = "is being paused" if phase is Phase.PAUSING else "goes over to another pipeline"
        text = f"job {job} {what}: its sources are not read, so event time stands still"
        return _answer(evidence, asked, CauseKind.PAUSED, text)
    return None


def _last_sign(evidence: Evidence) -> str:
    if evidence.as_of_us is None:
        return ""
    name = "its driver" if evidence.driver is None else f"its driver, {evidence.driver.name},"
    return f": {name} has written nothing for {length(evidence.now_us - evidence.as_of_us)}"


def _of_key(evidence: Evidence, key: KeySeen, asked: Asked) -> WhyExplanation | None:
    """Q2 to Q6: whether a record of the key has come, what became of it, and what its window waits for."""
    stage = asked.stage
    assert stage is not None
    windows = [
        each
        for each in key.windows.get(stage, ())
        if asked.window is None or each.window == asked.window
    ]
    if windows:
        return _of_window(evidence, asked, _most_wanted(windows))
    dropped = _of_dropped(evidence, key, asked)
    if dropped is not None:
        return dropped
    if stage in key.hidden:
        text = f"what {stage!r} has of {key.key} cannot be seen: {key.hidden[stage]}"
        return _answer(evidence, asked, CauseKind.KEY_HIDDEN, text)
    if stage not in key.windows:
        return None
    return _unseen(evidence, key, asked)


def _of_dropped(evidence: Evidence, key: KeySeen, asked: Asked) -> WhyExplanation | None:
    """Q3: whether records of the key were dropped as too late."""
    dropped = [
        each
        for each in key.dropped
        if each.stage == asked.stage and asked.window in (None, each.window)
    ]
    if not dropped:
        return None
    last = dropped[-1]
    count = sum(each.count for each in dropped if each.window == last.window)
    text = (
        f"{number(count, 'record')} of {key.key} for {window_text(last.window)} came too late for {asked.stage!r}, "
        f"and {'is' if count == 1 else 'are'} in no result: "
        f"the watermark was at {instant(last.watermark_us)} by then"
    )
    return _answer(evidence, asked, CauseKind.KEY_LATE, text)


def _unseen(evidence: Evidence, key: KeySeen, asked: Asked) -> WhyExplanation:
    stage, window = asked.stage or "", asked.window
    of_window = "" if window is None else f" for {window_text(window)}"
    reached_us = event_time_us(evidence, stage)
    if window is not None and window.end_us <= reached_us:
        text = (
            f"{stage!r} has no state of {key.key}{of_window}, and has come to {instant(reached_us)}: "
            "if records of it came in time, they have been emitted; else none has come"
        )
        return _answer(evidence, asked, CauseKind.EMITTED, text)
    seen = [name for name in _with_windows(evidence, key) if name != stage]
    where = f"the last stage that has seen it is {seen[-1]!r}" if seen else _read_so_far(evidence)
    dead = sum(evidence.dead.values())
    if dead:
        where += f"; {number(dead, 'record')} made user code fail, and {'was' if dead == 1 else 'were'} set aside"
    text = f"no record of {key.key}{of_window} has come to {stage!r} and is still there; {where}"
    return _answer(evidence, asked, CauseKind.KEY_UNSEEN, text)


def _read_so_far(evidence: Evidence) -> str:
    sources = [each for each in evidence.stages.values() if each.is_source]
    records = sum(each.records for each in sources)
    return f"its sources have read {number(records, 'record')}, of any key, since their owners have them"


def _most_wanted(windows: Sequence[WindowSeen]) -> WindowSeen:
    """The window that most likely is meant: the first that has records and has not fired."""
    waiting = [each for each in windows if each.pending]
    return min(waiting or windows, key=lambda each: each.window.end_us)


def _of_window(evidence: Evidence, asked: Asked, seen: WindowSeen) -> WhyExplanation:
    asked = attrs.evolve(asked, window=seen.window)
    found = _of_open_window(evidence, asked, seen)
    facts = [
        Fact(name="records since it last fired", value=f"{seen.pending:,}", source="cells"),
        Fact(name="panes emitted", value=f"{seen.firings:,}", source="cells"),
        Fact(
            name="window ends",
            value=_with_distance(seen.window.end_us, event_time_us(evidence, asked.stage or "")),
            source="cells",
        ),
    ]
    if seen.expiry_us is not None:
        reached_us = event_time_us(evidence, asked.stage or "")
        value = _with_distance(seen.expiry_us, reached_us)
        facts.append(Fact(name="its state goes", value=value, source="allowed lateness"))
    return attrs.evolve(found, awaited=seen.awaited, facts=(*facts, *found.facts))


def _with_distance(at_us: int, reached_us: int) -> str:
    return ", ".join(filter(None, (instant(at_us), distance(at_us, reached_us))))


def _of_open_window(evidence: Evidence, asked: Asked, seen: WindowSeen) -> WhyExplanation:
    name = f"{asked.key}, {window_text(seen.window)}"
    if not seen.pending and seen.firings:
        panes = number(seen.firings, "pane")
        text = f"{name} has fired: {panes}, and no record has come since"
        return _answer(evidence, asked, CauseKind.EMITTED, text)
    again = " again" if seen.firings else ""
    if seen.is_finished:
        wait_us = MAX_TIMESTAMP_US if seen.expiry_us is None else seen.expiry_us
        text = (
            f"{name} does not fire{again} by its trigger, which has finished: "
            f"what has come since is emitted when event time reaches {instant(wait_us)}"
        )
        return _waiting(evidence, asked, wait_us, text, CauseKind.TRIGGER_OVER)
    leaves = _open_leaves(evidence, seen)
    if not leaves:
        return _due_now(
            evidence, asked, f"{name} is about to fire{again}: its trigger is satisfied"
        )
    waits_us = _watermark_waited_for(seen, leaves)
    if waits_us is not None:
        text = f"{name} has not fired{again}: it fires when event time reaches {instant(waits_us)}"
        others = [shown_leaf(each) for each in leaves if each.kind is not AwaitedKind.WATERMARK]
        if others:
            text += f", or waits for {' and '.join(others)}"
        return _waiting(evidence, asked, waits_us, text, None)
    text = f"{name} has not fired{again}: it waits for {' and '.join(map(shown_leaf, leaves))}"
    clock = [each.until_us for each in leaves if each.until_us is not None]
    if clock:
        text += f", {_in(min(clock) - evidence.now_us)}"
    return _answer(evidence, asked, _cause_of(leaves[0]), text)


def _due_now(evidence: Evidence, asked: Asked, text: str) -> WhyExplanation:
    """What nothing is awaited for: whoever has its range has not come to it."""
    name = "" if evidence.key is None else evidence.key.ranges.get(asked.stage or "", "")
    each = evidence.ranges.get(name)
    if each is None:
        return _answer(evidence, asked, CauseKind.OVERDUE, text)
    holder = of_worker(evidence, name, each, each.output_us, f"what {name} has to fire")
    if holder is None:
        return _answer(evidence, asked, CauseKind.OVERDUE, f"{text}{heat(evidence, name)}")
    text += f"\nheld by: {_leaf_text(evidence, holder)}"
    return _answer(evidence, asked, holder.cause or CauseKind.OVERDUE, text, [holder])


def _in(ahead_us: int) -> str:
    return f"in {length(ahead_us)}" if ahead_us >= 0 else f"{length(ahead_us)[1:]} ago"


def _open_leaves(evidence: Evidence, seen: WindowSeen) -> list[Awaited]:
    """What its trigger waits for; where the trigger is not known, what its timers wait for, unless one is due."""
    if seen.awaited is not None:
        return seen.awaited.open_leaves()
    if seen.processing_timer_us is not None and seen.processing_timer_us <= evidence.now_us:
        return []
    timers = (
        (AwaitedKind.WATERMARK, seen.event_timer_us),
        (AwaitedKind.CLOCK, seen.processing_timer_us),
    )
    return [
        Awaited(kind=kind, is_met=False, until_us=until_us)
        for kind, until_us in timers
        if until_us is not None
    ]


def _watermark_waited_for(seen: WindowSeen, leaves: Sequence[Awaited]) -> int | None:
    """The watermark that is enough; None: no watermark is."""
    instants_us = [
        each.until_us
        for each in leaves
        if each.kind is AwaitedKind.WATERMARK and each.until_us is not None
    ]
    if not instants_us:
        return None
    if seen.expiry_us is not None:
        return min(max(instants_us), seen.expiry_us)
    return max(instants_us)


def _cause_of(leaf: Awaited) -> CauseKind:
    return {
        AwaitedKind.CLOCK: CauseKind.CLOCK,
        AwaitedKind.SIGNAL: CauseKind.SIGNAL,
        AwaitedKind.NEVER: CauseKind.NEVER,
        AwaitedKind.OWN: CauseKind.OWN_TRIGGER,
    }.get(leaf.kind, CauseKind.RECORDS)


def _waiting(
    evidence: Evidence, asked: Asked, until_us: int, text: str, cause: CauseKind | None
) -> WhyExplanation:
    """What waits for event time, and who holds it; where event time has come that far, who has not fired."""
    stage = asked.stage or ""
    if stage not in evidence.stages:
        return _answer(evidence, asked, cause or CauseKind.UNKNOWN, text)
    reached_us = event_time_us(evidence, stage)
    if until_us <= reached_us:
        holder = _own_range(evidence, asked)
        text += f"; {stage!r} has come to {instant(reached_us)}"
        if holder is not None:
            text += f"\nheld by: {holder.text}"
            return _answer(evidence, asked, holder.cause or CauseKind.OVERDUE, text, [holder])
        return _answer(evidence, asked, cause or CauseKind.OVERDUE, text)
    chain = chain_of(evidence, stage)
    apart = "" if reached_us <= MIN_TIMESTAMP_US else f", {length(until_us - reached_us)} before it"
    text += f"; {stage!r} is at {instant(reached_us)}{apart}\nheld by: {_leaf_text(evidence, chain[-1])}"
    return _answer(evidence, asked, chain[-1].cause or CauseKind.UNKNOWN, text, chain)


def _leaf_text(evidence: Evidence, leaf: Holder) -> str:
    others = len(leaf.as_far)
    as_far = f"; {number(others, 'other')} as far" if others else ""
    # A production waits for its receiver, and a worker works for a range.
    name = leaf.details.get("receiver") or leaf.details.get("range") or leaf.name
    return leaf.text + as_far + heat(evidence, str(name))


def _own_range(evidence: Evidence, asked: Asked) -> Holder | None:
    """The range of the key, where it is behind its stage's input: its worker has not fired what is due."""
    name = "" if evidence.key is None else evidence.key.ranges.get(asked.stage or "", "")
    each = evidence.ranges.get(name)
    return None if each is None else of_range(evidence, name, each)


def _of_time(evidence: Evidence, asked: Asked) -> WhyExplanation:
    """Q7 to Q15: where event time is, and who holds it."""
    stage, window = asked.stage, asked.window
    if stage is None or stage not in evidence.stages:
        text = f"job {evidence.job} has left no evidence of its stages"
        return _answer(evidence, asked, CauseKind.UNKNOWN, text)
    reached_us = event_time_us(evidence, stage)
    if window is not None:
        if window.end_us <= reached_us:
            text = (
                f"{stage!r} has come to {instant(reached_us)}, past the end of {window_text(window)}: "
                "what came for it in time has been emitted; name a key to see what became of it"
            )
            return _answer(evidence, asked, CauseKind.EMITTED, text)
        text = f"{window_text(window)} has not ended for {stage!r}"
        return _waiting(evidence, asked, window.end_us, text, None)
    chain, due = chain_of(evidence, stage), evidence.due.get(stage)
    leaf = chain[-1]
    where = f"{stage!r} is at {instant(reached_us)}"
    is_well = leaf.cause in HEALTHY
    stuck = next((each for each in evidence.sinks if each.failing_for_us is not None), None)
    slow = _slow_driver(evidence, leaf)
    if slow is not None:
        return _answer(evidence, asked, CauseKind.DRIVER_BUSY, f"{where}\n{slow}", chain)
    late = _late_timers(evidence, stage)
    if is_well and late is not None:
        return _answer(evidence, asked, CauseKind.OVERDUE, late, chain)
    if is_well and stuck is not None:
        text = (
            f"{number(stuck.waiting, 'row')} wait for {stuck.name}, which has failed for "
            f"{length(stuck.failing_for_us or 0)}: {stuck.reason}"
        )
        return _answer(evidence, asked, CauseKind.SINK_WAITS, text, chain)
    if is_well:
        return _nothing_due(evidence, asked, chain)
    next_us = None if due is None else due.next_us
    what = (
        ""
        if next_us is None
        else f"; the next window ends at {_with_distance(next_us, reached_us)}"
    )
    text = f"{where}{what}\nheld by: {_leaf_text(evidence, leaf)}"
    return _answer(evidence, asked, leaf.cause or CauseKind.UNKNOWN, text, chain)


def _slow_driver(evidence: Evidence, leaf: Holder) -> str | None:
    """What is said of a driver whose rounds are so long that reports and watermarks wait for it; None: they are not.

    Only where nothing else that is known holds: what a worker is in the middle of does not wait for the driver.
    """
    driver = evidence.driver
    if (
        driver is None
        or driver.longest_round_ms < SLOW_ROUND_MS
        or leaf.cause not in _WAIT_FOR_DRIVER
    ):
        return None
    return (
        f"the driver takes {length(driver.longest_round_ms * 1_000)} for a round, in which it takes the reports of "
        f"{number(len(evidence.ranges), 'range')} and sends watermarks: what workers know of event time is as old"
    )


def _late_timers(evidence: Evidence, stage: str) -> str | None:
    """What is said of timers of the clock that have been due for long; None: there are none."""
    found = evidence.stages[stage]
    at_us = evidence.now_us if evidence.as_of_us is None else evidence.as_of_us
    if found.overdue_us is None or at_us - found.overdue_us < OVERDUE_US:
        return None
    return (
        f"{number(found.overdue_timers, 'timer')} of {stage!r} should have fired, the first "
        f"{length(at_us - found.overdue_us)} ago by the clock: its workers do not get to them"
    )


def _nothing_due(evidence: Evidence, asked: Asked, chain: Sequence[Holder]) -> WhyExplanation:
    stage = asked.stage or ""
    due, reached_us, leaf = evidence.due.get(stage), event_time_us(evidence, stage), chain[-1]
    if leaf.cause is CauseKind.ENDED:
        text = f"nothing is due: {leaf.text}, and all that was due has fired"
        return _answer(evidence, asked, CauseKind.ENDED, text, chain)
    if due is None:
        text = f"event time goes on: {stage!r} is at {instant(reached_us)}, and {leaf.text}"
    elif due.next_us is None:
        text = (
            f"nothing is due: {stage!r} has no window that is open; it is at {instant(reached_us)}"
        )
    else:
        text = (
            f"nothing is due: the next window of {stage!r} ends at {_with_distance(due.next_us, reached_us)}; "
            "event time goes on, and all is well"
        )
    return _answer(evidence, asked, CauseKind.NOTHING_DUE, text, chain)
