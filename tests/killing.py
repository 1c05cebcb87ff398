"""Killing a job again and again: the loop of the tests that do it, whatever the job reads and writes."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.processes import descendants, in_a_group, is_gone, kill, workers_of
from tests.waiting import until


def seeded() -> random.Random:
    """What decides who is killed and when; printed, and given by ``KILL_SEED`` to repeat it."""
    seed = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KILL_SEED={seed}")
    return random.Random(seed)


def kill_one_after_the_other(
    words: Sequence[str],
    log: Path,
    kills: Sequence[str],
    chance: random.Random,
    progress: Callable[[], Sequence[int]],
    strikes: Mapping[str, Callable[[], None]] | None = None,
) -> None:
    """Run a job, and kill something each time that it has got on; if that was the job, run it again.

    ``kills``: "driver", "worker", "everything", or a name of ``strikes``, which do something else; in any order.
    ``progress``: numbers, each of which has to grow before the next one.  A job that ends before the last of them, as
    its input may on a busy machine, is left alone.  Nothing runs in the end.
    """
    plans, others = chance.sample(kills, len(kills)), strikes or {}
    while plans:
        with in_a_group(words, log) as family:
            while plans:
                before = progress()

                def has_grown(before: Sequence[int] = before) -> bool:
                    return all(now > then for now, then in zip(progress(), before, strict=True))

                until(lambda: has_grown() or is_gone(family), log.read_text)
                if is_gone(family):
                    return
                what = plans.pop()
                print(what)
                if what in others:
                    others[what]()
                elif what == "worker":
                    kill([chance.choice(workers_of(family, log.read_text))])
                else:
                    kill([*descendants(family), family] if what == "everything" else [family])
                    break
