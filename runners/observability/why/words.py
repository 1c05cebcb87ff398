"""Words: instants, lengths of time and trees of triggers, as people read them."""

from collections.abc import Iterator

from dataflow.times import in_words
from triggers.awaited import Awaited, AwaitedKind, Turn
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, format_timestamp
from windowing.window import Window

_US_PER_S = 1_000_000
#: Lengths from here on are shown without fractions of a second.
_WHOLE_US = 10 * _US_PER_S
_MARKS = {True: "✓", False: "·"}
_NODES = {
    AwaitedKind.ANY: "any of",
    AwaitedKind.ALL: "all of",
    AwaitedKind.EACH: "one after the other",
    AwaitedKind.REPEATEDLY: "again and again",
    AwaitedKind.PHASES: "before, at and after the end of the window",
}
_TURNS = {Turn.NOW: "", Turn.OVER: " (over)", Turn.LATER: " (later)"}


def instant(at_us: int) -> str:
    """An instant.

    Args:
        at_us: in microseconds since 1970.
    """
    if at_us <= MIN_TIMESTAMP_US:
        return "the beginning of time"
    return "the end of time" if at_us >= MAX_TIMESTAMP_US else format_timestamp(at_us)


def length(length_us: int) -> str:
    """A length of time: exact to the millisecond where it is short, and to the second where it is not.

    Args:
        length_us: in microseconds.
    """
    unit_us = _US_PER_S if abs(length_us) >= _WHOLE_US else 1_000
    return in_words(round(length_us / unit_us) * unit_us)


def window_text(window: Window) -> str:
    """A window as its two ends.

    Args:
        window: the window.
    """
    return f"{instant(window.start_us)} to {instant(window.end_us)}"


def distance(to_us: int, from_us: int) -> str:
    """How far an instant of event time is ahead: "in 41 seconds of event time"; empty where that means nothing.

    Args:
        to_us: the instant, in microseconds since 1970.
        from_us: where event time is.
    """
    if from_us <= MIN_TIMESTAMP_US or to_us >= MAX_TIMESTAMP_US:
        return ""
    apart = length(abs(to_us - from_us))
    return f"in {apart} of event time" if to_us > from_us else f"{apart} of event time ago"


def number(count: int, what: str) -> str:
    """A number of things: "1 record", "3 records".

    Args:
        count: how many.
        what: one of them.
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def shown_leaf(leaf: Awaited) -> str:
    """What a leaf waits for, in words.

    Args:
        leaf: a leaf of the tree.
    """
    have, need = leaf.have or 0, leaf.need or 0
    match leaf.kind:
        case AwaitedKind.WATERMARK:
            return f"watermark ≥ {instant(leaf.until_us or 0)}"
        case AwaitedKind.CLOCK if leaf.until_us is None:
            return "the first record, which sets a time of the clock"
        case AwaitedKind.CLOCK:
            return f"{instant(leaf.until_us or 0)} of the clock"
        case AwaitedKind.RECORDS:
            return f"{have:,} of {number(need, 'record')}"
        case AwaitedKind.BYTES:
            return f"{have:,} of {number(need, 'byte')}"
        case AwaitedKind.VALUES:
            return f"{have:,} of {number(need, 'value')} that match"
        case AwaitedKind.SIGNAL:
            return f"the signal {leaf.name.rpartition(' ')[2]!r}"
        case AwaitedKind.NEVER:
            return "nothing: it never fires, and all is emitted when the window expires"
    return f"{leaf.name or 'the trigger'}, a trigger of your own"


def shown_tree(node: Awaited) -> Iterator[str]:
    """A tree, line by line: what is met with a check mark, what is awaited with a dot.

    Args:
        node: the root.
    """
    name = "" if node.kind in (AwaitedKind.SIGNAL, AwaitedKind.OWN) else node.name
    named = f"{name}: " if name else ""
    text = _NODES[node.kind] if node.parts else shown_leaf(node)
    yield f"{_MARKS[node.is_met]} {named}{text}{_TURNS[node.turn]}"
    for part in node.parts:
        yield from (f"  {line}" for line in shown_tree(part))
