"""Whatever is in a delivery's head and body: it is refused, or it was signed; it is an event, or a typed fault."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook

from destinations.base import RemoteEvent, SignatureRefused
from destinations.generic import GenericDestination
from faults import Fault
from ledger.inbox import state_of
from tests.destinations.conftest import SECRET, account

NOW = 1_700_000_000
BODY = b'{"type":"video.ready","data":{"id":"v1","state":"ready","duration_ms":5.50,"title":"\\u00e9","x":1e3}}'
TAKER = GenericDestination(account("http://h", webhook_secrets=[SECRET]), clock=lambda: NOW)
MANY = settings(max_examples=150, deadline=None)


def signed(body: bytes = BODY, *, event: str = "evt_1", at: int = NOW) -> dict[str, str]:
    signature = Webhook(SECRET).sign(event, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": event, "webhook-timestamp": str(at), "webhook-signature": signature}


def believed(headers: dict[str, str], body: bytes) -> bool:
    """Anything but a refusal fails the test."""
    try:
        TAKER.verify(headers, body)
    except SignatureRefused:
        return False
    return True


anything = st.text(max_size=60) | st.text(alphabet="v1,=+/ .0123456789abcXYZ\u0661\u00e9\x00", max_size=60)


@MANY
@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x"]), anything))
def test_no_headers_that_were_not_signed_are_believed_or_make_it_fail(headers: dict[str, str]) -> None:
    assert not believed(headers, BODY)


@MANY
@given(
    st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]),
    anything,
    st.sampled_from(
        ["{other}", "{good}{other}", "{other}{good}", "{good} {other}", "{other} {good}", "{good},{other}"]
    ),
)
def test_a_header_beside_the_signed_ones_changes_nothing_but_a_further_signature(
    name: str, other: str, form: str
) -> None:
    headers = signed()
    good = headers[name]
    changed = form.replace("{good}", good).replace("{other}", other)
    accepted = believed(headers | {name: changed}, BODY)
    if accepted and changed != good:
        assert name == "webhook-signature"
        assert good in changed.split()[:32]


@MANY
@given(st.integers(0, len(BODY) * 8 - 1))
def test_a_single_bit_that_changed_in_the_body_is_refused(bit: int) -> None:
    changed = bytearray(BODY)
    changed[bit // 8] ^= 1 << bit % 8
    assert not believed(signed(), bytes(changed))


@MANY
@given(st.data())
def test_a_single_character_that_changed_in_any_header_is_refused(data: st.DataObject) -> None:
    headers = signed()
    name = data.draw(st.sampled_from(sorted(headers)))
    place = data.draw(st.integers(0, len(headers[name]) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda sign: sign != headers[name][place]))
    changed = headers[name][:place] + other + headers[name][place + 1 :]
    # A blank would only part the signatures anew, and none of the parts is one.
    assert not believed(headers | {name: changed}, BODY)


@MANY
@given(st.binary(max_size=100))
def test_any_other_body_is_refused(body: bytes) -> None:
    assert body == BODY or not believed(signed(), body)


@MANY
@given(st.text(max_size=200), st.text(alphabet="abcXYZ0189_-", min_size=1, max_size=30))
def test_whatever_was_signed_is_believed_as_it_stands(text: str, event: str) -> None:
    body = text.encode("utf-8", "replace")
    assert believed(signed(body, event=event), body)


@MANY
@given(st.integers(-1_000, 1_000))
def test_a_timestamp_is_good_for_exactly_five_minutes_either_side(away: int) -> None:
    assert believed(signed(at=NOW + away), BODY) is (abs(away) <= 300)


@pytest.mark.parametrize("stamp", ["+{}", " {}", "{} ", "-{}", "{}.0", "{}e0", "0{}", "00{}", "0x{}", "{}\n", "{},1"])
def test_a_timestamp_written_in_another_way_is_another_text_than_was_signed(stamp: str) -> None:
    assert not believed(signed() | {"webhook-timestamp": stamp.format(NOW)}, BODY)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["id", "state", "reference", "duration_ms", "width", "size", "title", "error", "playback_url"])
videos = st.dictionaries(fields, json_like | st.sampled_from(["ready", "errored", "deleted"]), max_size=8) | json_like
events = st.fixed_dictionaries(
    {"type": st.sampled_from(["video.ready", "video.deleted"]) | json_like, "data": videos}
) | st.dictionaries(st.text(max_size=5), json_like, max_size=3)


def understood(headers: dict[str, str], body: bytes) -> RemoteEvent | None:
    """Anything but an event or a typed fault fails the test."""
    try:
        return TAKER.parse_event(headers, body)
    except Fault as fault:
        if fault.code != "answer-malformed":
            raise
        return None


@MANY
@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_a_typed_fault(body: bytes) -> None:
    understood({"webhook-id": "evt_1"}, body)


@MANY
@given(events, st.booleans())
def test_any_event_says_something_that_the_ledger_knows_or_nothing(value: Any, with_id: bool) -> None:
    seen = understood({"webhook-id": "evt_1"} if with_id else {}, json.dumps(value).encode())
    assert seen is not None
    assert seen.dedupe_key
    if seen.video is not None:
        state_of(seen.video)
        assert all(n is None or n > 0 for n in (seen.video.duration_ms, seen.video.width, seen.video.size))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"5",
        b"null",
        b'"x"',
        b"NaN",
        b"{",
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ]
    + [b"[" * 900 + b"]" * 900, b"9" * 5_000, b'{"a":1} {"a":1}', b'{"data":{"id":"x"},}'],
    ids=range(15),
)
def test_a_body_that_is_no_json_object_is_a_typed_fault(body: bytes) -> None:
    assert understood({"webhook-id": "evt_1"}, body) is None


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ('{"id":"v1","state":"ready"}', "v1:ready"),
        ('{"id":"v1","state":"READY"}', "v1:ready"),
        ('{"id":"v0","id":"v1","state":"ready"}', "v1:ready"),
        ('{"id":1,"state":"errored"}', "1:errored"),
    ],
)
def test_without_an_event_id_the_video_and_its_state_tell_copies_apart(data: str, key: str) -> None:
    first = understood({}, f'{{"type":"video.x","data":{data}}}'.encode())
    again = understood({}, f'{{"data":{data},"type":"video.x","sent":2}}'.encode())
    assert first is not None
    assert again is not None
    assert first.dedupe_key == again.dedupe_key == key
