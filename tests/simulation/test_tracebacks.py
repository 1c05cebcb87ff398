"""What user code raises in a worker is raised by the driver, with the user's own lines behind it."""

import traceback
from typing import Any

import pytest

import dataflow as df
from runners.direct import DirectRunner
from runners.task_traceback import TaskTraceback
from runners.testing.scripted_source import Batch, ScriptedSource
from tests.simulation.test_worker_crashes import Cluster


def divide(number: int) -> int:
    return 1 // number


class Divided(df.DoFn):
    SEEN = df.CombiningValueStateSpec("seen", df.CountCombineFn())

    def process(self, element: Any, /, seen: Any = df.DoFn.StateParam(SEEN)) -> Any:
        seen.add(1)
        yield divide(element[1])


@pytest.mark.parametrize(
    "transform",
    [df.Map(lambda pair: divide(pair[1])), df.ParDo(Divided())],
    ids=["function", "stateful"],
)
def test_the_drivers_error_has_the_users_lines(transform: Any) -> None:
    source = ScriptedSource([Batch([("k", 1), ("k", 0)], [0, 0], 1)])
    pipeline = df.Pipeline(DirectRunner())
    pipeline | df.Read(source) | "divide" >> transform
    cluster = Cluster(pipeline.graph(), seed=0, crash_rate=0)
    with pytest.raises(df.DataflowError) as caught:
        cluster.run()

    shown = "".join(traceback.format_exception(caught.value))
    assert "'divide'" in shown
    assert "in divide" in shown
    assert "return 1 // number" in shown
    assert TaskTraceback.__name__ in shown
