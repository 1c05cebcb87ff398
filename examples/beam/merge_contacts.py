"""Merge contacts: three address books, one line for each name that is in any of them."""

from collections.abc import Mapping, Sequence

import dataflow as df
from examples.beam.running import main

EMAILS = (
    ("ada", "ada@example.com"),
    ("ada", "lovelace@example.org"),
    ("charles", "cb@example.com"),
)
PHONES = (("ada", "+44 20 0001"), ("mary", "+44 20 0002"))
POST = (("mary", "1 Burlington Street"), ("charles", "5 Devonshire Street"))


def line(name: str, found: Mapping[str, Sequence[str]]) -> str:
    """A name and what is known of it, in fields that tabs divide."""
    return "\t".join(
        [name, *(", ".join(sorted(found[kind])) for kind in ("email", "phone", "post"))]
    )


def build(p: df.Pipeline) -> df.PCollection[str]:
    """Lines of the merged book."""
    books = {"email": EMAILS, "phone": PHONES, "post": POST}
    contacts = {kind: p | kind >> df.Create(book) for kind, book in books.items()}
    return contacts | df.CoGroupByKey() | df.MapTuple(line)


if __name__ == "__main__":
    main(build)
