"""WHEN in processing time panes are emitted, and HOW the panes of one window relate.

Pure transitions; above `windowing`, below `dataflow`.  Dataflow Model, section 2.3.
"""

from triggers.accumulation import AccumulationMode
from triggers.after_count import AfterCount, Always, Never
from triggers.after_each import AfterEach
from triggers.after_processing_time import AfterProcessingTime, AtPeriod
from triggers.after_signal import AfterSignal
from triggers.after_watermark import AfterWatermark
from triggers.awaited import Awaited, AwaitedKind, Turn
from triggers.clocks import Clocks
from triggers.composite import AfterAll, AfterAny, OrFinally
from triggers.data_driven import AfterBytes, AfterPattern, AfterPunctuation, DataDrivenTrigger
from triggers.default_trigger import DefaultTrigger
from triggers.firing_behavior import FiringBehavior
from triggers.repeatedly import Repeatedly
from triggers.timestamp_combiner import TimestampCombiner
from triggers.trigger import EarlyFirings, Elements, Progress, Trigger, TriggerTimers
from triggers.windowing_strategy import WindowingStrategy

__all__ = [
    "AccumulationMode",
    "AfterAll",
    "AfterAny",
    "AfterBytes",
    "AfterCount",
    "AfterEach",
    "AfterPattern",
    "AfterProcessingTime",
    "AfterPunctuation",
    "AfterSignal",
    "AfterWatermark",
    "Always",
    "AtPeriod",
    "Awaited",
    "AwaitedKind",
    "Clocks",
    "DataDrivenTrigger",
    "DefaultTrigger",
    "EarlyFirings",
    "Elements",
    "FiringBehavior",
    "Never",
    "OrFinally",
    "Progress",
    "Repeatedly",
    "TimestampCombiner",
    "Trigger",
    "TriggerTimers",
    "Turn",
    "WindowingStrategy",
]
