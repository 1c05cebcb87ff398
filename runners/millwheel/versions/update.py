"""What becomes of the state of a job when it goes over to a new version of its pipeline.

Pure: `plan_update` plans what is kept, begun anew, and lost; `UpdatePlan.carried_out_by` is the update for the store.
A computation is known by its name, the label of its transform, and keeps its state as long as the new code can read it
(`runners.millwheel.versions.state_shape`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum

import attrs

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.sink import LANE, SIGN
from dataflow.table import TableSpec
from runners.core.stages.plan import ExecutionPlan
from runners.errors import UpdateRefusedError
from runners.millwheel.store.port import JobRow, JobSpec, JobUpdate, StateCounts
from runners.millwheel.versions.retraction import Former, Retraction, plan_retraction
from runners.millwheel.versions.state_shape import StateShape, becomes_plain, state_shapes
from runners.millwheel.versions.table_notes import (
    notes_on_groupings,
    notes_on_rows_that_stay,
    notes_on_tables,
)
from runners.relay.job_outboxes import SCHEMA
from runners.relay.outbox import LaneStatus
from windowing.timestamps import MIN_TIMESTAMP_US, to_datetime


class Fate(Enum):
    """What becomes of a computation."""

    KEPT = "keeps its state"
    NEW = "is new"
    CHANGED = "begins anew"
    REMOVED = "is removed"


@attrs.frozen(kw_only=True)
class ComputationFate:
    """One computation of the old version or the new one.

    Attributes:
        name: its name in the new version; of one that is removed, its name in the old one.
        before: its name in the old version; None if it is new.
        fate: what becomes of it.
        reasons: why the new code cannot read its state.
        cells, timers: how much state it has.
        positions: splits of a source that have been read from.
        in_flight: productions that are lost with it, or that no watermark would wait for any more.
        is_undone: whether the update retracts what it has emitted, so that its state is not missed.
    """

    name: str
    before: str | None
    fate: Fate
    reasons: Sequence[str] = ()
    cells: int = 0
    timers: int = 0
    positions: int = 0
    in_flight: int = 0
    is_undone: bool = False

    @property
    def losses(self) -> list[str]:
        """What is lost, in words."""
        lost = {"in flight": self.in_flight}
        if self.fate in (Fate.CHANGED, Fate.REMOVED) and not self.is_undone:
            lost |= {"cells": self.cells, "timers": self.timers, "positions": self.positions}
        return [f"{count} {what}" for what, count in lost.items() if count]


@attrs.frozen(kw_only=True)
class LeftOutbox:
    """An outbox, or some lanes of one, that the new pipeline does not have.

    Attributes:
        sink: the label of the transform that writes to the sink, as far as it is known.
        table: of the rows.
        rows: how many wait.
        is_known: whether the former pipeline is at hand, whose sink takes the rows before the job goes over.
        is_dropped: whether the table goes; otherwise the sink has other lanes from here on.
    """

    sink: str
    table: TableSpec
    rows: int
    is_known: bool
    is_dropped: bool

    def __str__(self) -> str:
        gone = "is removed" if self.is_dropped else "gets other lanes"
        if not self.rows:
            return f"sink {self.sink} {gone}, and nothing waits for it"
        sent = "are sent before" if self.is_known else "would never be sent"
        return f"sink {self.sink} {gone}: {self.rows:,} rows wait for it, and {sent}"


@attrs.frozen(kw_only=True)
class UpdatePlan:
    """What an update would do; ``str(plan)`` is a table for people.

    Attributes:
        outboxes: those that the new pipeline does not have.
        warnings: effects that are correct, and that the user may not expect.
        retraction: what is retracted; None: nothing is.
    """

    job: str
    version: int
    counts: StateCounts
    computations: Sequence[ComputationFate]
    warnings: Sequence[str] = ()
    retraction: Retraction | None = None
    outboxes: Sequence[LeftOutbox] = ()

    @property
    def kept(self) -> dict[str, str]:
        """Computations that keep their state: by the old name, the new one."""
        return {
            each.before: each.name
            for each in self.computations
            if each.fate is Fate.KEPT and each.before is not None
        }

    @property
    def losing(self) -> list[ComputationFate]:
        """The computations of which something is lost."""
        return [each for each in self.computations if each.losses]

    @property
    def unsent(self) -> list[str]:
        """The labels of sinks for which rows wait that nobody could send."""
        return [each.sink for each in self.outboxes if each.rows and not each.is_known]

    def sent(self, allow_loss: Collection[str]) -> list[str]:
        """The labels of sinks that take what waits for them before the job goes over.

        Args:
            allow_loss: as for `check`: what waits for these is not sent.
        """
        return [
            each.sink
            for each in self.outboxes
            if each.rows and each.is_known and each.sink not in allow_loss
        ]

    def check(self, allow_loss: Collection[str], *, is_begun: bool = False) -> None:
        """Refuse to lose what may not be lost.

        Args:
            allow_loss: names of computations, old or new, whose state may be lost; of transforms of which some of what
                they have emitted may stay, although it was to be retracted; and of sinks for which what waits need not
                be sent.
            is_begun: whether the job has begun to retract it.

        Raises:
            PipelineError: a name is that of no computation.
            UpdateRefusedError: something else would be lost, or would stay.
        """
        names = {name for each in self.computations for name in (each.name, each.before)}
        remaining = [] if self.retraction is None else self.retraction.remaining
        names |= {label for each in remaining for label in each.gone}
        names |= {each.sink for each in self.outboxes}
        unknown = sorted({*allow_loss} - names)
        if unknown:
            raise PipelineError(
                f"allow_loss names {', '.join(map(repr, unknown))}, which job {self.job!r} neither has nor gets",
                detail=f"its computations are {', '.join(sorted(map(repr, names - {None})))}",
                hint="name computations by the labels of their transforms",
            )
        allowed = {*allow_loss}
        refused = [each for each in self.losing if not {each.name, each.before} & allowed]
        if refused:
            losing = [each.name for each in refused]
            hint = (
                f"keep the transforms as they were, or name what may be lost: allow_loss={losing}"
            )
            if any(each.in_flight for each in refused):
                hint += (
                    "; what is in flight arrives if the job is paused first (StreamingJob.pause)"
                )
            raise UpdateRefusedError(
                f"the update of job {self.job!r} would lose state", detail=str(self), hint=hint
            )
        if unsent := [label for label in self.unsent if label not in allowed]:
            raise UpdateRefusedError(
                f"rows wait for {', '.join(map(repr, unsent))} of job {self.job!r}, and would never be sent",
                detail=str(self),
                hint="let the former pipeline run until nothing waits; or give it as former=, so that they are sent "
                f"before; or name what need not be sent: allow_loss={unsent}",
            )
        # What has expired since the job has begun to retract has been retracted before.
        stuck = (
            [] if is_begun else [each for each in remaining if not allowed.issuperset(each.gone)]
        )
        if stuck:
            gone = [*dict.fromkeys(label for each in stuck for label in each.gone)]
            raise UpdateRefusedError(
                f"not all that {', '.join(map(repr, gone))} of job {self.job!r} emitted can be retracted",
                detail=str(self),
                hint="keep the transforms, or start over with fresh=True; "
                f"if what cannot be retracted may stay, name them: allow_loss={gone}",
            )

    def carried_out_by(self, spec: JobSpec) -> JobUpdate:
        """The update for the store, by which the job becomes this spec."""
        gone = () if self.retraction is None else self.retraction.emptied
        emptied = [each.table for each in gone]
        emptied += [each.table for each in self.outboxes if each.is_dropped]
        return JobUpdate(
            spec=spec, kept=self.kept, version=self.version, counts=self.counts, emptied=emptied
        )

    def __str__(self) -> str:
        rows = [("computation", "", "lost"), *map(_row, self.computations)]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        lines = [
            f"update of job {self.job!r} from version {self.version} to {self.version + 1}:",
            *(f"  {one:{widths[0]}}  {two:{widths[1]}}  {three}".rstrip() for one, two, three in rows),
            *(
                f"  {each.name}: {reason}"
                for each in self.computations
                for reason in each.reasons
            ),
            *(f"  {each}" for each in self.outboxes),
            *([] if self.retraction is None else self.retraction.lines()),
            *(f"  note: {warning}" for warning in self.warnings),
        ]  # fmt: skip
        return "\n".join(lines)


def left_outboxes(
    job: str, lanes: Sequence[LaneStatus], new: PipelineGraph, former: PipelineGraph | None
) -> list[LeftOutbox]:
    """The outboxes of a job that a new pipeline does not have, or divides otherwise.

    Args:
        job: its name.
        lanes: of the job.
        new: the pipeline that it is to run, with its outboxes.
        former: the one that it has run, with its outboxes; None: it is not known.
    """
    had = {} if former is None else former.sinks()
    before = {table.name: (label, sink.lanes) for label, (table, sink) in had.items()}
    after = {table.name: sink.lanes for table, sink in new.sinks().values()}
    found = []
    for name in dict.fromkeys([*(lane.outbox for lane in lanes), *before]):
        label, lanes_before = before.get(name, (None, after.get(name, 0)))
        # Where the lanes are others, changes of one key may be in another one than those before.
        first = 0 if lanes_before != after.get(name, 0) else lanes_before
        left = [lane for lane in lanes if lane.outbox == name and lane.number >= first]
        rows = sum(lane.waiting for lane in left)
        if name in after and not rows:
            continue
        plain = name.removeprefix(f"{SCHEMA}.").removeprefix(f"{job}/")
        known_as = next((lane.sink for lane in left if lane.sink), plain)
        found.append(
            LeftOutbox(
                sink=label or known_as,
                table=TableSpec(name=name, columns={LANE: int, SIGN: int}, is_outbox=True),
                rows=rows,
                is_known=label is not None,
                is_dropped=name not in after,
            )
        )
    return found


def plan_update(
    stored: JobRow,
    counts: StateCounts,
    new: ExecutionPlan,
    renamed: Mapping[str, str],
    former: Former | None = None,
) -> UpdatePlan:
    """Plan what an update would do.

    Args:
        stored: the job as it is.
        counts: how much state it has.
        new: the pipeline that it is to run.
        renamed: computations with another name in it: by the old name, the new one.
        former: the pipeline that it has run, to retract what of it is gone has emitted; None: nothing is retracted.

    Raises:
        PipelineError: ``renamed`` has a name that is not there, or is taken.
        UpdateRefusedError: the job is finished, or runs in batch.
    """
    if stored.is_finished or stored.mode != "streaming":
        what = "is finished" if stored.is_finished else f"runs in {stored.mode}"
        raise UpdateRefusedError(
            f"job {stored.job!r} {what}, and cannot be updated",
            hint="give the new pipeline another job name, or begin anew with fresh=True",
        )
    shapes, known = state_shapes(new), _known(stored, new)
    _check_renamed(renamed, known, shapes)
    names = {name: renamed.get(name, name) for name in known}
    before = {after: name for name, after in names.items()}
    # The name of a renamed computation is free: a computation that has it now is a new one.
    before = {after: name for after, name in before.items() if after in shapes}
    reasons = {
        name: _unreadable(known[name], shapes[after]) for after, name in before.items()
    }  # fmt: skip
    converted = _converted(known, shapes, reasons, before, former)
    kept = {
        name: names[name] for name, found in reasons.items() if not found or name in converted
    }  # fmt: skip
    orphans = dict(_orphans(counts, kept, shapes))
    fates = []
    for after in shapes:
        name = before.get(after)
        if name is None:
            fates.append(ComputationFate(name=after, before=None, fate=Fate.NEW))
        else:
            fate = Fate.KEPT if name in kept else Fate.CHANGED
            why = () if name in kept else reasons[name]
            fates.append(_fate(stored, counts, orphans, name, after, fate, why))
    fates += [
        _fate(stored, counts, orphans, name, name, Fate.REMOVED)
        for name in known
        if name not in reasons
    ]
    retraction = None
    if former is not None:
        retraction = plan_retraction(stored, counts, former, new, kept, converted)
        # All that is in flight arrives before.
        fates = [
            attrs.evolve(each, in_flight=0, is_undone=each.fate is Fate.REMOVED) for each in fates
        ]
    return UpdatePlan(
        job=stored.job,
        version=stored.version,
        counts=counts,
        computations=fates,
        warnings=list(_warnings(stored, known, shapes, kept, new)),
        retraction=retraction,
    )


def _converted(
    known: Mapping[str, StateShape | None],
    shapes: Mapping[str, StateShape],
    reasons: Mapping[str, Sequence[str]],
    before: Mapping[str, str],
    former: Former | None,
) -> frozenset[str]:
    """The computations that keep their state in another form, by their old names; see `becomes_plain`."""
    if former is None:
        return frozenset()
    return frozenset(
        name
        for after, name in before.items()
        if reasons[name] and name in former.plan.stages
        and becomes_plain(former.plan, name, known[name], shapes[after])
    )  # fmt: skip


def _known(stored: JobRow, new: ExecutionPlan) -> dict[str, StateShape | None]:
    """The shapes that the job has; where none was noted, that of the new pipeline, which is the same in all else."""
    shapes = state_shapes(new) if stored.fingerprint == new.graph.fingerprint() else {}
    return {
        name: shapes.get(name) if text is None else StateShape.decoded(text)
        for name, text in stored.computations.items()
    }


def _unreadable(old: StateShape | None, new: StateShape) -> list[str]:
    if old is None:
        return ["the types of its state are not known: run the old version once more before"]
    return old.unreadable(new)


def _check_renamed(
    renamed: Mapping[str, str], known: Collection[str], shapes: Collection[str]
) -> None:
    for old, new in renamed.items():
        if old not in known or new not in shapes or [*renamed.values()].count(new) > 1:
            raise PipelineError(
                f"{old!r} cannot be renamed to {new!r}",
                detail=f"the job has {', '.join(map(repr, sorted(known)))}; "
                f"the new pipeline has {', '.join(map(repr, sorted(shapes)))}",
                hint="renamed={'old label': 'new label'}, each once",
            )
        if new in known and new not in renamed:
            raise PipelineError(
                f"{old!r} cannot be renamed to {new!r}, because the job has one of that name",
                hint="give that one a new name in renamed, too",
            )


def _orphans(
    counts: StateCounts, kept: Mapping[str, str], shapes: Mapping[str, StateShape]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Edges whose productions are lost, or hold no watermark any more, each with the computation that they go with."""
    for sender, receiver in counts.in_flight:
        if sender not in kept:
            yield (sender, receiver), sender
        elif receiver not in kept:
            yield (sender, receiver), receiver
        elif kept[sender] not in shapes[kept[receiver]].senders:
            yield (sender, receiver), sender


def _fate(
    stored: JobRow,
    counts: StateCounts,
    orphans: Mapping[tuple[str, str], str],
    before: str,
    name: str,
    fate: Fate,
    reasons: Sequence[str] = (),
) -> ComputationFate:
    return ComputationFate(
        name=name,
        before=before,
        fate=fate,
        reasons=reasons,
        cells=counts.cells.get(before, 0),
        timers=counts.timers.get(before, 0),
        positions=sum(
            row.split is not None and row.position is not None
            for range_id, row in stored.ranges.items()
            if range_id.computation == before
        ),
        in_flight=sum(counts.in_flight[edge] for edge, whose in orphans.items() if whose == before),
    )


def _warnings(
    stored: JobRow,
    known: Mapping[str, StateShape | None],
    shapes: Mapping[str, StateShape],
    kept: Mapping[str, str],
    new: ExecutionPlan,
) -> Iterator[str]:
    for before, name in kept.items():
        old = known[before]
        senders = {kept.get(each) for each in old.senders} if old is not None else set()
        reached_us = max(
            row.input_watermark_us if row.input_watermark_us is not None else MIN_TIMESTAMP_US
            for range_id, row in stored.ranges.items()
            if range_id.computation == before
        )
        for sender in shapes[name].senders:
            if sender in senders or reached_us <= MIN_TIMESTAMP_US:
                continue
            where = f"{name} is at watermark {to_datetime(reached_us):%Y-%m-%d %H:%M:%S}"
            begins = " begins at its beginning and" if new.stages[sender].is_source else ""
            yield f"{sender}{begins} is new to {name}; {where}, and what is older is late there"
        yield from notes_on_tables(name, before, known, new)
        if not new.stages[name].is_source:
            yield from notes_on_groupings(name, {each for each in senders if each}, new)
    for name, shape in shapes.items():
        if name not in kept.values():
            yield from notes_on_rows_that_stay(name, known, new)
        if name not in kept.values() and set(shape.senders) & {*kept.values()}:
            yield f"{name} sees what is read from here on, not what was read before"


def _row(each: ComputationFate) -> tuple[str, str, str]:
    what = each.fate.value
    if each.before not in (None, each.name):
        what += f" (was {each.before})"
    counts = [f"{each.cells} cells", f"{each.timers} timers"] if each.fate is Fate.KEPT else []
    counts = [part for part in counts if not part.startswith("0 ")]
    if counts:
        what += f": {', '.join(counts)}"
    return each.name, what, ", ".join(each.losses)
