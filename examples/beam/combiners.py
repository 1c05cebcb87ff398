"""Combiners: several aggregates of each group at once, and one of everything."""

from typing import NamedTuple

import dataflow as df
from examples.beam.running import main


class Harvest(NamedTuple):
    """What a bed has given."""

    plant: str
    bed: int
    kilograms: float


HARVESTS = [
    Harvest("carrot", 1, 2.5),
    Harvest("carrot", 2, 4.0),
    Harvest("carrot", 3, 1.0),
    Harvest("leek", 1, 3.0),
    Harvest("leek", 4, 5.0),
]


def build(p: df.Pipeline) -> df.PCollection[tuple[str, float, float, int]]:
    """By plant: the sum, the mean and the best bed; and of all plants the same."""
    harvests = p | df.Create(HARVESTS)

    def totals(grouped: df.GroupBy) -> df.GroupBy:
        return (
            grouped.aggregate_field("kilograms", sum, "total")
            .aggregate_field("kilograms", df.MeanCombineFn(), "mean")
            .aggregate_field(("bed", "kilograms"), df.ArgMaxCombineFn(), "best_bed")
        )

    by_plant = (
        harvests
        | "by plant" >> totals(df.GroupBy("plant"))
        | "plants" >> df.Map(lambda row: (*row,))
    )
    of_all = harvests | "of all" >> totals(df.GroupBy()) | df.Map(lambda row: ("all", *row))
    return (by_plant, of_all) | df.Flatten()


if __name__ == "__main__":
    main(build)
