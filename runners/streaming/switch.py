"""Switch: a new version of a pipeline, on its way from a caller's thread to the thread of the job's master."""

import threading

import attrs

from dataflow.graph import PipelineGraph
from runners.errors import UpdateRefusedError
from runners.millwheel.versions.job_versions import Update
from runners.spark.prepared_job import PreparedJob


class Switch:
    """Requested once, by a caller; answered once, by the job's thread.

    Args:
        graph: the new version.
        update: what the update may do.
    """

    def __init__(self, graph: PipelineGraph, update: Update) -> None:
        self._graph, self._update = graph, update
        self.is_decided = threading.Event()
        self.error: BaseException | None = None

    def carried_out(self, prepared: PreparedJob) -> PreparedJob:
        """The new version, ready to run, or one that retracts first; the old one, if it was refused.

        Never raises: the error is kept for the caller.
        """
        try:
            prepared = prepared.updated(self._graph, self._former_known(prepared))
        except Exception as error:  # noqa: BLE001 - raised again in the thread of who asked
            self.error = error
        if prepared.next is None:
            self.is_decided.set()
        return prepared

    def _former_known(self, prepared: PreparedJob) -> Update:
        return attrs.evolve(self._update, former=prepared.plan.graph)

    def fail(self, error: BaseException) -> None:
        """Give the caller the error that has ended the job on its way to the new version."""
        self.error = error
        self.is_decided.set()

    def refuse(self, job: str) -> None:
        """Refuse the update: the job has come to its end before."""
        self.error = UpdateRefusedError(
            f"job {job!r} ended before it could be updated",
            hint="if it is not finished, run the new pipeline with update=Update(...)",
        )
        self.is_decided.set()
