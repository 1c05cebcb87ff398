"""FiringBehavior: whether a pane comes although nothing has come since the last one."""

from enum import Enum


class FiringBehavior(Enum):
    """What happens at a moment that people may be waiting for: the end of a window, or its expiry."""

    #: A pane, also when it says nothing new: that the moment has come is news.
    FIRE_ALWAYS = "always"
    #: A pane only if something has come since the last one.
    FIRE_IF_NON_EMPTY = "non_empty"
