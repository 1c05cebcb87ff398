"""Tracing: the entries of lineage of one stage, made of the bundles that go through it.

Only runs that record lineage call it: it looks at each element.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from dataflow.columns import RepeatedColumn
from dataflow.element_digests import element_digest
from dataflow.graph import TransformNode
from dataflow.sink import Sink
from dataflow.table import TableSpec
from dataflow.views import ViewPart
from runners.core.ground.bundle import Bundle
from runners.core.ground.cells import LateArrival
from runners.core.ground.element_text import shown
from runners.core.ground.key_codec import KeyCodec
from runners.core.ground.lineage import (
    CarriedPane,
    Expiry,
    FiringCause,
    Lineage,
    LineageEntry,
    LineageKind,
    Origin,
    RecordedCall,
    SplitOrigin,
    TracedPane,
    origin_of,
)
from runners.core.stages.stage_clocks import StageClocks
from runners.core.tables.row_keys import RowKey, row_key, sink_key
from runners.core.tables.rows import rows_of
from runners.core.tables.values import as_stored
from triggers.accumulation import AccumulationMode
from triggers.clocks import Clocks
from windowing.pane import NO_FIRING, PaneInfo
from windowing.timestamps import to_datetime
from windowing.window import GLOBAL_WINDOW, Window

#: What fits into an integer of the store.
_NUMBER_MAX = (1 << 31) - 1
_UNKNOWN: FiringCause = FiringCause("", 0)


@attrs.frozen
class Firings:
    """How the panes of a step came about.

    Attributes:
        causes: why windows fired, by the index of what they emitted, where that is known.
        expired: the windows that have expired in the step, in their order.
        mode: of the grouping.
    """

    causes: Mapping[int, FiringCause]
    expired: Sequence[Expiry]
    mode: AccumulationMode


class Tracing:
    """Makes the entries of one stage.

    Args:
        lineage: how much is recorded.
    """

    def __init__(self, lineage: Lineage) -> None:
        self._has_elements = lineage is Lineage.RECORDS

    def read(self, bundle: Bundle, origin: SplitOrigin) -> Bundle:
        """A bundle that was read from a split, with its origin.

        Args:
            bundle: the elements.
            origin: the batch that they come from.
        """
        pane = TracedPane.of(NO_FIRING, origin)
        return attrs.evolve(bundle, panes=RepeatedColumn(pane, len(bundle)))

    def fired(
        self,
        node: TransformNode,
        codec: KeyCodec,
        bundle: Bundle,
        firings: Firings,
        clocks: StageClocks,
    ) -> tuple[Bundle, list[LineageEntry]]:
        """The panes of a grouping, with their origins, and an entry for each, and for each window that has expired.

        Args:
            node: the grouping.
            codec: of its keys.
            bundle: the panes, as pairs of key and result.
            firings: what is known of how they came about.
            clocks: of the step.
        """
        entries, panes = list[LineageEntry](), list[PaneInfo]()
        expired = deque(firings.expired)

        def expire(before: int) -> None:
            while expired and expired[0].before <= before:
                _, key, window = expired.popleft()
                kind = LineageKind.EXPIRED
                entries.append(_about(kind, node, codec, key, window, clocks, count=0))

        for index, (element, window, pane, sign) in enumerate(_elements(bundle)):
            expire(index)
            if isinstance(element[1], ViewPart):
                # It is of a pane to come.
                panes.append(pane)
                continue
            cause = firings.causes.get(index, _UNKNOWN)
            entry = _about(
                LineageKind.PANE,
                node,
                codec,
                element[0],
                window,
                clocks,
                sign=sign,
                count=cause.pending,
                index=pane.index,
                timing=pane.timing.value,
                accumulation=firings.mode.value,
                reason=cause.reason,
                elements=(shown(element[1]),) if self._has_elements else (),
            )
            entries.append(entry)
            panes.append(TracedPane.of(pane, entry.as_origin))
        expire(len(bundle))
        return attrs.evolve(bundle, panes=panes), entries

    def carried(self, bundle: Bundle) -> Bundle:
        """A bundle for a stateful DoFn or side inputs, whose origins stay with the elements that are kept.

        Args:
            bundle: the elements.
        """
        panes = bundle.panes
        if panes is None:
            return bundle
        if isinstance(panes, RepeatedColumn) and panes:
            carried: Sequence[PaneInfo] = RepeatedColumn(_carried(panes[0]), len(panes))
        else:
            carried = list(map(_carried, panes))
        return attrs.evolve(bundle, panes=carried)

    def emitted(
        self,
        node: TransformNode,
        codec: KeyCodec,
        bundle: Bundle,
        calls: Sequence[RecordedCall | Expiry],
        clocks: StageClocks,
    ) -> tuple[Bundle, list[LineageEntry]]:
        """The outputs of a stateful DoFn, with their origins, and entries for them and for what it was given.

        Args:
            node: the DoFn.
            codec: of its keys.
            bundle: the outputs; those that belong to no key have no origin.
            calls: what it was called with, in order.
            clocks: of the step.
        """
        outputs, entries = list(_elements(bundle)), list[LineageEntry]()
        panes = [pane.plain if isinstance(pane, TracedPane) else pane for _, _, pane, _ in outputs]
        given = _Given(has_elements=self._has_elements)
        for call in calls:
            about = partial(
                _about, node=node, codec=codec, key=call.key, window=call.window, clocks=clocks
            )
            if isinstance(call, Expiry):
                entries += given.taken()
                entries.append(about(LineageKind.EXPIRED, count=0))
                continue
            if call.pane is not None:
                given.add(call, about)
            if call.begin < call.end:
                entries += given.taken()
            for index in range(call.begin, call.end):
                value, _, _, sign = outputs[index]
                entry = about(
                    LineageKind.OUTPUT,
                    sign=sign,
                    index=_number_of(value, bundle.timestamps_us[index]),
                    reason=call.reason,
                    elements=(shown(value),) if self._has_elements else (),
                )
                entries.append(entry)
                panes[index] = TracedPane.of(panes[index], entry.as_origin)
        entries += given.taken()
        return attrs.evolve(bundle, panes=panes), entries

    def late(
        self, node: TransformNode, codec: KeyCodec, arrivals: Sequence[LateArrival], clocks: Clocks
    ) -> list[LineageEntry]:
        """An entry for each partial whose window had expired when it came.

        Args:
            node: the grouping.
            codec: of its keys.
            arrivals: the partials.
            clocks: of the step.
        """
        return [
            _about(
                LineageKind.LATE,
                node,
                codec,
                arrival.key,
                arrival.window,
                clocks,
                sign=+1 if arrival.record is None else arrival.record.sign,
                count=arrival.count,
            )
            for arrival in arrivals
        ]

    def sent(
        self, label: str, codec: KeyCodec, bundle: Bundle, clocks: Clocks
    ) -> list[LineageEntry]:
        """An entry for the elements of each key, window and origin that go to a grouping.

        Args:
            label: of the grouping.
            codec: of its keys.
            bundle: pairs of key and value.
            clocks: of the stage that sends them.
        """
        groups: dict[tuple[int, Window, Origin | None, int], list[int]] = {}
        elements = list(bundle.values)
        for index, (element, window, pane, sign) in enumerate(_elements(bundle)):
            group = codec.hash(element[0]), window, origin_of(pane), sign
            groups.setdefault(group, []).append(index)
        return [
            LineageEntry(
                kind=LineageKind.INPUT,
                transform=label,
                key=shown(elements[indexes[0]][0]),
                key_hash=key_hash,
                window_start_us=window.start_us,
                window_end_us=window.end_us,
                sign=sign,
                count=len(indexes),
                watermark_us=clocks.watermark_us,
                now_us=clocks.now_us,
                origin=origin,
                elements=self._texts(bundle, elements, indexes),
            )
            for (key_hash, window, origin, sign), indexes in groups.items()
        ]

    def written(
        self, node: TransformNode, table: TableSpec, bundle: Bundle, clocks: Clocks
    ) -> list[LineageEntry]:
        """An entry for each row that is written to a table, or retracted.

        Args:
            node: the transform that writes.
            table: the table.
            bundle: the rows.
            clocks: of the stage.
        """
        rows = as_stored(table, rows_of(node, list(table.columns), bundle.values))
        return [
            self._row(table.name, row_key(table, row), row, each, clocks)
            for row, each in zip(rows, _elements(bundle), strict=True)
        ]

    def left(
        self,
        node: TransformNode,
        sink: Sink[Any],
        lanes: Iterable[int],
        bundle: Bundle,
        clocks: Clocks,
    ) -> list[LineageEntry]:
        """An entry for each element that is on its way to a sink, or retracted; its key is what decides on its lane.

        Args:
            node: the transform that writes.
            sink: where to.
            lanes: that of each element.
            bundle: the elements.
            clocks: of the stage.
        """
        elements: Sequence[Any] = bundle.values
        if sink.columns is not None:
            elements = rows_of(node, list(sink.columns), elements)
        return [
            self._row(node.label, sink_key(sink.lane_key(element)), element, each, clocks, lane)
            for element, lane, each in zip(elements, lanes, _elements(bundle), strict=True)
        ]

    def _row(
        self,
        name: str,
        key: RowKey,
        row: Any,
        element: tuple[Any, Window, PaneInfo, int],
        clocks: Clocks,
        lane: int | None = None,
    ) -> LineageEntry:
        _, window, pane, sign = element
        return LineageEntry(
            kind=LineageKind.ROW,
            transform=name,
            key=key.text,
            key_hash=key.hash,
            window_start_us=window.start_us,
            window_end_us=window.end_us,
            sign=sign,
            index=pane.index,
            timing=pane.timing.value,
            watermark_us=clocks.watermark_us,
            now_us=clocks.now_us,
            reason="" if lane is None else f"lane {lane}",
            origin=origin_of(pane),
            elements=(shown(row),) if self._has_elements else (),
        )

    def _texts(
        self, bundle: Bundle, elements: Sequence[Any], indexes: Sequence[int]
    ) -> tuple[str, ...]:
        if not self._has_elements:
            return ()
        return tuple(_text(bundle.timestamps_us[index], elements[index][1]) for index in indexes)


class _Given:
    """What a stateful DoFn was given since it last emitted something, as few entries.

    Args:
        has_elements: whether the elements are recorded.
    """

    def __init__(self, *, has_elements: bool) -> None:
        self._has_elements = has_elements
        self._entries: dict[tuple[Any, ...], tuple[Callable[..., LineageEntry], list[str]]] = {}
        self._counts: Counter[tuple[Any, ...]] = Counter()

    def add(self, call: RecordedCall, about: Callable[..., LineageEntry]) -> None:
        """Note an element.

        Args:
            call: that it was given in.
            about: makes an entry of the call's key and window.
        """
        assert call.pane is not None
        origin = origin_of(call.pane)
        group = about(LineageKind.INPUT).key_hash, call.window, origin, call.sign
        _, texts = self._entries.setdefault(
            group, (partial(about, LineageKind.INPUT, sign=call.sign, origin=origin), [])
        )
        self._counts[group] += 1
        if self._has_elements:
            texts.append(_text(call.timestamp_us, call.element))

    def taken(self) -> list[LineageEntry]:
        """The entries of what was noted since this was last asked."""
        taken = [
            make(count=self._counts[group], elements=tuple(texts))
            for group, (make, texts) in self._entries.items()
        ]
        self._entries.clear()
        self._counts.clear()
        return taken


def _number_of(value: Any, timestamp_us: int) -> int:
    """The number of an output: the same whenever it is emitted again, and of hardly two of one key and window."""
    try:
        return element_digest((timestamp_us, value)) & _NUMBER_MAX
    except Exception:  # noqa: BLE001 - of what cannot be stored, and is only in memory
        return 0


def _carried(pane: PaneInfo) -> PaneInfo:
    return CarriedPane.of(pane, pane.origin) if isinstance(pane, TracedPane) else pane


def _text(timestamp_us: int, value: Any) -> str:
    return f"{to_datetime(timestamp_us).isoformat()} {shown(value)}"


def _elements(bundle: Bundle) -> Iterator[tuple[Any, Window, PaneInfo, int]]:
    size = len(bundle)
    return zip(
        bundle.values,
        RepeatedColumn(GLOBAL_WINDOW, size) if bundle.windows is None else bundle.windows,
        RepeatedColumn(NO_FIRING, size) if bundle.panes is None else bundle.panes,
        RepeatedColumn(+1, size) if bundle.signs is None else bundle.signs,
        strict=True,
    )


def all_expired(bundle: Bundle) -> list[Expiry]:
    """The windows of panes after each of which there is no other.

    Args:
        bundle: the panes, as pairs of key and result.
    """
    return [
        Expiry(index, element[0], window)
        for index, (element, window, _, _) in enumerate(_elements(bundle), 1)
    ]


def _about(
    kind: LineageKind,
    node: TransformNode,
    codec: KeyCodec,
    key: Any,
    window: Window,
    clocks: Clocks,
    **more: Any,
) -> LineageEntry:
    """An entry about a window of a key of a grouping; ``more``: other fields of it."""
    return LineageEntry(
        kind=kind,
        transform=node.label,
        key=shown(key),
        key_hash=codec.hash(key),
        window_start_us=window.start_us,
        window_end_us=window.end_us,
        watermark_us=clocks.watermark_us,
        now_us=clocks.now_us,
        **more,
    )
