"""The ten data points of the Dataflow Model paper, run through the pipelines of its figures and drawn.

Read `pipelines.py` first: one function for each figure, as the paper writes it.
The pictures are in `docs/figures`, and ``python -m examples.paper_figures`` draws them again.
What is exported here is for the programs in the documentation.
"""

from examples.paper_figures.panes import show
from examples.paper_figures.points import MINUTE, ten_points, ten_points_at_rest

__all__ = ["MINUTE", "show", "ten_points", "ten_points_at_rest"]
