"""When a host says that it is asked too much, it says in its own way when to come back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from sources.asking import RETRY_AFTER_CAP_S, wish_of


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "7", "X-RateLimit-Reset": "900"}, 7),
        ({"X-RateLimit-Retry-After": "12"}, 12),
        ({"X-RateLimit-Reset": "30"}, 30),
        ({"RateLimit-Reset": "30"}, 30),
        ({"Ratelimit": '"default";r=0;t=299', "Ratelimit-Policy": '"default";q=1200;w=300'}, 299),
        ({"Retry-After": "soon", "X-RateLimit-Retry-After": "5"}, 5),
        ({"Retry-After": "1e99"}, RETRY_AFTER_CAP_S),
        ({"Ratelimit": '"default";r=0;t=999999999999'}, RETRY_AFTER_CAP_S),
        ({"Retry-After": "-5"}, 0),
        ({"jw-request-remaining": "0"}, None),
        ({"X-RateLimit-Reset": ""}, None),
        ({"Ratelimit": "r=0"}, None),
        ({}, None),
    ],
)
def test_each_form_is_read(headers: dict[str, str], seconds: float | None) -> None:
    wish = wish_of(429, httpx.Headers(headers))

    assert wish == (None if seconds is None else pytest.approx(seconds, abs=2))


def test_a_moment_is_read_as_a_date_and_as_seconds_since_1970() -> None:
    then = datetime.now(UTC) + timedelta(seconds=600)
    for text in (then.isoformat(), str(int(then.timestamp()))):
        assert wish_of(429, httpx.Headers({"X-RateLimit-Reset": text})) == pytest.approx(600, abs=60)


def test_with_other_statuses_only_the_standard_header_counts() -> None:
    allowance = {"X-RateLimit-Reset": "30", "Ratelimit": '"default";r=9;t=30'}

    assert wish_of(503, httpx.Headers(allowance)) is None
    assert wish_of(503, httpx.Headers({**allowance, "Retry-After": "3"})) == 3
