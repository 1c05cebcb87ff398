"""Deaths: at which step workers have ended, and how often without having got any further.

Without this a record that ends its process would be tried for ever, by one worker after the other, while another part
of the job goes on.
"""

from collections.abc import Iterable, Mapping

from runners.errors import JobFailedError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.troubles import TroubleBook, TroubleKind
from runners.millwheel.wire.messages import Died

#: Workers that may end at one step, one after the other: as many as Spark tries a task, twice.
DEATHS_MAX = 8


class Deaths:
    """Deaths of workers of one job, as far as its driver was notified of them; another driver begins at none.

    Args:
        job: its name, for the error.
        troubles: takes in every death.
    """

    def __init__(self, job: str, troubles: TroubleBook) -> None:
        self._job, self._troubles = job, troubles
        #: By range: how many bundles it had committed, and how many workers have ended at the next one.
        self._counts: dict[RangeId, tuple[int, int]] = {}
        #: Those whose last worker ended without reporting an error.
        self._suspects: dict[RangeId, int] = {}

    def note(self, died: Died) -> JobFailedError | None:
        """Note that a worker has ended; returns the error, if it is one too many at this step."""
        place = ", ".join(map(str, sorted(died.at))) or f"slot {died.slot}"
        self._troubles.note(TroubleKind.DEATH, place, died.reason)
        if not died.at:
            return None
        known = {each: self._counts[each] for each in died.at if each in self._counts}
        # A step is of several ranges: it got further if one of them did.
        has_got_further = any(died.at[each] > bundle for each, (bundle, _) in known.items())
        before = 0 if has_got_further else max((count for _, count in known.values()), default=0)
        for range_id, bundle in died.at.items():
            self._counts[range_id] = (bundle, before + 1)
            if died.is_silent:
                self._suspects[range_id] = bundle
        if before + 1 < DEATHS_MAX:
            return None
        return JobFailedError(
            f"{before + 1} workers of job {self._job!r} have ended at one step of {place}, one after the other",
            detail=died.reason,
            hint="the detail says why; what is committed stays, and running the job again continues it; records that "
            "end their process are set aside as dead letters with tries_per_record=..., and those that never return "
            "with step_timeout=... too",
        )

    def suspects(self, ranges: Iterable[RangeId]) -> Mapping[RangeId, int]:
        """Which of these ranges have ended a process at their next step, with how many bundles they had committed."""
        return {each: self._suspects[each] for each in ranges if each in self._suspects}
