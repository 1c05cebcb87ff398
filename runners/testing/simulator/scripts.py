"""Scripts: the input of a simulated pipeline, out of a seed: `(key, number)` pairs, each number once.

In some scripts the watermark is never ahead of a record, so that nothing is late; in others it guesses, and splits are
idle for a while, from birth or later, and come back; in others records come several times, or are retracted.
"""

from collections.abc import Sequence
from random import Random

from dataflow.source import SplitStatus
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, US_PER_SECOND

KEYS = 5
#: Records are in the first ten minutes of 1970.
SECONDS = 600


def truthful(random: Random) -> ScriptedSource:
    """Records in any order; the watermark knows what is still to come."""
    scripts = []
    for drawn in _drawn(random):
        batches, soonest_us = [], MAX_TIMESTAMP_US
        for values, times_us in reversed(drawn):
            batches.append(Batch(values, times_us, soonest_us))
            soonest_us = min([soonest_us, *times_us])
        scripts.append(batches[::-1])
    return ScriptedSource(*scripts)


def in_order(random: Random) -> ScriptedSource:
    """Records nearly in the order of their times, so that the watermark, which knows what is still to come, moves."""
    scripts = []
    for drawn in _drawn(random, batches_max=20):
        times_us = [each for _, batch_us in drawn for each in batch_us]
        disorder_us = random.choice([0, 20, 90]) * US_PER_SECOND
        left_us = sorted(times_us, key=lambda each: each + random.random() * disorder_us)
        batches = []
        for values, _ in drawn:
            batch_us, left_us = left_us[: len(values)], left_us[len(values) :]
            batches.append(Batch(values, batch_us, min(left_us, default=MAX_TIMESTAMP_US)))
        scripts.append(batches)
    return ScriptedSource(*scripts)


def guessing(random: Random) -> ScriptedSource:
    """The watermark follows the newest record at a distance, and is often wrong; splits become idle."""
    scripts = []
    for drawn in _drawn(random):
        disorder_us = random.choice([0, 30, 300]) * US_PER_SECOND
        newest_us, batches = MIN_TIMESTAMP_US, _silence(random)
        for values, times_us in drawn:
            newest_us = max([newest_us, *(each - disorder_us for each in times_us)])
            batches.append(Batch(values, times_us, newest_us))
            batches += _silence(random, newest_us)
        scripts.append(batches)
    return ScriptedSource(*scripts)


def retrying(random: Random, slack_s: int) -> ScriptedSource:
    """The script of `truthful`, from producers that send some records again, in the same batch or later ones.

    The watermark knows nothing of copies: some come more than the slack behind it.

    Args:
        random: draws the script.
        slack_s: how far most copies are behind the watermark at most, in seconds.
    """
    scripts = []
    for drawn in _drawn(random):
        batches, soonest_us = [], MAX_TIMESTAMP_US
        for values, times_us in reversed(drawn):
            batches.append((list(zip(values, times_us, strict=True)), soonest_us))
            soonest_us = min([soonest_us, *times_us])
        batches.reverse()
        batches += [([], MAX_TIMESTAMP_US)] * random.choice([0, 2])
        originals = [
            (index, record) for index, (batch, _) in enumerate(batches) for record in batch
        ]
        for index, record in originals:
            for _ in range(random.choice([0, 0, 1, 2])):
                later = random.randrange(index, len(batches))
                output_watermark_us = batches[later - 1][1] if later else MIN_TIMESTAMP_US
                if (
                    record[1] >= output_watermark_us - slack_s * US_PER_SECOND
                    or random.random() < 0.1
                ):
                    batches[later][0].append(record)
        scripts.append(
            [Batch([each[0] for each in b], [each[1] for each in b], us) for b, us in batches]
        )
    return ScriptedSource(*scripts)


def changing(random: Random) -> ScriptedSource:
    """Records some of which are retracted, in the same batch or a later one, and some of these come once more.

    The watermark knows what is still to come, retractions among it.
    """
    scripts = []
    for drawn in _drawn(random):
        batches: list[list[tuple[tuple[int, int], int, int]]] = [
            [(value, time_us, +1) for value, time_us in zip(*batch, strict=True)] for batch in drawn
        ]
        emitted = [(place, each) for place, batch in enumerate(batches) for each in batch]
        for place, (value, time_us, _) in emitted:
            later = place
            for sign in random.choice([(), (), (-1,), (-1, +1), (-1, +1, -1)]):
                later = random.randrange(later, len(batches))
                batches[later].append((value, time_us, sign))
        script, soonest_us = [], MAX_TIMESTAMP_US
        for batch in reversed(batches):
            times_us = [each[1] for each in batch]
            signs = [each[2] for each in batch]
            script.append(Batch([each[0] for each in batch], times_us, soonest_us, signs=signs))
            soonest_us = min([soonest_us, *times_us])
        scripts.append(script[::-1])
    return ScriptedSource(*scripts)


def _silence(random: Random, watermark_us: int = MIN_TIMESTAMP_US) -> list[Batch]:
    polls = random.choice([0, 0, 0, 1, 4])
    return [Batch([], [], watermark_us, SplitStatus.IDLE)] * polls


def _drawn(
    random: Random, batches_max: int = 6
) -> Sequence[list[tuple[list[tuple[int, int]], list[int]]]]:
    """For each split the batches: values and times in microseconds."""
    number, splits = 0, []
    spread = random.choice([30, 200, SECONDS])
    for _ in range(random.choice([1, 2])):
        batches = []
        for _ in range(random.randint(1, batches_max)):
            size = random.randint(0, 5)
            values = [(random.randrange(KEYS), number + index) for index in range(size)]
            number += size
            batches.append((values, [random.randrange(spread) * US_PER_SECOND for _ in values]))
        splits.append(batches)
    return splits
