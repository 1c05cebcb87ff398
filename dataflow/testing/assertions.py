"""assert_that: what a collection must have emitted when the run is over, on every runner.

In the pipeline it writes down every change of the collection; when the run has ended, it reads them and asks its
matchers (`dataflow.testing.matchers`).  On runners with a store the changes stay there, in a table named
``recording_...``.
"""

from __future__ import annotations

from typing import Any

from dataflow.errors import PipelineError
from dataflow.pipeline import PCollection
from dataflow.ptransform import PTransform
from dataflow.recording import Recording
from dataflow.runner import PipelineResult
from dataflow.testing.fold import Folding
from dataflow.testing.matchers import Found, Matcher


def assert_that(pcoll: PCollection[Any], *matchers: Matcher, label: str | None = None) -> None:
    """Fail, when the run has ended, unless every matcher agrees with what ``pcoll`` has emitted.

    Checked at the end of the ``with`` block, or by ``p.run().wait_until_finish()``.  A pipeline that is never run, or
    never waited for, warns.

    Args:
        pcoll: any collection; late and early panes and retractions included.
        matchers: at least one, e.g. ``contains_in_any_order([1, 2])``.
        label: names the assertion in messages, and in the store.

    Raises:
        AssertionError: after the run; names the label and the line, and shows missing and unexpected elements, with
            their windows and panes.
        PipelineError: there is no matcher, or something else than one.
    """
    assertion = _Assertion(matchers)
    assertion.label = label
    pcoll | assertion


class _Assertion(PTransform[PCollection[Any], None]):
    def __init__(self, matchers: tuple[Matcher, ...]) -> None:
        for matcher in matchers:
            if not isinstance(matcher, Matcher):
                raise PipelineError(
                    f"assert_that needs matchers, not {matcher!r}",
                    hint="e.g. assert_that(pcoll, contains_in_any_order([1, 2]))",
                )
        if not matchers:
            raise PipelineError("assert_that needs a matcher, or it asserts nothing")
        self._matchers = matchers

    def default_label(self) -> str:
        return "assert_that"

    def expand(self, pcoll: PCollection[Any]) -> None:
        recording, folding = Recording(), Folding.of(pcoll)
        where, matchers = pcoll.pipeline.here(), self._matchers
        pcoll | recording

        def check(result: PipelineResult) -> None:
            found = Found(recording.changes(result), folding)
            complaints = [text for matcher in matchers if (text := matcher.complaint(found))]
            if complaints:
                raise AssertionError(
                    "\n".join([f"{where}: the elements are not as asserted", *complaints])
                )

        pcoll.pipeline.after_run(check)
