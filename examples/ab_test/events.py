"""The events of the experiment, made up by a seed: what users are shown, what they do, and when that arrives.

A conversion of a phone arrives when the phone is on line again: days after it happened.
"""

import csv
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
#: Of each experiment: the variants with the share of users who convert, and what converting is.
TRUTH = {
    "button": ({"grey": 0.10, "green": 0.17}, "bought"),
    "headline": ({"plain": 0.20, "bold": 0.20}, "signed up"),
}
#: Of each week.
USERS = 300
#: The share of users with a phone, whose conversions come late.
ON_PHONES = 0.3

#: When it arrives, when it happened, user, action, experiment, variant.
_Event = tuple[datetime, datetime, str, str, str, str]


def write_events(path: Path, seed: int) -> Path:
    """Write two weeks of events to a CSV file, in the order of their arrival, and return its path.

    Args:
        path: of the file.
        seed: decides who is shown what, and does what.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["user", "action", "experiment", "variant", "at"])
        for _, at, *what in sorted(_events(random.Random(seed))):
            writer.writerow([*what, at.isoformat()])
    return path


def _events(chance: random.Random) -> Iterator[_Event]:
    for number in range(2 * USERS):
        user, week = f"user-{number:04}", MONDAY + timedelta(weeks=number // USERS)
        has_phone = chance.random() < ON_PHONES
        for experiment, (rates, goal) in TRUTH.items():
            variant = chance.choice(sorted(rates))
            at = week + timedelta(seconds=chance.randrange(6 * 86_400))
            yield at, at, user, "shown", experiment, variant
            if chance.random() < rates[variant]:
                at += timedelta(seconds=chance.randrange(86_400))
                late = timedelta(hours=chance.randrange(12, 96)) if has_phone else timedelta(0)
                yield at + late, at, user, goal, "", ""
