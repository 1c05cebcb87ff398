"""Words for states: each with a mark and a tone, so that colour alone never says anything.

The page of a job and ``dataflow top`` have the same ones.
"""

from collections.abc import Mapping
from enum import StrEnum

import attrs

from runners.observability.evidence.snapshot import StageEvidence
from runners.observability.why.evidence import Evidence, JobState
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

#: Nearer to the clock than this is up to date.
NEAR_US = 10_000_000
#: What a driver writes once a second is old after this.
OLD_US = 5_000_000
#: Seconds of event time in a second, above which a stage comes nearer, and below which it stands still.
CATCHING_UP, STANDING = 1.05, 0.02


class Tone(StrEnum):
    """How much somebody should look at it."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    NONE = "none"


_MARKS = {Tone.GOOD: "✓", Tone.BUSY: "»", Tone.WARN: "!", Tone.BAD: "✕", Tone.NONE: "○"}


@attrs.frozen(kw_only=True)
class State:
    """A state.

    Attributes:
        word: what it is called.
        mark: a character that tells states apart without colour.
    """

    word: str
    tone: Tone
    mark: str


def state(word: str, tone: Tone) -> State:
    """A state of this name.

    Args:
        word: what it is called.
        tone: how much somebody should look at it.
    """
    return State(word=word, tone=tone, mark=_MARKS[tone])


def lag_state(lag_us: int | None, forward: float | None) -> State:
    """The state of what follows the clock.

    Args:
        lag_us: how far event time is behind the clock, in microseconds; None: not known.
        forward: seconds of event time in a second, over the last samples; None: not known.
    """
    if lag_us is None:
        return state("unknown", Tone.NONE)
    if lag_us <= NEAR_US:
        return state("up to date", Tone.GOOD)
    if forward is None:
        return state("behind", Tone.WARN)
    if forward > CATCHING_UP:
        return state("catching up", Tone.BUSY)
    return state("stuck", Tone.BAD) if forward < STANDING else state("falling behind", Tone.WARN)


def lags(stage: StageEvidence | None, now_us: int) -> tuple[int | None, int | None]:
    """The lag of a stage's own, and that of its input; None where event time is at one of its ends, or not known.

    Args:
        stage: None: nothing is known of it.
        now_us: the time, in microseconds since 1970.
    """
    if stage is None:
        return None, None
    input_us = now_us if stage.input_us is None else stage.input_us
    has_input = MIN_TIMESTAMP_US < input_us < MAX_TIMESTAMP_US
    has_output = MIN_TIMESTAMP_US < stage.output_us < MAX_TIMESTAMP_US
    own_us = stage.own_lag_us(now_us) if has_input and has_output else None
    return own_us, stage.inherited_lag_us(now_us) if has_input else None


def is_old(evidence: Evidence) -> bool:
    """Whether what the driver of a stream has written is too old to be how things are, or there is nothing.

    Args:
        evidence: of the job.
    """
    if evidence.mode != "streaming" or evidence.state in (JobState.FINISHED, JobState.DRAINED):
        return False
    return evidence.as_of_us is None or evidence.now_us - evidence.as_of_us > OLD_US


def stage_state(
    evidence: Evidence,
    name: str,
    own_and_inherited_us: tuple[int | None, int | None],
    forward: float | None = None,
) -> State:
    """The state of a stage.

    Args:
        evidence: of the job.
        name: of the stage.
        own_and_inherited_us: its `lags`.
        forward: as for `lag_state`.
    """
    own_us, inherited_us = own_and_inherited_us
    if evidence.state in (JobState.FINISHED, JobState.DRAINED):
        return state("finished", Tone.NONE)
    if evidence.state is JobState.NOT_RUNNING:
        return state("not running", Tone.BAD)
    if is_old(evidence) or evidence.as_of_us is None:
        return state("unknown", Tone.NONE)
    ranges = [each for _, each in evidence.ranges_of(name)]
    if ranges and all(each.is_ended for each in ranges):
        return state("finished", Tone.NONE)
    if ranges and all(each.is_idle or each.is_ended for each in ranges):
        return state("idle", Tone.GOOD)
    if own_us is not None and own_us <= NEAR_US and (inherited_us or 0) > NEAR_US:
        return state("waits for its input", Tone.BUSY)
    return lag_state(own_us, forward)


def count_of(counts: Mapping[str, int], stage: str) -> int:
    """Of a stage; what is counted by transform is counted where its name begins with the stage's.

    Args:
        counts: by stage, or by transform.
        stage: its name.
    """
    return sum(
        count for name, count in counts.items() if name == stage or name.startswith(f"{stage}/")
    )
