"""Limits that make no sense are refused when the settings are read, and named."""

from __future__ import annotations

from typing import Any

import pytest

from faults import Fault
from settings import load_settings

LIMIT = {"requests": 100, "per_s": 60}


def load(**account: Any) -> None:
    load_settings(accounts={"main": {"base_url": "http://host.example", "token": "t", **account}})


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ({"requests": 0}, "limits.0.requests"),
        ({"requests": -5}, "limits.0.requests"),
        ({"requests": float("inf")}, "limits.0.requests"),
        ({"per_s": 0}, "limits.0.per_s"),
        ({"per_s": float("nan")}, "limits.0.per_s"),
        ({"prices": {"create": -1}}, "limits.0.prices.create"),
        ({"prices": {"creation": 5}}, "limits.0.prices.creation"),
        ({"prices": {"create": 101}}, "limits.0: Value error, prices: one request of 101"),
        ({"prices": {"list": 2}, "operations": ["create"]}, "limits.0: Value error, prices: list"),
        ({"operations": ["make"]}, "limits.0.operations.0"),
        ({"spend": 0}, "limits.0.spend"),
        ({"spend": 1.1}, "limits.0.spend"),
        ({"floor": 100}, "limits.0: Value error, floor"),
        ({"floor": -1}, "limits.0.floor"),
        ({"spread": "somehow"}, "limits.0.spread"),
        ({"resets_at": 24, "per_s": 86_400}, "limits.0.resets_at"),
        ({"resets_at": 7, "per_s": 86_400, "spread": "evenly"}, "limits.0: Value error, resets_at"),
        ({"resets_at": 7, "per_s": 7_777}, "limits.0: Value error, resets_at"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_by_name(limit: dict[str, Any], named: str) -> None:
    with pytest.raises(Fault) as fault:
        load(limits=[{**LIMIT, **limit}])
    assert fault.value.code == "settings-refused"
    assert f"accounts.main.{named}" in fault.value.detail


@pytest.mark.parametrize(
    ("account", "named"),
    [
        ({"spend": 0}, "spend"),
        ({"spend": 1.5}, "spend"),
        ({"shares": {"acme": 0}}, "shares.acme"),
        ({"shares": {"acme": -1}}, "shares.acme"),
        ({"reserve": 1}, "reserve"),
        ({"reserve": -0.1}, "reserve"),
        ({"limits": [{"requests": 10, "per_s": 86_400, "prices": {"create": 10}}]}, "only 9 is spent"),
    ],
)
def test_a_share_that_cannot_be_given_is_refused_by_name(account: dict[str, Any], named: str) -> None:
    with pytest.raises(Fault) as fault:
        load(**account)
    assert fault.value.code == "settings-refused"
    assert named in fault.value.detail


def test_what_can_be_kept_is_taken() -> None:
    load(
        limits=[
            {"requests": 600_000, "per_s": 86_400, "resets_at": 7, "floor": 1000, "prices": {"create": 5, "get": 0}},
            {"requests": 1, "per_s": 1, "operations": ["create", "upload"], "spend": 1.0},
        ],
        shares={"acme": 3, "globex": 0.5},
        reserve=0,
    )
