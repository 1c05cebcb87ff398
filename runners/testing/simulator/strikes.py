"""Strikes: the faults that befall one process between two rounds."""

import math
from collections.abc import Sequence

from runners.testing.simulator.clock import SkewedClock
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.fault import Fault
from runners.testing.simulator.process import WorkerProcess
from runners.testing.simulator.trace import Trace

_HOUR_US = 3_600_000_000


def strike(
    struck: WorkerProcess,
    peers: Sequence[str],
    driver_clock: SkewedClock,
    dice: Dice,
    trace: Trace,
) -> None:
    """Have happen to a worker, or to its driver, the faults that the dice choose.

    Args:
        struck: the worker.
        peers: the addresses of its driver, first, and of other workers.
        driver_clock: the clock of the driver.
        dice: decide.
        trace: of the run.
    """
    if dice.strikes(Fault.PARTITION):
        duration_ms = dice.duration_ms()
        trace.note(struck.name, f"is cut off for {duration_ms} ms")
        struck.network.isolate(struck.name, duration_ms)
    if dice.strikes(Fault.ONE_WAY):
        is_deaf = dice.is_heads()
        who, lasts_ms = struck.name, _duration_ms(dice)
        if dice.is_heads():
            # A driver that is never reached again would have to be replaced by a person.
            who, lasts_ms = peers[0], dice.duration_ms()
        trace.note(
            who, f"{'receives from' if is_deaf else 'is received by'} nobody for {lasts_ms} ms"
        )
        struck.network.mute(who, lasts_ms, is_deaf=is_deaf)
    if dice.strikes(Fault.HALF_OPEN):
        ends = [struck.name, dice.one_of(peers)]
        sender, receiver = ends if dice.is_heads() else ends[::-1]
        lasts_ms = dice.duration_ms()
        trace.note(sender, f"is not received by {receiver} for {lasts_ms} ms")
        struck.network.half_open((sender, receiver), lasts_ms)
    if dice.strikes(Fault.STORE_CUT):
        lasts_ms = _duration_ms(dice)
        trace.note(struck.name, f"cannot reach the store for {lasts_ms} ms")
        struck.store.cut_off(lasts_ms)
    if dice.strikes(Fault.CLOCK_JUMP):
        jump_us = _HOUR_US if dice.is_heads() else -_HOUR_US
        clock = struck.clock if dice.is_heads() else driver_clock
        trace.note(struck.name, f"has a clock jump by {jump_us} us")
        clock.jump(jump_us)


def _duration_ms(dice: Dice) -> float:
    """How long a fault lasts: for a while, or as long as the process lives."""
    return math.inf if dice.is_heads() else dice.duration_ms()
