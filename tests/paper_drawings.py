"""The paper's figures, each run and drawn once: what they say does not depend on who looks."""

import functools

from examples.paper_figures.figures import Figure
from examples.paper_figures.panes import Pane
from examples.paper_figures.plot import draw


@functools.cache
def panes(figure: Figure) -> tuple[Pane, ...]:
    """What the pipeline of a figure emits."""
    return tuple(figure.run())


@functools.cache
def drawn(figure: Figure) -> str:
    """The figure as SVG."""
    return draw(figure, panes(figure))
