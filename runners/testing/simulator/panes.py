"""Panes: everything that the groupings of a job emit, as it is committed, and what must hold of it at every moment.

Each grouping of the pipeline is *tapped*: what it emits and retracts also goes into a table of its own, so that it is
committed with everything else and known in the order of the commits.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from dataflow.combine_fn import (
    CallableCombineFn,
    ChangingCombineFn,
    ListCombineFn,
    PassOnFn,
)
from dataflow.graph import MAIN, Group
from dataflow.io.postgres import WriteToPostgres
from dataflow.pipeline import PCollection, Pipeline
from dataflow.serialization import dumps, loads
from dataflow.signed_sum import FoldError
from dataflow.table import TableSpec
from dataflow.testing.fold import Combine, Folding
from dataflow.transforms.changelog import Change, ToChangelog
from dataflow.transforms.par_do import FlatMap, Map
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.parts import replace
from runners.testing.simulator.passed_values import IncompleteError, Passed, whole_panes
from triggers.accumulation import AccumulationMode
from windowing.pane import PaneTiming
from windowing.timestamps import MAX_TIMESTAMP_US

_COLUMN = "change"
_TIMINGS = (PaneTiming.EARLY, PaneTiming.ON_TIME, PaneTiming.LATE)


@attrs.frozen
class Tap:
    """One grouping and the table with all that it emits.

    Attributes:
        is_retracted: whether its input may be retracted.
        folding: how its panes add up; None where only the user can know.
        is_many: whether a window emits many elements, of which only those that have changed are emitted again; then
            there is a row for each of them.
        passes_on: whether values go before their panes.
    """

    label: str
    table: str
    mode: AccumulationMode
    is_merging: bool
    is_retracted: bool
    folding: Folding | None
    is_many: bool = False
    passes_on: bool = False


def tap(pipeline: Pipeline) -> list[Tap]:
    """Have every grouping of a pipeline record what it emits."""
    graph = pipeline.graph()
    taps: list[Tap] = []
    for node in graph.transforms:
        if not isinstance(node.operation, Group):
            continue
        pcoll = PCollection[Any](pipeline, graph.pcollections[node.outputs[MAIN]])
        is_many = isinstance(node.operation.combine_fn, ChangingCombineFn)
        if is_many:
            pcoll = pcoll | f"tap each {len(taps)}" >> FlatMap(_each)
        table = f"simulator_tap_{len(taps)}"
        rows = pcoll | f"tap {len(taps)}" >> ToChangelog() | f"tap row {len(taps)}" >> Map(_row)
        rows | f"tap write {len(taps)}" >> WriteToPostgres(table, columns={_COLUMN: bytes})
        folding = Folding.of(pcoll)
        combine_fn, mode = node.operation.combine_fn, folding.mode
        combine: Combine | None = None
        passes_on = isinstance(combine_fn, PassOnFn)
        if type(combine_fn) is ListCombineFn or passes_on:
            combine = _concatenated
        elif isinstance(combine_fn, CallableCombineFn):
            combine = combine_fn.function
        is_foldable = mode is not AccumulationMode.DISCARDING or combine is not None
        folding = attrs.evolve(folding, combine=combine)
        taps.append(
            Tap(
                node.label,
                table,
                mode,
                folding.is_merging,
                graph.pcollections[node.inputs[0]].retracted_by is not None,
                folding if is_foldable else None,
                is_many,
                passes_on,
            )
        )
    return taps


def changes_of(
    tapped: Tap, rows: Iterable[Sequence[Any]], passed: Passed | None = None
) -> list[Change[Any]]:
    """The changes that the rows of a tap's table describe.

    Args:
        tapped: the tap.
        rows: of its table, in the order in which they were committed.
        passed: the values that have gone before panes until then, which is added to; None: none have.

    Raises:
        InvariantError: I2, a pane has not the values that it says.
    """
    changes = [loads(blob) for (blob,) in rows]
    if not tapped.passes_on:
        return changes
    gone: Passed = {} if passed is None else passed
    try:
        return list(whole_panes(tapped.label, tapped.mode, changes, gone))
    except IncompleteError as error:
        raise InvariantError(f"I2: {tapped.label!r}: {error}") from None


class PaneLog:
    """The committed panes of all taps, in order; checks every pane against those before it."""

    def __init__(self, taps: Iterable[Tap]) -> None:
        self._taps = {each.table: each for each in taps}
        self._emitted: dict[tuple[str, str, Any], Change[Any]] = {}
        self._last: dict[tuple[str, str, Any], tuple[int, int]] = {}
        #: Of windows that emit many elements: how often each is emitted.
        self._many: Counter[tuple[str, str, Any]] = Counter()
        #: Of windows whose values go before their panes: those that have gone.
        self._passed: Passed = {}
        self.changes: dict[str, list[Change[Any]]] = {each.label: [] for each in taps}

    def updated(self, taps: Iterable[Tap], kept: Collection[str]) -> None:
        """Go over to the taps of another pipeline; what was emitted before matters only for the groupings that go on.

        Args:
            taps: of the next pipeline.
            kept: the labels of the groupings that go on.
        """
        found = {each.table: each for each in taps}
        self._taps = found
        for emitted in (self._emitted, self._last, self._many, self._passed):
            for place in [each for each in emitted if each[0] not in kept]:
                del emitted[place]
        self.changes = {
            each.label: self.changes.get(each.label, []) if each.label in kept else []
            for each in found.values()
        }

    def go_back(self, name: str, then: Mapping[str, Any]) -> None:
        """Take the emissions of a grouping to be those of an earlier moment.

        Args:
            name: of the grouping.
            then: the attributes of the log at that moment, by name; not shared.
        """
        for book in ("_emitted", "_last", "_many", "_passed"):
            replace(vars(self)[book], then[book], lambda place: bool(place[0] == name))
        replace(self.changes, then["changes"], name.__eq__)

    def add(self, table: TableSpec, rows: Iterable[Sequence[Any]]) -> None:
        """Check the rows that a commit has added to a table, and note them.

        Args:
            table: any result table; rows of one without a tap are passed over.
            rows: in the order in which they were committed.

        Raises:
            InvariantError: I2, the panes do not add up.
        """
        tapped = self._taps.get(table.name)
        if tapped is None:
            return
        for change in changes_of(tapped, rows, self._passed):
            self._check(tapped, change)
            self.changes[tapped.label].append(change)

    def lines_of(
        self, table: TableSpec, rows: Iterable[Sequence[Any]]
    ) -> Iterable[tuple[str, frozenset[str]]]:
        """The rows for the story: lines, and the keys that they are about.

        Args:
            table: any result table; one without a tap has no lines.
            rows: what a commit has added to it.
        """
        tapped = self._taps.get(table.name)
        if tapped is None:
            return
        for (blob,) in rows:
            each = loads(blob)
            line = f"  {tapped.label} emits {each.sign:+d} {each.value!r} window {each.window}"
            yield line, frozenset([repr(each.value[0])])

    def _check(self, tapped: Tap, change: Change[Any]) -> None:
        key, place = repr(change.value[0]), (tapped.label, repr(change.value[0]), change.window)
        if tapped.is_many:
            emitted = tapped.label, repr(change.value), (change.window, change.timestamp_us)
            self._many[emitted] += change.sign
            if self._many[emitted] < 0:
                raise _wrong(tapped, key, "retracts what it has not emitted", change)
            return
        if tapped.mode is AccumulationMode.ACCUMULATING_AND_RETRACTING:
            before = self._emitted.pop(place, None)
            if change.sign > 0:
                if before is not None:
                    raise _wrong(tapped, key, "emits it twice without a retraction", change)
                self._emitted[place] = change
            elif before is None:
                raise _wrong(tapped, key, "retracts what it has not emitted", change)
            elif (before.value, before.pane) != (change.value, change.pane):
                raise _wrong(tapped, key, f"retracts something else than {before.value!r}", change)
        elif change.sign < 0:
            raise _wrong(tapped, key, "takes something back, though it does not retract", change)
        if change.sign > 0 and not tapped.is_merging:
            index, timing = self._last.get(place, (-1, 0))
            now = _TIMINGS.index(change.pane.timing)
            # What never expires is removed when all of it has been retracted.
            is_anew = tapped.is_retracted and change.window.end_us == MAX_TIMESTAMP_US
            if change.pane.index != index + 1 and not (is_anew and change.pane.is_first):
                raise _wrong(tapped, key, f"says pane {change.pane.index} after {index}", change)
            if now < timing or (now == timing == 1 and index >= 0):
                raise _wrong(
                    tapped, key, f"is {change.pane.timing} after {_TIMINGS[timing]}", change
                )
            self._last[place] = change.pane.index, now


def check_same_fold(
    taps: Iterable[Tap],
    emitted: Mapping[str, Sequence[Change[Any]]],
    expected: Mapping[str, Sequence[Change[Any]]],
    whose: str,
) -> None:
    """Check that the panes of two runs add up to the same.

    Args:
        taps: those of both; of one whose folding is not known nothing is checked.
        emitted: by the run that is checked, by the label of the tap.
        expected: by the other run.
        whose: what the other run is called in the message.

    Raises:
        InvariantError: I1 or I2; shows what is missing and what is too much.
    """
    for each in taps:
        if each.folding is None:
            continue
        try:
            ours = Counter(map(_canonical, each.folding.fold(emitted[each.label])))
        except FoldError as error:
            raise InvariantError(f"I2: {each.label!r} does not add up: {error}") from None
        theirs = Counter(map(_canonical, each.folding.fold(expected[each.label])))
        check_same(f"the panes of {each.label!r}", ours, theirs, whose)


def check_same(
    what: str, ours: Counter[tuple[str, str]], theirs: Counter[tuple[str, str]], whose: str
) -> None:
    """Check that two bags of (key, text) are the same.

    Args:
        what: what is compared, for the message.
        ours: of the run that is checked.
        theirs: what is expected.
        whose: whose expectation that is, for the message.

    Raises:
        InvariantError: I1; shows what is missing and what is too much.
    """
    missing, unexpected = theirs - ours, ours - theirs
    if not missing and not unexpected:
        return
    lines = [f"I1: {what} do not add up to what {whose} says"]
    for name, found in (("missing", missing), ("too much", unexpected)):
        shown = sorted(found.elements())
        lines += [f"  {name}: {text}" for _, text in shown[:8]]
        lines += [f"  {name}: {len(shown) - 8} more"] if len(shown) > 8 else []
    raise InvariantError("\n".join(lines), {key for key, _ in (*missing, *unexpected)})


def _canonical(change: Change[Any]) -> tuple[str, str]:
    key, value = change.value
    return repr(key), f"key {key!r} window {change.window}: {_shown(value)}"


def _shown(value: Any) -> str:
    """A text that is the same for what differs in an order that means nothing."""
    if isinstance(value, list | set | frozenset):
        return str(sorted(map(repr, value)))
    if type(value) is tuple and any(isinstance(each, list) for each in value):
        return str(tuple(map(_shown, value)))
    return str(value)


def _each(group: tuple[Any, Iterable[Any]]) -> Iterable[tuple[Any, Any]]:
    key, found = group
    return ((key, each) for each in found)


def _concatenated(values: Iterable[Sequence[Any]]) -> list[Any]:
    return [each for value in values for each in value]


def _row(change: Change[Any]) -> dict[str, bytes]:
    return {_COLUMN: dumps(change)}


def _wrong(tapped: Tap, key: str, what: str, change: Change[Any]) -> InvariantError:
    return InvariantError(
        f"I2: {tapped.label!r}, key {key}, window {change.window}: it {what}: "
        f"{change.sign:+d} {change.value!r} (pane {change.pane.index}, {change.pane.timing.value})",
        [key],
    )
