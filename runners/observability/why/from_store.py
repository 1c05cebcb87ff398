"""Evidence from a store: what it has of a job, whether or not anybody runs it.

All of it is read at one moment, and nothing is written.  What the driver knew is in its last snapshot; where there is
none, the last commits say how far ranges were, and what is on its way.  Values of the user's own are unpickled only
for whoever has given the pipeline.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

import windowing
from dataflow.coders import encode_key, hash_key
from dataflow.errors import DataflowError
from dataflow.graph import Group
from runners.core.ground.clock import Clock
from runners.core.partials.folding import combiners_of
from runners.core.stages.plan import ExecutionPlan
from runners.errors import StoredFormatError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.model.troubles import StoredTrouble
from runners.millwheel.store.guards import unknown_job
from runners.millwheel.store.port import JobRow, JobSummary, RangeRow, Store
from runners.millwheel.versions.state_shape import StateShape, state_shapes
from runners.observability.evidence.snapshot import (
    JobSnapshot,
    RangeEvidence,
    RangeState,
    StageEvidence,
)
from runners.observability.evidence.snapshot_taker import poll_of
from runners.observability.why.described_triggers import described_trigger
from runners.observability.why.evidence import (
    Blocked,
    ChangeSeen,
    Dropped,
    Due,
    Evidence,
    JobState,
    KeySeen,
    Pending,
    SinkWait,
    TroubleSeen,
    WindowSeen,
)
from runners.observability.why.key_state import Grouping
from runners.observability.why.store_health import store_findings
from runners.observability.why.stored_keys import key_state_of
from runners.stored.columns import Own, hidden_own_of, own_of
from triggers.clocks import Clocks
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, to_timestamp_us
from windowing.window import Window
from windowing.window_fn import FrozenWindows, MergingWindowFn

_US_PER_S = 1_000_000
_WINDOW_FN = "window_fn"
_CHANGES_MAX = 10
#: Windows whose ends are known, as a description has them.
_FIXED = re.compile(r"FixedWindows\(size_us=(\d+), offset_us=(-?\d+)\)")


def evidence_from_store(
    store: Store,
    job: str,
    clock: Clock,
    *,
    key: str | None = None,
    plan: ExecutionPlan | None = None,
) -> Evidence:
    """What a store has of a job.

    Args:
        store: that has the job.
        job: its name.
        clock: that of this machine.
        key: to be looked at, as text.
        plan: of the job's pipeline: with it users' own values are read too, which runs code of theirs; None: none is.

    Raises:
        StoreError: there is no such job, or the store cannot be read.
    """
    with store.at_one_moment():
        row = store.read_job(job)
        if row is None:
            raise unknown_job(job)
        summary = next((each for each in store.read_jobs() if each.job == job), None)
        reading = _Reading(store, row, clock.now_us(), plan)
        evidence = reading.evidence(summary)
        return evidence if key is None else attrs.evolve(evidence, key=reading.key(key, evidence))


def key_from_store(
    store: Store, job: str, key: str, evidence: Evidence, plan: ExecutionPlan | None = None
) -> KeySeen:
    """What a store has of a key, where the rest of the evidence is from elsewhere.

    Args:
        store: that has the job.
        job: its name.
        key: as text.
        evidence: of the job.
        plan: of the job's pipeline, as for `evidence_from_store`.

    Raises:
        StoreError: there is no such job, or the store cannot be read.
    """
    with store.at_one_moment():
        row = store.read_job(job)
        if row is None:
            raise unknown_job(job)
        return _Reading(store, row, evidence.now_us, plan).key(key, evidence)


def with_due(evidence: Evidence, plan: ExecutionPlan) -> Evidence:
    """The evidence, with when the next windows end.

    Args:
        evidence: of a job.
        plan: of its pipeline.
    """
    return attrs.evolve(evidence, due=_due(evidence, state_shapes(plan)))


def _due(evidence: Evidence, shapes: Mapping[str, StateShape]) -> Mapping[str, Due]:
    """When the next windows end, where that follows from the window function alone, whatever records there are."""
    found = {}
    for name, stage in evidence.stages.items():
        shape = shapes.get(name)
        fixed = None if shape is None else _FIXED.fullmatch(shape.parts.get(_WINDOW_FN, ""))
        if fixed is None or stage.input_us is None:
            continue
        if MIN_TIMESTAMP_US < stage.input_us < MAX_TIMESTAMP_US:
            size_us, offset_us = int(fixed[1]), int(fixed[2])
            behind_us = (stage.input_us - offset_us) % size_us
            found[name] = Due(next_us=stage.input_us - behind_us + size_us)
    return found


class _Reading:
    """One reading of a job.

    Args:
        store: that has the job.
        row: the job.
        now_us: by the clock of whoever asks, in microseconds since 1970.
        plan: as above.
    """

    def __init__(self, store: Store, row: JobRow, now_us: int, plan: ExecutionPlan | None) -> None:
        self._store, self._row, self._now_us, self._plan = store, row, now_us, plan
        self._read_own: Callable[[bytes], Own] = hidden_own_of if plan is None else own_of
        self._shapes: Mapping[str, StateShape] = (
            {
                name: StateShape.decoded(text)
                for name, text in row.computations.items()
                if text is not None
            }
            if plan is None
            else state_shapes(plan)
        )
        self._unknown: list[str] = []

    def evidence(self, summary: JobSummary | None) -> Evidence:
        """All but a key."""
        store, row, job = self._store, self._row, self._row.job
        snapshot, age_us = self._snapshot()
        late = store.read_late_counts(job)
        found = Evidence(
            job=job,
            now_us=self._now_us,
            mode=row.mode,
            state=_state_of(row, summary),
            pending=self._pending(),
            labels=self._labels(),
            late=late,
            dead=_counted(each["stage"] for each in store.read_dead_letters(job)),
            sinks=self._sinks(),
            blocked=[
                Blocked(
                    session=each.session,
                    holder=each.holder,
                    query=each.query,
                    age_us=round(each.age_s * _US_PER_S),
                )
                for each in store.blocked_sessions()
            ],
            troubles=list(map(_trouble, store.read_troubles(job))),
            store=store_findings(store, job),
        )
        if snapshot is None:
            found = attrs.evolve(found, **self._from_commits(found.pending))
        else:
            found = attrs.evolve(
                found,
                driver=snapshot.driver,
                # All by the driver's clock, with how old it is by the store's: clocks of machines differ.
                now_us=snapshot.taken_us + age_us,
                as_of_us=snapshot.taken_us,
                stages=snapshot.stages,
                ranges=snapshot.ranges,
                workers=snapshot.workers,
                objectives=snapshot.objectives,
            )
        # By the clock of the store, as that of the driver is compared with it.
        found = attrs.evolve(found, changes=self._changes(found.now_us))
        return attrs.evolve(found, due=_due(found, self._shapes), unknown=list(self._unknown))

    def _changes(self, now_us: int) -> list[ChangeSeen]:
        """What has happened last, at most as far behind now as the clocks of the store and of this machine differ."""
        return [
            ChangeSeen(
                at_us=min(now_us, to_timestamp_us(each.at)),
                kind=each.event.kind.value,
                subject=each.event.subject,
                reason=each.event.reason,
            )
            for each in self._store.read_events(self._row.job, _CHANGES_MAX)
        ]

    def _snapshot(self) -> tuple[JobSnapshot | None, int]:
        stored = self._store.read_snapshot(self._row.job)
        if stored is None:
            if self._row.mode == "streaming":
                self._unknown.append(
                    "the driver has left no snapshot of what it knows: what is shown is as of the last commits, and "
                    "what workers do, and which splits are idle, is not known"
                )
            return None, 0
        try:
            snapshot = JobSnapshot.read(stored.document)
        except StoredFormatError as error:
            self._unknown.append(f"what the driver has left cannot be read: {error}")
            return None, 0
        return snapshot, max(0, round(stored.age_s * _US_PER_S))

    def _pending(self) -> list[Pending]:
        return [
            Pending(
                sender=str(channel.sender),
                receiver=str(channel.receiver),
                count=each.pending,
                hold_us=each.hold_us,
                age_us=round(each.age_s * _US_PER_S),
            )
            for channel, each in self._store.read_pending(self._row.job).items()
        ]

    def _labels(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name, shape in self._shapes.items():
            for label, table in shape.tables.items():
                found[label] = found[table] = name
        if self._plan is not None:
            for stage in self._plan.stages.values():
                found |= {node.label: stage.name for node in (*stage.nodes, *stage.tables)}
        return found

    def _sinks(self) -> list[SinkWait]:
        return [
            SinkWait(
                name=lane.title,
                waiting=lane.waiting,
                failing_for_us=None
                if lane.failure is None
                else max(0, self._now_us - lane.failure.since_us),
                reason=None if lane.failure is None else lane.failure.reason,
            )
            for lane in self._store.read_lanes(self._row.job)
            if lane.waiting
        ]

    def _from_commits(self, pending: Sequence[Pending]) -> Mapping[str, Any]:
        """Stages and ranges as of their last commits: what a driver would begin with."""
        polls = self._store.read_polls(self._row.job)
        holds_us: dict[str, int] = {}
        for each in pending:
            holds_us[each.sender] = min(each.hold_us, holds_us.get(each.sender, each.hold_us))
        ranges = {
            str(range_id): _range(row, holds_us.get(str(range_id)), polls.get(range_id))
            for range_id, row in sorted(self._row.ranges.items())
            if not row.is_retired
        }
        names = {each.stage for each in ranges.values()}
        stages = {}
        for name in [name for name in self._shapes if name in names] or sorted(names):
            mine = [each for each in ranges.values() if each.stage == name]
            stages[name] = self._stage(name, mine)
        return {"stages": stages, "ranges": ranges}

    def _stage(self, name: str, mine: Sequence[RangeEvidence]) -> StageEvidence:
        shape = self._shapes.get(name)
        senders = () if shape is None else shape.senders
        committed_us = [each.processed_us for each in mine if each.processed_us is not None]
        return StageEvidence(
            is_source=not senders,
            senders=senders,
            # The one that is furthest has had it from all senders.
            input_us=max(committed_us, default=MIN_TIMESTAMP_US) if senders else None,
            output_us=min((each.output_us for each in mine), default=MAX_TIMESTAMP_US),
        )

    def key(self, text: str, evidence: Evidence) -> KeySeen:
        """What is stored of a key.

        Args:
            text: as it was given: a text, or what Python writes for another value.
            evidence: of the job.
        """
        candidates = keys_of_text(text)
        seen, ranges, hidden = dict[str, Sequence[WindowSeen]](), dict[str, str](), dict[str, str]()
        for name, stage in evidence.stages.items():
            if stage.is_source:
                continue
            try:
                grouping = self._grouping(name)
                windows, range_name = self._windows(name, candidates, grouping, stage)
            except (StoredFormatError, TypeError, ValueError) as error:
                hidden[name] = (
                    f"it has something of your own ({error}); name the pipeline, with --pipeline"
                )
                continue
            seen[name] = windows
            if range_name is not None:
                ranges[name] = range_name
        dropped = [
            Dropped(
                stage=each["transform"],
                window=Window(each["window_start_us"], each["window_end_us"]),
                watermark_us=each["watermark_us"],
                count=each["count"],
            )
            for each in self._store.read_late(self._row.job)
            if each["key"] in {repr(key) for key in candidates}
        ]
        return KeySeen(key=text, windows=seen, ranges=ranges, dropped=dropped, hidden=hidden)

    def _grouping(self, name: str) -> Grouping:
        shape = self._shapes.get(name)
        if self._plan is not None:
            root = self._plan.stages[name].root
            strategy = self._plan.graph.pcollections[root.inputs[0]].strategy
            return Grouping(
                trigger=strategy.trigger if isinstance(root.operation, Group) else None,
                trigger_text=repr(strategy.trigger),
                lateness_us=strategy.allowed_lateness_us,
                is_merging=strategy.is_merging,
                combiners=combiners_of(self._plan.graph, root),
            )
        if shape is None:
            raise TypeError("the store has no description of it")
        parts = shape.parts
        text = parts.get("trigger")
        return Grouping(
            trigger=None if text is None else described_trigger(text),
            trigger_text=text,
            lateness_us=int(parts.get("allowed_lateness", "0")),
            is_merging=_merges(parts.get(_WINDOW_FN, "")),
        )

    def _windows(
        self, name: str, candidates: Sequence[Any], grouping: Grouping, stage: StageEvidence
    ) -> tuple[Sequence[WindowSeen], str | None]:
        watermark_us = MIN_TIMESTAMP_US if stage.input_us is None else stage.input_us
        clocks = Clocks(
            watermark_us=watermark_us,
            now_us=self._now_us,
            percentile_us=stage.percentile_us or MIN_TIMESTAMP_US,
        )
        found: list[WindowSeen] = []
        range_name = None
        for key in candidates:
            stored = self._store.read_key(self._row.job, name, hash_key(encode_key(key)))
            if stored is None:
                continue
            state = key_state_of(
                stored, self._journal(stored.range_id), key, grouping, self._read_own
            )
            windows = state.windows(grouping, clocks)
            if windows or range_name is None:
                range_name = str(stored.range_id)
            found += windows
        return found, range_name

    def _journal(self, range_id: RangeId) -> Iterator[bytes]:
        """The entries of a range, of all its keys: nobody knows which are about one of them before it has read them."""
        page = self._store.read_journal(self._row.job, range_id)
        while page:
            for _, payload in page:
                yield payload
            page = self._store.read_journal(self._row.job, range_id, page[-1][0])


def keys_of_text(text: str) -> list[Any]:
    """The keys that a text may mean: the text itself, and the value that Python writes like it.

    Args:
        text: such as ``red``, ``5`` or ``('a', 1)``.
    """
    found: list[Any] = [text]
    try:
        value = ast.literal_eval(text)
        encode_key(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, DataflowError):
        return found
    return found if value == text else [*found, value]


def _merges(described: str) -> bool:
    """Whether all windows of a key are in one cell.

    Raises:
        TypeError: its windows are of a function of the user's.
    """
    name = described.partition("(")[0]
    known = getattr(windowing, name, FrozenWindows if name == FrozenWindows.__name__ else None)
    if known is None:
        raise TypeError(f"{name} is a function of your own")
    return issubclass(known, MergingWindowFn)


def _state_of(row: JobRow, summary: JobSummary | None) -> JobState:
    if row.is_finished:
        return JobState.DRAINED if row.is_drained else JobState.FINISHED
    if row.mode == "streaming" and (summary is None or summary.driver is None):
        return JobState.NOT_RUNNING
    return JobState.RUNNING


def _range(row: RangeRow, hold_us: int | None, poll: SplitPoll | None) -> RangeEvidence:
    reached_us = row.watermark_us
    holds = [us for us in (reached_us, hold_us) if us is not None]
    is_ended = row.is_finished or (reached_us or 0) >= MAX_TIMESTAMP_US
    return RangeEvidence(
        stage=row.range_id.computation,
        index=row.range_id.index,
        slot=-1,
        state=RangeState.AWAITED if row.owner is None else RangeState.OWNED,
        worker=row.owner,
        output_us=min(holds, default=MIN_TIMESTAMP_US),
        is_ended=is_ended,
        processed_us=reached_us,
        unacknowledged_us=hold_us,
        poll=poll_of(poll),
    )


def _trouble(stored: StoredTrouble) -> TroubleSeen:
    return TroubleSeen(
        kind=stored.trouble.kind.value,
        place=stored.trouble.place,
        headline=stored.trouble.headline,
        count=stored.trouble.count,
        at_us=to_timestamp_us(stored.last_at),
    )


def _counted(names: Iterator[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
