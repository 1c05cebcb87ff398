"""Times as text: every way of writing one gives the same microseconds, on every machine, or is refused."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from importlib import resources
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import dataflow as df
from dataflow import times
from tests.ids import shown
from windowing import (
    MAX_TIMESTAMP_US,
    MIN_TIMESTAMP_US,
    to_datetime,
    to_duration_us,
    to_timestamp_us,
)
from windowing.timestamps import to_timestamps_us

INSTANTS_US = st.integers(MIN_TIMESTAMP_US, MAX_TIMESTAMP_US)
LENGTHS_US = st.integers(-(10**17), 10**17)
#: With changes of the clocks by an hour, by half an hour and by a day, at midnight, and twice on one day.
ZONE_NAMES = st.sampled_from(
    [
        "UTC",
        "Europe/Paris",
        "Europe/Dublin",
        "America/New_York",
        "America/Sao_Paulo",
        "America/Argentina/Buenos_Aires",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Pacific/Apia",
        "Etc/GMT+5",
    ]
)
UNITS = {
    "weeks": ("week", "weeks", "w"),
    "days": ("day", "days", "d"),
    "hours": ("hour", "hours", "hr", "h"),
    "minutes": ("minute", "minutes", "min", "m"),
    "seconds": ("second", "seconds", "sec", "s"),
    "milliseconds": ("millisecond", "milliseconds", "ms"),
    "microseconds": ("microsecond", "microseconds", "us", "µs"),
}


def zone_of(name: str) -> ZoneInfo:
    """The rules as the package tzdata has them."""
    rules = resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with rules.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@given(length_us=LENGTHS_US)
@example(length_us=0)
@example(length_us=-1)
@example(length_us=10**17 - 1)
@example(length_us=(1 << 32) * 1_000_000)  # pendulum counts numbers modulo 2**32
def test_a_duration_survives_as_text_and_as_words(length_us: int) -> None:
    assert length_us == to_duration_us(times.duration_text(length_us))
    assert length_us == to_duration_us(times.in_words(length_us))
    assert timedelta(microseconds=length_us) == df.duration(times.duration_text(length_us))


@given(
    data=st.data(),
    counts=st.dictionaries(st.sampled_from(list(UNITS)), st.integers(0, 9_999), min_size=1),
)
def test_words_are_what_timedeltas_are(data: st.DataObject, counts: dict[str, int]) -> None:
    """In any order, with any spelling of the units, with and without blanks, commas and a sign."""
    sign = data.draw(st.sampled_from(["", "-", "+", "- "]))
    parts = [
        f"{count}{data.draw(st.sampled_from(['', ' ']))}{data.draw(st.sampled_from(UNITS[unit]))}"
        for unit, count in counts.items()
    ]
    text = parts[0]
    for part in parts[1:]:
        text += data.draw(st.sampled_from([" ", ", ", " and ", ", and "])) + part
    expected = timedelta(**counts)

    assert (-expected if "-" in sign else expected) == df.duration(sign + text)


@given(
    counts=st.dictionaries(
        st.sampled_from("DHMS"), st.integers(0, 999_999_999 // 86_400), min_size=1
    ),
    micros=st.integers(0, 999_999),
    sign=st.sampled_from(["", "-", "+"]),
)
def test_iso_durations_are_what_timedeltas_are(
    counts: dict[str, int], micros: int, sign: str
) -> None:
    seconds = f"{counts.get('S', 0)}.{micros:06}S"
    day = f"{counts['D']}D" if "D" in counts else ""
    text = (
        f"{sign}P{day}T"
        + "".join(f"{counts[unit]}{unit}" for unit in "HM" if unit in counts)
        + seconds
    )
    expected = timedelta(
        days=counts.get("D", 0),
        hours=counts.get("H", 0),
        minutes=counts.get("M", 0),
        seconds=counts.get("S", 0),
        microseconds=micros,
    )

    assert (-expected if sign == "-" else expected) == df.duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT90M", timedelta(minutes=90)),
        ("P2W", timedelta(weeks=2)),
        ("P1.5D", timedelta(hours=36)),
        ("PT0,5S", timedelta(milliseconds=500)),
        ("-PT5M", timedelta(minutes=-5)),
        ("10 minutes", timedelta(minutes=10)),
        ("1.5 hours", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1 Hour 30 Minutes", timedelta(minutes=90)),
        (" 30d ", timedelta(days=30)),
        ("0.1 us", timedelta(0)),
    ],
)
def test_durations_as_people_write_them(text: str, expected: timedelta) -> None:
    assert expected == df.duration(text)


@pytest.mark.parametrize(
    "text", ["P1M", "P1Y2M", "P1Y", "P1MT1H", "1 month", "2 years", "-1 quarter", "1d 1y"]
)
def test_months_and_years_are_no_duration(text: str) -> None:
    """And the error leads to windows that have them."""
    with pytest.raises(df.TimeError, match="months or years, which have no fixed length") as caught:
        df.FixedWindows(text)

    assert "df.CalendarWindows.months" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "ten minutes", "minutes", "P", "PT", "PT1M30", "pt5m", "P1W2D", "5M", "10 fortnights", "1..5 s",
        "12:00", "--5 s", "5 -s", "PT-5M", "P1D/P2D", "PT4294967297S", "P9999999999W", "PT1.1234567891S", "٣ minutes",
    ],
    ids=shown,
)  # fmt: skip
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Also numbers that pendulum would count modulo 2**32."""
    with pytest.raises(df.TimeError, match="is not a duration") as caught:
        df.FixedWindows(text)

    assert "10 minutes" in caught.value.hint


@pytest.mark.parametrize("number", ["10", "1.5", "-3", "1e3", "nan"])
def test_a_number_in_text_needs_a_unit(number: str) -> None:
    """Seconds to this SDK may be minutes to whoever wrote it."""
    with pytest.raises(df.TimeError, match="is not a duration") as caught:
        df.duration(number)

    assert "it has no unit" in caught.value.detail


def test_a_length_that_no_timedelta_has_is_refused() -> None:
    with pytest.raises(df.TimeError, match="longer than a timedelta"):
        df.duration("1000000000 days")


@given(instant_us=INSTANTS_US)
@example(instant_us=MIN_TIMESTAMP_US)
@example(instant_us=MAX_TIMESTAMP_US)
def test_an_instant_survives_as_text(instant_us: int) -> None:
    moment = to_datetime(instant_us)
    texts = [moment.isoformat(), str(moment), moment.isoformat().replace("+00:00", "Z")]
    texts += [
        f"{moment.replace(tzinfo=None).isoformat()}{end}"
        for end in ("Z", " UTC", "[UTC]", "Z[UTC]")
    ]

    assert {instant_us} == {to_timestamp_us(each) for each in texts}
    assert [instant_us] * len(texts) == to_timestamps_us(texts)
    assert moment == df.instant(texts[0])


@given(
    wall=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - what clocks show
    minutes=st.integers(-23 * 60, 23 * 60),
)
def test_offsets_are_what_they_are_for_datetimes(wall: datetime, minutes: int) -> None:
    """Both for the usual form, which is parsed without pendulum, and for all others."""
    moment = wall.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    offset = moment.isoformat()[-6:]
    expected_us = to_timestamp_us(moment)

    assert expected_us == to_timestamp_us(moment.isoformat())
    assert expected_us == to_timestamp_us(
        f"{wall:%Y%m%d}".rjust(8, "0") + f"T{wall:%H%M%S}.{wall.microsecond:06}{offset}"
    )


@given(
    instant_us=st.integers(MIN_TIMESTAMP_US + 10**12, MAX_TIMESTAMP_US - 10**12), name=ZONE_NAMES
)
def test_local_times_are_those_of_zoneinfo(instant_us: int, name: str) -> None:
    """In every way of giving the zone; a local time that comes twice is the first, unless an offset names one."""
    local = to_datetime(instant_us).astimezone(zone_of(name))
    # Offsets of long ago have seconds, which ISO 8601 cannot write.
    assume(local.utcoffset() % timedelta(minutes=1) == timedelta(0))  # type: ignore[operator]
    wall = local.replace(tzinfo=None).isoformat()
    first_us = to_timestamp_us(local.replace(fold=0))

    assert first_us == to_timestamp_us(f"{wall} {name}") == to_timestamp_us(f"{wall}[{name}]")
    assert to_datetime(first_us) == df.instant(wall, time_zone=name)
    assert instant_us == to_timestamp_us(f"{local.isoformat()}[{name}]")
    assert to_datetime(instant_us) == df.instant(local.replace(tzinfo=None), time_zone=name)


@given(data=st.data(), name=ZONE_NAMES)
def test_about_a_change_of_the_clocks_as_well(data: st.DataObject, name: str) -> None:
    """Local times that come twice, or never, are what zoneinfo has, for both folds."""
    zone = zone_of(name)
    day = data.draw(st.dates(date(1970, 1, 1), date(2037, 12, 30)))
    starts_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 10**6
    hours = [to_datetime(starts_us + hour * 3_600_000_000) for hour in range(0, 24 * 370, 6)]
    offsets = [each.astimezone(zone).utcoffset() for each in hours]
    changes = [at for at, (one, other) in enumerate(pairwise(offsets)) if one != other]
    assume(changes)
    about = hours[data.draw(st.sampled_from(changes))].astimezone(zone).replace(tzinfo=None)
    wall = about + timedelta(minutes=15 * data.draw(st.integers(-8, 40)))

    for fold in (0, 1):
        expected = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        assert expected == df.instant(wall.replace(fold=fold), time_zone=name)
        if fold == 0:
            assert expected == df.instant(f"{wall.isoformat()} {name}")
            assert expected == df.instant(wall.isoformat(), time_zone=name)


def test_both_times_of_a_fold_and_the_gap() -> None:
    """Europe/Paris in 2024: half past two comes twice on 27 October, and never on 31 March."""
    first, second = (datetime(2024, 10, 27, hour, 30, tzinfo=UTC) for hour in (0, 1))

    assert first == df.instant("2024-10-27 02:30 Europe/Paris")
    assert first == df.instant("2024-10-27T02:30+02:00[Europe/Paris]")
    assert second == df.instant("2024-10-27T02:30+01:00[Europe/Paris]")
    assert datetime(2024, 3, 31, 1, 30, tzinfo=UTC) == df.instant("2024-03-31 02:30 Europe/Paris")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01 Europe/Paris", "2023-12-31T23:00:00+00:00"),
        ("2024-W05-3T10:00Z", "2024-01-31T10:00:00+00:00"),
        ("2024-060T10:00Z", "2024-02-29T10:00:00+00:00"),
        ("20240101T101500Z", "2024-01-01T10:15:00+00:00"),
        ("2024-01-01T10:15:00,5Z", "2024-01-01T10:15:00.500000+00:00"),
        ("2024-01-01T10:15:00.123456789Z", "2024-01-01T10:15:00.123456+00:00"),
        ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999+00:00"),
        (" 2024-01-01T10:15:00Z\n", "2024-01-01T10:15:00+00:00"),
        ("2024-01-01T10:15+0530", "2024-01-01T04:45:00+00:00"),
    ],
)
def test_instants_as_people_write_them(text: str, expected: str) -> None:
    assert expected == df.instant(text).isoformat()


@pytest.mark.parametrize(
    "text", ["2024-01-01", "2024-01-01T10:15", "2024-01-01T10:15:00.5", "20240101T1015", "2024"]
)
def test_texts_without_a_zone_are_refused(text: str) -> None:
    """pendulum takes them for UTC; and they name an instant with a zone."""
    with pytest.raises(df.TimeError, match="no time zone, so it names no instant") as caught:
        df.TimestampedValue("a", text)

    assert "time_zone=" in caught.value.hint
    assert df.instant(text, time_zone="UTC") == df.instant(f"{text} UTC")


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "today", "12:30", "T12:30Z", "2024-02-30T00:00:00Z", "2024-01-01T25:00:00Z", "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z", "2024-01-01T00:00:00+24:00", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
        "1704067200", "2024-01-01T00:00Z/P1D", "P1D", "10 minutes", "1/2/2024 10:00 UTC", "٢٠٢٤-01-01T00:00:00Z",
    ],
    ids=shown,
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(df.TimeError, match="is not a timestamp") as caught:
        df.TimestampedValue("a", text)

    assert "2024-03-31T14:30:00Z" in caught.value.hint


@given(text=st.text("0123456789-:.,TZWPYMDHS+/[] \n", max_size=30) | st.text(max_size=10))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    for read in (to_timestamp_us, to_duration_us):
        try:
            read(text)
        except df.TimeError:
            continue


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        ("2024-01-01T00:00 Europe/Pariss", None, "'Europe/Pariss' is not a time zone"),
        ("2024-01-01T00:00", "Mars/Olympus", "'Mars/Olympus' is not a time zone"),
        (
            "2024-07-01T00:00+01:00[Europe/Paris]",
            None,
            "an offset that is not that of Europe/Paris",
        ),
        ("0001-01-01T00:00+01:00[America/New_York]", None, "an offset that is not that of"),
    ],
)
def test_zones_that_cannot_be_are_refused(text: str, named: str | None, message: str) -> None:
    with pytest.raises(df.TimeError, match=message):
        df.instant(text, time_zone=named)


def test_an_offset_outweighs_the_zone_that_is_for_texts_without_one() -> None:
    assert datetime(2024, 7, 1, tzinfo=UTC) == df.instant(
        "2024-07-01T00:00Z", time_zone="Europe/Paris"
    )


def test_an_error_names_the_line() -> None:
    with pytest.raises(df.TimeError) as caught:
        df.Sessions("ten minutes")

    assert "written at" in caught.value.detail
    assert "test_written_times.py:" in caught.value.detail


def test_an_error_of_what_a_function_returns_names_no_line_that_did_not_write_it() -> None:
    """The line that runs the pipeline is the nearest one outside the SDK, and says nothing."""
    p = df.Pipeline()
    p | df.Create(["ten"]) | df.WithTimestamps(lambda text: text)

    with pytest.raises(df.TransformError, match="'ten' is not a timestamp") as caught:
        p.run()

    assert "written at" not in str(caught.value)


@given(length_us=LENGTHS_US | st.integers(-(10**9), 10**9), now_us=st.integers(-(10**15), 10**15))
def test_ages_are_given_in_their_largest_unit(length_us: int, now_us: int) -> None:
    """The words are equal both ways, and never a smaller unit for a longer time."""
    then_us = now_us - length_us
    assume(MIN_TIMESTAMP_US <= then_us <= MAX_TIMESTAMP_US)
    lag = times.behind(then_us, now_us)
    age = times.ago(then_us, now_us)

    assert lag.endswith(" behind" if length_us >= 0 else " ahead")
    assert lag.rsplit(" ", 1)[0] == age.removesuffix(" ago").removeprefix("in ")
    units = ["second", "minute", "hour", "day", "week", "month", "year"]
    least = [0, 60, 3_600, 86_400, 7 * 86_400, 28 * 86_400, 334 * 86_400]
    (unit,) = [at for at, each in enumerate(units) if each in lag]
    assert abs(length_us) // 10**6 >= least[unit]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "a few seconds"),
        (40, "40 seconds"),
        (200, "3 minutes"),
        (5_400, "1 hour"),
        (86_400 * 3, "3 days"),
    ],
)
def test_ages_as_people_write_them(seconds: int, expected: str) -> None:
    then_us = 1_700_000_000_000_000
    now_us = then_us + seconds * 1_000_000

    assert f"{expected} behind" == times.behind(then_us, now_us)
    assert f"{expected} ago" == times.ago(then_us, now_us)
    assert seconds == 0 or f"in {expected}" == times.ago(now_us, then_us)


@pytest.mark.slow
def test_pendulum_is_not_imported_for_numbers() -> None:
    """It would take a tenth of the time that importing the SDK takes."""
    script = (
        "import sys, dataflow as df; df.FixedWindows(60); df.TimestampedValue(1, '2024-01-01T00:00:00Z');"
        "df.Sessions('10 minutes'); assert 'pendulum' not in sys.modules;"
        "df.Sessions('PT10M'); assert 'pendulum' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def accepts_everywhere() -> list[tuple[str, Any]]:
    """Public parameters that are a duration, each as a function of it that gives what was understood."""
    from runners.batch import BackfillRunner, BatchRunner  # noqa: PLC0415 - heavy
    from runners.direct import DirectRunner  # noqa: PLC0415 - likewise
    from runners.streaming import StreamingRunner  # noqa: PLC0415 - likewise

    return [
        ("fixed", df.FixedWindows),
        ("offset", lambda length: df.FixedWindows("1 day", offset=length)),
        ("sliding", lambda length: df.SlidingWindows("1 day", period=length, offset=length)),
        ("sessions", df.Sessions),
        ("phase", df.PhaseShiftedWindows),
        ("delay", df.AfterProcessingTime),
        ("period", df.AtPeriod),
        ("direct", lambda length: vars(DirectRunner(micro_batch=length))["_round_us"]),
        (
            "timeout",
            lambda length: vars(BatchRunner(job="j", step_timeout=length))["_step_timeout_ms"],
        ),
        (
            "backfill",
            lambda length: (
                vars(BackfillRunner(job="j", step_timeout=length))[
                    "_backfill"
                ]._stream.step_timeout_ms
            ),
        ),
        (
            "late",
            lambda length: vars(StreamingRunner(job="j", keep_late=length, keep_dead=length))[
                "_retention"
            ],
        ),
        (
            "skew",
            lambda length: (
                vars(StreamingRunner(job="j", skew_limit=length))["_worker_options"].skew_limit_us
            ),
        ),
        ("ids", lambda length: df.RecordIds(of=str, slack=length).slack_us),
    ]


@pytest.mark.parametrize("name", [name for name, _ in accepts_everywhere()])
def test_every_duration_may_be_text(name: str) -> None:
    understood = dict(accepts_everywhere())[name]

    assert understood(timedelta(minutes=10)) == understood("10 minutes") == understood("PT10M")


def test_pendulum_reads_what_the_short_cut_reads() -> None:
    """The usual form of an instant does not go through pendulum, and means the same."""
    for text in (
        "2024-03-31T14:30:00.123456+02:00",
        "1969-07-20T20:17:40Z",
        "0001-01-01 00:00:00+00:00",
    ):
        assert pendulum.parse(text) == datetime.fromisoformat(text) == df.instant(text)
