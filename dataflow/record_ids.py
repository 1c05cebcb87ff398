"""RecordIds: how a record is recognised that has come before, although its source hands it over again.

A producer that gets no answer sends again, and then the same record is in the input twice.  Their positions in the
source differ, so positions do not help.  The id that the producer has given the record does.

MillWheel, section 6.1.1.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import attrs

from dataflow.coders import encode_key
from dataflow.errors import KeyEncodingError, PipelineError
from windowing.timestamps import to_duration_us

#: The types that an id can have.
RecordId = str | bytes | int | tuple[Any, ...]
_ID_TYPES = (str, bytes, int, tuple)
DIGEST_BYTES = 16


@attrs.frozen(kw_only=True)
class RecordIds:
    """Declares that records have ids, so that each counts once however often it is read.

    Copies of a record are recognised within their *split* of the source (a file, a partition of a queue): a producer
    that tries again must send to where it sent before.

    An id is kept until the watermark of its split is ``slack`` past the record's event time.  A record that is read
    later than that cannot be distinguished from a copy any more: it is in no result, but a late record of the read,
    with its payload.  So ``slack`` is to be as long as a producer may try again, and at least the ``allowed_lateness``
    of what follows.  In a batch ids are kept to the end of their split, and no record comes too late.

    A copy should have the event time of the first.  One with a later time, as with `ARRIVAL_TIME`, is recognised while
    the id is kept, and counts again after that.

    Args:
        of: gives a record's id, a function of what the source hands over.  Always the same for the same record; str,
            bytes, int, or a tuple of types that a key can have.
        slack: how far behind the watermark a record may come (a timedelta, text, or seconds).
        expected_ids: how many ids a split keeps at a time, about.  Memory is set aside for so many, and for more
            when there are more: one to three bytes for each.
        false_positive_rate: how many of the new ids, at most, are looked up in the store in vain, between 0 and 1.
            A tenth of it takes half a byte more for each.  Neither of the two changes an answer.

    Raises:
        PipelineError: an argument is of another kind.
        TimeError: ``slack`` is no duration.

    Example::

        p | df.Read(orders, record_ids=df.RecordIds(of=lambda order: order["id"], slack=timedelta(hours=2)))
    """

    of: Callable[[Any], RecordId]
    slack_us: int = attrs.field(alias="slack", converter=to_duration_us)
    expected_ids: int = 100_000
    false_positive_rate: float = 0.01

    def __attrs_post_init__(self) -> None:
        if not callable(self.of):
            raise PipelineError(f"RecordIds needs a function of a record, not {self.of!r}")
        if self.slack_us < 0:
            raise PipelineError(
                "RecordIds was given a negative slack",
                hint="it is how far behind the watermark a copy may come: zero or more",
            )
        if not isinstance(self.expected_ids, int) or self.expected_ids < 1:
            raise PipelineError(f"expected_ids must be at least 1, not {self.expected_ids!r}")
        if not 0 < self.false_positive_rate < 1:
            raise PipelineError(
                f"false_positive_rate must be between 0 and 1, not {self.false_positive_rate!r}"
            )


def record_digest(record_id: Any) -> bytes:
    """The 16 bytes by which an id is known: the same on every machine and in every run.

    Two ids have the same digest with a chance of 2**-128, or because they are equal as keys.

    Raises:
        KeyEncodingError: it is not of a type that an id can have.
    """
    if type(record_id) not in _ID_TYPES:
        raise KeyEncodingError(
            f"{record_id!r} cannot be the id of a record",
            detail=f"it is of type {type(record_id).__qualname__}",
            hint="give a str, bytes, an int, or a tuple of what keys can be made of; a record without an id "
            "needs one of its own, or a read without record_ids",
        )
    return blake2b(encode_key(record_id), digest_size=DIGEST_BYTES).digest()
