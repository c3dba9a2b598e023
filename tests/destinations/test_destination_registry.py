"""Which kinds of destination there are, and what is said of an account that cannot be one."""

from __future__ import annotations

from typing import Any

import pytest

from destinations import KINDS, check_options, check_webhooks, default_limits, open_destination
from destinations.generic import GenericDestination
from faults import Fault
from governor.pacing import fastest_s, limits_of
from tests.destinations.conftest import SECRET, TOKEN, account


async def test_generic_and_sandbox_are_kinds() -> None:
    for kind in ("generic", "sandbox"):
        assert kind in KINDS
        settings = account("http://h", kind=kind)
        check_options(settings)
        destination = open_destination("main", settings)
        assert isinstance(destination, GenericDestination)
        assert destination.capabilities.lookup == "exact"
        await destination.aclose()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "vhs"}, "'vhs'"),
        ({"options": {"nonsense": 1}}, "options.nonsense"),
        ({"options": {"get_path": "/v1/videos"}}, "options.get_path"),
        ({"options": {"create_path": "no-slash"}}, "options.create_path"),
        ({"options": {"list_limit": 0}}, "options.list_limit"),
        ({"options": {"states": {"ok": "fine"}}}, "options.states.ok"),
        ({"options": {"reasons": {"E1": "no-such-reason"}}}, "no-such-reason"),
        ({"options": {"failed_reason": "bad luck"}}, "options.failed_reason"),
        ({"options": {"webhooks": "carrier-pigeon"}}, "options.webhooks"),
        ({"options": {"idempotency_header": "a b"}}, "options.idempotency_header"),
        ({"options": {"headers": {"X": "a\nb"}}}, "options.headers.X"),
        ({"webhook_secrets": ["whsec_"]}, "webhook_secrets"),
        ({"webhook_secrets": [SECRET, "whsec_no base64!"]}, "webhook_secrets: number 2"),
        ({"token": "two\nlines"}, "token"),
        ({"token": "schlüssel"}, "token"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_shown(given: dict[str, Any], named: str) -> None:
    settings = account("http://h", **given)
    for call in (lambda: check_options(settings), lambda: open_destination("main", settings)):
        with pytest.raises(Fault) as raised:
            call()
        assert raised.value.code == "settings-refused"
        assert named in raised.value.detail
        for secret in (TOKEN, SECRET, "two", "schlüssel", "no base64!"):
            assert secret not in str(raised.value)


def test_an_endpoint_cannot_start_without_a_secret() -> None:
    check_webhooks(account("http://h", webhook_secrets=[SECRET]))
    with pytest.raises(Fault, match="webhook_secrets") as raised:
        check_webhooks(account("http://h"))
    assert raised.value.code == "settings-refused"


def test_the_account_is_named_when_it_is_opened() -> None:
    with pytest.raises(Fault, match=r"accounts\.main\.options\.nonsense"):
        open_destination("main", account("http://h", options={"nonsense": 1}))


def test_the_hosts_limits_count_where_the_account_declares_none() -> None:
    given = {"kind": "mux", "token": "id:secret"}
    assert [limit.name for limit in limits_of(account("http://h", **given))] == ["posts-0", "others-1"]
    own = account("http://h", **given, limits=[{"name": "mine", "requests": 7, "per_s": 1}])
    assert [limit.name for limit in limits_of(own)] == ["mine-0"]
    assert default_limits("generic") == default_limits("vhs") == ()


@pytest.mark.parametrize(("kind", "per_s"), [("mux", 1.0), ("cloudflare", 1200 / 300), ("apivideo", 200 / 60)])
def test_creates_go_at_nine_tenths_of_the_pace_that_a_host_documents(kind: str, per_s: float) -> None:
    seconds = fastest_s(account("http://h", kind=kind), 900)
    assert seconds is not None
    assert 900 / seconds == pytest.approx(0.9 * per_s, rel=0.015)


def test_an_account_of_a_kind_without_an_address_must_name_one() -> None:
    check_options(account(None, kind="mux", token="id:secret"))  # type: ignore[arg-type]
    with pytest.raises(Fault, match="base_url") as raised:
        check_options(account(None))  # type: ignore[arg-type]
    assert raised.value.code == "settings-refused"
