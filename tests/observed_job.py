"""A stream that goes on for ever, and hangs in user code while a file is there: a driver that tests may stop and kill.

``python -m tests.observed_job STORE HANG [OPTION...]``: the DSN, the path of that file, and options of the runner.
"""

import logging
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import dataflow as df
from dataflow.options import parse_options

_LOG = logging.getLogger("observed")


class Watched(df.DoFn):
    """Counts, logs, and waits while the file is there."""

    def __init__(self, hang: str) -> None:
        self._hang = Path(hang)

    def process(self, element: datetime) -> Any:
        df.Metrics.counter("observed", "seen").inc()
        df.Metrics.distribution("observed", "second").update(element.second)
        df.Metrics.gauge("observed", "last").set(element.timestamp())
        _LOG.info("seen %s", element.isoformat())
        while self._hang.exists():
            time.sleep(0.05)
        yield "all", 1


def build(p: df.Pipeline, hang: str) -> None:
    """Counts of each second, of impulses at five a second."""
    (
        p
        | "pulse" >> df.PeriodicImpulse(fire_interval=0.2)
        | "watched" >> df.ParDo(Watched(hang))
        | "seconds" >> df.WindowInto(df.FixedWindows(1))
        | "count" >> df.CombinePerKey(sum)
        | "row" >> df.Map(lambda pair: {"key": pair[0], "total": pair[1]})
        | "write" >> df.WriteToPostgres("totals", columns={"key": str, "total": int})
    )


def main(store: str, hang: str, *rest: str) -> None:
    """Run the job "observed"."""
    options, _ = parse_options(rest)
    given: Any = {"job": "observed", "store": store, "show_progress": False, **options}
    p = df.Pipeline("streaming", **given)
    build(p, hang)
    p.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
