"""RowForm: what elements are made of rows."""

from collections.abc import Callable
from typing import Any

import attrs

from windowing.timestamps import TimestampLike

#: The names of columns and the numbers of their types, in order.
Columns = tuple[tuple[str, int], ...]


@attrs.frozen(kw_only=True)
class RowForm:
    """The form of elements: how each is made of a row.

    Attributes:
        row_type: a class that is called with the columns it names; None: dicts.
        fields: the names of its columns; empty: all.
        event_time: the name of a column, or a function of the element; None: elements have no event time.
    """

    row_type: type | None = None
    fields: tuple[str, ...] = ()
    event_time: str | Callable[[Any], TimestampLike] | None = None
