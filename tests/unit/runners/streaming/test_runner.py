"""StreamingRunner: what it refuses before anything starts."""

import pytest

import dataflow as df
from runners.streaming import StreamingRunner


def test_less_than_no_memory_is_refused() -> None:
    with pytest.raises(df.PipelineError, match="state_cache_bytes must not be negative, not -1"):
        StreamingRunner(job="job", state_cache_bytes=-1)
