"""Tries that fail: pauses that grow to a limit, refusals that are believed, and what is said of it."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.io import outages
from dataflow.io.outages import PAUSE_MAX_S, PAUSE_S, REFUSALS_MAX, Outages

#: What a try comes to.
AWAY, REFUSED, READ = "away", "refused", "read"


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(outages, "steady_s", lambda: clock[0])
    return clock


@given(tries=st.lists(st.sampled_from([AWAY, AWAY, REFUSED, READ])))
def test_a_refusal_is_believed_when_it_has_come_several_times_in_a_row(
    tries: Sequence[str],
) -> None:
    """And an outage lasts from the first failure to the next success, with the last error."""
    kept, refusals = Outages("the table a"), 0
    for number, each in enumerate(tries):
        error = OSError(f"error {number}")
        if each == READ:
            kept.over()
            refusals = 0
            assert kept.outage is None
            continue
        refusals = refusals + 1 if each == REFUSED else 0
        if refusals >= REFUSALS_MAX:
            with pytest.raises(OSError, match=f"error {number}"):
                kept.failed(error, is_refused=True)
            return
        kept.failed(error, is_refused=each == REFUSED)
        assert kept.outage is not None
        assert kept.outage.what == "the table a"
        assert kept.outage.error == f"OSError: error {number}"


def test_an_error_is_one_line_without_colours() -> None:
    kept = Outages("the table a")
    kept.failed(OSError("Generic S3 error\n   \x1b[31m↳\x1b[0m Connection refused\n"))
    assert kept.outage is not None
    assert kept.outage.error == "OSError: Generic S3 error Connection refused"


def paused_s(kept: Outages, now_s: list[float]) -> float:
    """How long it pauses; the clock is behind that afterwards."""
    began_s = now_s[0]
    while kept.is_pausing:
        now_s[0] += 0.05
    return now_s[0] - began_s


def test_an_outage_may_last_for_days(now_s: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """Pauses double up to their limit, and few of very many failures are logged."""
    kept = Outages("the table a")
    assert not kept.is_pausing
    with caplog.at_level(logging.WARNING):
        for number in range(1, 20_001):
            kept.failed(OSError("away"))
            if number < 12 or number > 19_990:
                wanted_s = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(number, 20))
                assert paused_s(kept, now_s) == pytest.approx(wanted_s, abs=0.06)
    assert len(caplog.records) == (20_000).bit_length()
    kept.over()
    kept.failed(OSError("away"))
    assert paused_s(kept, now_s) == pytest.approx(2 * PAUSE_S, abs=0.06)


@pytest.mark.parametrize(
    ("pause_max_s", "wanted_s"), [(None, PAUSE_MAX_S), (0.3, 0.3), (60.0, 5.0)]
)
def test_what_refuses_has_time_to_come_back(
    now_s: list[float], pause_max_s: float | None, wanted_s: float
) -> None:
    kept = Outages("the table a", pause_max_s=pause_max_s)
    kept.failed(OSError("no such bucket"), is_refused=True)
    assert paused_s(kept, now_s) == pytest.approx(wanted_s, abs=0.06)
