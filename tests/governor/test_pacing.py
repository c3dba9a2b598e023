"""Pacing: functions of the settings and of what the destination said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import Fault
from governor.pacing import FIRST_PAUSE_S, LONGEST_PAUSE_S, fastest_s, limits_of, pause_s
from settings import AccountSettings


def account(*limits: tuple[int, float], spend: float = 0.9) -> AccountSettings:
    declared = [{"requests": requests, "per_s": per_s} for requests, per_s in limits]
    return AccountSettings.model_validate(
        {"base_url": "http://host.example", "token": "t", "limits": declared, "spend": spend}
    )


def test_a_limit_is_spent_evenly_and_a_tenth_is_left() -> None:
    [limit] = limits_of(account((1200, 300.0)))
    assert limit.interval_s == pytest.approx(300 / 1080)
    assert limit.burst == 1


def test_limits_of_the_same_name_are_kept_apart() -> None:
    assert len({limit.name for limit in limits_of(account((10, 1.0), (1000, 300.0)))}) == 2


@given(
    requests=st.integers(1, 10**6),
    per_s=st.floats(0.001, 10**6),
    spend=st.floats(0.01, 1.0),
    at=st.floats(0.0, 1.0),
)
def test_no_window_wherever_it_begins_holds_more_than_the_limit(
    requests: int, per_s: float, spend: float, at: float
) -> None:
    [limit] = limits_of(account((requests, per_s), spend=spend))
    # Of requests that are `interval_s` apart, this many start in a window that begins `at` of an interval after one.
    first = (1 - at) * limit.interval_s
    inside = max(0, int((per_s - first) / limit.interval_s * (1 - 1e-9)) + 1) if first < per_s else 0
    assert inside <= max(1, requests)


def test_the_slowest_limit_says_how_long_a_run_takes_at_least() -> None:
    assert fastest_s(account((10, 1.0), (90, 300.0), spend=1.0), 900) == pytest.approx(3000)
    assert fastest_s(account(), 900) is None


def test_a_pause_doubles_with_each_event_in_a_row_up_to_five_minutes() -> None:
    refused = Fault("rate-limited")
    assert [pause_s(refused, streak) for streak in range(1, 6)] == [1, 2, 4, 8, 16]
    assert pause_s(refused, 10) == LONGEST_PAUSE_S == 300
    assert pause_s(refused, 10**9) == LONGEST_PAUSE_S


@given(retry_after=st.floats(0, 10**6), streak=st.integers(1, 10**6))
def test_what_the_destination_asks_for_is_what_it_gets(retry_after: float, streak: int) -> None:
    seconds = pause_s(Fault("rate-limited", retry_after=retry_after), streak)
    assert seconds == max(retry_after, FIRST_PAUSE_S)


@given(streak=st.integers(1, 10**6))
def test_a_pause_is_never_shorter_than_a_second_nor_longer_than_five_minutes(streak: int) -> None:
    assert FIRST_PAUSE_S <= pause_s(Fault("destination-busy"), streak) <= LONGEST_PAUSE_S
