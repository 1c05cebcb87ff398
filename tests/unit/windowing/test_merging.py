"""Merging that is not that of overlaps, though its base declares it."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import dataflow as df
from dataflow.testing import assert_that, contains_in_any_order
from runners.direct import DirectRunner
from windowing.merging import merges_what_overlaps

MINUTE_US = 60_000_000


class SessionsOfAMinute(df.Sessions):
    """All sessions that begin in the same minute are one, however far apart."""

    def merge_windows(self, windows: Iterable[df.Window]) -> Sequence[df.Merge]:
        merges = []
        for _, of in groupby(sorted(windows), lambda window: window.start_us // MINUTE_US):
            several = tuple(of)
            if len(several) > 1:
                end_us = max(window.end_us for window in several)
                merges.append(df.Merge(df.Window(several[0].start_us, end_us), several))
        return merges


def test_a_subclass_that_merges_otherwise_is_asked() -> None:
    assert merges_what_overlaps(df.Sessions(5))
    assert not merges_what_overlaps(SessionsOfAMinute(5))


def test_records_are_grouped_as_the_subclass_defines() -> None:
    def bounds(pair: Any, window: df.Window = df.DoFn.WindowParam) -> tuple[Any, int]:
        return sorted(pair[1]), (window.end_us - window.start_us) // 1_000_000

    with df.Pipeline(DirectRunner()) as p:
        grouped = (
            p
            | df.Create([df.TimestampedValue(("k", at), at) for at in (0, 40, 58, 61)])
            | df.WindowInto(SessionsOfAMinute(5))
            | df.GroupByKey()
            | df.Map(bounds)
        )
        assert_that(grouped, contains_in_any_order([([0, 40, 58], 63), ([61], 5)]))
