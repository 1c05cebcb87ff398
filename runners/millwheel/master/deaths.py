"""Deaths: on which input workers have ended, and how often without having got any further.

Without this a record that ends its process would be tried for ever, by one worker after the other, while another part
of the job goes on.
"""

from collections.abc import Iterable, Sequence

from runners.errors import JobFailedError
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.step_input import StepInput
from runners.millwheel.model.troubles import TroubleBook, TroubleKind
from runners.millwheel.wire.messages import Died

_Place = tuple[tuple[RangeId, ...], RangeId | None]

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
        #: By ranges and sender: the first number of the last input, and how many workers have ended on it.
        self._counts: dict[_Place, tuple[int, int]] = {}
        #: The last input of each whose worker ended without reporting an error.
        self._suspects: dict[_Place, StepInput] = {}

    def note(self, died: Died) -> JobFailedError | None:
        """Note that a worker has ended; returns the error, if it is one too many at this step."""
        place = ", ".join(dict.fromkeys(map(str, died.at))) or f"slot {died.slot}"
        self._troubles.note(TroubleKind.DEATH, place, died.reason)
        count = max(map(self._count, died.at), default=0)
        if died.is_silent:
            self._suspects.update({(each.ranges, each.sender): each for each in died.at})
        if count < DEATHS_MAX:
            return None
        return JobFailedError(
            f"{count} workers of job {self._job!r} have ended at one step of {place}, one after the other",
            detail=died.reason,
            hint="the detail says why; what is committed stays, and running the job again continues it; records that "
            "end their process are set aside as dead letters with tries_per_record=..., and those that never return "
            "with step_timeout=... too",
        )

    def _count(self, ended_on: StepInput) -> int:
        """Count a death; returns how many there were on this input."""
        place = ended_on.ranges, ended_on.sender
        first, count = self._counts.get(place, (ended_on.first, 0))
        # A step that was refused when it was committed can have others behind it, and be reported at one of them.
        count = count + 1 if ended_on.first <= first else 1
        self._counts[place] = max(first, ended_on.first), count
        return count

    def suspects(self, ranges: Iterable[RangeId]) -> Sequence[StepInput]:
        """Input of these ranges that has ended a process, for their next owner to run on trial."""
        asked = frozenset(ranges)
        return [each for each in self._suspects.values() if not asked.isdisjoint(each.ranges)]
