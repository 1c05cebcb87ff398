"""What the panes that a job emitted must obey, whatever died meanwhile, in the order in which they were committed."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

PaneRow = Mapping[str, Any]
Answers = Mapping[tuple[Any, ...], str]


def check_panes_are_those_of(expected: Sequence[PaneRow], emitted: Sequence[PaneRow]) -> None:
    """Check that both have equal panes, each as often, and those of each key and window in one order."""
    assert _by_window(expected) == _by_window(emitted)


def check_corrections(emitted: Sequence[PaneRow], answers: Answers) -> None:
    """Check accumulating panes: numbered without a gap, never fewer ids than before, and the last is the answer."""
    last: dict[tuple[Any, ...], str] = {}
    for (user, start, _), panes in _by_window(emitted).items():
        indexes = [index for _, index, _ in panes]
        assert list(range(len(panes))) == indexes, (user, start, panes)
        counted: set[str] = set()
        for value, _, _ in panes:
            ids = value.split()
            assert len(ids) == len(set(ids)), f"counted twice: {user} {start} {value}"
            assert counted <= set(ids), (user, start, panes)
            counted = set(ids)
        timings = [timing for _, _, timing in panes]
        assert sorted(timings, key=["early", "on_time", "late"].index) == timings
        assert timings.count("on_time") <= 1
        last[user, start] = panes[-1][0]
    assert answers == last


def check_retractions(emitted: Sequence[PaneRow], answers: Answers) -> None:
    """What is emitted is emitted once until it is retracted, no id is in two answers, and what stands is the answer."""
    standing: dict[str, dict[tuple[Any, ...], str]] = defaultdict(dict)
    next_index: dict[tuple[Any, ...], int] = {}
    for change in emitted:
        user, window = change["user"], (change["user"], change["start"], change["end"])
        if change["sign"] < 0:
            assert standing[user].pop(window, None) == change["value"], f"not standing: {change}"
            continue
        assert window not in standing[user], f"emitted twice: {change}, {standing[user][window]}"
        standing[user][window] = change["value"]
        assert change["index"] >= next_index.get(window, 0), f"out of order: {change}"
        next_index[window] = change["index"] + 1
        ids = " ".join(standing[user].values()).split()
        assert len(ids) == len(set(ids)), f"an id in two sessions: {change}, {standing[user]}"
    left = {window: value for each in standing.values() for window, value in each.items()}
    assert answers == left


def _by_window(emitted: Sequence[PaneRow]) -> dict[tuple[Any, ...], list[tuple[str, int, str]]]:
    panes = defaultdict(list)
    for pane in emitted:
        window = pane["user"], pane["start"], pane["end"]
        panes[window].append((pane["value"], pane["index"], pane["timing"]))
    return dict(panes)


def multiset(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows without an order."""
    return Counter(tuple(sorted(row.items())) for row in rows)
