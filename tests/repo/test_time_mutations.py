"""The laws of written times are tested: a reader broken on purpose must fail one of them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pendulum
import pytest

from dataflow import times
from tests.caught import hard
from tests.property import test_written_times as laws
from windowing import to_duration_us
from windowing.errors import no_time
from windowing.time_zones import zone_named

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def texts_without_a_zone_are_of_utc(patch: Patch) -> None:
    """pendulum takes them so."""
    iso = times._iso
    patch.setattr(
        times,
        "_iso",
        lambda text: (
            (found := iso(text)) and (found if found.tzinfo else found.replace(tzinfo=UTC))
        ),
    )


def the_second_of_two_local_times(patch: Patch) -> None:
    """pendulum takes the second."""
    iso = times._iso
    patch.setattr(times, "_iso", lambda text: (found := iso(text)) and found.replace(fold=1))


def any_number_of_digits(patch: Patch) -> None:
    """pendulum counts modulo 2**32."""
    patch.setattr(times, "_TOO_MANY_DIGITS", re.compile("never"))


def the_clock_is_read(patch: Patch) -> None:
    """By pendulum, for "now"."""
    iso = times._iso
    patch.setattr(times, "_iso", lambda text: datetime.now(UTC) if text == "now" else iso(text))


def offsets_are_not_compared_with_zones(patch: Patch) -> None:
    patch.setattr(times, "_check_offset", lambda *_: None)


def the_zone_outweighs_the_offset(patch: Patch) -> None:
    patch.setattr(times, "_check_offset", lambda *_: None)
    moment_of = times._moment

    def moment(text: str, zone: str | None) -> datetime:
        found = moment_of(text, zone)
        named = times._ZONED.fullmatch(text)
        return found.replace(tzinfo=zone_named(named[3], no_time)) if named and named[3] else found

    patch.setattr(times, "_moment", moment)


def as_timedelta(text: str) -> timedelta:
    found = pendulum.parse(text)
    assert isinstance(found, timedelta)
    return found


def months_are_thirty_days(patch: Patch) -> None:
    """timedelta counts pendulum's months so."""
    patch.setattr(
        times,
        "_iso_duration_us",
        lambda _, text: to_duration_us(as_timedelta(text).total_seconds()),
    )


def parts_of_a_unit_are_floats(patch: Patch) -> None:
    patch.setattr(times, "Fraction", float)


def units_are_read_in_any_case(patch: Patch) -> None:
    """So that 5M is five minutes."""
    patch.setattr(times, "_UNITS_US", times._UNITS_US | {"M": 60_000_000})


def words_are_one_too_many(patch: Patch) -> None:
    counted = times._words_us
    patch.setattr(times, "_words_us", lambda *given: counted(*given) + 1)


def ages_have_no_direction(patch: Patch) -> None:
    patch.setattr(
        times, "behind", lambda then_us, now_us: f"{times._apart(then_us, now_us)} behind"
    )


@pytest.mark.parametrize(
    ("breakage", "law"),
    [
        (texts_without_a_zone_are_of_utc, lambda: laws.test_texts_without_a_zone_are_refused("2024-01-01")),
        (the_second_of_two_local_times, laws.test_about_a_change_of_the_clocks_as_well),
        (any_number_of_digits, lambda: laws.test_what_is_no_duration_is_refused("PT4294967297S")),
        (the_clock_is_read, lambda: laws.test_what_is_no_instant_is_refused("now")),
        (offsets_are_not_compared_with_zones, lambda: laws.test_zones_that_cannot_be_are_refused(
            "2024-07-01T00:00+01:00[Europe/Paris]", None, "an offset that is not that")),
        (the_zone_outweighs_the_offset, laws.test_both_times_of_a_fold_and_the_gap),
        (months_are_thirty_days, lambda: laws.test_months_and_years_are_no_duration("P1M")),
        (parts_of_a_unit_are_floats, laws.test_a_duration_survives_as_text_and_as_words),
        (units_are_read_in_any_case, lambda: laws.test_what_is_no_duration_is_refused("5M")),
        (words_are_one_too_many, laws.test_words_are_what_timedeltas_are),
        (ages_have_no_direction, laws.test_ages_are_given_in_their_largest_unit),
    ],
)  # fmt: skip
def test_a_broken_reader_fails_a_law(
    breakage: Callable[[Patch], None], law: Callable[[], Any], monkeypatch: Patch
) -> None:
    breakage(monkeypatch)
    if hasattr(law, "hypothesis"):
        # With the examples of the profile, and those of today, some are found only by chance.
        monkeypatch.setattr(law, "_hypothesis_internal_use_settings", hard)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law()
