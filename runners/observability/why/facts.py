"""Facts: what is worth knowing of a stage whatever holds it: its lag, timers and keys, and what goes on around it."""

from collections.abc import Iterator

from runners.observability.evidence.snapshot import HotKey, RangeEvidence, StageEvidence
from runners.observability.why.evidence import Evidence
from runners.observability.why.explanation import Fact
from runners.observability.why.states import NEAR_US, is_old
from runners.observability.why.words import instant, length, number
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

_US_PER_S = 1_000_000
#: A range with so many times what the others have on average is hot, if a stage has taken in enough to tell.
HOT_RATIO, HOT_RECORDS_MIN = 2.0, 100
#: A key that is so much of what its range takes in is worth naming.
FREQUENT_SHARE = 0.1
#: What changed longer ago than this is not why something has changed now.
RECENT_US = 600 * _US_PER_S
_CHANGES_MAX = 3


def event_time_us(evidence: Evidence, stage: str) -> int:
    """How far event time has come for a stage.

    Args:
        evidence: of the job.
        stage: its name; it is one of the evidence.
    """
    found = evidence.stages[stage]
    return found.output_us if found.input_us is None else found.input_us


def facts_of(evidence: Evidence, stage: str | None) -> Iterator[Fact]:
    """The table of a stage.

    Args:
        evidence: of the job.
        stage: its name; None, or one that is not known: what goes on around it alone.
    """
    if stage is not None and stage in evidence.stages:
        yield from _of_time(evidence, stage)
        yield from _of_records(evidence, stage)
    for objective in evidence.objectives:
        state = "met" if objective.is_met else "not met"
        behind = "" if objective.behind_us is None else f", {length(objective.behind_us)} behind"
        yield Fact(
            name=f"fresh within {length(objective.within_us)}",
            value=f"{state}{behind}, by {objective.transform!r}",
            source="the pipeline",
        )
    for each in evidence.sinks:
        yield Fact(name=f"rows that wait for {each.name}", value=f"{each.waiting:,}")
    yield from _around(evidence)
    if evidence.as_of_us is not None:
        age = length(evidence.now_us - evidence.as_of_us)
        yield Fact(name="evidence from", value=f"{age} ago", source="job_snapshots")


def _of_time(evidence: Evidence, stage: str) -> Iterator[Fact]:
    found, now_us, at_us = evidence.stages[stage], evidence.now_us, event_time_us(evidence, stage)
    yield Fact(name="stage", value=stage)
    yield Fact(name="event time", value=instant(at_us), source="authority")
    if MIN_TIMESTAMP_US < at_us < MAX_TIMESTAMP_US:
        if found.input_us is not None:
            inherited = length(found.inherited_lag_us(now_us))
            yield Fact(name="lag of its input", value=inherited, source="authority")
        yield Fact(
            name="lag of its own", value=length(found.own_lag_us(now_us)), source="authority"
        )
        yield from _caught_up(evidence, stage)
    if found.overdue_timers:
        since = (
            ""
            if found.overdue_us is None
            else f", the first for {length(now_us - found.overdue_us)}"
        )
        yield Fact(
            name="timers overdue", value=f"{found.overdue_timers:,}{since}", source="workers"
        )


def _caught_up(evidence: Evidence, stage: str) -> Iterator[Fact]:
    """How long until what is behind is caught up: known if a backlog is, and how it grows; never a guess."""
    if evidence.now_us - event_time_us(evidence, stage) <= NEAR_US or is_old(evidence):
        return
    for name, source in evidence.stages.items():
        if source.is_source:
            yield Fact(name="caught up", value=_catch_up(name, source), source="last polls")


def _catch_up(name: str, source: StageEvidence) -> str:
    backlog, growth = source.backlog_records, source.backlog_growth_per_s
    if backlog is None:
        return f"unknown: {name!r} does not tell its backlog"
    if not backlog:
        return f"nothing is left to read of {name!r}"
    if growth is None:
        return f"unknown: the backlog of {name!r} was not watched for long enough"
    left = f"{number(backlog, 'record')} of {name!r} are left"
    if growth >= 0:
        return f"not at this rate: {left}, and {growth:,.0f} more each second"
    return f"in {length(round(backlog / -growth) * _US_PER_S)}: {left}, and {-growth:,.0f} fewer each second"


def _of_records(evidence: Evidence, stage: str) -> Iterator[Fact]:
    yield Fact(name="records in", value=f"{evidence.stages[stage].records:,}", source="its owners")
    hot = hot_range(evidence, stage)
    if hot is not None:
        name, _, share = hot
        others = len(evidence.ranges_of(stage)) - 1
        value = f"{name} has taken in {share:.0%} of that, and {number(others, 'other')} the rest"
        yield Fact(name="busiest range", value=value, source="its owners")
    for name, each in evidence.ranges_of(stage):
        keys = [f"{_shown(key)} about {key.count / key.of:.0%}" for key in frequent_keys(each)]
        if keys:
            yield Fact(name=f"frequent keys of {name}", value=", ".join(keys), source="a sample")
    if stage in evidence.late:
        yield Fact(
            name="records too late", value=f"{evidence.late[stage]:,}", source="late_records"
        )
    if stage in evidence.dead:
        yield Fact(name="dead letters", value=f"{evidence.dead[stage]:,}", source="dead_letters")


def hot_range(evidence: Evidence, stage: str) -> tuple[str, RangeEvidence, float] | None:
    """The range of a stage that has far more to do than the others, and what part of all; None: there is none.

    Args:
        evidence: of the job.
        stage: its name.
    """
    ranges = evidence.ranges_of(stage)
    total = sum(each.records for _, each in ranges)
    if len(ranges) < 2 or total < HOT_RECORDS_MIN:
        return None
    name, most = max(ranges, key=lambda found: (found[1].records, found[0]))
    others = (total - most.records) / (len(ranges) - 1)
    return (name, most, most.records / total) if most.records > HOT_RATIO * others else None


def frequent_keys(each: RangeEvidence) -> list[HotKey]:
    """The keys of a range that are worth naming: surely that frequent, whatever the error of the sample.

    Args:
        each: the range.
    """
    return [
        key for key in each.hot_keys if key.of and key.count - key.error >= FREQUENT_SHARE * key.of
    ]


def heat(evidence: Evidence, name: str) -> str:
    """What a sentence about a range says of it if it is hot; empty if it is not.

    Args:
        evidence: of the job.
        name: of the range.
    """
    each = evidence.ranges.get(name)
    hot = None if each is None else hot_range(evidence, each.stage)
    if hot is None or hot[0] != name:
        return ""
    text = f"; {name} has {hot[2]:.0%} of all records of {hot[1].stage!r}"
    keys = frequent_keys(hot[1])
    if keys:
        text += f", {keys[0].count / keys[0].of:.0%} of which are of one key, {_shown(keys[0])}"
    return text


def _shown(key: HotKey) -> str:
    return f"hash {key.key_hash:#018x}" if key.key is None else key.key


def _around(evidence: Evidence) -> Iterator[Fact]:
    """What has changed just before, whether reports are old, and what is wrong with the store."""
    driver = evidence.driver
    if driver is not None and driver.longest_round_ms:
        yield Fact(
            name="longest round of the driver",
            value=length(driver.longest_round_ms * 1_000),
            source="job_snapshots",
        )
    oldest = _oldest_report(evidence)
    if oldest is not None:
        yield Fact(name="oldest report", value=oldest, source="job_snapshots")
    for change in evidence.changes[:_CHANGES_MAX]:
        age_us = evidence.now_us - change.at_us
        if age_us <= RECENT_US:
            what = f"{change.kind} of {change.subject}" if change.subject else change.kind
            value = f"{what}, {length(max(0, age_us))} ago: {change.reason}"
            yield Fact(name="changed just before", value=value, source="readable_events")
    for finding in evidence.store:
        yield Fact(name=f"store, {finding.kind.value}", value=finding.text, source="the database")


def _oldest_report(evidence: Evidence) -> str | None:
    at_us = evidence.now_us if evidence.as_of_us is None else evidence.as_of_us
    reported = [
        (each.reported_us, name)
        for name, each in evidence.ranges.items()
        if each.reported_us is not None and not each.is_ended
    ]
    if not reported:
        return None
    oldest_us, name = min(reported)
    return f"{length(max(0, at_us - oldest_us))} old, of {name}; {number(len(reported), 'range')} in all"
