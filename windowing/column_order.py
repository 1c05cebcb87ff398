"""Order of windows over columns: by key and start, as one number each, which is sorted by its digits."""

import numpy as np

from windowing.window_columns import Int64s

#: What is beyond may not have room in 64 bits, with a sign.
NUMBER_MAX = 1 << 62
#: So many integers are looked at for what all are multiples of.
_STEP_SAMPLE = 64


def by_key_and_start(keys: Int64s, starts_us: Int64s) -> Int64s:
    """The order of windows by key, and of each key by start; those with the same start stay in their order.

    Args:
        keys: a number from 0 on for the key of each window; at least one.
        starts_us: of the windows, in microseconds.
    """
    numbers = joint_numbers(keys, starts_us)
    return np.lexsort((starts_us, keys)) if numbers is None else argsorted(numbers)


def joint_numbers(keys: Int64s, starts_us: Int64s) -> Int64s | None:
    """A number from 0 on for each key and start, in the order of keys and then of starts; None if it has no room.

    Args:
        keys: as for `by_key_and_start`.
        starts_us: likewise.
    """
    # Windows mostly begin at multiples of something: smaller numbers have fewer digits to sort by.
    offsets, _ = in_steps(starts_us - int(starts_us.min()))
    span = int(offsets.max()) + 1
    return None if (int(keys.max()) + 1) * span > NUMBER_MAX else keys * span + offsets


def in_steps(offsets: Int64s) -> tuple[Int64s, int]:
    """Integers in units of what all are multiples of, and that unit; as they are, and 1, if none was found.

    Args:
        offsets: at least one, from 0 on.
    """
    step = int(np.gcd.reduce(offsets[:_STEP_SAMPLE]))
    if step > 1:
        places = offsets // step
        if not np.count_nonzero(places * step != offsets):
            return places, step
    return offsets, 1


def argsorted(numbers: Int64s) -> Int64s:
    """A stable argsort of numbers from 0 on, by digits of 16 bits, which are counted instead of compared.

    Args:
        numbers: at least one.
    """
    order: Int64s = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(16, int(numbers.max()).bit_length(), 16):
        digits = (numbers >> shift).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order
