"""A key's elements and timers are seen in the same order on every runner, where input ends or it is asked for."""

import random
from typing import Any

import pytest

import dataflow as df
from dataflow.testing import TestStream
from tests.conformance.conftest import MakeRunner
from tests.deduplication import Deduplicated, DeduplicatedInOrder, expected

COLUMNS = {"key": str, "value": int}
#: Out of order: y at 5 and 6 in one minute, x at 0 and at 200 and 230.
FOUND = [
    ("x", 1, 0), ("y", 2, 5), ("x", 3, 10), ("x", 4, 59), ("x", 5, 200), ("y", 6, 6), ("x", 7, 230),
]  # fmt: skip
SEED = 5
DRAWN = [
    (chance.choice("abcdefgh"), chance.randrange(99), chance.randrange(600))
    for chance in [random.Random(SEED)]
    for _ in range(200)
]


def stamped(elements: list[tuple[str, int, int]]) -> list[df.TimestampedValue]:
    return [df.TimestampedValue((key, value), second) for key, value, second in elements]


def scripted(elements: list[tuple[str, int, int]]) -> Any:
    """A stream of the elements: in two halves, with a watermark that keeps its word in between."""
    half = len(elements) // 2
    soonest = min(second for _, _, second in elements[half:])
    stream = TestStream().add_elements(stamped(elements[:half])).advance_watermark_to(soonest)
    return stream.add_elements(stamped(elements[half:]))


def row(pair: tuple[str, int]) -> dict[str, Any]:
    return {"key": pair[0], "value": pair[1]}


@pytest.mark.parametrize("elements", [FOUND, DRAWN], ids=["found", f"drawn with seed {SEED}"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["list", "stream"])
def test_all_emit_what_is_right_in_the_order_of_event_times(
    elements: list[tuple[str, int, int]], is_stream: bool, make_runner: MakeRunner
) -> None:
    p = df.Pipeline(make_runner())
    source: Any = scripted(elements) if is_stream else df.Create(stamped(elements))
    fn = DeduplicatedInOrder() if is_stream else Deduplicated()
    kept: Any = p | "read" >> source | "deduplicate" >> df.ParDo(fn)
    kept | df.Map(row) | df.WriteToPostgres("kept", columns=COLUMNS)
    result = p.run()
    result.wait_until_finish()

    rows = sorted((each["key"], each["value"]) for each in result.read_table("kept"))
    assert expected(elements) == rows
