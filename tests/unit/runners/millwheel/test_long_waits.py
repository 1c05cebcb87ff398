"""What is reported of those who wait: what lasts, again each minute, and when it is over."""

from hypothesis import given
from hypothesis import strategies as st

from dataflow.times import in_words
from runners.millwheel.model.long_waits import OVER, REPEATED_AFTER_MS, LongWaits
from runners.testing.manual_clock import ManualClock
from windowing.timestamps import US_PER_SECOND

LONG_MS = 1_000


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.booleans(), st.sampled_from([0, 1, 400, 999, 1_000, 30_000])
        )
    )
)
def test_a_long_wait_is_reported_each_minute_and_so_is_its_end(
    steps: list[tuple[str, bool, int]],
) -> None:
    """A short one is not, and whoever goes on without having waited reports nothing."""
    clock, reported = ManualClock(), list[tuple[str, str, bool]]()
    waits = LongWaits(
        clock, LONG_MS, lambda place, why, *, is_over: reported.append((place, why, is_over))
    )
    since: dict[str, int] = {}
    expected: list[tuple[str, str, bool]] = []
    open_places: dict[str, int] = {}
    for place, is_waiting, pause_ms in steps:
        clock.advance(pause_ms)
        now_ms = clock.monotonic_ms()
        if is_waiting:
            began_ms = since.setdefault(place, now_ms)
            due_ms = open_places.get(place, began_ms + LONG_MS - REPEATED_AFTER_MS)
            if now_ms - due_ms >= REPEATED_AFTER_MS:
                open_places[place] = now_ms
                expected.append((place, "why", False))
            waits.waits(place, lambda: "why")
        else:
            began_ms = since.pop(place, now_ms)
            if place in open_places:
                del open_places[place]
                waited_s = round((now_ms - began_ms) / 1_000)
                expected.append(
                    (place, f"{OVER}\nafter {in_words(waited_s * US_PER_SECOND)}", True)
                )
            waits.goes_on(place)
    assert reported == expected


def test_the_reason_is_asked_for_only_where_it_is_reported() -> None:
    clock, asked = ManualClock(), list[str]()

    def why() -> str:
        asked.append("why")
        return "why"

    waits = LongWaits(clock, LONG_MS, lambda place, reason, *, is_over: None)
    for _ in range(30):
        waits.waits("a", why)
        clock.advance(100)
    assert asked == ["why"]


def test_whoever_has_gone_waits_no_more() -> None:
    """And begins anew where it comes back."""
    clock, reported = ManualClock(), list[bool]()
    waits = LongWaits(clock, LONG_MS, lambda place, reason, *, is_over: reported.append(is_over))
    waits.waits("a", str)
    clock.advance(LONG_MS)
    waits.waits("a", str)
    waits.forget("a")
    waits.waits("a", str)
    clock.advance(LONG_MS - 1)
    waits.waits("a", str)
    waits.goes_on("a")
    assert reported == [False]
