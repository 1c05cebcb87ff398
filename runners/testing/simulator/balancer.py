"""A balancer without reason: now and then it moves, splits and merges key ranges (F20)."""

from contextlib import suppress

from runners.millwheel.control.shapes import ShapeError
from runners.millwheel.master.master import Master
from runners.testing.simulator.dice import Dice
from runners.testing.simulator.fault import Fault
from runners.testing.simulator.trace import Trace


def balance(master: Master, slots: int, dice: Dice, trace: Trace) -> None:
    """Have the master make a change that the dice choose, where it is possible.

    Args:
        master: of the job; what it refuses is not done.
        slots: how many there are.
        dice: whether a change is made, and which.
        trace: of the run.
    """
    random = dice.random
    if dice.strikes(Fault.MOVE):
        known = sorted(master.ranges)
        # All of them: the job is gathered, and whoever dies next may have everything.
        ranges = random.sample(known, min(len(known), random.choice((1, 2, 3, len(known)))))
        slot = random.randrange(slots)
        trace.note("driver", f"moves {', '.join(map(str, ranges))} to slot {slot}")
        master.move(ranges, slot)
    keys = master.key_ranges
    if dice.strikes(Fault.SPLIT):
        chosen = random.choice(sorted(keys))
        at = random.randrange(keys[chosen].low, keys[chosen].high) if dice.is_heads() else None
        with suppress(ShapeError):
            born = master.split(chosen, at)
            trace.note("driver", f"has {chosen} split, the new one is {born}")
    if dice.strikes(Fault.MERGE):
        chosen = random.choice(sorted(keys))
        gone = random.choice([each for each in keys if each.computation == chosen.computation])
        with suppress(ShapeError):
            master.merge(chosen, gone)
            trace.note("driver", f"has {chosen} take in {gone}")
