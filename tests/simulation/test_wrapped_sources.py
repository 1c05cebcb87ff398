"""A source that the simulator reads through is taken for the source that it is."""

from dataflow.source import Source
from runners.testing.simulator.sources import _Wrapped


def test_all_that_a_source_says_of_itself_is_said_of_the_wrapped_one() -> None:
    said = {name for name, value in vars(Source).items() if isinstance(value, property)}
    assert said <= vars(_Wrapped).keys()
