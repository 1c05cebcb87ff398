"""Test tools for users: scripted streams and assertions here; strategies and laws by their names.

``from dataflow.testing import TestStream, assert_that`` needs nothing beyond the SDK.
Of `dataflow.testing.strategies` and `dataflow.testing.laws` the first needs hypothesis:
``pip install "dataflow-model[testing]"``.
"""

from dataflow.after_run import UncheckedWarning
from dataflow.testing.assertions import assert_that
from dataflow.testing.matchers import (
    Matcher,
    contains_in_any_order,
    equal_to,
    in_early_panes,
    in_final_fold,
    in_final_pane,
    in_late_panes,
    in_on_time_pane,
    in_pane,
    in_window,
    is_empty,
    is_not_empty,
    retracted,
    satisfies,
)
from dataflow.testing.test_stream import TestStream

__all__ = [
    "Matcher",
    "TestStream",
    "UncheckedWarning",
    "assert_that",
    "contains_in_any_order",
    "equal_to",
    "in_early_panes",
    "in_final_fold",
    "in_final_pane",
    "in_late_panes",
    "in_on_time_pane",
    "in_pane",
    "in_window",
    "is_empty",
    "is_not_empty",
    "retracted",
    "satisfies",
]
