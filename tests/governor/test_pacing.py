"""Pacing: functions of the settings and of what the destination said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from faults import Fault
from governor.pacing import FIRST_PAUSE_S, LONGEST_PAUSE_S, TOLERANCE, fastest_s, late_s, limits_of, pause_s
from settings import OPERATIONS, AccountSettings, Operation


def account(*limits: tuple[int, float] | dict[str, Any], spend: float = 0.9) -> AccountSettings:
    declared = [
        limit if isinstance(limit, dict) else {"requests": limit[0], "per_s": limit[1], "spread": "evenly"}
        for limit in limits
    ]
    return AccountSettings.model_validate(
        {"base_url": "http://host.example", "token": "t", "limits": declared, "spend": spend}
    )


def test_a_limit_is_spent_evenly_and_a_tenth_is_left() -> None:
    [limit] = limits_of(account((1200, 300.0)))
    assert limit.units == 1080
    assert 0.98 < 300 / limit.interval_s / 1080 <= 1


def test_limits_of_the_same_name_are_kept_apart() -> None:
    assert len({limit.name for limit in limits_of(account((10, 1.0), (1000, 300.0)))}) == 2


def test_long_windows_are_spent_as_they_come_unless_told_otherwise() -> None:
    day = {"requests": 1000, "per_s": 86_400.0}
    assert [limit.even for limit in limits_of(account(day, {**day, "spread": "evenly"}))] == [False, True]


def test_a_limit_has_its_own_share_and_floor() -> None:
    limits = limits_of(
        account({"requests": 1000, "per_s": 60, "spend": 0.5}, {"requests": 1000, "per_s": 60, "floor": 300})
    )
    assert [limit.units for limit in limits] == [500, 700]


PRICES = st.dictionaries(st.sampled_from(OPERATIONS), st.sampled_from([0.25, 0.4, 1, 2, 3, 7, 10]), max_size=3)


@given(
    requests=st.integers(1, 3000),
    per_s=st.floats(0.1, 10**5),
    spend=st.floats(0.02, 1.0),
    prices=PRICES,
    asked=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 25), st.floats(0, 0.05)), max_size=60),
)
@settings(deadline=None)
def test_no_window_wherever_it_begins_holds_more_than_the_limit(
    requests: int, per_s: float, spend: float, prices: dict[Operation, float], asked: list[tuple[Operation, int, float]]
) -> None:
    """Whoever asks for what, and however long nobody does."""
    assume(max([prices.get(operation, 1.0) for operation in OPERATIONS]) <= requests)
    [limit] = limits_of(
        account({"requests": requests, "per_s": per_s, "prices": prices, "spread": "evenly"}, spend=spend)
    )
    tat, now, made = 0.0, 0.0, []
    for operation, count, pause in asked:
        now = max(now, tat - limit.tolerance_s) + pause * per_s
        for _ in range(count):
            start = max(now, tat - limit.tolerance_s)
            tat = max(tat, start) + limit.price(operation) * limit.interval_s
            made.append((start, limit.price(operation)))
    strict = limit.units >= limit.largest and limit.tolerance_s == TOLERANCE * per_s
    for begin, _ in made:
        inside = sum(units for start, units in made if begin <= start < begin + per_s * (1 - 1e-9))
        assert inside <= requests
        if strict and per_s / limit.interval_s < 0.995 * limit.units:
            assert inside <= limit.units + 1e-6


@given(requests=st.integers(1, 5000), per_s=st.floats(0.1, 10**5), spend=st.floats(0.1, 1.0))
def test_of_what_may_be_spent_at_least_98_in_100_can_be(requests: int, per_s: float, spend: float) -> None:
    [limit] = limits_of(account((requests, per_s), spend=spend))
    assert per_s / limit.interval_s >= 0.98 * limit.units or requests * spend < 1 or spend > 0.98


@pytest.mark.parametrize(
    ("requests", "prices", "creates_per_s"),
    [
        (1, {"upload": 0.25}, 0.9),
        (2, {"upload": 0.25}, 1.8),
        (10, {"upload": 0.25}, 9.0),
        (10, {"create": 10}, 0.9),
        (12, {"create": 5, "list": 0}, 2.0),
        (1, {"upload": 0.0001, "get": 0}, 0.9),
        (10**6, {"create": 10**6, "get": 0.001}, 0.9),
    ],
)
def test_cheap_operations_under_a_small_limit_do_not_slow_the_dear_ones(
    requests: float, prices: dict[Operation, float], creates_per_s: float
) -> None:
    """A window that holds one or two of the dear ones still holds them."""
    [limit] = limits_of(account({"requests": requests, "per_s": 1.0, "prices": prices}))
    assert 1 / (limit.price("create") * limit.interval_s) >= 0.98 * creates_per_s
    assert all(limit.price(operation) >= prices.get(operation, 1.0) for operation in OPERATIONS)
    assert {op for op in OPERATIONS if limit.price(op) == 0} == {op for op, price in prices.items() if price == 0}


def test_the_slowest_limit_says_how_long_a_run_takes_at_least() -> None:
    assert fastest_s(account((10, 1.0), (90, 300.0), spend=1.0), 900) == pytest.approx(3030)
    day = {"requests": 100, "per_s": 86_400.0}
    assert fastest_s(account(day, spend=1.0), 250) == 2 * 86_400
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


@pytest.mark.parametrize(
    ("limits", "seconds"), [([(1200, 300.0)], 2.0), ([(40, 2.0)], 0.11), ([(1200, 300.0), (5, 1.0)], 0.1), ([], 2.0)]
)
def test_a_call_may_be_late_by_what_is_left_free_of_the_limits(limits: list[tuple[int, float]], seconds: float) -> None:
    assert late_s(account(*limits)) == pytest.approx(seconds, abs=0.01)
