"""Checks of sizes: what is too large for a store is refused, and many values are not too large together."""

from typing import Any

from dataflow.table import TableWrite
from runners.errors import StoreError
from runners.millwheel.model.ids import Channel
from runners.millwheel.model.production import Checkpoint, JournalEntry
from runners.testing.store_conformance.world import (
    JOB,
    LOG,
    LOW,
    Owner,
    StoreFactory,
    cell,
    cells_of,
    expect_equal,
    expect_error,
    opened,
    take_over,
)

#: What a value may have in these checks; and values of that size, each another.
VALUE_BYTES_MAX = 5_000
COUNT = 12
CHANNEL = Channel(LOW, LOW)


def _value(number: int, size: int = VALUE_BYTES_MAX) -> bytes:
    return bytes([number]) * size


def check_a_value_that_is_too_large_is_refused(connect: StoreFactory) -> None:
    """A value that is too large is an error, and not a commit with an unknown outcome, or fenced; the owner goes on."""
    store = opened(connect)
    store.value_bytes_max = VALUE_BYTES_MAX
    owner = Owner(store, LOW)
    large = _value(1, VALUE_BYTES_MAX + 1)
    parts: list[dict[str, Any]] = [
        {"cells": [cell(b"kept", b"x"), cell(b"large", large)]},
        {"journal": [JournalEntry(LOW, 1, large)]},
        {"checkpoints": [Checkpoint(CHANNEL, 1, 0, large)]},
    ]
    for each in parts:
        production = owner.production(**each)
        expect_error(StoreError, lambda: store.commit(production), f"{next(iter(each))} too large")  # noqa: B023 - called before the next turn
    expect_equal(cells_of(connect()), {}, "cells after a refusal")
    Owner(store, LOW, name="next").commit(cells=[cell(b"kept", b"x")])


def check_values_are_not_too_large_together(connect: StoreFactory) -> None:
    """However many there are in a production: all are there, in their order."""
    store = opened(connect)
    store.value_bytes_max = VALUE_BYTES_MAX
    owner = Owner(store, LOW)
    numbers = range(COUNT)
    rows = [(f"{number}", number) for number in numbers]
    owner.commit(
        cells=[cell(b"%d" % number, _value(number)) for number in numbers],
        journal=[JournalEntry(LOW, 1, _value(number)) for number in numbers],
        checkpoints=[Checkpoint(CHANNEL, number + 1, 0, _value(number)) for number in numbers],
        tables=[TableWrite(table=LOG, inserts=[(name * VALUE_BYTES_MAX, n) for name, n in rows])],
    )
    expected = {(7, b"%d" % number): _value(number) for number in numbers}
    expect_equal(cells_of(connect()), expected, "many cells")
    taken = take_over(connect())
    expect_equal(list(taken.journal), [_value(number) for number in numbers], "a long journal")
    expect_equal(
        [each.payload for each in sorted(taken.checkpoints, key=lambda each: each.sequence)],
        [_value(number) for number in numbers],
        "many productions",
    )
    expect_equal(
        sorted(number for _, number in store.read_table(LOG)), list(numbers), "many large rows"
    )
    expect_equal(store.statistics(JOB)["journal"], COUNT, "number of entries")
