"""How long it takes to make bytes, and to read them: cells, entries of the journal, deliveries, reports of workers.

    python -m benchmarks.encoding [--rounds 9]

Prints microseconds of processor time, the best of several rounds, and as a yardstick those of pickling the same values
as plain tuples, in alternating rounds.
"""

import gc
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from benchmarks import harness
from runners.core.ground.cells import WindowState, WindowTimers
from runners.millwheel.model.counts import Counts
from runners.millwheel.model.ids import Channel, CommitMark, RangeId
from runners.millwheel.model.loads import RangeLoad
from runners.millwheel.wire.messages import Deliver, Report, decode, encode
from runners.stored.cells import decode_cell, encode_cell
from runners.stored.journal import decode_entry, encode_changes
from runners.stored.partials import decode_partials, encode_partials
from windowing.time_domain import TimeDomain
from windowing.window import Window

#: Values that are encoded in one round, about.
_VALUES = 20_000
_SIZES = (1, 500)
_MINUTE = Window(0, 60_000_000)
_CHANNEL = Channel(RangeId("read", 0), RangeId("sum", 1))


@attrs.frozen
class Case:
    """A value to encode and decode, and its fields as plain tuples."""

    name: str
    size: int
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]
    plain: Any


def cases() -> list[Case]:
    """All cases."""
    found = [_case_of_a_cell()]
    for size in _SIZES:
        found += [_case_of_an_entry(size), _case_of_a_delivery(size)]
    return [*found, _case_of_a_report(20)]


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    gc.disable()
    print(f"{'us of processor time':32}{'encode':>10}{'decode':>10}{'pickle':>10}{'unpickle':>10}")
    for case in cases():
        ours = case.encode, partial(case.decode, case.encode())
        pickled = partial(pickle.dumps, case.plain, protocol=5)
        plain = pickled, partial(pickle.loads, pickled())
        calls = max(1, _VALUES // case.size)
        best = [float("inf")] * 4
        for _ in range(rounds):
            took = [_took_us(call, calls) for call in (*ours, *plain)]
            best = list(map(min, best, took))
        print(f"{case.name:32}" + "".join(f"{each:10.2f}" for each in best))


def _took_us(call: Callable[[], object], calls: int) -> float:
    begun = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - begun) / calls / 1_000


def _cell(accumulator: int) -> WindowState:
    return WindowState(
        accumulator=accumulator,
        pending=3,
        timers=WindowTimers(_MINUTE.end_us),
        hold_us=_MINUTE.max_timestamp_us,
    )


def _plain_cell(accumulator: int) -> tuple[Any, ...]:
    timers = _MINUTE.end_us, None, None
    return accumulator, 3, (), 0, 0, False, (None, False), timers, _MINUTE.max_timestamp_us


def _case_of_a_cell() -> Case:
    cell = _cell(5)
    return Case("a cell", 1, lambda: encode_cell(cell), decode_cell, _plain_cell(5))


def _case_of_an_entry(size: int) -> Case:
    keys = [f"user-{number}" for number in range(size)]
    cells = [((key, _MINUTE), _cell(number)) for number, key in enumerate(keys)]
    event = TimeDomain.EVENT
    timers = [(((key, _MINUTE), _MINUTE, event), _MINUTE.end_us) for key in keys]
    bounds = tuple(_MINUTE)
    plain = (
        [((key, bounds), _plain_cell(number)) for number, key in enumerate(keys)],
        [(((key, bounds), bounds, "event"), _MINUTE.end_us) for key in keys],
    )
    return Case(
        f"journal entry of {size}",
        size,
        lambda: encode_changes(cells, timers),
        lambda blob: decode_entry(blob, None),
        plain,
    )


def _case_of_a_delivery(size: int) -> Case:
    partials = [(f"user-{number}", _MINUTE, number, 1) for number in range(size)]
    bounds = tuple(_MINUTE)

    def encoded() -> bytes:
        payload = encode_partials(partials)
        return encode(Deliver(_CHANNEL, 5, payload, origin=CommitMark(3, 4)))

    return Case(
        f"delivery of {size}",
        size,
        encoded,
        lambda blob: decode_partials(decode(blob).payload, None),
        (
            "read",
            0,
            "sum",
            1,
            5,
            [(key, bounds, value, count) for key, _, value, count in partials],
        ),
    )


def _case_of_a_report(size: int) -> Case:
    """What a worker of so many ranges sends the master: by range how far it is, and the hashes of its last keys."""
    ranges = [RangeId("sum", index) for index in range(size)]
    hashes = tuple((number << 56) + number for number in range(64))
    report = Report(
        slot=0,
        worker="worker",
        watermarks_us=dict.fromkeys(ranges, _MINUTE.end_us),
        idle=frozenset(),
        signals=dict.fromkeys(ranges, 0),
        percentiles_us={},
        progress={},
        polls={},
        routings=dict.fromkeys(ranges, 1),
        commits=dict.fromkeys(ranges, CommitMark(3, 4)),
        is_quiet=False,
        is_paused=False,
        counts=Counts(loads=dict.fromkeys(ranges, RangeLoad(100_000, hashes))),
        as_of_ms=1,
    )
    plain = [
        (each.computation, each.index, _MINUTE.end_us, 0, 1, (3, 4), 100_000, list(hashes))
        for each in ranges
    ]
    return Case(f"report of {size} ranges", size, lambda: encode(report), decode, plain)


if __name__ == "__main__":
    main()
