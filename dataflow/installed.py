"""Entry points of installed packages, by group and name: the SDK imports what is registered when it is asked for."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

RUNNERS, WRITERS = "dataflow.runners", "dataflow.writers"


# To ask for entry points reads a file of every installed package, which takes as long as building a small pipeline.
@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group, by name.

    Args:
        group: `RUNNERS`, classes with the contract of `dataflow.runner.Runner`; or `WRITERS`, functions that open
            writers of sinks of the SDK: of the sink and a lane.
    """
    return {entry.name: entry for entry in entry_points(group=group)}
