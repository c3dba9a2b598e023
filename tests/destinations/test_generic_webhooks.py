"""Deliveries: which are believed, and what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from destinations.base import CreateRequest, RemoteState, SignatureRefused
from destinations.generic import GenericDestination
from faults import Fault
from sandbox.config import Faults, SandboxConfig
from sandbox.server import running_sandbox
from tests.destinations.conftest import SECRET, TOKEN, account
from tests.sandbox.serving import served, until

OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW = 1_700_000_000
BODY = (
    b'{"type":"video.ready","data":{"id":"v1","reference":"ref-1","state":"ready","duration_ms":5.50,'
    b'"title":"\\u00e9","x":1e3}}'
)


def signed(body: bytes = BODY, *, at: int = NOW, by: str = SECRET, id: str = "evt_1") -> dict[str, str]:
    """The headers of a delivery made at this second."""
    signature = Webhook(by).sign(id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}


@pytest.fixture
def taker() -> Callable[..., GenericDestination]:
    def take(*secrets: str, now: float = NOW, **options: Any) -> GenericDestination:
        settings = account("http://h", webhook_secrets=list(secrets or (SECRET,)), options=options)
        return GenericDestination(settings, clock=lambda: now)

    return take


def test_a_good_delivery_is_believed(taker: Any) -> None:
    taker().verify(signed(), BODY)


def test_a_known_vector_of_the_standard_is_believed(taker: Any) -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    taker(now=1614265330).verify(headers, b'{"test": 2432232314}')


def test_header_names_have_no_case(taker: Any) -> None:
    taker().verify({name.title(): value for name, value in signed().items()}, BODY)


@pytest.mark.parametrize(
    "body",
    [
        BODY + b" ",
        BODY.replace(b"ref-1", b"ref-2"),
        BODY.replace(b"5.50", b"5.5"),
        BODY.replace(b"1e3", b"1000.0"),
        BODY.replace(b"\\u00e9", "é".encode()),
        json.dumps(json.loads(BODY)).encode(),
        b"",
        b"\xff\xfe",
    ],
)
def test_an_altered_or_encoded_again_body_is_refused(taker: Any, body: bytes) -> None:
    with pytest.raises(SignatureRefused):
        taker().verify(signed(), body)


def test_the_signature_covers_the_id_and_the_timestamp(taker: Any) -> None:
    for name, value in (("webhook-id", "evt_2"), ("webhook-timestamp", str(NOW + 1))):
        with pytest.raises(SignatureRefused):
            taker().verify(signed() | {name: value}, BODY)


def test_one_good_signature_among_several_is_enough(taker: Any) -> None:
    good = signed()["webhook-signature"]
    for signatures in (f"v1,AAAA {good}", f"{good} v1,AAAA", f"v2,xx nonsense v1, ,,, é {good}", f"  {good}  "):
        taker().verify(signed() | {"webhook-signature": signatures}, BODY)


@pytest.mark.parametrize("signatures", ["", " ", "v1,", "v1", "nonsense", "v1,AAAA v1,BBBB", "é", "v1a,{}", "{}x"])
def test_a_bad_signature_is_refused_and_never_an_error(taker: Any, signatures: str) -> None:
    given = signatures.format(signed()["webhook-signature"].removeprefix("v1,"))
    with pytest.raises(SignatureRefused):
        taker().verify(signed() | {"webhook-signature": given}, BODY)


def test_during_a_rotation_any_current_secret_matches_and_afterwards_only_the_new(taker: Any) -> None:
    both, new = taker(OLD_SECRET, SECRET), taker(SECRET)
    both.verify(signed(by=OLD_SECRET), BODY)
    both.verify(signed(by=SECRET), BODY)
    new.verify(signed(by=SECRET), BODY)
    with pytest.raises(SignatureRefused):
        new.verify(signed(by=OLD_SECRET), BODY)
    two = f"{signed(by=OLD_SECRET)['webhook-signature']} {signed()['webhook-signature']}"
    new.verify(signed() | {"webhook-signature": two}, BODY)


@pytest.mark.parametrize("away", [0, 299, 300, -299, -300])
def test_a_timestamp_within_five_minutes_on_either_side_is_in(taker: Any, away: int) -> None:
    taker().verify(signed(at=NOW + away), BODY)


@pytest.mark.parametrize("away", [301, -301, 86_400, -NOW])
def test_a_timestamp_further_away_is_out(taker: Any, away: int) -> None:
    with pytest.raises(SignatureRefused, match="too far"):
        taker().verify(signed(at=NOW + away), BODY)


@pytest.mark.parametrize(
    "stamp", ["", "nan", "NaN", "inf", "-1700000000", "1.7e9", "1700000000.0", "١٧٠٠", "now", " 1700000000", "9" * 400]
)
def test_a_timestamp_that_is_no_number_of_seconds_is_out(taker: Any, stamp: str) -> None:
    with pytest.raises(SignatureRefused):
        taker().verify(signed() | {"webhook-timestamp": stamp}, BODY)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_refused(taker: Any, name: str) -> None:
    headers = signed()
    del headers[name]
    with pytest.raises(SignatureRefused, match="missing"):
        taker().verify(headers, BODY)


def test_without_a_secret_nothing_is_believed(taker: Any) -> None:
    with pytest.raises(SignatureRefused, match="secret"):
        GenericDestination(account("http://h"), clock=lambda: NOW).verify(signed(), BODY)
    with pytest.raises(SignatureRefused):
        taker(webhooks="none").verify(signed(), BODY)


def test_the_tolerance_and_the_header_names_are_options(taker: Any) -> None:
    other = taker(webhook_tolerance_s=600, webhook_header_prefix="Svix-")
    headers = {name.replace("webhook", "svix"): value for name, value in signed(at=NOW - 599).items()}
    other.verify(headers, BODY)
    with pytest.raises(SignatureRefused):
        other.verify(signed(), BODY)


def test_a_refusal_shows_neither_secret_nor_signature(taker: Any) -> None:
    with pytest.raises(SignatureRefused) as raised:
        taker().verify(signed(by=OLD_SECRET), BODY)
    assert SECRET.removeprefix("whsec_") not in str(raised.value)
    assert signed(by=OLD_SECRET)["webhook-signature"] not in str(raised.value)


# ------------------------------------------------------------------------------------------------------------ meaning


def event(taker: Any, body: Any, headers: dict[str, str] | None = None, **options: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return taker(**options).parse_event({"webhook-id": "evt_1"} if headers is None else headers, raw)


def test_an_event_says_what_the_video_is_now(taker: Any) -> None:
    seen = event(taker, BODY)
    assert (seen.dedupe_key, seen.kind) == ("evt_1", "video.ready")
    assert (seen.video.remote_id, seen.video.ref, seen.video.state) == ("v1", "ref-1", RemoteState.READY)


def test_a_failure_says_why(taker: Any) -> None:
    data = {"id": "v1", "state": "errored", "error": {"code": "not_a_video", "message": "at https://u:p@h/a?sig=1"}}
    seen = event(taker, {"type": "video.errored", "data": data})
    assert (seen.video.state, seen.video.reason) == (RemoteState.ERRORED, "not-a-video")
    assert seen.video.detail == "not_a_video: at https://h/a?…"


def test_a_deletion_is_one_even_where_the_video_has_another_state_or_none(taker: Any) -> None:
    for data in ({"id": "v1", "state": "ready"}, {"id": "v1"}):
        assert event(taker, {"type": "video.deleted", "data": data}).video.state is RemoteState.DELETED
    renamed = event(taker, {"type": "video.deleted", "data": {"id": "v1"}}, states={"gone": "deleted", "ok": "ready"})
    assert renamed.video.state is RemoteState.DELETED


def test_without_an_event_id_the_video_and_its_state_are_the_key(taker: Any) -> None:
    first, again = event(taker, BODY, {}), event(taker, BODY + b" ", {})
    assert first.dedupe_key == again.dedupe_key == "v1:ready"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "account.updated", "data": {"plan": "gold"}},
        {"type": "ping"},
        {"type": "video.progress", "data": {"id": "v1", "state": "half-done"}},
        {"data": []},
        {},
    ],
)
def test_an_event_that_tells_nothing_of_a_video_is_no_error(taker: Any, body: Any) -> None:
    seen = event(taker, body, {})
    assert seen.video is None
    assert seen.dedupe_key


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_event_is_a_typed_fault(taker: Any, body: bytes) -> None:
    with pytest.raises(Fault) as raised:
        event(taker, body)
    assert raised.value.code == "answer-malformed"


def test_where_the_body_is_the_video_itself_options_say_so(taker: Any) -> None:
    body = {"uid": "v1", "status": {"state": "ready"}}
    seen = event(taker, body, {}, event_video_field=None, id_field="uid", state_field="status.state")
    assert (seen.video.remote_id, seen.dedupe_key) == ("v1", "v1:ready")


async def test_what_the_sandbox_sends_is_believed_and_understood(tmp_path: Path) -> None:
    seen: list[Any] = []
    destination = GenericDestination(account("http://h", webhook_secrets=[OLD_SECRET, SECRET]))

    async def take(request: Request) -> Response:
        body = await request.body()
        try:
            destination.verify(dict(request.headers), body)
        except SignatureRefused:
            return Response(status_code=401)
        seen.append(destination.parse_event(dict(request.headers), body))
        return Response(status_code=204)

    async with served(Starlette(routes=[Route("/hook", take, methods=["POST"])])) as base:
        config = SandboxConfig(
            data=tmp_path,
            token=SecretStr(TOKEN),
            webhook_url=f"{base}/hook",
            webhook_secret=SecretStr(SECRET),
            faults=Faults(ingest="synthesize", webhook_forged_rate=1, webhook_duplicate_rate=1),
        )
        async with running_sandbox(config) as sandbox:
            sender = GenericDestination(account(sandbox.base_url))
            await sender.create(CreateRequest(ref="naïve 日本", address="http://h/a", title=""))
            await until(lambda: sandbox.stats()["webhooks"]["delivered"] == 3)
            assert sandbox.stats()["webhooks"]["forged_accepted"] == 0
            await sender.aclose()
    await destination.aclose()
    assert len({found.dedupe_key for found in seen}) == 1
    assert {(found.video.ref, found.video.state, found.kind) for found in seen} == {
        ("naïve 日本", RemoteState.READY, "video.ready")
    }
