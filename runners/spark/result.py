"""StoreResult: the results of a run in its store, for the runners that keep them there.

Opens the store for each question, and closes it again: a result may be kept for long.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any

from dataflow.drawing import html_table
from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.metrics import MetricResults
from dataflow.runner import PipelineState, WindowLike
from runners.core.stages.plan import plan
from runners.millwheel.control.asking import ask, ranges_of
from runners.millwheel.model import requests
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.requests import Request, Verb
from runners.millwheel.model.split_poll import SplitPoll
from runners.millwheel.store.guards import unknown_job
from runners.observability.drawing.pane_plot import PanePlot
from runners.observability.lineage.explained_rows import RowExplanation
from runners.observability.lineage.stored_lineage import explain_stored_row, plot_stored_key
from runners.observability.why.asking import question
from runners.observability.why.explain import explain
from runners.observability.why.explanation import WhyExplanation
from runners.observability.why.from_store import evidence_from_store
from runners.registry import open_store
from runners.stored.letters import stored_dead_mapping, stored_late_mapping
from runners.stored.metrics import metrics_of
from runners.system_clock import SystemClock
from windowing.timestamps import DurationLike


class StoreResult:
    """A run that has ended.

    Args:
        dsn: the store.
        job: the job's name in it.
        graph: the pipeline, for its tables.
        is_drained: whether it has ended because a drain was requested.
    """

    def __init__(
        self, dsn: str, job: str, graph: PipelineGraph, *, is_drained: bool = False
    ) -> None:
        self.dsn, self.job, self._is_drained = dsn, job, is_drained
        self._graph, self._tables = graph, {table.name: table for table in graph.tables()}

    @property
    def state(self) -> PipelineState:
        """Drained or finished."""
        return PipelineState.DRAINED if self._is_drained else PipelineState.FINISHED

    def wait_until_finish(self, timeout: DurationLike | None = None) -> PipelineState:
        """Return at once: the run has come to its end."""
        return self.state

    def _repr_html_(self) -> str:
        return html_table(f"job {self.job}", [("state", self.state.value)])

    def read_table(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The rows of a result table.

        Raises:
            PipelineError: the pipeline writes no such table.
            StoreError: the store cannot be read.
        """
        if name not in self._tables:
            raise PipelineError(
                f"the pipeline writes no table {name!r}", detail=f"tables: {sorted(self._tables)}"
            )
        spec = self._tables[name]
        with closing(open_store(self.dsn)) as store:
            rows = store.read_table(spec)
        return [dict(zip(spec.columns, row, strict=True)) for row in rows]

    def send_signal(self, name: str) -> None:
        """Send a signal to every open window that listens to it; see `runners.millwheel.model.signals` for how.

        Raises:
            SignalError: no window would receive it: the job is finished, or runs in batch, or does not listen to the
                name.
        """
        with closing(open_store(self.dsn)) as store:
            store.send_signal(self.job, name)

    def ranges(
        self, splits: Mapping[RangeId, SplitPoll] = MappingProxyType({})
    ) -> Sequence[Mapping[str, Any]]:
        """The ranges of the job as they are now; see `runners.millwheel.control.asking.ranges_of` for the fields.

        Args:
            splits: last polls of splits that are newer than those in the store.

        Raises:
            StoreError: the job was reset, or the store cannot be read.
        """
        with closing(open_store(self.dsn)) as store:
            found, polls = store.read_job(self.job), store.read_polls(self.job)
        if found is None:
            raise unknown_job(self.job)
        return ranges_of(found, {**polls, **splits})

    def move(self, range_id: str, slot: int) -> str:
        """Have a range go to the worker of a slot, wait until it has, and return a sentence that confirms it.

        Args:
            range_id: as `dataflow ranges` lists it.
            slot: the number of the slot, from 0.

        Raises:
            RequestError: it cannot, or not now, or nobody runs the job, or it is a batch; the message has the reason.
        """
        return self._ask(requests.move(range_id, slot))

    def split(self, range_id: str, at: int | None = None) -> str:
        """Have a key range divided, wait until it is, and return a sentence that names the new one.

        Args:
            range_id: which, as `ranges` names it.
            at: the first key hash of the new range; None: its owner divides its state in halves.

        Raises:
            RequestError: as `move`.
        """
        return self._ask(requests.split(range_id, at))

    def merge(self, range_id: str, gone: str) -> str:
        """Have a key range take in its neighbour's keys, wait until it has, and return a sentence that confirms it.

        Args:
            range_id: as `dataflow ranges` lists it; it has all keys afterwards.
            gone: the neighbour, which is retired.

        Raises:
            RequestError: as `move`.
        """
        return self._ask(requests.merge(range_id, gone))

    def drain(self) -> None:
        """Have the sources end where they are: every open window emits what it has, and the job is finished.

        Returns when that is certain to happen, whichever driver runs the job by then; wait with `wait_until_finish`.

        Raises:
            RequestError: the job is finished already, or runs in batch.
        """
        with closing(open_store(self.dsn)) as store:
            store.send_request(self.job, Request(Verb.DRAIN))

    def cancel(self) -> None:
        """Do nothing: the run has ended."""

    def _ask(self, request: Request) -> str:
        with closing(open_store(self.dsn)) as store:
            return ask(store, self.job, request)

    def late_records(self) -> Sequence[Mapping[str, Any]]:
        """Records that came after their window was gone; never any in a batch."""
        with closing(open_store(self.dsn)) as store:
            records = store.read_late(self.job)
        return [stored_late_mapping(record) for record in records]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        """Records that made user code fail."""
        with closing(open_store(self.dsn)) as store:
            letters = store.read_dead_letters(self.job)
        return [stored_dead_mapping(letter) for letter in letters]

    def why(
        self,
        *,
        key: Any = None,
        window: WindowLike | None = None,
        transform: str | None = None,
    ) -> WhyExplanation:
        """Why nothing has come out, or not of a key; the program that has run the pipeline has its code.

        Raises:
            DataflowError: there is no such transform; or no store.
        """
        asked = question(key, window, transform)
        with closing(open_store(self.dsn)) as store:
            evidence = evidence_from_store(
                store, self.job, SystemClock(), key=asked.key, plan=plan(self._graph)
            )
        return explain(evidence, asked)

    def metrics(self) -> MetricResults:
        """What user code has counted, as far as it is committed."""
        with closing(open_store(self.dsn)) as store:
            return MetricResults(metrics_of(store.read_metrics(self.job)))

    def explain_row(self, table: str, key: str) -> RowExplanation:
        """Explain where a row of a table comes from, as far as the job has recorded it (option ``lineage``).

        Args:
            table: its name.
            key: the values of the columns of its key, with commas between them, or a JSON array of them.

        Raises:
            PipelineError: nothing is recorded of such a row.
        """
        with closing(open_store(self.dsn)) as store:
            return explain_stored_row(store, self.job, table, key)

    def plot(self, key: Any, *, transform: str | None = None) -> PanePlot:
        """Draw the panes of a key, as far as the job has recorded them (option ``lineage``).

        Args:
            key: as elements have it.
            transform: the label of the grouping; None: the one that has the key.

        Raises:
            PipelineError: nothing is recorded of the key, or several groupings have it.
        """
        with closing(open_store(self.dsn)) as store:
            return plot_stored_key(store, self.job, key, transform=transform)

    def late_counts(self) -> Mapping[str, int]:
        """How many late records each transform dropped; the store adds them up."""
        with closing(open_store(self.dsn)) as store:
            return store.read_late_counts(self.job)
