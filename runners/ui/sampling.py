"""Sampling: how far the stages of jobs were, once a second, for as long as this program runs.

It is in memory, and nothing is written to the store: the page has no right to, and a job pays nothing for being
watched.  What is sampled is in the store whether a driver lives or not, so a dead job goes on as a flat line.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence

import attrs

from runners.errors import StoreError
from runners.millwheel.store.postgres.reader import FoundRows
from runners.ui.reads import Reads

#: An hour of seconds.
SAMPLES_MAX = 3_600
_INTERVAL_S = 1.0
#: A job that is not sampled for so long is finished or forgotten, and its samples go.
_FORGOTTEN_US = 3_600_000_000


@attrs.frozen(kw_only=True)
class EventTimeSample:
    """How far the stages of a job were at one moment.

    Attributes:
        at_us: by the clock of the store.
        event_us: event time by stage; None: not known.
    """

    at_us: int
    event_us: Mapping[str, int | None]


class Sampling:
    """Samples of all unfinished jobs.

    Thread-safe.

    Args:
        reads: of the store.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._lock = threading.Lock()
        self._samples: dict[str, deque[EventTimeSample]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dataflow-ui-sampling", daemon=True)

    def start(self) -> None:
        """Take a sample each second until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more; waits for one that is being taken."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> None:
        """Take a sample of every unfinished job.

        Raises:
            StoreError: the store cannot be read.
        """
        found = self._reads.read(["samples"])["samples"]
        taken = samples_of(found)
        with self._lock:
            for job, sample in taken.items():
                kept = self._samples.setdefault(job, deque(maxlen=SAMPLES_MAX))
                if not kept:
                    kept.append(sample)
                elif kept[-1].at_us < sample.at_us:
                    kept.append(_never_back(kept[-1], sample))
            newest_us = max((kept[-1].at_us for kept in self._samples.values()), default=0)
            self._samples = {
                job: kept
                for job, kept in self._samples.items()
                if newest_us - kept[-1].at_us < _FORGOTTEN_US
            }

    def of(self, job: str) -> Sequence[EventTimeSample]:
        """The samples of a job, the oldest first.

        Args:
            job: its name.
        """
        with self._lock:
            return tuple(self._samples.get(job, ()))

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            try:
                self.take()
            except StoreError:
                # Whoever looks at the page sees why; the samples have a gap.
                continue


def _never_back(before: EventTimeSample, sample: EventTimeSample) -> EventTimeSample:
    """No watermark goes back: what a driver knows of a range begins anew with each owner."""
    events = {
        stage: event_us
        if (known := before.event_us.get(stage)) is None
        else max(known, event_us or known)
        for stage, event_us in sample.event_us.items()
    }
    return attrs.evolve(sample, event_us=events)


def samples_of(found: FoundRows) -> Mapping[str, EventTimeSample]:
    """A sample of each job.

    Args:
        found: rows of ``samples.sql``.
    """
    at_us: dict[str, int] = {}
    stages: dict[str, dict[str, int | None]] = {}
    for row in found.rows or ():
        known = row["committed"] if row["output_us"] is None else row["output_us"]
        stages.setdefault(row["job"], {})[row["computation"]] = known
        at_us[row["job"]] = row["now"]
    return {
        job: EventTimeSample(at_us=at_us[job], event_us=events) for job, events in stages.items()
    }


def speed(samples: Sequence[EventTimeSample], stage: str, over_us: int) -> float | None:
    """How many seconds of event time a stage has come forward in a second; None: not known.

    Args:
        samples: of its job, the oldest first.
        stage: its name.
        over_us: how far to look back, in microseconds.
    """
    known = [
        (each.at_us, event_us)
        for each in samples
        if samples[-1].at_us - each.at_us <= over_us
        and (event_us := each.event_us.get(stage)) is not None
    ]
    if len(known) < 2 or known[-1][0] - known[0][0] < over_us / 4:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
