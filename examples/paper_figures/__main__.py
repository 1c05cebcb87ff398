"""Run the pipelines and draw the figures: ``python -m examples.paper_figures [--out DIR] [FIGURE ...]``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.paper_figures.figures import FIGURES
from examples.paper_figures.panes import numbers
from examples.paper_figures.plot import draw


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what the command line names; returns the exit status."""
    known = {figure.number: figure for figure in FIGURES}
    parser = argparse.ArgumentParser(
        prog="python -m examples.paper_figures",
        description="Run the pipelines of the Dataflow Model paper's figures and draw the panes that they emit.",
    )
    parser.add_argument(
        "figures",
        metavar="FIGURE",
        type=int,
        nargs="*",
        help=f"numbers from {min(known)} to {max(known)}; all of them if none is given",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), metavar="DIR")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.figures) - set(known):
        parser.error(f"there is no figure {min(unknown)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    for number in asked.figures or known:
        figure = known[number]
        panes = figure.run()
        path = asked.out / figure.file_name
        path.write_text(draw(figure, panes), "utf-8", newline="\n")
        print(f"{path}: {' '.join(f'{value}' for value in numbers(panes)) or 'no panes'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
