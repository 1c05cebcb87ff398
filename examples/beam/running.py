"""The command line that all of these programs have: the options of a pipeline, on whichever runner they name."""

from collections.abc import Callable
from typing import Any

import dataflow as df


def main(build: Callable[[df.Pipeline], df.PCollection[Any]]) -> None:
    """Run a program and print what it emits.

    Args:
        build: applies the program.
    """
    options, _ = df.parse_options()
    with df.Pipeline(**options) as p:
        build(p) | "print" >> df.Map(print)
