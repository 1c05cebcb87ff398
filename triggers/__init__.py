"""WHEN in processing time panes are emitted, and HOW refinements relate.

Pure transitions; above `windowing`, below `dataflow`.  Dataflow Model, section 2.3.
"""

from triggers.accumulation import AccumulationMode
from triggers.default_trigger import DefaultTrigger
from triggers.trigger import Trigger, Wakeup
from triggers.windowing_strategy import WindowingStrategy

__all__ = ["AccumulationMode", "DefaultTrigger", "Trigger", "Wakeup", "WindowingStrategy"]
