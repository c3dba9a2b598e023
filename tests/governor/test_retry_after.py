"""What `Retry-After` means, in every form it comes in."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
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
    ],
)
def test_an_unreadable_value_means_ordinary_backoff(value: str | None) -> None:
    assert parse_retry_after(value, NOW) is None


@given(st.text(max_size=300))
def test_no_text_at_all_makes_it_fail_or_leave_the_range(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or (0 <= seconds <= CAP_S and math.isfinite(seconds))


@given(st.text(alphabet="0123456789+-.eEinfaty, :GMTSunMar", max_size=60))
def test_nothing_that_looks_almost_right_makes_it_fail(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or 0 <= seconds <= CAP_S


@given(st.floats(allow_nan=False), st.floats(min_value=0, max_value=1e6))
def test_every_number_is_itself_within_the_range(number: float, cap: float) -> None:
    assert parse_retry_after(repr(number), NOW, cap) == min(max(number, 0.0), cap)


@given(st.integers(min_value=-(10**6), max_value=10**6), st.booleans())
def test_every_date_is_its_distance_from_now(seconds: int, usegmt: bool) -> None:
    moment = NOW + timedelta(seconds=seconds)
    assert parse_retry_after(format_datetime(moment, usegmt=usegmt), NOW) == min(max(float(seconds), 0.0), CAP_S)
