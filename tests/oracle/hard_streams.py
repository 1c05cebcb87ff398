"""Small streams, written by hand, at the edges of what windows, lateness and retractions mean."""

from collections.abc import Sequence

from tests.oracle.evaluator import Arrivals, Record, Windowing


def arrivals_of(*steps: tuple[Sequence[tuple[str, int]], int]) -> list[Arrivals]:
    """Steps of ``([(key, timestamp), ...], watermark)``; values count from 1."""
    values = iter(range(1, 1000))
    return [
        Arrivals(tuple(Record(key, next(values), at) for key, at in rows), watermark_us)
        for rows, watermark_us in steps
    ]


HARD_STREAMS: dict[str, tuple[Windowing, list[Arrivals]]] = {
    "a late record is saved by a session that is still open": (
        Windowing("sessions", 10),
        arrivals_of(([("a", 15)], 12), ([("a", 6)], 12)),
    ),
    "a late record alone is dropped": (
        Windowing("sessions", 10),
        arrivals_of(([("a", 30)], 12), ([("a", 1)], 12)),
    ),
    "two records that are too late come together": (
        Windowing("fixed", 10),
        arrivals_of(([("a", 30)], 12), ([("a", 1), ("a", 1)], 12)),
    ),
    "late records that come together are saved by one that is not late": (
        Windowing("sessions", 10),
        arrivals_of(([], 12), ([("a", 0), ("a", 5), ("b", 0)], 12)),
    ),
    "a window ends exactly at the watermark": (
        Windowing("fixed", 10),
        arrivals_of(([("a", 9)], 10), ([("a", 9), ("a", 10)], 20)),
    ),
    "two events exactly one gap apart are two sessions": (
        Windowing("sessions", 10),
        arrivals_of(([("a", 0), ("a", 10)], 0)),
    ),
    "a bridge retracts two sessions that were emitted": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(([("a", 0), ("a", 15)], 50), ([("a", 8)], 50)),
    ),
    "an emitted session grows past the watermark": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(([("a", 0)], 12), ([("a", 9)], 12), ([], 30)),
    ),
    "an emitted session grows past the watermark again and again": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(([("a", 1)], 11), ([("a", 5)], 15), ([("a", 3)], 15), ([("a", 14)], 24)),
    ),
    "two emitted sessions are joined past the watermark, by one that has not fired, and it grows": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(
            ([("a", 0), ("a", 11)], 21), ([("a", 15)], 22), ([("a", 5)], 25), ([("a", 24)], 40)
        ),
    ),
    "a new session overlaps a closed one": (
        Windowing("sessions", 10),
        arrivals_of(([("a", 0)], 11), ([("a", 5)], 11)),
    ),
    "at the end of allowed lateness the window is gone": (
        Windowing("fixed", 10, 0, 5),
        arrivals_of(([("a", 1)], 14), ([("a", 2)], 15), ([("a", 3)], 15)),
    ),
    "a record is too late for one of its windows and in time for the other": (
        Windowing("sliding", 10, 0, 0, 5),
        arrivals_of(([("a", 3), ("a", 7)], 10), ([("a", 8)], 10), ([("a", 8)], 20)),
    ),
    "windows with pauses between them": (
        Windowing("sliding", 3, 0, 0, 10),
        arrivals_of(([("a", 2), ("a", 3), ("a", 9), ("a", 10)], 5), ([("a", 4), ("a", 2)], 5)),
    ),
    "what an absorbed window has emitted is about to be forgotten": (
        Windowing("sessions", 8, 0, 20),
        arrivals_of(
            ([("a", 6)], 1), ([("a", 34)], 21), ([("a", 13), ("a", 20), ("a", 27)], 41), ([], 80)
        ),
    ),
    "most of the records have come, and the watermark has not": (
        Windowing("fixed", 10, percentile=20),
        arrivals_of(([("a", 3), ("a", 4)], -9), ([("a", 35), ("a", 36)], -9), ([("a", 5)], -9)),
    ),
    "most of a session has come, and a late record joins it to another": (
        Windowing("sessions", 10, percentile=20),
        arrivals_of(
            ([("a", 0), ("a", 15)], -9), ([("b", 70), ("b", 71)], -9), ([("a", 8)], -9), ([], 30)
        ),
    ),
    "a short gap does not cut a long one short": (
        Windowing("own gaps", 4),
        arrivals_of(([("a", 0), ("a", 5), ("a", 1), ("a", 10)], 0)),
    ),
}

#: Streams through two groupings: how the first one windows, and after how many records it first fires.
#: The second makes sessions with a gap of 6 of the results.
HARD_CHAINS: dict[str, tuple[Windowing, list[Arrivals], int]] = {
    "a result that bridged two sessions of results is retracted": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(
            ([("a", 0), ("b", 5), ("c", 10)], 1),
            ([("b", 5)], 1),
        ),
        1,
    ),
    "of two sessions that were one, the later fires first": (
        Windowing("sessions", 10, 0, 100),
        arrivals_of(
            ([("a", 0), ("b", 5), ("c", 10)], 1),
            ([("b", 5)], 1),
            ([("d", 11)], 1),
            ([("e", 12)], 1),
            ([("a", 0)], 1),
        ),
        1,
    ),
    "a group is retracted to nothing, and filled again": (
        Windowing("fixed", 10, 0, 20),
        arrivals_of(*(([("a", at)], 1) for at in range(1, 8)), ([], 12), ([("a", 2)], 13)),
        1,
    ),
    "a session that had fired has merged, and its window is about to be forgotten": (
        Windowing("sessions", 8, 0, 20),
        arrivals_of(([("a", 17)], 1), ([("a", 24)], 51)),
        1,
    ),
}
