"""WorkerOptions: how the workers of a job work; the same for all of them."""

from collections.abc import Mapping

import attrs

from runners.millwheel.model.guarantees import Guarantees
from runners.millwheel.worker.sizes import VALUE_BYTES_MAX
from runners.millwheel.worker.step_limits import STEP_LIMITS, StepLimits


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """Options of the user, for one run.

    Attributes:
        records_per_second: of each source split; None: as fast as it can.
        tries: of a record that makes user code fail (`runners.core.user_code.poison`); None: the first failure stops
            the job.
        step_timeout_ms: how long user code may work on the records of one step; None: as long as it likes.
        skew_limit_us: how far the event time of a source split may be ahead of the slowest one; None: as far as it
            likes.
        state_cache_bytes: how much state a worker keeps in memory between two steps; None: all that it has.
        guarantees: of computations that do without some, by name.
        steps: how much they do in one step.
        value_bytes_max: of what is kept of a key and window, and of what is sent for them at once.
        reports_on_itself: whether it reports where its time goes, and what it is in the middle of.
        trace_to: the collector that traces of bundles are sent to; None: nothing is traced.
        trace_ratio: how much of the bundles that begin is traced.
        shows_keys: whether frequent keys may be shown as text, and not by their hashes alone.
    """

    records_per_second: float | None = None
    tries: int | None = None
    step_timeout_ms: int | None = None
    skew_limit_us: int | None = None
    guarantees: Mapping[str, Guarantees] = attrs.field(factory=dict)
    state_cache_bytes: int | None = None
    steps: StepLimits = STEP_LIMITS
    value_bytes_max: int = VALUE_BYTES_MAX
    reports_on_itself: bool = True
    shows_keys: bool = False
    trace_to: str | None = attrs.field(default=None, repr=False)  # may hold a password
    trace_ratio: float = 0.0
