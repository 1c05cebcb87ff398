"""AccumulationMode: how the panes of one window relate.  Dataflow Model, section 2.3."""

from enum import Enum


class AccumulationMode(Enum):
    """What a later pane of a window contains of the earlier ones.

    * `DISCARDING`: each pane has only what came since the last one; the combination of all panes is the answer.
    * `ACCUMULATING`: each pane has everything so far; the last pane is the answer.
    * `ACCUMULATING_AND_RETRACTING`: as accumulating, and each pane first retracts what was emitted before, also by
      windows that have since merged into this one; the signed sum of the panes is the answer.
    """

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    ACCUMULATING_AND_RETRACTING = "accumulating_and_retracting"
