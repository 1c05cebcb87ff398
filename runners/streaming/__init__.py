"""The streaming runner: workers of the exactly-once core as long-lived Spark tasks."""

from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.versions.job_versions import Update
from runners.streaming.runner import StreamingRunner

__all__ = ["Guarantees", "StreamingRunner", "Update"]
