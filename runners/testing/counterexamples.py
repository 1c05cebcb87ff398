"""What is shown of the counterexample to a law: a program to copy, and a picture of its panes."""

from collections.abc import Callable
from typing import Any

from dataflow.errors import DataflowError
from dataflow.pipeline import PCollection, Pipeline
from dataflow.testing.test_stream import TestStream
from runners.direct import DirectRunner

Build = Callable[[PCollection[Any]], PCollection[Any]]


def program(build: Build, stream: TestStream) -> str:
    """A program that runs a fragment of a pipeline with a stream, and prints what it emits.

    Args:
        build: the fragment; it is named, not shown.
        stream: its input.
    """
    calls = repr(stream).replace("TimestampedValue(", "df.TimestampedValue(")
    calls = calls.replace(").a", ")\n    .a")
    name = getattr(build, "__name__", "build")
    return "\n".join(
        [
            "import dataflow as df",
            "from dataflow.testing import TestStream",
            "",
            f"stream = (\n    {calls}\n)",
            "with df.Pipeline() as p:",
            f"    {name}(p | stream) | df.ToChangelog() | df.Map(print)",
        ]
    )


def picture(build: Build, stream: TestStream, key: Any) -> str | None:
    """The panes of a key as SVG; None where there are none, or of several groupings.

    Args:
        build: the fragment of the pipeline.
        stream: its input.
        key: whose panes to draw.
    """
    pipeline = Pipeline(DirectRunner(lineage="records", show_progress=False))
    build(pipeline | stream)
    try:
        return pipeline.run().plot(key).to_svg()
    except DataflowError:
        return None
