"""WHEN in processing time panes are emitted, and HOW refinements relate.

Pure transitions; above `windowing`, below `dataflow`.  Dataflow Model, section 2.3.
"""

from triggers.accumulation import AccumulationMode
from triggers.after_count import AfterCount, Always, Never
from triggers.after_processing_time import AfterProcessingTime, AtPeriod
from triggers.after_watermark import AfterWatermark
from triggers.composite import AfterAll, AfterAny, AfterEach, OrFinally, Repeatedly
from triggers.default_trigger import DefaultTrigger
from triggers.trigger import Progress, Trigger, Wakeup
from triggers.windowing_strategy import WindowingStrategy

__all__ = [
    "AccumulationMode",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterWatermark",
    "Always",
    "AtPeriod",
    "DefaultTrigger",
    "Never",
    "OrFinally",
    "Progress",
    "Repeatedly",
    "Trigger",
    "Wakeup",
    "WindowingStrategy",
]
