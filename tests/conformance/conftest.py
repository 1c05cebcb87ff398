"""Every runner as a fixture: what holds for one has to hold for all."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import dataflow as df
from runners.batch import BatchRunner
from runners.direct import DirectRunner
from runners.streaming import StreamingRunner

#: Makes a runner of one of the kinds; a job of its own for each test.
MakeRunner = Callable[..., df.Runner]

_ON_SPARK = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(
    params=[
        "direct",
        pytest.param("batch", marks=_ON_SPARK),
        pytest.param("streaming", marks=_ON_SPARK),
    ]
)
def make_runner(request: pytest.FixtureRequest) -> MakeRunner:
    """``make_runner(**options)``: direct in small bundles, or the real thing."""
    if request.param == "direct":
        return partial(DirectRunner, bundle_records=3)
    store: Any = request.getfixturevalue("store_dsn")
    master: Any = request.getfixturevalue("spark_master")
    options = {"job": "job", "store": store, "master": master, "show_progress": False}
    if request.param == "streaming":
        return partial(StreamingRunner, **options)
    # Two parts of everything are enough to shuffle, and half as many tasks for a hundred small programs.
    return partial(BatchRunner, **options, partitions=2)
