"""HistoryThenLiveRunner: the history of a job with the batch engine, and then the stream, as one command.

Above both runners, which know nothing of each other: what one leaves, the other finds in the store.
"""

from typing import Any

from dataflow.graph import PipelineGraph
from dataflow.runner import PipelineResult
from runners.batch import BackfillRunner
from runners.core.plan import plan
from runners.millwheel.guarantees import check_guarantees
from runners.streaming import StreamingRunner
from windowing.timestamps import TimestampLike


class HistoryThenLiveRunner:
    """Reads what there is up to a point in large steps, then goes on as a stream; with one set of answers.

    The same command goes on wherever it was interrupted: in the history, or live.

    Args:
        job: names the run in the store.
        until: the point, an instant of event time; None: as far as there is anything now.  See `BackfillRunner`.
        store, fresh, workers, tries_per_record, master, show_progress: as for `StreamingRunner`.
        **live: further options of the `StreamingRunner`, such as ``records_per_second``.
    """

    def __init__(
        self,
        *,
        job: str,
        until: TimestampLike | None = None,
        store: str | None = None,
        fresh: bool = False,
        workers: int = 2,
        tries_per_record: int | None = None,
        master: str | None = None,
        show_progress: bool = True,
        **live: Any,
    ) -> None:
        shared: dict[str, Any] = {
            "job": job,
            "store": store,
            "workers": workers,
            "tries_per_record": tries_per_record,
            "master": master,
            "show_progress": show_progress,
        }
        self._guarantees = live.get("guarantees", {})
        self._history = BackfillRunner(until=until, fresh=fresh, **shared)
        self._live = StreamingRunner(**shared, **live)

    @property
    def job(self) -> str:
        """What names the run in the store."""
        return self._live.job

    def run(self, graph: PipelineGraph) -> PipelineResult:
        """Load what is missing of the history, then start the stream; returns when that has started.

        Raises:
            DataflowError: as `BackfillRunner.run` and `StreamingRunner.run`.
        """
        # Not only after hours of history.
        check_guarantees(plan(graph), self._guarantees)
        self._history.load_unless_live(graph)
        return self._live.run(graph)
