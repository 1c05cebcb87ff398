"""FiringBehavior: whether a window emits a pane when nothing has come since the last one."""

from enum import Enum


class FiringBehavior(Enum):
    """What a window does at its end, or at its expiry, which consumers may be waiting for."""

    #: It emits a pane, even without new records: the pane shows that the instant has passed.
    FIRE_ALWAYS = "always"
    #: It emits a pane only if records have come since the last one.
    FIRE_IF_NON_EMPTY = "non_empty"
