"""collect: the elements of a collection as a list, for notebooks and scripts."""

from typing import TypeVar, Unpack

from dataflow.errors import PipelineError
from dataflow.options import RunnerOptions
from dataflow.pipeline import PCollection
from dataflow.recording import Recording
from dataflow.runner import Runner
from dataflow.signed_sum import signed_sum

T = TypeVar("T")


def collect(
    pcoll: PCollection[T], runner: str | Runner = "direct", **options: Unpack[RunnerOptions]
) -> list[T]:
    """The elements of a collection: runs what leads to it, and nothing else of its pipeline.

    No table is written and no other branch is run, so it can be called again and again while a pipeline is built, and
    before the pipeline itself is run.  Of panes that were retracted there is what has replaced them; panes that
    accumulate without retracting are all there.  In memory the elements are in the order in which they were emitted.
    Beam's counterpart is ``ib.collect``.

    Example::

        words = p | df.Create(["a", "b"]) | df.Map(str.upper)
        df.collect(words)  # ["A", "B"]

    Args:
        pcoll: with an end (`PCollection.is_bounded`).
        runner: an engine, or its name.  On one with a store it is a job like any other: name it, ``job="look"``; with
            the same name it is not run a second time, and the elements stay until it is forgotten.
        **options: of the runner.

    Raises:
        PipelineError: the collection has no end; or as `Pipeline`.
        DataflowError: what made the run fail.
    """
    if not pcoll.is_bounded:
        raise PipelineError(
            f"{pcoll!r} has no end, so its elements cannot be collected",
            hint="read something with an end, such as df.Create or a file; or write it to a table, and look there",
        )
    part = pcoll.pipeline.part_before(pcoll, runner, **options)
    recording = Recording()
    recording.label = "collect"
    PCollection[T](part, pcoll.node) | recording
    result = part.run()
    result.wait_until_finish()
    return [change.value for change in signed_sum(recording.changes(result))]
