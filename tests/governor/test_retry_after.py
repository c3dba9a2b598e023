"""What `Retry-After` means, in every form it comes in."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from governor.retry_after import CAP_S, parse_retry_after

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("+7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e2", 100.0),
        ("-5", 0.0),
        ("-0.1", 0.0),
        ("inf", CAP_S),
        ("Infinity", CAP_S),
        ("-inf", 0.0),
        ("999999999999", CAP_S),
        ("1e999", CAP_S),
        ("30, 60", 60.0),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120.0),
        ("Sunday, 01-Mar-26 12:02:00 GMT", 120.0),
        ("Sun Mar  1 12:02:00 2026", 120.0),
        ("Sun, 01 Mar 2026 12:02:00 -0000", 120.0),
        ("Sun, 01 Mar 2026 13:02:00 +0100", 120.0),
        ("2026-03-01T12:02:00Z", 120.0),
        ("2026-03-01T12:02:00", 120.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", CAP_S),
        ("1,5", 5.0),
        ("120\r\n", 120.0),
        ("sun, 01 mar 2026 12:02:00 gmt", 120.0),
        ("SUN, 01 MAR 2026 12:02:00 GMT", 120.0),
        ("01 Mar 2026 12:02:00 GMT", 120.0),
        ("Sun, 01 Mar 26 12:02 GMT", 120.0),
        ("Sun, 01 Mar 2026 07:02:00 EST", 120.0),
        ("Sun, 01 Mar 2026 12:02:00 GMT, Sun, 01 Mar 2026 12:02:00 GMT", 120.0),
        ("20260301T120200Z", 120.0),
        ("2026-03-01T12:02:00.000000000Z", 120.0),
        ("2026-03-01T13:02:00+01:00", 120.0),
        ("2026-03-01", 0.0),
        ("0001-01-01T00:00:00+23:59", 0.0),
        ("9999-12-31T23:59:59-23:59", CAP_S),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
    ],
)
def test_a_readable_value_is_clamped_to_what_may_be_waited(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "   ",
        "nan",
        "NaN",
        "soon",
        "1,5x",
        "1_000",
        "٣",
        "30s",
        "0x10",
        "Sun, 99 Foo 2026 99:99:99 GMT",
        "9" * 500,
        "120;foo",
        "120, ",
        "120 seconds",
        "PT2M",
        "１２０",
        "²",
        "1\u200b20",
        "30, Sun, 01 Mar 2026 12:02:00 GMT",
        "Sun, 01 Mar 10000 12:00:00 GMT",
        "Sun, 01 Mar 2026 12:02:60 GMT",
        "Sun, 01 Mar 2026 12:02:00 +9999",
        "Mon, 29 Feb 2027 12:00:00 GMT",
        "12:02",
    ],
)
def test_an_unreadable_value_means_ordinary_backoff(value: str | None) -> None:
    assert parse_retry_after(value, NOW) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1772366520", 120.0),
        ("1772366520.5", 120.5),
        ("1772366520000", 120.0),
        ("1772366400", 0.0),
        ("1772366300", 0.0),
        ("1772366520, 60", 120.0),
        ("1803816000", CAP_S),
        ("1609459200", CAP_S),
        ("999999999999", CAP_S),
    ],
)
def test_a_moment_since_1970_is_its_distance_from_now_where_it_is_near_and_else_a_delay(
    value: str, seconds: float
) -> None:
    """As `X-RateLimit-Reset` gives it; 1772366400 is now."""
    assert parse_retry_after(value, NOW) == seconds


@given(st.integers(min_value=-86_400, max_value=31_622_400), st.sampled_from([1, 1000]))
def test_every_near_moment_since_1970_is_its_distance_from_now(away: int, scale: int) -> None:
    stamp = str((int(NOW.timestamp()) + away) * scale)
    assert parse_retry_after(stamp, NOW) == min(max(float(away), 0.0), CAP_S)


@given(
    st.sampled_from(["Sun, ", "Sunday, ", "", "Foo, "]),
    st.integers(-1, 40),
    st.sampled_from([" Mar ", "-Mar-", " mar ", " Foo ", " 13 "]),
    st.integers(-1, 100_000),
    st.tuples(st.integers(-1, 30), st.integers(-1, 70), st.integers(-1, 70)),
    st.sampled_from(["GMT", "-0000", "+0100", "+2359", "-9999", "EST", "Z", "", "PT"]),
)
def test_no_date_however_odd_makes_it_fail_or_leave_the_range(
    day: str, number: int, month: str, year: int, clock: tuple[int, int, int], zone: str
) -> None:
    text = f"{day}{number:02}{month}{year:04} {':'.join(f'{part:02}' for part in clock)} {zone}"
    seconds = parse_retry_after(text, NOW)
    assert seconds is None or 0 <= seconds <= CAP_S


@given(st.text(max_size=300))
def test_no_text_at_all_makes_it_fail_or_leave_the_range(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or (0 <= seconds <= CAP_S and math.isfinite(seconds))


@given(st.text(alphabet="0123456789+-.eEinfaty, :GMTSunMar", max_size=60))
def test_nothing_that_looks_almost_right_makes_it_fail(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or 0 <= seconds <= CAP_S


@given(st.floats(allow_nan=False), st.floats(min_value=0, max_value=1e6))
def test_every_number_that_is_no_near_moment_is_itself_within_the_range(number: float, cap: float) -> None:
    assume(not any(abs(number / scale - NOW.timestamp()) <= 31_622_400 for scale in (1, 1000)))
    assert parse_retry_after(repr(number), NOW, cap) == min(max(number, 0.0), cap)


@given(st.integers(min_value=-(10**6), max_value=10**6), st.booleans())
def test_every_date_is_its_distance_from_now(seconds: int, usegmt: bool) -> None:
    moment = NOW + timedelta(seconds=seconds)
    assert parse_retry_after(format_datetime(moment, usegmt=usegmt), NOW) == min(max(float(seconds), 0.0), CAP_S)
