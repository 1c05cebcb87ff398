"""The direct runner: in memory, one thread, starts in milliseconds; what tests use."""

from runners.direct.runner import DirectRunner

__all__ = ["DirectRunner"]
