"""Words for states: each with a mark and a tone, so that colour alone never says anything."""

from enum import StrEnum

import attrs

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
