"""The streaming runner: workers of the exactly-once core as long-lived Spark tasks."""

from runners.streaming.runner import StreamingRunner

__all__ = ["StreamingRunner"]
