"""Laws, as functions for tests of your own: they return, or raise an AssertionError that shows a counterexample.

Call them from a test that hypothesis feeds (`dataflow.testing.strategies`), and it finds and shrinks the
counterexample::

    @given(elements())
    def test_my_pipeline(scores):
        check_order_insensitive(my_pipeline, scores)

These functions themselves need no hypothesis.
"""

from dataflow.testing.column_laws import check_combine_columns, check_window_columns
from dataflow.testing.combine_laws import check_combine_fn
from dataflow.testing.pipeline_laws import (
    LawViolationError,
    check_batch_equals_streaming,
    check_bundle_insensitive,
    check_order_insensitive,
    check_retracting_prefixes,
    check_same_answer,
)
from dataflow.testing.window_laws import check_window_fn

__all__ = [
    "LawViolationError",
    "check_batch_equals_streaming",
    "check_bundle_insensitive",
    "check_combine_columns",
    "check_combine_fn",
    "check_order_insensitive",
    "check_retracting_prefixes",
    "check_same_answer",
    "check_window_columns",
    "check_window_fn",
]
