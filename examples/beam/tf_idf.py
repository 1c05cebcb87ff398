"""TF-IDF: how telling a word is of a document, by how often it is there and in how few others it is."""

import math

import dataflow as df
from examples.beam.running import main
from examples.beam.word_count import words

DOCUMENTS = (
    ("windows", "windows divide event time, and sessions are windows that grow"),
    ("triggers", "triggers fire panes of windows"),
    ("panes", "panes retract panes"),
)


def weight(
    key: tuple[str, str], count: int, sizes: dict[str, int], holding: dict[str, int]
) -> tuple[str, tuple[str, float]]:
    """A word with a document and its weight in it.

    Args:
        key: the document, and the word.
        count: how often the word is in the document.
        sizes: the number of words of each document.
        holding: in how many documents each word is.
    """
    document, word = key
    return word, (document, count / sizes[document] * math.log(len(sizes) / holding[word]))


def build(p: df.Pipeline) -> df.PCollection[tuple[str, tuple[str, float]]]:
    """Words that are not in all documents, with their weights."""
    pairs = (
        p
        | df.Create(DOCUMENTS)
        | df.FlatMapTuple(lambda name, text: [(name, w) for w in words(text)])
    )
    counts = pairs | "counts" >> df.Count.PerElement()
    sizes = pairs | "sizes" >> df.Count.PerKey()
    holding = pairs | df.Distinct() | df.Values() | "holding" >> df.Count.PerElement()
    weights = counts | df.MapTuple(weight, df.AsDict(sizes), df.AsDict(holding))
    return weights | df.Filter(lambda weighed: weighed[1][1] > 0)


if __name__ == "__main__":
    main(build)
