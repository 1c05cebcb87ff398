"""Leaves: what a thing is that nothing else holds back, and why it stands where it does.

A range is followed to its worker, and a production to the worker that has not acknowledged it: a range that has no
owner, a worker that is silent, one that is busy, and a commit that waits are the reason for what they have not done.
"""

import attrs

from runners.observability.evidence.snapshot import (
    RangeEvidence,
    RangeState,
    SplitEvidence,
    WorkerEvidence,
)
from runners.observability.why.evidence import Evidence, Pending
from runners.observability.why.explanation import CauseKind, Holder, HolderKind
from runners.observability.why.words import instant, length, number
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_US_PER_S = 1_000_000
#: A worker whose loop has sent nothing for so long is silent; it reports ten times a second.
SILENT_US = 3 * _US_PER_S
#: A step that takes longer is worth a word.
BUSY_US = 2 * _US_PER_S
#: A split that was not asked for so long is not being asked; one that has nothing is asked about once a second.
NOT_POLLED_US = 5 * _US_PER_S
#: A split that has had no record for so long waits for one.
QUIET_US = 5 * _US_PER_S


def of_range(evidence: Evidence, name: str, each: RangeEvidence) -> Holder:
    """A key range that has not fired up to its input; or any range without an owner.

    Args:
        evidence: of the job.
        name: of the range.
        each: the range.
    """
    of_owner = of_worker(evidence, name, each, each.output_us, f"what {name!r} has to do")
    if of_owner is not None:
        return of_owner
    is_new = each.reported_us is None or each.output_us <= MIN_TIMESTAMP_US
    cause = CauseKind.NOT_REPORTED if is_new else CauseKind.BEHIND_ITS_INPUT
    what = "has not reported since it has its owner" if is_new else "has not fired up to its input"
    return Holder(
        kind=HolderKind.RANGE,
        name=name,
        value_us=each.output_us,
        text=f"{name}, of {each.worker or 'nobody'}, {what}: it is at {instant(each.output_us)}",
        cause=cause,
        details={"worker": each.worker, "slot": each.slot},
    )


def of_worker(
    evidence: Evidence, name: str, each: RangeEvidence, value_us: int, what: str
) -> Holder | None:
    """The worker of a range, if it is the reason for what the range has not done; None: it is not known to be.

    Args:
        evidence: of the job.
        name: of the range.
        each: the range.
        value_us: the event time at which it holds.
        what: it has not done.
    """
    if each.state is RangeState.AWAITED or each.worker is None:
        moved = f", and goes to slot {each.slot}" if each.state is RangeState.MOVING else ""
        text = f"{name} has no owner{moved}: the worker of slot {each.slot} has not taken it over"
        return _leaf(HolderKind.RANGE, name, value_us, CauseKind.RANGE_WITHOUT_OWNER, text, each)
    worker = evidence.worker_of(each)
    if worker is None:
        return None
    # By the driver's clock both, so that the age of the evidence does not count.
    at_us = evidence.now_us if evidence.as_of_us is None else evidence.as_of_us
    # What was sent since the driver began a round it has not read: nobody is silent for that.
    driver = evidence.driver
    last_read_us = at_us - (0 if driver is None else 1_000 * driver.longest_round_ms)
    busy = _busy(evidence, worker, at_us, what)
    if busy is not None and not _is_older(worker.heartbeat_received_us, last_read_us):
        return _leaf(HolderKind.WORKER, each.worker, value_us, busy[0], busy[1], each)
    if _is_older(worker.refused_since_us, at_us):
        refused = length(at_us - (worker.refused_since_us or at_us))
        text = (
            f"reports of {each.worker}, which has {name}, have not been taken for {refused} "
            f"({number(worker.refused, 'report')}): {worker.refused_reason}"
        )
        return _leaf(
            HolderKind.WORKER, each.worker, value_us, CauseKind.REPORTS_REFUSED, text, each
        )
    if _is_older(worker.reported_us, last_read_us):
        silent = length(at_us - (worker.reported_us or at_us))
        text = f"{each.worker}, which has {name}, has sent nothing for {silent}"
        return _leaf(HolderKind.WORKER, each.worker, value_us, CauseKind.WORKER_SILENT, text, each)
    return None


def _is_older(then_us: int | None, at_us: int) -> bool:
    return then_us is not None and at_us - then_us > SILENT_US


def _busy(
    evidence: Evidence, worker: WorkerEvidence, at_us: int, what: str
) -> tuple[CauseKind, str] | None:
    """What a worker is in the middle of, if that is long: in user code, or in a commit."""
    committing_us = worker.committing_us
    # Both by the clock of the worker's host.
    host_us = worker.heartbeat_us if worker.heartbeat_us is not None else at_us
    if committing_us is not None and host_us - committing_us > BUSY_US:
        waited = length(host_us - committing_us)
        text = f"{worker.worker} has waited for {waited} for a commit: {what}"
        if evidence.blocked:
            first = evidence.blocked[0]
            text += (
                f"; session {first.session} of the store has waited for {length(first.age_us)} for session "
                f"{first.holder}, which runs: {first.query}"
            )
        return CauseKind.COMMIT_WAITS, text
    doing = worker.doing
    if doing is None or host_us - doing.since_us <= BUSY_US:
        return None
    where = f"the code of {doing.transform!r}" if doing.transform else f"a step of {doing.stage!r}"
    record = "" if doing.record is None else f", at record {doing.record + 1:,}"
    if record and doing.records is not None:
        record += f" of {doing.records:,}"
    spent = length(host_us - doing.since_us)
    return CauseKind.WORKER_BUSY, f"{worker.worker} has been in {where} for {spent}{record}"


def of_production(evidence: Evidence, name: str, each: RangeEvidence) -> tuple[Holder, ...]:
    """What a range has sent, and somebody has not acknowledged; and whoever is the reason for that, if it is known.

    Args:
        evidence: of the job.
        name: of the range.
        each: the range.
    """
    sent = [pending for pending in evidence.pending if pending.sender == name]
    if not sent:
        text = f"{name} has sent something of {instant(each.output_us)}, which is not acknowledged"
        return (
            _leaf(
                HolderKind.PRODUCTION, name, each.output_us, CauseKind.UNACKNOWLEDGED, text, each
            ),
        )
    oldest = min(sent, key=lambda pending: (pending.hold_us, -(pending.age_us or 0)))
    what = f"{number(oldest.count, 'production')} of {name} to {oldest.receiver}"
    production = Holder(
        kind=HolderKind.PRODUCTION,
        name=f"{name} to {oldest.receiver}",
        value_us=each.output_us,
        text=f"{what} not acknowledged{_age(oldest)}; the earliest is of {instant(oldest.hold_us)}",
        cause=CauseKind.UNACKNOWLEDGED,
        details={
            "worker": each.worker,
            "sender": oldest.sender,
            "receiver": oldest.receiver,
            "count": oldest.count,
            "age_us": oldest.age_us,
        },
    )
    receiver = evidence.ranges.get(oldest.receiver)
    if receiver is None:
        return (production,)
    reason = of_worker(evidence, oldest.receiver, receiver, each.output_us, what)
    return (production,) if reason is None else (attrs.evolve(production, cause=None), reason)


def _age(pending: Pending) -> str:
    return "" if pending.age_us is None else f" for {length(pending.age_us)}"


def of_window(name: str, each: RangeEvidence) -> Holder:
    """A pane that a window of a range is still to emit, with an event time before the end of the window.

    Args:
        name: of the range.
        each: the range.
    """
    text = (
        f"a window of {name} is still to emit a pane with the event time {instant(each.output_us)}: its timestamp "
        "combiner is not that of the end of the window"
    )
    return _leaf(HolderKind.WINDOW, name, each.output_us, CauseKind.OPEN_WINDOW, text, each)


def of_split(evidence: Evidence, name: str, each: RangeEvidence, *, are_idle: bool) -> Holder:
    """A split of a source.

    Args:
        evidence: of the job.
        name: of the split.
        each: the split.
        are_idle: whether all splits that are waited for are idle.
    """
    of_owner = of_worker(evidence, name, each, each.output_us, f"what {name!r} has read")
    if of_owner is not None:
        return of_owner
    cause, text = _of_poll(evidence, each, are_idle=are_idle)
    backlog = None if each.poll is None else each.poll.backlog_records
    return Holder(
        kind=HolderKind.SPLIT,
        name=name,
        value_us=each.output_us,
        text=f"split {name} is at {instant(each.output_us)}: {text}",
        cause=cause,
        details={"worker": each.worker, "is_idle": each.is_idle, "backlog_records": backlog},
    )


def _of_poll(evidence: Evidence, each: RangeEvidence, *, are_idle: bool) -> tuple[CauseKind, str]:
    poll, at_us = each.poll, evidence.as_of_us or evidence.now_us
    if poll is None:
        return CauseKind.NEVER_POLLED, f"nobody has asked it yet; {each.worker or 'nobody'} has it"
    if are_idle and each.is_idle:
        since = "" if poll.idle_since_us is None else f" for {length(at_us - poll.idle_since_us)}"
        text = (
            f"it is idle{since}, by the word of its reader, and so are all splits that are waited for: without a "
            f"record nobody knows how far event time has come; {_last_record(poll, at_us)}"
        )
        return CauseKind.ALL_IDLE, text
    asked_us = at_us - poll.polled_us
    if asked_us > NOT_POLLED_US and not poll.is_finished:
        text = (
            f"it was not asked for {length(asked_us)}: the job is paused, or what was read waits for its receivers, "
            f"or it is too far ahead of other splits (skew_limit); {_last_record(poll, at_us)}"
        )
        return CauseKind.NOT_POLLED, text
    if poll.outage is not None:
        away_us = 0 if poll.outage_since_us is None else max(0, at_us - poll.outage_since_us)
        text = (
            f"{poll.outage} cannot be read, for {length(away_us)}; the last try: {poll.outage_error}; "
            f"{_last_record(poll, at_us)}"
        )
        return CauseKind.INPUT_AWAY, text
    if poll.record_us is None:
        return (
            CauseKind.NEVER_READ,
            f"it has never had a record, and its reader does not say that it is idle{_backlog(poll)}",
        )
    quiet_us = at_us - poll.record_us
    if quiet_us > QUIET_US and not poll.backlog_records:
        text = f"{_last_record(poll, at_us)}, and its reader does not say that it is idle"
        return CauseKind.WAITS_FOR_RECORD, text
    return CauseKind.READING, f"it is being read, {_last_record(poll, at_us)}{_backlog(poll)}"


def _last_record(poll: SplitEvidence, at_us: int) -> str:
    if poll.record_us is None:
        return "it has never had a record"
    return f"its last record came {length(max(0, at_us - poll.record_us))} ago"


def _backlog(poll: SplitEvidence) -> str:
    if poll.backlog_records is None:
        return ""
    return f"; {number(poll.backlog_records, 'record')} still to be read"


def new_splits(sender: str, hold_us: int) -> Holder:
    """The hold of a source that is about to get splits.

    Args:
        sender: the source.
        hold_us: where it holds.
    """
    return Holder(
        kind=HolderKind.SOURCE,
        name=sender,
        value_us=hold_us,
        text=f"{sender!r} is about to get new splits, which begin at {instant(hold_us)}",
        cause=CauseKind.NEW_SPLITS,
    )


def may_grow(sender: str, input_us: int | None) -> Holder:
    """A source all of whose splits have ended, and which may get more.

    Args:
        sender: the source.
        input_us: of what it feeds.
    """
    return Holder(
        kind=HolderKind.SOURCE,
        name=sender,
        value_us=MIN_TIMESTAMP_US if input_us is None else input_us,
        text=f"all splits of {sender!r} have ended, and it may get new ones: event time stays until it does, or the "
        "job is drained",
        cause=CauseKind.MAY_GROW,
    )


def all_ended(stage: str, senders: list[str]) -> Holder:
    """The end of all that sends to a stage.

    Args:
        stage: the receiver.
        senders: the stages that send to it.
    """
    return Holder(
        kind=HolderKind.SOURCE,
        name=", ".join(senders),
        value_us=MAX_TIMESTAMP_US,
        text=f"all that sends to {stage!r} has come to its end",
        cause=CauseKind.ENDED,
    )


def unknown_leaf(stage: str, value_us: int) -> Holder:
    """A stage of which it is not known what it waits for.

    Args:
        stage: its name.
        value_us: where it is.
    """
    return Holder(
        kind=HolderKind.STAGE,
        name=stage,
        value_us=value_us,
        text=f"it is not known what {stage!r} waits for: the job has left no evidence of what sends to it",
        cause=CauseKind.UNKNOWN,
    )


def _leaf(
    kind: HolderKind, name: str, value_us: int, cause: CauseKind, text: str, each: RangeEvidence
) -> Holder:
    details = {"worker": each.worker, "slot": each.slot, "range": f"{each.stage}[{each.index}]"}
    return Holder(kind=kind, name=name, value_us=value_us, text=text, cause=cause, details=details)
