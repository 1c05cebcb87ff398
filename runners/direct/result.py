"""DirectResult: the results of a run in memory."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dataflow.drawing import html_table
from dataflow.errors import PipelineError
from dataflow.metric_updates import MetricValues
from dataflow.metrics import MetricResults
from dataflow.runner import PipelineState, WindowLike
from dataflow.table import TableSpec
from runners.core.ground.cells import LateArrival
from runners.core.ground.dead_letters import DeadLetter, dead_mapping
from runners.core.ground.lineage import LineageEntry, LineageKind
from runners.core.panes.late import count_by_transform, late_mapping
from runners.core.tables.changelog import Rows
from runners.errors import RequestError, SignalError
from runners.observability.drawing.pane_plot import PanePlot
from runners.observability.evidence.snapshot import StageEvidence
from runners.observability.lineage.explained_rows import (
    Recorded,
    RowExplanation,
    explain_row,
    not_recorded,
)
from runners.observability.lineage.recorded_panes import plot_key
from runners.observability.why.asking import question
from runners.observability.why.evidence import Dropped, Evidence, JobState, KeySeen
from runners.observability.why.explain import explain
from runners.observability.why.explanation import WhyExplanation
from runners.system_clock import SystemClock
from windowing.timestamps import MAX_TIMESTAMP_US, DurationLike
from windowing.window import Window


class DirectResult:
    """The results of a direct run: its tables, and the records that are in no result.

    Args:
        tables: rows by table.
        late: the dropped records.
        dead: the dead letters.
        metrics: what user code has counted.
        lineage: where rows come from, in the order in which it came about.
        senders: the stages that send to each stage.
    """

    def __init__(
        self,
        tables: Mapping[str, tuple[TableSpec, Rows]],
        late: Sequence[tuple[str, LateArrival]],
        dead: Sequence[DeadLetter],
        metrics: MetricValues,
        lineage: Sequence[LineageEntry] = (),
        senders: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._senders = senders
        self._tables, self._late, self._dead = tables, late, dead
        self._metrics = metrics
        self._lineage = [Recorded(number, 1, entry) for number, entry in enumerate(lineage)]

    @property
    def state(self) -> PipelineState:
        """Finished: a run in memory has ended when there is a result."""
        return PipelineState.FINISHED

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Return at once: the run has come to its end."""
        return PipelineState.FINISHED

    def _repr_html_(self) -> str:
        rows = [(f"rows of {name}", len(rows)) for name, (_, rows) in self._tables.items()]
        lost = [
            ("late records", sum(self.late_counts().values())),
            ("dead letters", len(self._dead)),
        ]
        return html_table("a run in memory", [("state", self.state.value), *rows, *lost])

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table."""
        if name not in self._tables:
            raise PipelineError(
                f"the pipeline writes no table {name!r}", detail=f"tables: {sorted(self._tables)}"
            )
        spec, rows = self._tables[name]
        return [dict(zip(spec.columns, row, strict=True)) for row in rows.values()]

    def send_signal(self, name: str) -> None:
        """Refuse a signal, as no window can receive it: the run has ended.

        Raises:
            SignalError: always.
        """
        raise SignalError(
            f"the signal {name!r} comes too late: a run in memory has ended when there is a result",
            hint="script it, with TestStream().send_signal(...), or use the streaming runner",
        )

    def drain(self) -> None:
        """Refuse to drain: the run has ended, and every window has fired.

        Raises:
            RequestError: always.
        """
        raise RequestError(
            "there is nothing to drain: a run in memory has ended when there is a result",
            hint="the streaming runner has jobs that can be drained",
        )

    def cancel(self) -> None:
        """Do nothing: the run has ended."""

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records that came after their window was gone."""
        return [late_mapping(transform, arrival) for transform, arrival in self._late]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records that made user code fail."""
        return [dead_mapping(letter) for letter in self._dead]

    def why(
        self,
        *,
        key: Any = None,
        window: WindowLike | None = None,
        transform: str | None = None,
    ) -> WhyExplanation:
        """Why nothing of a key has come out: it was dropped as too late, or set aside, or has never come.

        All windows have fired when there is a result.

        Raises:
            DataflowError: there is no such transform.
        """
        asked = question(key, window, transform)
        return explain(self._evidence(asked.key), asked)

    def _evidence(self, key: str | None) -> Evidence:
        dropped = [
            Dropped(
                stage=each["transform"],
                window=Window(each["window_start_us"], each["window_end_us"]),
                watermark_us=each["watermark_us"],
                count=each["count"],
            )
            for each in self.late_records()
            if key in (each["key"], *_unquoted(each["key"]))
        ]
        dead: dict[str, int] = {}
        for letter in self.dead_letters():
            dead[letter["stage"]] = dead.get(letter["stage"], 0) + 1
        return Evidence(
            job="in memory",
            now_us=SystemClock().now_us(),
            mode="direct",
            state=JobState.FINISHED,
            stages={
                name: StageEvidence(
                    is_source=not senders,
                    senders=senders,
                    input_us=MAX_TIMESTAMP_US if senders else None,
                    output_us=MAX_TIMESTAMP_US,
                )
                for name, senders in self._senders.items()
            },
            late=self.late_counts(),
            dead=dead,
            key=None if key is None else KeySeen(key=key, dropped=dropped),
        )

    def metrics(self) -> MetricResults:
        """What user code has counted."""
        return MetricResults(self._metrics)

    def explain_row(self, table: str, key: str) -> RowExplanation:
        """Explain where a row of a table comes from; see `runners.observability.lineage.explained_rows`.

        Args:
            table: its name.
            key: the values of the columns of its key, with commas between them, or a JSON array of them.

        Raises:
            PipelineError: nothing is recorded of such a row; the pipeline has to run with ``lineage="panes"`` or
                ``"records"``.
        """
        found = explain_row(self._find, table, key)
        if found is None:
            raise not_recorded(table, key)
        return found

    def plot(self, key: Any, *, transform: str | None = None) -> PanePlot:
        """Draw the panes of a key: event time across, processing time up.

        Args:
            key: as elements have it.
            transform: the label of the grouping; None: the one that has the key.

        Raises:
            PipelineError: nothing is recorded of the key, or several groupings have it; the pipeline has to run with
                ``lineage="records"``.
        """
        transforms = {each.entry.transform for each in self._lineage}
        return plot_key(self._find, sorted(transforms), key, transform=transform)

    def _find(self, kind: LineageKind, transform: str, key_hash: int) -> Sequence[Recorded]:
        wanted = kind, transform, key_hash
        return [
            each
            for each in self._lineage
            if (each.entry.kind, each.entry.transform, each.entry.key_hash) == wanted
        ]

    def late_counts(self) -> Mapping[str, int]:
        """How many late records each transform dropped."""
        return count_by_transform((name, arrival.count) for name, arrival in self._late)


def _unquoted(key: str) -> Iterator[str]:
    """The text of a key that is one, without its quotes."""
    try:
        value = ast.literal_eval(key)
    except (ValueError, SyntaxError):
        return
    if isinstance(value, str):
        yield value
