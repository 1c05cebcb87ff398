"""The command line: ``python -m examples.ab_test [--seed N]``, and the options of a pipeline."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import dataflow as df

from .events import write_events
from .pipeline import Result, build

#: One of those by which late conversions change the verdict.
SEED = 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Make events up, run the job, and print the table; in memory, what it was when a week was over, too."""
    options, rest = df.parse_options(arguments)
    parser = argparse.ArgumentParser(prog="python -m examples.ab_test")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the events ({SEED})")
    seed = parser.parse_args(rest).seed
    is_in_memory = options.get("runner", "direct") == "direct"
    if is_in_memory:
        # A few events at a time, as they come, so that a late one is late.
        options = {"bundle_records": 20, **options}
    with TemporaryDirectory() as folder:
        p = df.Pipeline(**options)
        results = build(p, write_events(Path(folder) / "events.csv", seed))
        if is_in_memory:
            results | df.ToChangelog() | "show" >> df.Map(show)
        result = p.run()
        result.wait_until_finish()
    print("\nexperiment_results")
    found = [Result(**row) for row in result.read_table("experiment_results")]
    for each in sorted(found, key=lambda each: (each.week, each.experiment)):
        print(" ", line(each))


def show(change: df.Change[Result]) -> None:
    """Print a row as it was when its week was over; corrections come later."""
    if change.sign > 0 and change.pane.is_first:
        print("first:", line(change.value))


def line(found: Result) -> str:
    """A row as text."""
    rates = (
        f"{conversions}/{users} = {conversions / users:.3f}"
        for conversions, users in (
            (found.control_conversions, found.control_users),
            (found.treated_conversions, found.treated_users),
        )
    )
    return f"{found.experiment:9} {found.week} {' '.join(rates)} p={found.p_value:.4f}"


if __name__ == "__main__":
    main(sys.argv[1:])
