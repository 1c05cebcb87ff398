"""Word count: how often each word occurs in some lines, with metrics: lines without words, and how long words are."""

import re

import dataflow as df
from examples.beam.running import main

LINES = (
    "The time at which an event happened is not the time at which it is seen.",
    "",
    "Event time orders what happened; processing time orders what is seen.",
)

_WORD = re.compile(r"[a-z']+")


EMPTY_LINES = df.Metrics.counter("word_count", "empty lines")
WORD_LENGTHS = df.Metrics.distribution("word_count", "lengths of words")


def words(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return _WORD.findall(line.lower())


def counted_words(line: str) -> list[str]:
    """The words of a line, which metrics count."""
    found = words(line)
    if not found:
        EMPTY_LINES.inc()
    for word in found:
        WORD_LENGTHS.update(len(word))
    return found


def build(p: df.Pipeline) -> df.PCollection[tuple[str, int]]:
    """Words and their counts."""
    return p | df.Create(LINES) | df.FlatMap(counted_words) | df.Count.PerElement()


if __name__ == "__main__":
    main(build)
