"""Declared limits: who is refused, for how long, and how it is said."""

from __future__ import annotations

import asyncio
import math
import random
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config import Limit
from sandbox.limits import Limits, retry_after_value

FIVE_MINUTES = Limit(name="five-minutes", requests=3, per_s=300)
BLOCKING = Limit(name="blocking", requests=3, per_s=300, block_s=60)


def test_a_window_slides() -> None:
    limits = Limits([FIVE_MINUTES])
    assert [limits.admit(at, creating=False) for at in (0, 100, 200)] == [None, None, None]
    refusal = limits.admit(250, creating=False)
    assert refusal is not None
    assert (refusal.limit, refusal.wait, refusal.blocked) == ("five-minutes", 50, False)
    assert limits.admit(300, creating=False) is None
    assert limits.admit(301, creating=False) is not None


def test_over_a_blocking_limit_every_call_is_refused_until_the_block_ends() -> None:
    limits = Limits([BLOCKING])
    for at in (0, 1, 2):
        assert limits.admit(at, creating=True) is None
    first, later = limits.admit(3, creating=True), limits.admit(60, creating=False)
    assert first is not None
    assert later is not None
    assert (first.wait, first.blocked) == (60, True)
    assert (later.wait, later.blocked) == (3, True)
    assert limits.blocks == 1
    assert limits.admit(63, creating=True) is None


def test_a_limit_on_creates_leaves_other_calls_alone() -> None:
    limits = Limits([Limit(requests=1, per_s=10, creates_only=True)])
    assert limits.admit(0, creating=True) is None
    assert limits.admit(1, creating=True) is not None
    assert all(limits.admit(1, creating=False) is None for _ in range(5))


def test_a_call_refused_by_one_limit_counts_against_none() -> None:
    limits = Limits([Limit(name="wide", requests=2, per_s=100), Limit(name="burst", requests=1, per_s=1)])
    assert limits.admit(0.0, creating=True) is None
    for _ in range(5):
        refusal = limits.admit(0.5, creating=True)
        assert refusal is not None
        assert refusal.limit == "burst"
    assert limits.admit(1.5, creating=True) is None
    refusal = limits.admit(3, creating=True)
    assert refusal is not None
    assert refusal.limit == "wide"


@given(
    st.lists(st.floats(min_value=0, max_value=50, allow_nan=False), max_size=60),
    st.integers(min_value=1, max_value=5),
    st.floats(min_value=0.5, max_value=20),
)
def test_never_more_than_the_limit_passes_in_any_window(gaps: list[float], requests: int, per_s: float) -> None:
    limits = Limits([Limit(requests=requests, per_s=per_s)])
    now, passed = 0.0, []
    for gap in gaps:
        now += gap
        if limits.admit(now, creating=False) is None:
            passed.append(now)
    for n, moment in enumerate(passed):
        assert sum(1 for other in passed[n:] if other < moment + per_s) <= requests


def test_headers_say_what_is_left_of_each_limit() -> None:
    limits = Limits([Limit(name="burst", requests=10, per_s=1), Limit(name="day", requests=5, per_s=86_400)])
    for _ in range(4):
        limits.admit(0, creating=False)
    assert limits.headers(0.5) == {
        "ratelimit": '"burst";r=6;t=1, "day";r=1;t=86400',
        "ratelimit-policy": '"burst";q=10;w=1, "day";q=5;w=86400',
        "x-ratelimit-limit": "5",
        "x-ratelimit-remaining": "1",
        "x-ratelimit-reset": "86400",
    }
    assert Limits([]).headers(0) == {}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1200/300:300", Limit(name="per-300s", requests=1200, per_s=300, block_s=300)),
        ("5/0.5", Limit(name="per-0-5s", requests=5, per_s=0.5)),
    ],
)
def test_a_limit_is_read_from_the_command_line(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit


@pytest.mark.parametrize("text", ["", "5", "x/1", "5/x", "0/1", "5/0", "5/1:x"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Limit.parse(text)


def test_every_form_of_retry_after_is_what_its_name_says() -> None:
    rng, now = random.Random(1), 1_700_000_000.0
    forms = {
        form: retry_after_value(form, 90.5, now, rng)  # type: ignore[arg-type]
        for form in ("seconds", "float", "negative", "nan", "inf", "huge", "empty", "word", "absent")
    }
    assert forms == {
        "seconds": "91",
        "float": "90.500",
        "negative": "-5",
        "nan": "nan",
        "inf": "inf",
        "huge": "999999999999",
        "empty": "",
        "word": "soon",
        "absent": None,
    }
    date, past = retry_after_value("http-date", 90, now, rng), retry_after_value("http-date-past", 90, now, rng)
    zone = retry_after_value("http-date-zone", 90, now, rng)
    assert date is not None
    assert date.endswith("GMT")
    assert parsedate_to_datetime(date).timestamp() == now + 90
    assert past is not None
    assert parsedate_to_datetime(past).timestamp() < now
    assert zone is not None
    assert zone.endswith("-0000")
    assert len({retry_after_value("random", 90, now, rng) for _ in range(200)}) == 12


async def test_over_the_limit_calls_are_refused_with_429_and_counted(start: Any) -> None:
    box = await start(limits=[BLOCKING], retry_after="float")
    answers = [await box.create(f"ref-{n}") for n in range(5)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429, 429]
    assert 30 < float(answers[3].headers["retry-after"]) <= 60
    assert answers[3].json()["error"]["code"] == "rate_limited"
    assert answers[2].headers["ratelimit"].startswith('"blocking";r=0;')
    assert answers[4].headers["x-ratelimit-remaining"] == "0"
    assert (await box.http.get("/v1/videos")).status_code == 429
    stats = box.stats()
    assert (stats["creates"], stats["refusals_429"], stats["blocks"]) == (3, 3, 1)
    assert (await box.http.get("/_sandbox/faults")).status_code == 200, "controls are outside the limits"


async def test_a_block_ends(start: Any) -> None:
    box = await start(limits=[Limit(requests=1, per_s=100, block_s=0.2)])
    assert (await box.create()).status_code == 201
    assert (await box.create()).status_code == 429
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (await box.create()).status_code == 429:
        assert loop.time() < began + 60
        await asyncio.sleep(0.01)
    assert box.stats()["blocks"] == 1


async def test_unchanged_limits_keep_their_count_when_other_switches_change(start: Any) -> None:
    box = await start(limits=[FIVE_MINUTES])
    for _ in range(3):
        await box.create()
    box.faults(latency_ms=1)
    assert (await box.create()).status_code == 429
    box.faults(limits=[])
    assert (await box.create()).status_code == 201


async def test_rate_headers_can_be_left_out(start: Any) -> None:
    box = await start(limits=[FIVE_MINUTES], rate_headers=False)
    assert not [name for name in (await box.create()).headers if "ratelimit" in name]


async def test_videos_in_flight_are_capped(start: Any) -> None:
    box = await start(in_flight=2, ingest_s=60, retry_after="seconds", retry_after_s=7)
    assert [(await box.create(f"ref-{n}")).status_code for n in range(2)] == [201, 201]
    refused = await box.create("ref-3")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_processing")
    assert refused.headers["retry-after"] == "7"
    assert (await box.http.get("/v1/videos")).status_code == 200
    assert box.stats()["refusals"]["in_flight"] == 1
    box.faults(in_flight=3)
    assert (await box.create("ref-3")).status_code == 201


def test_waits_are_never_negative_or_endless() -> None:
    limits = Limits([Limit(requests=1, per_s=1e-9), Limit(name="b", requests=1, per_s=1e9, block_s=86_400)])
    for now in (0.0, 0.5, 1e6):
        refusal = limits.admit(now, creating=True)
        assert refusal is None or 0 < refusal.wait < math.inf
