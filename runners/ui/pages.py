"""What is on each page, as values: templates show them, and they are the JSON of the same address.

Instants and lengths are microseconds; None is "not known", and is shown as that.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import attrs

from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.errors import JobUnknownError, StoreError
from runners.millwheel.store.postgres.reader import FoundRows
from runners.observability.evidence.snapshot import (
    JobSnapshot,
    RangeEvidence,
    StageEvidence,
    WorkerEvidence,
    latest_output_us,
)
from runners.observability.why.evidence import Evidence, KeySeen, WindowSeen
from runners.observability.why.explanation import WhyExplanation
from runners.observability.why.states import (
    OLD_US,
    State,
    Tone,
    count_of,
    lag_state,
    lags,
    stage_state,
    state,
)
from runners.observability.why.words import instant
from runners.ui import reasons
from runners.ui.pictures import GraphArrow, GraphBox, Line, Span
from runners.ui.reads import Reads
from runners.ui.recorded import AskedRow, explained, hashes_of, recorded
from runners.ui.sampling import EventTimeSample, Sampling, speed
from windowing.timestamps import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    to_datetime,
    to_timestamp_us,
)

#: What stands for keys, records and what errors say of them.
HIDDEN = "hidden: dataflow ui --show-keys shows it"
_SPEED_OVER_US = 20_000_000
_OLD_PRODUCTION_US = 10_000_000


@attrs.frozen(kw_only=True)
class JobHead:
    """What is on top of every page of a job.

    Attributes:
        now_us: by the clock of the store.
        evidence_age_us: how old what the driver wrote last is.
        is_old: whether that is too old to be how things are.
    """

    job: str
    mode: str
    state: State
    driver: str | None
    is_driven: bool
    phase: str | None
    version: int
    watermark_us: int | None
    lag_us: int | None
    open_ranges: int
    ranges: int
    now_us: int
    evidence_age_us: int | None
    is_old: bool


@attrs.frozen(kw_only=True)
class Overview:
    """All jobs."""

    jobs: Sequence[JobHead]


@attrs.frozen(kw_only=True)
class StageRow:
    """A stage.

    Attributes:
        forward: seconds of event time in a second, over the last samples.
        pending: how many productions of it are not acknowledged, and since when the oldest waits.
    """

    name: str
    is_source: bool
    state: State
    event_us: int | None
    own_lag_us: int | None
    inherited_lag_us: int | None
    forward: float | None
    records: int | None
    records_per_s: float | None
    pending: int
    pending_age_us: int | None
    backlog_records: int | None
    late: int
    dead: int
    due_us: int | None
    is_in_chain: bool
    senders: Sequence[str]


@attrs.frozen(kw_only=True)
class JobPage:
    """A job."""

    head: JobHead
    explanation: WhyExplanation | None
    chain: Sequence[str]
    stages: Sequence[StageRow]
    sinks: Sequence[Mapping[str, Any]]
    samples: Sequence[EventTimeSample]


@attrs.frozen(kw_only=True)
class TablePage:
    """A page of tables, each of the rows of a statement; a table that is not known has the reason.

    Attributes:
        tables: by name; the name is that of its SQL.
        unknown: why a table is not there.
    """

    head: JobHead
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    unknown: Mapping[str, str]


@attrs.frozen(kw_only=True)
class KeptPage:
    """Late records and dead letters.

    Attributes:
        commands: that replay them, by kind.
    """

    head: JobHead
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    unknown: Mapping[str, str]
    commands: Mapping[str, str]


@attrs.frozen(kw_only=True)
class WindowsPage:
    """Windows that are open, and those of a key.

    Attributes:
        key: that was asked for; None: none.
        is_refused: whether a key was asked for and must not be shown.
        event_us: up to where the job has come.
        spans: what is known of the key, over event time.
        windows: those of the key that have state, by computation, with what their triggers wait for.
        panes: what they have emitted and retracted, the newest first, as far as the job records lineage.
        unread: why the windows of a computation are not known.
    """

    head: JobHead
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    unknown: Mapping[str, str]
    key: str | None
    is_refused: bool
    event_us: int | None
    spans: Sequence[Span]
    windows: Mapping[str, Sequence[WindowSeen]] = attrs.field(factory=dict)
    panes: Sequence[LineageEntry] = ()
    unread: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class RowsPage:
    """Where a row of a table comes from, or a pane.

    Attributes:
        asked: None: nothing was asked for.
        is_refused: whether something was asked for that must not be shown.
        explanation: as `runners.observability.lineage.explained_rows` has it in JSON; None: there is none.
        missing: why there is none.
    """

    head: JobHead
    asked: AskedRow | None
    is_refused: bool
    explanation: Mapping[str, Any] | None
    missing: str


@attrs.frozen(kw_only=True)
class RangesPage:
    """Ranges: as committed, and as the driver knows them."""

    head: JobHead
    ranges: Sequence[Mapping[str, Any]]
    channels: Sequence[Mapping[str, Any]]
    evidence: Mapping[str, RangeEvidence]
    unknown: Mapping[str, str]


@attrs.frozen(kw_only=True)
class WorkersPage:
    """Workers, as the driver knows them.

    Attributes:
        taken_us: when, by the driver's clock; None: it has left nothing.
    """

    head: JobHead
    workers: Sequence[WorkerEvidence]
    taken_us: int | None


class PageMaker:
    """Makes the pages of a store.

    Args:
        reads: of the store.
        sampling: samples of its jobs.
        show_keys: whether keys, records and what errors say of them are shown.
    """

    def __init__(self, reads: Reads, sampling: Sampling, *, show_keys: bool) -> None:
        self._reads, self._sampling, self._show_keys = reads, sampling, show_keys

    def overview(self) -> Overview:
        """All jobs, the unfinished ones first."""
        rows = self._reads.read(["jobs"])["jobs"].rows or []
        heads = [self._head(row) for row in rows]
        return Overview(jobs=sorted(heads, key=lambda each: each.state.tone is Tone.NONE))

    def job(self, name: str, transform: str | None = None) -> JobPage:
        """A job: why it is where it is, and its stages.

        Args:
            name: of the job.
            transform: that the explanation is asked for; None: the last stage that waits for something.

        Raises:
            JobUnknownError: there is no such job.
            UnknownTransformError: there is no such transform.
        """
        row, found = self._read(name, [*reasons.NEEDS, "ranges"])
        known = reasons.known_of(row, found)
        explanation = reasons.explanation_of(known, transform)
        chain = reasons.chain_stages(explanation)
        head = self._head(row)
        samples = self._sampling.of(name)
        names = [*known.evidence.stages]
        names += [each["computation"] for each in found["ranges"].rows or ()]
        stages = [
            self._stage(each, known, found, samples, head, chain) for each in dict.fromkeys(names)
        ]
        return JobPage(
            head=head,
            explanation=explanation,
            chain=chain,
            stages=stages,
            sinks=found["sinks"].rows or (),
            samples=samples,
        )

    def windows(self, name: str, key: str | None = None) -> WindowsPage:
        """Windows that have state; and what there is of a key.

        Args:
            name: of the job.
            key: as text; None: none is asked for.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, found = self._read(name, [*reasons.NEEDS, "windows", "journal"])
        is_refused = key is not None and not self._show_keys
        of_key: Mapping[str, FoundRows] = {}
        if key is not None and not is_refused:
            names = ["key_cells", "key_timers", "key_late", "key_lineage"]
            of_key = self._reads.read(names, job=name, key=key, hashes=hashes_of(key))
        head = self._head(row)
        of_job = {name: found[name] for name in ("windows", "due", "journal")}
        seen = KeySeen(key=key or "")
        if of_key:
            seen = self._reads.key(name, key or "", reasons.known_of(row, found).evidence)
        entries = [recorded(each).entry for each in _rows(of_key, "key_lineage")]
        return WindowsPage(
            head=head,
            tables=_tables({**of_job, **of_key}, "key_lineage"),
            unknown=_unknown({**of_job, **of_key}),
            key=None if is_refused else key,
            is_refused=is_refused,
            event_us=head.watermark_us,
            spans=[*_spans(of_key, entries), *_seen_spans(seen)],
            windows=seen.windows,
            panes=[each for each in entries if each.kind is not LineageKind.INPUT],
            unread={name: str(reason) for name, reason in seen.hidden.items()},
        )

    def rows(self, name: str, asked: AskedRow | None = None) -> RowsPage:
        """Where a row of a table comes from, or a pane.

        Args:
            name: of the job.
            asked: the row or pane; None: none is asked for.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, _ = self._read(name, ["jobs"])
        is_refused = asked is not None and not self._show_keys
        explanation, missing = None, ""
        if asked is not None and not is_refused:
            explanation, missing = explained(self._reads, name, asked)
        return RowsPage(
            head=self._head(row),
            asked=None if is_refused else asked,
            is_refused=is_refused,
            explanation=explanation,
            missing=missing,
        )

    def kept(self, name: str) -> KeptPage:
        """Late records and dead letters, and how to replay them.

        Args:
            name: of the job.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, found = self._read(name, ["jobs", "kept_counts", "late", "dead"])
        tables = _tables(found)
        if not self._show_keys:
            tables |= {
                "late": [_masked(each, "key", "contents") for each in tables.get("late", ())],
                "dead": [
                    {**_masked(each, "contents"), "error": _class_of(each["error"])}
                    for each in tables.get("dead", ())
                ],
            }
        quoted = shlex.quote(name)
        return KeptPage(
            head=self._head(row),
            tables=tables,
            unknown=_unknown(found),
            commands={
                "late": f"dataflow replay {quoted} MODULE:FUNCTION",
                "dead": f"dataflow replay {quoted} MODULE:FUNCTION --dead",
            },
        )

    def ranges(self, name: str) -> RangesPage:
        """Ranges, splits, and what is on its way between them.

        Args:
            name: of the job.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, found = self._read(name, ["jobs", "ranges", "channels", "snapshot"])
        snapshot = self._snapshot(row, found)
        ranges = {} if snapshot is None else dict(snapshot.ranges)
        if not self._show_keys:
            ranges = {
                name: attrs.evolve(
                    each, hot_keys=[attrs.evolve(key, key=None) for key in each.hot_keys]
                )
                for name, each in ranges.items()
            }
        return RangesPage(
            head=self._head(row),
            ranges=found["ranges"].rows or (),
            channels=found["channels"].rows or (),
            evidence=ranges,
            unknown=_unknown(found),
        )

    def workers(self, name: str) -> WorkersPage:
        """Workers, and what each is in the middle of.

        Args:
            name: of the job.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, found = self._read(name, ["jobs", "snapshot"])
        snapshot = self._snapshot(row, found)
        return WorkersPage(
            head=self._head(row),
            workers=() if snapshot is None else snapshot.workers,
            taken_us=None if snapshot is None else snapshot.taken_us,
        )

    def events(self, name: str) -> TablePage:
        """What has happened, and why workers have ended or wait.

        Args:
            name: of the job.

        Raises:
            JobUnknownError: there is no such job.
        """
        row, found = self._read(name, ["jobs", "events", "troubles"])
        return TablePage(head=self._head(row), tables=_tables(found), unknown=_unknown(found))

    def _read(
        self, name: str, names: Sequence[str]
    ) -> tuple[Mapping[str, Any], Mapping[str, FoundRows]]:
        found = self._reads.read(names, job=name)
        rows = found["jobs"].rows
        if rows is None:
            raise StoreError("the jobs of this store cannot be read", detail=found["jobs"].reason)
        row = next((each for each in rows if each["job"] == name), None)
        if row is None:
            raise JobUnknownError(f"there is no job {name!r} in this store")
        return row, found

    def _snapshot(
        self, row: Mapping[str, Any], found: Mapping[str, FoundRows]
    ) -> JobSnapshot | None:
        empty = dict.fromkeys(reasons.NEEDS, FoundRows(rows=[]))
        return reasons.known_of(row, {**empty, **found}).snapshot

    def _head(self, row: Mapping[str, Any]) -> JobHead:
        now_us, samples = row["now"], self._sampling.of(row["job"])
        age_us = None if row["evidence_at"] is None else max(0, now_us - row["evidence_at"])
        watermark_us = _last_event(samples, row["low_watermark"])
        is_over = row["finished_at"] is not None
        lag_us = None if is_over else _behind(now_us, watermark_us)
        return JobHead(
            job=row["job"],
            mode=row["mode"],
            state=_job_state(row, age_us, lag_us, _least_speed(samples)),
            driver=row["driver"],
            is_driven=row["is_driven"],
            phase=row["phase"],
            version=row["version"],
            watermark_us=watermark_us,
            lag_us=lag_us,
            open_ranges=row["open_ranges"],
            ranges=row["ranges"],
            now_us=now_us,
            evidence_age_us=age_us,
            is_old=not is_over
            and row["mode"] == "streaming"
            and (age_us is None or age_us > OLD_US),
        )

    def _stage(
        self,
        name: str,
        known: reasons.Known,
        found: Mapping[str, FoundRows],
        samples: Sequence[EventTimeSample],
        head: JobHead,
        chain: Sequence[str],
    ) -> StageRow:
        evidence = _never_back(name, known.evidence, samples)
        ranges = [each for each in found["ranges"].rows or () if each["computation"] == name]
        pending = [each for each in known.evidence.pending if each.sender.startswith(f"{name}[")]
        now_us = known.evidence.now_us
        event_us = evidence.output_us if evidence else _least(ranges)
        forward = speed(samples, name, _SPEED_OVER_US) if samples else None
        own_us, inherited_us = lags(evidence, now_us)
        ages = [each.age_us for each in pending if each.age_us is not None]
        backlogs = [
            each["backlog_records"] for each in ranges if each["backlog_records"] is not None
        ]
        due = known.evidence.due.get(name)
        return StageRow(
            name=name,
            is_source=evidence.is_source
            if evidence
            else any(r["first_hash"] is None for r in ranges),
            state=state("finished", Tone.NONE)
            if ranges and all(each["is_finished"] for each in ranges)
            else stage_state(known.evidence, name, (own_us, inherited_us), forward),
            event_us=event_us,
            own_lag_us=own_us,
            inherited_lag_us=inherited_us,
            forward=forward,
            records=evidence.records if evidence else None,
            records_per_s=evidence.records_per_s if evidence and not head.is_old else None,
            pending=sum(each.count for each in pending),
            pending_age_us=max(ages, default=None),
            backlog_records=sum(backlogs) if backlogs else None,
            late=count_of(known.evidence.late, name),
            dead=count_of(known.evidence.dead, name),
            due_us=None if due is None else due.next_us,
            is_in_chain=name in chain,
            senders=tuple(evidence.senders) if evidence else (),
        )


def graph_of(page: JobPage, href: Callable[[str], str]) -> tuple[list[GraphBox], list[GraphArrow]]:
    """The boxes and arrows of a job.

    Args:
        page: of the job.
        href: the address of a stage's explanation.
    """
    places = {stage.name: at for at, stage in enumerate(page.stages)}
    nodes = [
        GraphBox(
            name=stage.name,
            notes=(
                f"{stage.state.mark} {stage.state.word}",
                "rate unknown"
                if stage.records_per_s is None
                else f"{stage.records_per_s:,.0f} records/s",
            ),
            tone=stage.state.tone.value,
            is_in_chain=stage.is_in_chain,
            href=href(stage.name),
        )
        for stage in page.stages
    ]
    edges = []
    for stage in page.stages:
        for name in stage.senders:
            if name in places:
                sender = page.stages[places[name]]
                edges.append(_edge(places, sender, stage))
    return nodes, edges


def lines_of(page: JobPage) -> list[Line]:
    """The lines of the chart of event time.

    Args:
        page: of the job.
    """
    return [
        Line(
            name=stage.name,
            points=[
                (sample.at_us, event_us)
                for sample in page.samples
                if (event_us := sample.event_us.get(stage.name)) is not None
            ],
        )
        for stage in page.stages
    ]


def _never_back(
    name: str, evidence: Evidence, samples: Sequence[EventTimeSample]
) -> StageEvidence | None:
    """A stage with its latest output that is known."""
    found = evidence.stages.get(name)
    if found is None:
        return None
    sampled_us = samples[-1].event_us.get(name) if samples else None
    latest_us = latest_output_us(evidence.stages, name)
    return attrs.evolve(found, output_us=max(latest_us, sampled_us or latest_us))


def _edge(places: Mapping[str, int], sender: StageRow, stage: StageRow) -> GraphArrow:
    old_us = sender.pending_age_us
    tone = Tone.GOOD
    if old_us is not None and old_us > _OLD_PRODUCTION_US:
        tone = Tone.BAD if old_us > 6 * _OLD_PRODUCTION_US else Tone.WARN
    note = f"{sender.name} to {stage.name}: {sender.pending:,} productions on their way"
    return GraphArrow(
        start=places[sender.name],
        end=places[stage.name],
        records_per_s=stage.records_per_s,
        tone=tone.value,
        is_in_chain=sender.is_in_chain and stage.is_in_chain,
        note=note,
    )


def _job_state(
    row: Mapping[str, Any], age_us: int | None, lag_us: int | None, forward: float | None
) -> State:
    if row["finished_at"] is not None:
        return state("drained" if row["is_drained"] else "finished", Tone.NONE)
    if row["mode"] != "streaming":
        return state("batch", Tone.BUSY)
    if not row["is_driven"]:
        return state("not running", Tone.BAD)
    if age_us is not None and age_us > OLD_US:
        return state("driver silent", Tone.BAD)
    if row["phase"] not in (None, "running"):
        return state(str(row["phase"]), Tone.WARN)
    return lag_state(lag_us, forward)


def _last_event(samples: Sequence[EventTimeSample], committed_us: int | None) -> int | None:
    """The least event time of the last sample; of what was never sampled, as committed."""
    if not samples:
        return committed_us
    known = samples[-1].event_us.values()
    return (
        None if None in known else min((each for each in known if each is not None), default=None)
    )


def _least_speed(samples: Sequence[EventTimeSample]) -> float | None:
    """How fast the stage is that is behind the others."""
    if not samples:
        return None
    known = {name: at for name, at in samples[-1].event_us.items() if at is not None}
    if not known:
        return None
    return speed(samples, min(known, key=lambda name: known[name]), _SPEED_OVER_US)


def _behind(now_us: int, event_us: int | None) -> int | None:
    if event_us is None or not MIN_TIMESTAMP_US < event_us < MAX_TIMESTAMP_US:
        return None
    return max(0, now_us - event_us)


def _least(ranges: Sequence[Mapping[str, Any]]) -> int | None:
    found = [each["watermark"] for each in ranges]
    return None if not found or None in found else min(found)


def _rows(found: Mapping[str, FoundRows], name: str) -> Sequence[Mapping[str, Any]]:
    return (found[name].rows or ()) if name in found else ()


def _spans(found: Mapping[str, FoundRows], entries: Sequence[LineageEntry]) -> list[Span]:
    rows = partial(_rows, found)
    spans = [span for entry in reversed(entries) for span in _recorded_spans(entry)]
    spans += [
        Span(
            row=_row_name(row["computation"], row["window_start"]),
            label=f"{row['computation']}: window with state",
            start_us=row["window_start"],
            end_us=row["window_end"],
            kind="window",
        )
        for row in rows("key_cells")
        if row["window_start"] is not None
    ]
    spans += [
        Span(
            row=_row_name(row["computation"], row["window_start"]),
            label=f"{row['computation']}: timer",
            start_us=row["fires_at"],
            end_us=None,
            kind="timer",
        )
        for row in rows("key_timers")
        if row["domain"] == "event"
    ]
    spans += [
        Span(
            row=_row_name(row["transform"], row["window_start"]),
            label=f"{row['transform']}: {row['count']} too late",
            start_us=row["window_start"],
            end_us=row["window_end"],
            kind="late",
        )
        for row in rows("key_late")
    ]
    return spans


def _seen_spans(seen: KeySeen) -> Iterator[Span]:
    """Windows that have state, wherever that is, and their timers of event time."""
    for name, windows in seen.windows.items():
        for each in windows:
            row, start_us = _row_name(name, each.window.start_us), each.window.start_us
            label = f"{name}: window with state, {each.pending} records since it last fired"
            yield Span(
                row=row, label=label, start_us=start_us, end_us=each.window.end_us, kind="window"
            )
            if each.event_timer_us is not None:
                timer = f"{name}: timer at {instant(each.event_timer_us)}"
                yield Span(
                    row=row, label=timer, start_us=each.event_timer_us, end_us=None, kind="timer"
                )


def _recorded_spans(entry: LineageEntry) -> Iterator[Span]:
    """What an entry of a key is on its time line: records at their event times, panes where the watermark was."""
    row = _row_name(entry.transform, entry.window_start_us)
    if entry.kind is LineageKind.INPUT:
        kind = "record" if entry.sign > 0 else "minus record"
        for element in entry.elements:
            stamp, _, text = element.partition(" ")
            at_us = to_timestamp_us(datetime.fromisoformat(stamp))
            yield Span(
                row=row, label=f"record {text} at {stamp}", start_us=at_us, end_us=None, kind=kind
            )
        return
    yield Span(
        row=row,
        label=f"{entry.transform}: window",
        start_us=entry.window_start_us,
        end_us=entry.window_end_us,
        kind="emitted",
    )
    sign = "+" if entry.sign > 0 else "\N{MINUS SIGN}"
    result = entry.elements[0] if entry.elements else ""
    what = "pane" if entry.kind is LineageKind.PANE else "output"
    yield Span(
        row=row,
        label=f"{sign} {what} {entry.index} {entry.timing} {result}: {entry.reason or 'retracted'}",
        start_us=entry.watermark_us,
        end_us=None,
        kind="pane" if entry.sign > 0 else "minus pane",
        text=f"{sign}{result}",
    )


def _row_name(transform: str, start_us: int | None) -> str:
    if start_us is None or not MIN_TIMESTAMP_US < start_us < MAX_TIMESTAMP_US:
        return transform
    return f"{transform} {to_datetime(start_us):%H:%M:%S}"


def _masked(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: HIDDEN if name in names else value for name, value in row.items()}


def _class_of(error: str) -> str:
    """What an error says may quote the record."""
    return error.partition("\n")[0].partition(":")[0]


def _tables(
    found: Mapping[str, FoundRows], *left_out: str
) -> dict[str, Sequence[Mapping[str, Any]]]:
    return {
        name: rows.rows
        for name, rows in found.items()
        if rows.rows is not None and name not in ("jobs", "snapshot", *left_out)
    }


def _unknown(found: Mapping[str, FoundRows]) -> dict[str, str]:
    return {name: rows.reason for name, rows in found.items() if rows.rows is None}
