"""What is collected, and how a run has ended, is the same on every runner."""

import dataflow as df
from tests.conformance.conftest import MakeRunner


def test_elements_are_collected_and_the_run_has_a_state(make_runner: MakeRunner) -> None:
    p = df.Pipeline("direct", job="job")
    pairs = p | df.Create([("a", 1), ("b", 2), ("a", 3)])
    pairs | "unwanted" >> df.Map(lambda pair: pair[0] / pair[1])
    sums = pairs | df.CombinePerKey(sum)
    runner = make_runner()
    assert sorted(df.collect(sums, runner)) == [("a", 4), ("b", 2)]
    # A job that is finished has the same elements still.
    assert sorted(df.collect(sums, runner)) == [("a", 4), ("b", 2)]


def test_a_run_has_a_state(make_runner: MakeRunner) -> None:
    p = df.Pipeline(make_runner())
    p | df.Create([1, 2]) | df.Map(abs)
    result = p.run()
    assert result.state in (df.PipelineState.RUNNING, df.PipelineState.FINISHED)
    assert result.wait_until_finish(timeout="10 minutes") is df.PipelineState.FINISHED
    assert result.state is df.PipelineState.FINISHED
    assert "finished" in result._repr_html_()  # type: ignore[attr-defined] # for notebooks alone
