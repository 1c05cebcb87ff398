"""WindowColumns: the windows of a whole column of event times, as arrays; what `WindowFn.assign_columns` returns.

It is optional for a window function to know columns.  One that does assigns the same windows to a column as one by one;
where it cannot, it returns None, and is called for each element.
"""

import attrs
import numpy as np
from numpy.typing import NDArray

from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

Int64s = NDArray[np.int64]


@attrs.frozen(eq=False)
class WindowColumns:
    """Windows ``[start, end)`` of the elements of a bundle.

    Args:
        starts_us: the start of each window, as 64-bit integers of microseconds since the epoch.
        ends_us: the ends, likewise; as many.
        elements: for each window the index of its element, as 64-bit integers in ascending order; an element is in as
            many windows as its index occurs, perhaps in none.  None: each is in one window, in order.
        size_us: the length of every window, in microseconds, if all have the same; None: it is looked for.
            Windows of one length are grouped faster.
    """

    starts_us: Int64s
    ends_us: Int64s
    elements: Int64s | None = attrs.field(default=None, kw_only=True)
    size_us: int | None = attrs.field(default=None, kw_only=True)

    @classmethod
    def of_size(
        cls, starts_us: Int64s, size_us: int, elements: Int64s | None = None
    ) -> "WindowColumns | None":
        """Windows of one length; None if one of them would reach beyond the ends of time, where it would be shorter.

        Args:
            starts_us: the starts, in microseconds since the epoch.
            size_us: the length, in microseconds; no longer than all of time.
            elements: as in the class.
        """
        if len(starts_us) and (
            int(starts_us.min()) < MIN_TIMESTAMP_US
            or int(starts_us.max()) + size_us > MAX_TIMESTAMP_US
        ):
            return None
        return cls(starts_us, starts_us + size_us, elements=elements, size_us=size_us)

    @property
    def common_size_us(self) -> int | None:
        """The length of every window in microseconds, looked for if it was not given; None: they have several."""
        if self.size_us is not None or not len(self.starts_us):
            return self.size_us
        sizes_us = self.ends_us - self.starts_us
        first_us = int(sizes_us[0])
        return first_us if bool((sizes_us == first_us).all()) else None
