"""What hosts say of their limits in headers, in every form it has been seen in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.headers import LONGEST_S, Quota, quotas, retry_after, wait_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (
            {"Ratelimit": '"default";r=50;t=30', "Ratelimit-Policy": '"default";q=1200;w=300'},
            [Quota("default", 1200, 50, 30, 300)],
        ),
        (
            {"ratelimit": '"burst";r=1;t=1, "day, all";r=900;t=3600', "ratelimit-policy": '"day, all";q=1000;w=86400'},
            [Quota("burst", None, 1, 1), Quota("day, all", 1000, 900, 3600, 86_400)],
        ),
        ({"RateLimit": "default; r=50; t=30"}, [Quota("default", None, 50, 30)]),
        ({"RateLimit": "limit=100, remaining=50, reset=30"}, [Quota("default", 100, 50, 30)]),
        (
            {"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "50", "RateLimit-Reset": "30"},
            [Quota("ratelimit", 100, 50, 30)],
        ),
        (
            {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "30"},
            [Quota("x-ratelimit", 100, 5, 30)],
        ),
        (
            {"X-Rate-Limit-Limit": "100", "X-Rate-Limit-Remaining": "5", "X-Rate-Limit-Reset": str(EPOCH + 30)},
            [Quota("x-rate-limit", 100, 5, 30)],
        ),
        (
            {"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": str((EPOCH + 30) * 1000)},
            [Quota("x-ratelimit", None, 5, 30)],
        ),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2026-03-01T12:00:30+00:00"},
            [Quota("x-ratelimit", None, 0, 30)],
        ),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "Sun, 01 Mar 2026 12:00:30 GMT"},
            [Quota("x-ratelimit", None, 0, 30)],
        ),
        (
            {"X-RateLimit-Limit": "10, 1000", "X-RateLimit-Remaining": "9, 20", "X-RateLimit-Reset": "1, 600"},
            [Quota("x-ratelimit-0", 10, 9, 1), Quota("x-ratelimit-1", 1000, 20, 600)],
        ),
        ({"X-RateLimit-Remaining": "7"}, [Quota("x-ratelimit", None, 7)]),
        ({"X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "soon"}, []),
        ({"RateLimit": '"default";t=30'}, []),
        ({"content-type": "application/json"}, []),
    ],
)
def test_what_can_be_read_is_read(headers: dict[str, str], found: list[Quota]) -> None:
    assert list(quotas(headers, NOW)) == found


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"x-ratelimit-retry-after": "60"}, 60),
        ({"Retry-After": "soon", "X-RateLimit-Retry-After": "60"}, 60),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"X-Retry-After": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30),
        ({}, None),
    ],
)
def test_whichever_header_says_when_to_come_again_is_heeded(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("quota", "seconds"),
    [
        (Quota("a", 1200, 120, 60), 0),
        (Quota("what exactly our share leaves", 1200, 108, 60), 0),
        (Quota("others have used some of theirs", 1200, 107, 60), 60),
        (Quota("nothing left, of what nobody said", None, 0, 60), 60),
        (Quota("a second's limit is over before a pause is told", 10, 0, 1), 0),
        (Quota("nobody says until when", 10, 0), 0),
        (Quota("a misreading", 10, 0, LONGEST_S + 1), 0),
    ],
)
def test_less_than_what_is_left_to_others_is_waited_out(quota: Quota, seconds: float) -> None:
    assert wait_s([Quota("b", 10, 10, 9), quota], 0.1) == seconds


NAMES = st.sampled_from(
    ["RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit"]
    + ["X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "Retry-After"]
)


@given(st.dictionaries(NAMES, st.text(max_size=60) | st.text('0123456789;=rtqw", .-:GMTZ', max_size=60)))
def test_nothing_at_all_makes_it_fail_or_wait_for_ever(headers: dict[str, str]) -> None:
    found = quotas(headers, NOW)
    assert 0 <= wait_s(found, 0.1) <= LONGEST_S
    assert all(quota.remaining is not None and quota.remaining >= 0 for quota in found)
    assert retry_after(headers, NOW) is None or retry_after(headers, NOW) >= 0  # type: ignore[operator]


@given(st.integers(2, 80_000), st.sampled_from(["seconds", "epoch", "milliseconds", "http", "iso"]))
def test_a_reset_means_the_same_in_every_form(seconds: int, form: str) -> None:
    moment = NOW + timedelta(seconds=seconds)
    text = {
        "seconds": str(seconds),
        "epoch": str(EPOCH + seconds),
        "milliseconds": str((EPOCH + seconds) * 1000),
        "http": format_datetime(moment, usegmt=True),
        "iso": moment.isoformat(),
    }[form]
    assert wait_s(quotas({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": text}, NOW), 0.1) == seconds
