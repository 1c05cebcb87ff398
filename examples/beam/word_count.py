"""Word count: how often each word occurs in some lines."""

import re

import dataflow as df
from examples.beam.running import main

LINES = (
    "The time at which an event happened is not the time at which it is seen.",
    "",
    "Event time orders what happened; processing time orders what is seen.",
)

_WORD = re.compile(r"[a-z']+")


def words(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return _WORD.findall(line.lower())


def build(p: df.Pipeline) -> df.PCollection[tuple[str, int]]:
    """Words and their counts."""
    return p | df.Create(LINES) | df.FlatMap(words) | df.Count.PerElement()


if __name__ == "__main__":
    main(build)
