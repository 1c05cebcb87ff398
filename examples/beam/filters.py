"""Filters with a side input: the readings of a month that are colder than the mean of all months."""

from typing import NamedTuple

import dataflow as df
from examples.beam.running import main


class Reading(NamedTuple):
    """A temperature in degrees."""

    year: int
    month: int
    day: int
    celsius: float


READINGS = [
    Reading(2024, month, day, celsius)
    for month, temperatures in {1: (-4.0, 1.5, 9.0), 7: (17.0, 8.5, 22.0), 10: (7.5, 11.0)}.items()
    for day, celsius in enumerate(temperatures, 1)
]


def build(p: df.Pipeline, month: int = 7) -> df.PCollection[tuple[int, int, int, float]]:
    """Cold days of a month."""
    readings = p | df.Create(READINGS)
    mean = readings | "all" >> df.Map(lambda reading: reading.celsius) | df.Mean.Globally()
    return (
        readings
        | "of the month" >> df.Filter(df.col("month") == month)
        | "cold" >> df.Filter(lambda reading, mean: reading.celsius < mean, df.AsSingleton(mean))
        | df.Map(tuple)
    )


if __name__ == "__main__":
    main(build)
