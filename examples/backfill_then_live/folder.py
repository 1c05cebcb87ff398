"""The folder that rides come to, made up by a seed: a file for each hour, and one of rides that were forgotten."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .pipeline import LAST

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
#: So many hours are history; so many more come live.  The day and most trips around the cut are in both.
BACKFILL_HOURS, LIVE_HOURS = 58, 14
STATIONS = ("harbour", "market", "museum", "station", "zoo")
BICYCLES, RIDES_OF_AN_HOUR = 25, 9


def write_hours(folder: Path, first: int, end: int, seed: int) -> None:
    """Write the files of some hours.

    Args:
        folder: where to.
        first: the first hour, counted from `BEGIN`.
        end: the first hour that is not written.
        seed: with the number of an hour decides about its rides.
    """
    for hour in range(first, end):
        began = BEGIN + timedelta(hours=hour)
        _write(folder, f"rides-{began:%Y-%m-%dT%H}.jsonl", list(_rides(began, f"{seed} {hour}")))


def write_forgotten(folder: Path, seed: int) -> None:
    """Write rides of an hour of the history that were not in its file, as a terminal may when it is on line again.

    Args:
        folder: where to.
        seed: decides about the rides.
    """
    began = BEGIN + timedelta(hours=BACKFILL_HOURS - 10)
    rides = list(_rides(began, f"{seed} forgotten"))
    _write(folder, f"rides-{began:%Y-%m-%dT%H}-forgotten.jsonl", rides)


def close(folder: Path) -> None:
    """Say that no more files will come.

    Args:
        folder: of the files.
    """
    (folder / LAST).touch()


def _rides(began: datetime, seed: str) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    for _ in range(RIDES_OF_AN_HOUR):
        at = began + timedelta(seconds=chance.randrange(3_600))
        yield {
            "began": at.isoformat(),
            "station": chance.choice(STATIONS),
            "bicycle": f"bicycle-{chance.randrange(BICYCLES):02}",
            "minutes": chance.randrange(3, 40),
        }


def _write(folder: Path, name: str, rides: list[dict[str, Any]]) -> None:
    # Under another name first: a file is complete when it appears.
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(ride) + "\n" for ride in rides), encoding="utf-8")
    hidden.rename(folder / name)
