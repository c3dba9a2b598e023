"""A host whose answers are odd or wrong: what each means, and that nothing is ever more than a typed fault."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destinations.base import CreateRequest, RemoteState
from faults import Fault

GOOD = b'{"id":"x","state":"ready"}'
REQUEST = CreateRequest(ref="ref-1", address="http://127.0.0.1:9/a.mp4", title="A title")


async def fault_of(call: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await call
    return raised.value


def video(**given: Any) -> bytes:
    return json.dumps({"id": "x", "state": "ready", **given}).encode()


# ------------------------------------------------------------------------------------------------- good all the same


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 207, 299])
async def test_any_2xx_that_holds_a_video_has_made_it(rude: Any, open_at: Any, status: int) -> None:
    assert (await open_at(rude.says(status, GOOD)).create(REQUEST)).remote_id == "x"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"\xef\xbb\xbf" + GOOD, []),
        (GOOD.decode().encode("utf-16"), []),
        (b" \r\n" + GOOD + b"\n\n", []),
        (GOOD, ["content-type: text/html; charset=nonsense-8"]),
        (GOOD, ["content-encoding: unheard-of"]),
        (GOOD, ["x-odd: \xe9"]),
        (gzip.compress(GOOD), ["content-encoding: gzip"]),
        (zlib.compress(GOOD), ["content-encoding: deflate"]),
        (b'{"id":"lost","id":"x","state":"ready"}', []),
        (b'{"id":"x","state":"ready","title":"\\ud800","more":[' + b"1," * 9_999 + b"1]}", []),
    ],
    ids=range(10),
)
async def test_a_video_is_read_however_its_json_is_wrapped(
    rude: Any, open_at: Any, body: bytes, headers: list[str]
) -> None:
    assert (await open_at(rude.says(201, body, *headers)).create(REQUEST)).remote_id == "x"


async def test_hints_before_the_answer_are_not_the_answer(rude: Any, open_at: Any) -> None:
    host = open_at(rude.says(201, GOOD))
    rude.answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + rude.answer
    assert (await host.create(REQUEST)).remote_id == "x"


@pytest.mark.parametrize(("given_id", "remote_id"), [(5, "5"), (0, "0"), (10**30, str(10**30)), ("a/b ?", "a/b ?")])
async def test_an_id_may_be_a_number_or_hold_any_sign(rude: Any, open_at: Any, given_id: Any, remote_id: str) -> None:
    host = open_at(rude.says(201, video(id=given_id)))
    made = await host.create(REQUEST)
    assert made.remote_id == remote_id
    await host.get(made.remote_id)
    assert rude.requests[-1].startswith(b"GET /v1/videos/")
    assert rude.requests[-1].split()[1].count(b"/") == 3


@pytest.mark.parametrize("word", ["ready", "READY", "Ready", " ready\n"])
async def test_a_states_word_has_no_case_and_no_blanks(rude: Any, open_at: Any, word: str) -> None:
    assert (await open_at(rude.says(201, video(state=word))).create(REQUEST)).state is RemoteState.READY


@pytest.mark.parametrize("word", ["marinating", 3, "ready!", "x" * 10_000])
async def test_an_unknown_state_is_processing_until_the_host_says_more(rude: Any, open_at: Any, word: Any) -> None:
    made = await open_at(rude.says(201, video(state=word))).create(REQUEST)
    assert (made.remote_id, made.state) == ("x", RemoteState.PROCESSING)
    assert len(made.detail) < 200


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        ("-1", None),
        ("0", None),
        ("-0.0", None),
        ("0.2", None),
        ("1e-300", None),
        ('"-1"', None),
        ('"0"', None),
        ('""', None),
        ('"unknown"', None),
        ('"nan"', None),
        ('"Infinity"', None),
        ("NaN", None),
        ("Infinity", None),
        ("-Infinity", None),
        ("1e400", None),
        ("9" * 4_000, None),
        ("1e19", None),
        ("true", None),
        ("null", None),
        ("[]", None),
        ("{}", None),
        ("4020", 4020),
        ("4020.4", 4020),
        ('"4020"', 4020),
        ('" 4020.0 "', 4020),
        ('"39.000000"', 39),
        ("4.02e3", 4020),
    ],
)
async def test_a_number_that_says_nothing_is_unknown_and_never_zero(
    rude: Any, open_at: Any, raw: str, known: int | None
) -> None:
    names = ("duration_ms", "width", "height", "size")
    body = '{"id":"x","state":"ready",' + ",".join(f'"{name}":{raw}' for name in names) + "}"
    seen = await open_at(rude.says(200, body)).get("x")
    assert [getattr(seen, name) for name in names] == [known] * 4


# ------------------------------------------------------------------------------------------------------ ambiguous


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204, 206, 207])
@pytest.mark.parametrize("body", [b"", b" \n", b"{}", b"null", b"[]"])
async def test_a_create_that_says_yes_and_names_no_video_is_ambiguous(
    rude: Any, open_at: Any, status: int, body: bytes
) -> None:
    fault = await fault_of(open_at(rude.says(status, b"" if status == 204 else body)).create(REQUEST))
    assert (fault.code, fault.landed, fault.permanent) == ("answer-lost", True, False)


@pytest.mark.parametrize(
    "body",
    [
        b"OK",
        b"<html><body>Sign in</body></html>",
        b'{"id":"x","state":"rea',
        GOOD + GOOD,
        GOOD + b"\n" + GOOD,
        b")]}',\n" + GOOD,
        b'"x"',
        b"true",
        b"5",
        b"[" + GOOD + b"]",
        b'{"data":' + GOOD + b"}",
        b'{"id":"x","state":"ready","title":"\xe9"}',
        b'{"id":"x","state":"ready","n":' + b"9" * 5_000 + b"}",
        b'{"id":"x","state":"ready","n":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b"\x00\x00\x00",
        b"\xff\xfe",
        b"\x1f\x8b\x08\x00",
    ],
    ids=range(17),
)
async def test_an_answer_that_cannot_be_read_is_ambiguous_for_a_create_and_malformed_for_a_get(
    rude: Any, open_at: Any, body: bytes
) -> None:
    host = open_at(rude.says(201, body))
    created, read = await fault_of(host.create(REQUEST)), await fault_of(host.get("x"))
    assert (created.code, created.landed) == ("answer-lost", True)
    assert (read.code, read.landed) == ("answer-malformed", False)


@pytest.mark.parametrize(
    "given_id",
    ["null", '""', '"  "', '"\\n"', "{}", "[]", "true", "NaN", "Infinity", "1e400", '"\\ud800"', '"a\\u0000b"']
    + [f'"{"z" * 5_000}"', '"."', '".."'],
    ids=lambda text: text[:10],
)
async def test_an_id_that_names_nothing_is_no_id(rude: Any, open_at: Any, given_id: str) -> None:
    """Nothing could be asked of it, and it could not be told from others."""
    host = open_at(rude.says(201, f'{{"id":{given_id},"state":"ready"}}'))
    fault = await fault_of(host.create(REQUEST))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    rude.says(200, f'{{"videos":[{{"id":{given_id},"state":"ready"}}],"next_cursor":null}}')
    assert (await fault_of(host.list_page(None))).code == "answer-malformed"


@pytest.mark.parametrize("remote_id", ["", ".", "..", "\ud800", "a\0b", "x" * 100_000])
async def test_an_id_that_is_none_is_never_part_of_a_request(rude: Any, open_at: Any, remote_id: str) -> None:
    """A path that ends in dots is another path: what would be asked or deleted is not the video."""
    host = open_at(rude.says(200, GOOD))
    for call in (host.get, host.delete):
        assert (await fault_of(call(remote_id))).scope.value == "row"
    assert rude.requests == []


@pytest.mark.parametrize("status", [101, 300, 301, 302, 303, 304, 307, 308, 399])
async def test_a_create_that_is_sent_elsewhere_is_not_followed_and_may_have_landed(
    rude: Any, open_at: Any, status: int
) -> None:
    for place in ("location: /elsewhere", "location: http://[bad", "x: y"):
        fault = await fault_of(open_at(rude.says(status, b"", place)).create(REQUEST))
        assert fault.landed
        assert not fault.permanent
    assert len(rude.requests) == 3


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 26\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\nconnection: close\r\n\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1a\r\n" + GOOD,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n" + gzip.compress(GOOD)[:-14],
    ],
    ids=range(12),
)
async def test_an_answer_that_is_no_http_leaves_a_create_ambiguous_and_a_get_to_be_tried_again(
    rude: Any, open_at: Any, raw: bytes
) -> None:
    rude.answer = raw
    host = open_at(rude.url)
    created, read = await fault_of(host.create(REQUEST)), await fault_of(host.get("x"))
    assert (created.code, created.landed) == ("answer-lost", True)
    assert (read.permanent, read.landed) == (False, False)


async def test_a_small_answer_that_unpacks_to_a_large_one_is_cut_off(rude: Any, open_at: Any) -> None:
    bomb = gzip.compress(b" " * 20_000_000)
    assert len(bomb) < 50_000
    host = open_at(rude.says(201, bomb, "content-encoding: gzip"), options={"max_answer_bytes": 100_000})
    assert (await fault_of(host.create(REQUEST))).code == "answer-lost"
    assert (await fault_of(host.get("x"))).code == "answer-malformed"


# ---------------------------------------------------------------------------------------------- failures inside 200


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ('[{"code":"not_a_video","message":"why"}]', "not-a-video"),
        ('{"code":"not_a_video","message":"why"}', "not-a-video"),
        ('[{"code":"rate_limited"},{"code":"not_a_video"}]', "rate-limited"),
        ('["why"]', "destination-error"),
        ('"why"', "destination-error"),
        ('[{"code":10013}]', "destination-error"),
        ('[{"code":null,"message":null}]', "destination-error"),
        ("[]", "destination-error"),
        ("{}", "destination-error"),
        ("null", "destination-error"),
        ("[null]", "destination-error"),
        ("[[]]", "destination-error"),
        ("5", "destination-error"),
    ],
)
async def test_success_false_is_a_failure_by_its_code_whatever_else_is_said(
    rude: Any, open_at: Any, status: int, errors: str, reason: str
) -> None:
    for more in ("", ',"id":"x","state":"ready","videos":[],"next_cursor":null'):
        host = open_at(rude.says(status, f'{{"success":false,"errors":{errors}{more}}}'))
        created = await fault_of(host.create(REQUEST))
        assert (created.code, created.landed) == (reason, reason == "destination-error")
        assert (await fault_of(host.list_page(None))).code == reason
        assert (await fault_of(host.lookup("ref-1"))).code == reason


@pytest.mark.parametrize("word", ["0", '"false"', '"False"'])
async def test_success_may_be_denied_in_other_words(rude: Any, open_at: Any, word: str) -> None:
    host = open_at(rude.says(200, f'{{"success":{word},"errors":[],"videos":[],"next_cursor":null}}'))
    assert (await fault_of(host.list_page(None))).code == "destination-error"


@pytest.mark.parametrize("word", ["true", "null", "1", '"true"'])
async def test_success_that_is_not_denied_is_none_of_our_business(rude: Any, open_at: Any, word: str) -> None:
    host = open_at(rude.says(200, f'{{"success":{word},"errors":[],"videos":[],"next_cursor":null}}'))
    assert (await host.list_page(None)).videos == []


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 529])
async def test_a_server_error_with_an_empty_body_is_transient(rude: Any, open_at: Any, status: int) -> None:
    host = open_at(rude.says(status, b""))
    for call in (host.create(REQUEST), host.get("x"), host.list_page(None), host.lookup("r"), host.delete("x")):
        assert not (await fault_of(call)).permanent


async def test_a_refused_token_is_that_on_every_call_with_or_without_a_json_body(rude: Any, open_at: Any) -> None:
    for body in (b"", b'{"videos":[],"next_cursor":null}', b'{"error":{"code":"x"}}', b"<html>"):
        host = open_at(rude.says(401, body))
        for call in (host.create(REQUEST), host.get("x"), host.list_page(None), host.lookup("r"), host.delete("x")):
            assert (await fault_of(call)).code == "credentials-refused"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        (["retry-after: 5", "retry-after: 9"], 9),
        (["retry-after: 5, 9"], 9),
        (["Retry-After:7"], 7),
        (["retry-after: \xff\xfe"], None),
        (["retry-after: "], None),
        (["retry-after: " + "9" * 5_000], None),
    ],
)
async def test_several_or_unreadable_waits_end_in_the_longest_or_in_ordinary_backoff(
    rude: Any, open_at: Any, headers: list[str], wait: float | None
) -> None:
    fault = await fault_of(open_at(rude.says(429, b"", *headers)).create(REQUEST))
    assert (fault.code, fault.retry_after, fault.landed) == ("rate-limited", wait, False)


async def test_a_reset_as_a_moment_since_1970_is_waited_for(rude: Any, open_at: Any) -> None:
    host = open_at(
        rude.says(429, b"", "x-ratelimit-reset: 1700000042"),
        options={"retry_after_headers": ["Retry-After", "X-RateLimit-Reset"]},
        clock=lambda: 1_700_000_000.0,
    )
    assert (await fault_of(host.get("x"))).retry_after == 42


# ------------------------------------------------------------------------------------------------------- anything

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["id", "state", "reference", "duration_ms", "width", "size", "title", "error", "success", "errors", "videos"]
    + ["next_cursor", "total", "playback_url"]
)
bodies = st.binary(max_size=100) | st.dictionaries(names, json_like, max_size=8).map(lambda v: json.dumps(v).encode())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([200, 201, 202, 301, 400, 404, 409, 422, 429, 500, 503]), bodies)
async def test_any_answer_at_all_is_a_video_a_page_or_a_typed_fault(
    rude: Any, open_at: Any, status: int, body: bytes
) -> None:
    host = open_at(rude.says(status, body))
    for call in (host.create(REQUEST), host.get("x"), host.list_page(None), host.lookup("ref-1"), host.delete("x")):
        try:
            answer = await call
        except Fault:
            continue
        for seen in getattr(answer, "videos", [answer] if hasattr(answer, "remote_id") else []):
            assert seen.remote_id.strip()
            assert all(n is None or n > 0 for n in (seen.duration_ms, seen.width, seen.height, seen.size))
