"""A group many times as large as what its task may hold: how much memory it takes, in a process of its own."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from runners.batch.gather import Gatherer
from runners.batch.layout import Layout
from runners.batch.overflow import Overflow
from runners.batch.spill.spilled_groups import SpilledGroups
from runners.core.stages.grouping import GroupingStage
from runners.core.stages.plan import plan
from runners.stored.partials import decode_partials, encode_partials
from tests.property.test_spilled_groups import clock
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from windowing.window import GLOBAL_WINDOW

pytestmark = pytest.mark.slow

SPILL_BYTES = 4 << 20
VALUES = 300_000
VALUE_BYTES = 1_000
CHUNK = 1_000
LAYOUT = Layout(
    levels={"next": 1}, offsets={"next": 0}, counts={"next": 1}, wanted={"next": frozenset([0])}
)
#: More than a task needs: what it may hold, as objects; what is packed for later groupings; what Python keeps.
ALLOWED_MIB = 100


def value(number: int) -> bytes:
    return number.to_bytes(VALUE_BYTES, "big")


def number_of(content: bytes) -> int:
    return int.from_bytes(content, "big")


def peak_mib() -> int:
    # Not getrusage: its figure survives exec, so it may be that of the process that started this one.
    status = Path("/proc/self/status").read_text("utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10


class ReadTwice(df.DoFn):
    """Needs the largest value to know what the sum of all shares is."""

    def process(self, element: tuple[Any, Any]) -> Iterator[tuple[str, int]]:
        key, values = element
        largest = max(map(number_of, values))
        yield f"{key} largest", largest
        yield f"{key} in all", sum(largest - number_of(each) for each in values)
        yield f"{key} in the middle", number_of(values[len(values) // 2])


class Each(df.DoFn):
    """Emits every value again: what comes out must not wait for the last."""

    def process(self, element: tuple[Any, Any]) -> Iterator[tuple[str, bytes]]:
        key, values = element
        for each in values:
            yield f"{key} again", each


def run(kind: str) -> None:
    """What the subprocess does: prints what was emitted for the large key, and how much memory it took."""
    totals: Counter[str] = Counter()
    p = df.Pipeline()
    groups = p | df.Create([("key", b"")]) | df.GroupByKey()
    if kind == "read twice":
        groups | df.ParDo(ReadTwice()) | df.Map(lambda pair: totals.update(dict([pair])))
    elif kind == "emit again":
        numbers = groups | df.ParDo(Each()) | df.Map(lambda pair: (pair[0], number_of(pair[1])))
        numbers | "next" >> df.CombinePerKey(sum)
    else:
        groups | df.ParDo(Each()) | "next" >> df.GroupByKey()
    planned = plan(p.graph())
    stage = next(iter(planned.groupings()))
    grouping = GroupingStage(planned, stage, is_time_sorted=True)
    gatherer = Gatherer(planned, stage, LAYOUT)
    overflow = Overflow(grouping.executor, gatherer)
    before_mib = peak_mib()
    grouping.setup()
    spilled = SpilledGroups(grouping, clock(MIN_TIMESTAMP_US), clock(MAX_TIMESTAMP_US), SPILL_BYTES)
    for step in spilled.steps(blobs()):
        arrive(overflow.packed(), totals)
        arrive(gatherer.add(step.outputs.groups), totals)
    arrive(gatherer.flush(), totals)
    grouping.teardown()
    spilled.close()
    took_mib = peak_mib() - before_mib
    print(json.dumps({key: total for key, total in totals.items() if key.startswith("key")}))
    print(took_mib)


def arrive(packed: Iterable[tuple[int, bytes]], totals: Counter[str]) -> None:
    """What the next grouping gets: sums, or all values."""
    for _, blob in packed:
        for key, _, found, _ in decode_partials(blob, None):
            totals[key] += sum(
                number_of(each) if isinstance(each, bytes) else each for each in found
            )


def blobs() -> Iterator[bytes]:
    """Nearly everything is of one key, some of many others."""
    for start in range(0, VALUES, CHUNK):
        values = [value(number) for number in range(start, start + CHUNK)]
        other = (start, GLOBAL_WINDOW, [value(start)], 1)
        yield encode_partials([("key", GLOBAL_WINDOW, values, CHUNK), other])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["read twice", "emit again", "group again"])
def test_a_group_of_300_mb_takes_little_memory(kind: str) -> None:
    program = f"from tests.integration.test_large_group import run; run({kind!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    totals, took_mib = map(json.loads, done.stdout.splitlines())
    print(f"{kind}: {took_mib} MiB")
    in_all = VALUES * (VALUES - 1) // 2
    expected = {"key largest": VALUES - 1, "key in all": in_all, "key in the middle": VALUES // 2}
    assert totals == (expected if kind == "read twice" else {"key again": in_all})
    assert took_mib < ALLOWED_MIB
