"""The chain: who holds a stage's event time back, from the stage to what nothing else holds.

A watermark is a least value of things that are there: the output watermarks of the ranges that send, and each of these
of up to where its range has fired, of what it has sent and nobody has acknowledged, and of panes that it is still to
emit.  So the place of the least value is the answer.  Where a range has fired up to its input, the least of *its*
stage's input is looked for in turn.

**Laws** (`tests/simulation/why/test_chain.py`)

* The last of the chain holds at the stage's input watermark, in every state that a job comes to.
* But a range that has come to where its input was in the snapshot before is passed over, as it is on its way: then the
  last holds that input, a moment later.
* Raising it, and what it names as being as far, and nothing else, raises the stage.
* Under a fault the last of the chain is the part that is at fault.
"""

from collections.abc import Iterator

import attrs

from runners.observability.evidence.snapshot import RangeEvidence, RangeState, StageEvidence
from runners.observability.why.evidence import Evidence
from runners.observability.why.explanation import CauseKind, Holder, HolderKind
from runners.observability.why.leaves import (
    all_ended,
    may_grow,
    new_splits,
    of_production,
    of_range,
    of_split,
    of_window,
    of_worker,
    unknown_leaf,
)
from runners.observability.why.words import instant
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: What is shown of several that hold at the same event time: what is most likely to be wrong first.
_FIRST = (
    CauseKind.RANGE_WITHOUT_OWNER,
    CauseKind.WORKER_SILENT,
    CauseKind.REPORTS_REFUSED,
    CauseKind.COMMIT_WAITS,
    CauseKind.WORKER_BUSY,
    CauseKind.UNACKNOWLEDGED,
    CauseKind.INPUT_AWAY,
    CauseKind.NEVER_POLLED,
    CauseKind.NOT_POLLED,
    CauseKind.NOT_REPORTED,
    CauseKind.BEHIND_ITS_INPUT,
    CauseKind.OPEN_WINDOW,
    CauseKind.NEW_SPLITS,
    CauseKind.NEVER_READ,
    CauseKind.WAITS_FOR_RECORD,
    CauseKind.ALL_IDLE,
    CauseKind.READING,
)

#: A way from the stage that was asked for to a leaf.
_Path = tuple[Holder, ...]


def chain_of(evidence: Evidence, stage: str) -> _Path:
    """The chain of a stage's input watermark; of a source, of what it feeds.

    Args:
        evidence: of the job.
        stage: its name; it is one of the evidence.

    Returns:
        The stage itself first, and the leaf last.
    """
    first = evidence.stages[stage]
    value_us = first.output_us if first.input_us is None else first.input_us
    begin = _stage_link(evidence, stage, value_us)
    ways = ways_of(evidence, stage)
    if not ways:
        return (begin, unknown_leaf(stage, value_us))
    *before, leaf = ways[0]
    same = dict.fromkeys(way[-1].name for way in ways if way[-1].name != leaf.name)
    return (begin, *before, attrs.evolve(leaf, as_far=tuple(same)))


def ways_of(evidence: Evidence, stage: str) -> list[_Path]:
    """All ways from a stage to what holds it, without the stage; several if they hold at the same event time.

    Args:
        evidence: of the job.
        stage: its name; it is one of the evidence.

    Returns:
        Those that end at what is most likely to be wrong first.
    """
    if evidence.stages[stage].is_source:
        paths = [*_from_ranges(evidence, evidence.ranges_of(stage), MIN_TIMESTAMP_US, {})]
    else:
        paths = _paths(evidence, stage, {})
    in_order = sorted(paths, key=_order)
    return [path for path in in_order if path[-1].value_us == in_order[0][-1].value_us]


def _order(path: _Path) -> tuple[int, int, int]:
    leaf = path[-1]
    rank = _FIRST.index(leaf.cause) if leaf.cause in _FIRST else len(_FIRST)
    return leaf.value_us, rank, len(path)


def _stage_link(evidence: Evidence, stage: str, value_us: int) -> Holder:
    what = "has read up to" if evidence.stages[stage].is_source else "is at"
    text = f"{stage!r} {what} {instant(value_us)}"
    return Holder(kind=HolderKind.STAGE, name=stage, value_us=value_us, text=text)


def _paths(evidence: Evidence, stage: str, known: dict[str, list[_Path]]) -> list[_Path]:
    """All ways from a stage to what it waits for; nothing on them holds at less than the stage has come to.

    What is known of a range begins anew with each owner, and no watermark goes back by that.
    """
    if stage not in known:
        input_us = evidence.stages[stage].input_us
        floor_us = MIN_TIMESTAMP_US if input_us is None else input_us
        least: dict[tuple[str, ...], _Path] = {}
        for path in _all_paths(evidence, stage, floor_us, known):
            raised = _raised(path, floor_us)
            end = tuple(
                f"{each.name} {each.details.get('range')}"
                for each in raised
                if each.kind is not HolderKind.STAGE
            )
            # Many ways may lead to one leaf.
            if end not in least or _order(raised) < _order(least[end]):
                least[end] = raised
        known[stage] = [*least.values()]
    return known[stage]


def _raised(path: _Path, floor_us: int) -> _Path:
    return tuple(
        each if each.value_us >= floor_us else attrs.evolve(each, value_us=floor_us)
        for each in path
    )


def _all_paths(
    evidence: Evidence, stage: str, floor_us: int, known: dict[str, list[_Path]]
) -> Iterator[_Path]:
    found = evidence.stages[stage]
    senders = [each for each in found.senders if each in evidence.stages]
    for sender in senders:
        hold_us = evidence.stages[sender].hold_us
        if hold_us is not None:
            yield (new_splits(sender, hold_us),)
    waited = evidence.waited_for(stage)
    open_ranges = [each for each in waited if each[1].output_us < MAX_TIMESTAMP_US]
    growing = [each for each in senders if evidence.stages[each].may_grow]
    if not open_ranges and growing:
        yield (may_grow(growing[0], found.input_us),)
    elif not open_ranges and waited:
        yield (all_ended(stage, senders),)
    yield from _from_ranges(evidence, open_ranges, floor_us, known)


def _from_ranges(
    evidence: Evidence,
    ranges: list[tuple[str, RangeEvidence]],
    floor_us: int,
    known: dict[str, list[_Path]],
) -> Iterator[_Path]:
    """The ways over ranges of senders, to each thing that their output watermarks are the least of.

    One that is behind what its receiver has come to, as a split that was idle, has to come further than that.
    """
    are_idle = bool(ranges) and all(each.is_idle for _, each in ranges)
    fed: dict[str, int] = {}
    for name, each in ranges:
        stage = evidence.stages[each.stage]
        reached_us = max(each.output_us, floor_us)
        leaves = list(_leaves_of(evidence, name, each, reached_us))
        yield from leaves
        if leaves and not _waits_for_input(each, reached_us):
            continue
        if stage.input_us is None:
            if _is_owned(each):
                yield (of_split(evidence, name, each, are_idle=are_idle),)
            continue
        goes_on = _goes_on(evidence, name, each, stage)
        if each.output_us < stage.input_us and _is_owned(each) and not goes_on:
            yield (of_range(evidence, name, each),)
        if stage.input_us <= reached_us or goes_on:
            fed[each.stage] = min(reached_us, fed.get(each.stage, reached_us))
    for sender, output_us in fed.items():
        above = _stage_link(evidence, sender, output_us)
        paths = _paths(evidence, sender, known)
        yield from ((above, *_raised(path, output_us)) for path in paths)


def _leaves_of(
    evidence: Evidence, name: str, each: RangeEvidence, reached_us: int
) -> Iterator[_Path]:
    """What a range itself has that holds; one without an owner goes no further, whatever its input does.

    What its last owner has reported of a range without one may not be so any more.
    """
    if _is_owned(each):
        if each.unacknowledged_us is not None and each.unacknowledged_us <= reached_us:
            yield of_production(evidence, name, each)
        if each.window_hold_us is not None and each.window_hold_us <= reached_us:
            yield (of_window(name, each),)
    else:
        yield (of_range(evidence, name, each),)


def _is_owned(each: RangeEvidence) -> bool:
    return each.state is not RangeState.AWAITED and each.worker is not None


def _goes_on(evidence: Evidence, name: str, each: RangeEvidence, stage: StageEvidence) -> bool:
    """Whether a range has come to where its input was in the document before.

    What it is behind its input is no more than the age of its report then, at whatever speed event time goes.  One
    whose worker is to blame is not on its way.
    """
    if stage.input_before_us is None or stage.input_us is None or not _is_owned(each):
        return False
    if each.output_us < stage.input_before_us or each.output_us <= MIN_TIMESTAMP_US:
        return False
    return of_worker(evidence, name, each, each.output_us, "") is None


def _waits_for_input(each: RangeEvidence, reached_us: int) -> bool:
    """Whether a range that has something of its own would go no further without it."""
    if not _is_owned(each):
        return True
    return each.processed_us is not None and each.processed_us <= reached_us
