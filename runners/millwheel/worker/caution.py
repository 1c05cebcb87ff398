"""Caution: which step a worker is in the middle of, for the process that watches it; and steps that ended a process.

A record can end the process that works on it (a crash of native code, `os._exit`), or never come back.  The process
itself cannot catch that, so the one that watches it must know which step it was in (`Watch.begin`).  The next owner of
the range runs user code on trial, in a process of its own (`Watch.trial`), before it runs it itself.  So the record is
found in the same way as one for which user code raises (`runners.core.user_code.poison`).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from runners.core.user_code.poison import Trial
from runners.millwheel.model.ids import RangeId
from runners.millwheel.worker.owned_computation import Computation
from runners.millwheel.worker.owned_range import OwnedRange


class Watch(Protocol):
    """Watches the process of a worker from outside."""

    def begin(self, at: Mapping[RangeId, int]) -> None:
        """Note that user code starts on these ranges, and how many bundles of each are committed."""

    def end(self) -> None:
        """Note that user code has returned."""

    @property
    def trial(self) -> Trial | None:
        """Runs user code in a process of its own first; None: that cannot be done here."""


class _Unwatched:
    trial: Trial | None = None

    def begin(self, at: Mapping[RangeId, int]) -> None:
        """Do nothing: no process watches."""

    def end(self) -> None:
        """Do nothing: no process watches."""


#: For workers that no process watches.
UNWATCHED: Watch = _Unwatched()


class Caution:
    """Reports what one worker is working on to the process that watches it.

    Args:
        computations: by name.
        watch: of its process.
    """

    def __init__(self, computations: Mapping[str, Computation], watch: Watch) -> None:
        self._computations, self._watch = computations, watch
        self._suspects: dict[RangeId, int] = {}

    def suspect(self, ranges: Mapping[RangeId, int]) -> None:
        """Note ranges whose next step has ended a process, by how many bundles were committed then."""
        if self._watch.trial is not None:
            self._suspects.update(ranges)

    @contextmanager
    def at(self, ranges: Iterable[OwnedRange]) -> Iterator[None]:
        """Report that user code runs on ranges of one computation; on trial first, if it has ended a process here."""
        at = {owned.range_id: owned.bundle for owned in ranges}
        is_suspect = bool(self._suspects) and self._are_suspect(at)
        computation = self._computations[next(iter(at)).computation] if is_suspect else None
        self._watch.begin(at)
        try:
            if computation is not None:
                computation.try_first(self._watch.trial)
            yield
        except Exception:
            # User code has returned; what ends the process is no `Exception`, and must be reported at this step.
            self._watch.end()
            raise
        self._watch.end()
        if computation is not None:
            computation.try_first(None)

    def _are_suspect(self, at: Mapping[RangeId, int]) -> bool:
        known = self._suspects.keys() & at.keys()
        if any(at[each] != self._suspects[each] for each in known):
            # A step is of several ranges: it is over for all when one of them has committed it.
            for each in known:
                del self._suspects[each]
            return False
        return bool(known)
