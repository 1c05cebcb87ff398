"""Autocomplete: the words that most often begin with what somebody has typed."""

from operator import itemgetter

import dataflow as df
from examples.beam.running import main

WORDS = [
    "window",
    "windows",
    "window",
    "watermark",
    "watermark",
    "watermark",
    "late",
    "lateness",
    "late",
    "pane",
]


def prefixes(word: str, count: int) -> list[tuple[str, tuple[str, int]]]:
    """Each beginning of a word, with the word and its count."""
    return [(word[:length], (word, count)) for length in range(1, len(word) + 1)]


def build(p: df.Pipeline, size: int = 2) -> df.PCollection[tuple[str, list[str]]]:
    """Beginnings, and the most frequent words behind each, the most frequent first."""
    return (
        p
        | df.Create(WORDS)
        | df.Count.PerElement()
        | df.FlatMapTuple(prefixes)
        | df.Top.PerKey(size, key=itemgetter(1, 0))
        | df.MapTuple(lambda prefix, found: (prefix, [word for word, _ in found]))
    )


if __name__ == "__main__":
    main(build)
