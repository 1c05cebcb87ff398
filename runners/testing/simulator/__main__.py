"""``python -m runners.testing.simulator --pipeline NAME --seed 123``: replay a seed, or try many."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from runners.testing.simulator.errors import SimulationError
from runners.testing.simulator.fault import ALL_FAULTS, NO_FAULTS, Fault
from runners.testing.simulator.pipelines import PIPELINES
from runners.testing.simulator.simulate import simulate
from runners.testing.simulator.simulation import BuildLike


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds, and print the outcome; 1 if a seed fails."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.testing.simulator", description=__doc__
    )
    parser.add_argument(
        "--pipeline",
        action="append",
        help=f"one of {', '.join(PIPELINES)}, or module:function; all of these by default",
    )
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", type=int, default=100, help="so many, from --from on")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--faults", help=f"kinds, with commas: {', '.join(Fault)}; or none")
    options = parser.parse_args(arguments)
    seeds = (
        range(options.first, options.first + options.seeds)
        if options.seed is None
        else [options.seed]
    )
    faults = ALL_FAULTS
    if options.faults:
        faults = (
            frozenset(map(Fault, options.faults.split(",")))
            if options.faults != "none"
            else NO_FAULTS
        )
    for name in options.pipeline or PIPELINES:
        try:
            summary = simulate(_found(name), seeds=seeds, faults=faults)
        except SimulationError as error:
            sys.stdout.write(f"{error}\n")
            return 1
        sys.stdout.write(f"{name}: {summary}\n")
    return 0


def _found(name: str) -> BuildLike | str:
    module, _, function = name.partition(":")
    if not function:
        return name
    found: BuildLike = getattr(importlib.import_module(module), function)
    return found


if __name__ == "__main__":
    sys.exit(main())
