"""Lineage as text: the origin and the elements of an entry, in JSON that people and SQL read too.

An origin is ``["split", transform, split, position]``, ``["pane", transform, key, key_hash, window_start_us,
window_end_us, pane_index]``, or ``["viewed", origin, [origin, ...]]`` of an element and its views, where none is
``[]``; none at all is the empty text.  Elements are an array of texts.  ADR 0091, ADR 0094.
"""

import json
from collections.abc import Sequence

from runners.core.ground.lineage import Origin, origin_fields, origin_of_fields


def origin_text(origin: Origin | None) -> str:
    """The text of an origin.

    Args:
        origin: of an entry; None: it is not known.
    """
    return "" if origin is None else json.dumps(origin_fields(origin), ensure_ascii=False)


def origin_of(text: str) -> Origin | None:
    """The origin with this text; the inverse of `origin_text`."""
    return origin_of_fields(json.loads(text)) if text else None


def elements_text(elements: Sequence[str]) -> str:
    """The text of the elements of an entry; empty for none."""
    return json.dumps(list(elements), ensure_ascii=False) if elements else ""


def elements_of(text: str) -> tuple[str, ...]:
    """The elements with this text; the inverse of `elements_text`."""
    return tuple(json.loads(text)) if text else ()
