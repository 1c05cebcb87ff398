"""Hypothesis strategies shared by the tests: streams with disorder, watermark paths, windowings."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

import dataflow as df
from tests.oracle.evaluator import Arrivals, Record, Windowing

#: Small and crowded, so that windows collide, merge, are corrected and expire in most examples.
TIMES_US = st.integers(0, 40)
US_PER_SECOND = 1_000_000
KEYS = st.sampled_from(["a", "a", "b"])
LATENESS_US = st.sampled_from([0, 3, 20, 40, 60])
#: Before every event time: the watermark of a source that has reported nothing.
NOTHING_EMITTED_US = -9


def sessions(lateness_us: st.SearchStrategy[int] = LATENESS_US) -> st.SearchStrategy[Windowing]:
    """Sessions of several gaps."""
    return st.builds(
        lambda gap_us, lateness_us: Windowing("sessions", gap_us, 0, lateness_us),
        st.sampled_from([8, 1, 3, 5, 12]),
        lateness_us,
    )


def own_gaps(lateness_us: st.SearchStrategy[int] = LATENESS_US) -> st.SearchStrategy[Windowing]:
    """Sessions where each record has a gap of its own."""
    return st.builds(
        lambda gap_us, lateness_us: Windowing("own gaps", gap_us, 0, lateness_us),
        st.sampled_from([4, 1, 9]),
        lateness_us,
    )


def sliding(lateness_us: st.SearchStrategy[int] = LATENESS_US) -> st.SearchStrategy[Windowing]:
    """Sliding windows that overlap, evenly and unevenly, or leave pauses."""
    return st.builds(
        lambda size_us, period_us, offset_us, lateness_us: Windowing(
            "sliding", size_us, offset_us, lateness_us, period_us
        ),
        st.sampled_from([10, 7, 3]),
        st.sampled_from([5, 4, 10, 1, 12]),
        st.integers(-9, 19),
        lateness_us,
    )


def windowings(lateness_us: st.SearchStrategy[int] = LATENESS_US) -> st.SearchStrategy[Windowing]:
    """Sessions, fixed and sliding windows with an offset, and the global window; by all watermarks."""
    fixed = st.builds(
        lambda size_us, offset_us, lateness_us: Windowing(
            "fixed", size_us, offset_us % size_us, lateness_us
        ),
        st.sampled_from([10, 1, 7, 20]),
        st.integers(0, 19),
        lateness_us,
    )
    whole = st.builds(lambda lateness_us: Windowing("global", 0, 0, lateness_us), lateness_us)
    kinds = st.one_of(
        sessions(lateness_us),
        sessions(lateness_us),
        own_gaps(lateness_us),
        fixed,
        sliding(lateness_us),
        whole,
    )
    return st.builds(
        lambda windowing, percentile: windowing._replace(percentile=percentile),
        kinds,
        # Of few records small ones leave some out; large ones none.
        st.sampled_from([100, 100, 60, 20, 99]),
    )


@st.composite
def streams(draw: st.DrawFn, *, watermarks: bool = True) -> list[Arrivals]:
    """Batches of records in any order of event time; every record has a value of its own.

    Args:
        draw: given by hypothesis.
        watermarks: whether the watermark moves before the end (so that records become late).
    """
    batches = draw(st.lists(st.lists(st.tuples(KEYS, TIMES_US), max_size=4), max_size=8))
    steps = st.sampled_from([5, 10, 0, 20, 1, -7, 50])
    arrivals, value, watermark_us = [], 0, NOTHING_EMITTED_US
    for rows in batches:
        records = []
        for key, timestamp_us in rows:
            value += 1
            records.append(Record(key, value, timestamp_us))
        watermark_us += draw(steps) if watermarks else 0
        arrivals.append(Arrivals(tuple(records), watermark_us))
    return arrivals


def _composites(parts: st.SearchStrategy[df.Trigger]) -> st.SearchStrategy[df.Trigger]:
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        st.builds(df.Repeatedly, parts),
        several.map(lambda each: df.AfterEach(*each)),
        several.map(lambda each: df.AfterAny(*each)),
        several.map(lambda each: df.AfterAll(*each)),
        st.builds(df.OrFinally, parts, parts),
        after_watermark(parts),
    )


def after_watermark(
    parts: st.SearchStrategy[df.Trigger] | None = None,
) -> st.SearchStrategy[df.AfterWatermark]:
    """`AfterWatermark`, with and without early and late phases."""
    phases = st.none() | (triggers() if parts is None else parts)
    return st.builds(lambda early, late: df.AfterWatermark(early=early, late=late), phases, phases)


def is_third(value: object) -> bool:
    """A predicate for whatever values."""
    return hash(value) % 3 == 0


def is_even(value: object) -> bool:
    """Another predicate for whatever values."""
    return hash(value) % 2 == 0


def triggers() -> st.SearchStrategy[df.Trigger]:
    """Every trigger there is, and compositions of them."""
    delays = st.integers(0, 40).map(lambda us: us / 1_000_000)
    return st.recursive(
        st.one_of(
            st.builds(df.AfterCount, st.integers(1, 4)),
            st.just(df.DefaultTrigger()),
            st.just(df.AfterWatermark()),
            st.just(df.Always()),
            st.just(df.Never()),
            st.builds(df.AfterProcessingTime, delays),
            st.builds(df.AtPeriod, st.integers(1, 40).map(lambda us: us / 1_000_000)),
            st.builds(df.AfterBytes, st.integers(1, 30)),
            st.builds(df.AfterSignal, st.sampled_from(["flush", "peek"])),
            st.just(df.AfterPunctuation(is_third)),
            st.just(df.AfterPattern(is_third, is_even)),
        ),
        _composites,
        max_leaves=5,
    )


def silent_until_on_time(*, with_counts: bool = True) -> st.SearchStrategy[df.Trigger]:
    """Compositions around `AfterWatermark` that fire when the watermark reaches the end of the window, and not before.

    Whatever stands beside it there either never fires, or, ``with_counts``, would after one record.
    """
    never = st.sampled_from([df.Never(), df.AfterCount(1_000)])
    ready = st.sampled_from(
        [df.AfterCount(1), df.Always()] if with_counts else [df.DefaultTrigger()]
    )
    after = st.lists(triggers(), max_size=2)

    def composites(part: st.SearchStrategy[df.Trigger]) -> st.SearchStrategy[df.Trigger]:
        return st.one_of(
            st.builds(df.Repeatedly, part),
            st.builds(lambda each, more: df.AfterEach(each, *more), part, after),
            st.builds(df.AfterAny, part, part),
            st.builds(df.AfterAny, never, part),
            st.builds(df.AfterAll, part, part),
            st.builds(df.AfterAll, part, ready),
            st.builds(df.OrFinally, never, part),
            st.builds(df.OrFinally, part, never),
        )

    late = st.none() | triggers()
    whole = late.map(lambda each: df.AfterWatermark(late=each))
    return st.recursive(st.one_of(whole, st.just(df.DefaultTrigger())), composites, max_leaves=4)


def on_time_triggers() -> st.SearchStrategy[df.Trigger]:
    """Compositions around `AfterWatermark` that fire when the watermark reaches the end of the window.

    They may fire before, and after; at that moment they do.
    """
    silent, often = silent_until_on_time(), triggers().map(df.Repeatedly)
    after = st.lists(triggers(), max_size=2)

    def composites(part: st.SearchStrategy[df.Trigger]) -> st.SearchStrategy[df.Trigger]:
        return st.one_of(
            st.builds(df.Repeatedly, part),
            st.builds(lambda each, more: df.AfterEach(each, *more), part, after),
            st.builds(df.OrFinally, part, st.just(df.Never())),
        )

    return st.recursive(
        st.one_of(
            silent,
            after_watermark(),
            silent_until_on_time(with_counts=False).map(
                lambda each: df.AfterEach(df.AfterCount(1), each)
            ),
            st.builds(df.OrFinally, often, silent),
        ),
        composites,
        max_leaves=3,
    )


#: Zones, and a day on which their clocks change: by an hour, by half an hour, or never.
CLOCK_CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    ("Europe/Berlin", "2024-10-27"),
    ("America/New_York", "2024-03-10"),
    ("America/New_York", "2024-11-03"),
    ("Australia/Lord_Howe", "2024-04-07"),
    ("Australia/Lord_Howe", "2024-10-06"),
    ("Asia/Kathmandu", "2024-03-31"),
]


@st.composite
def days_with_clock_changes(draw: st.DrawFn) -> tuple[Windowing, list[Arrivals]]:
    """A windowing by days, and a stream of five days around a change of the clocks."""
    zone, changing = draw(st.sampled_from(CLOCK_CHANGES))
    noon = datetime.fromisoformat(changing).replace(hour=12, tzinfo=UTC)
    origin_us = int((noon - timedelta(days=2)).timestamp()) * US_PER_SECOND
    step_us = 3 * 3600 * US_PER_SECOND + draw(st.sampled_from([0, 1_800, 900])) * US_PER_SECOND
    windowing = Windowing("days", lateness_us=draw(LATENESS_US) * step_us, zone=zone)
    arrivals = [
        Arrivals(
            tuple(
                record._replace(timestamp_us=origin_us + record.timestamp_us * step_us)
                for record in arrival.records
            ),
            origin_us + arrival.watermark_us * step_us,
        )
        for arrival in draw(streams())
    ]
    return windowing, arrivals
