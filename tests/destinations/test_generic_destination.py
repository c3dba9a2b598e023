"""The generic destination: what it makes of good answers, and what it says of every bad one."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from destinations.base import CreateRequest, RemoteState
from destinations.calling import redacted
from destinations.generic import GenericDestination
from faults import Fault, Scope
from sandbox.config import Limit
from tests.destinations.conftest import TOKEN, gathered

SECRET_ADDRESS = "http://user:pa55word@127.0.0.1:9/a.mp4?X-Amz-Signature=deadbeefdeadbeef"


def request(ref: str = "ref-1", **given: Any) -> CreateRequest:
    return CreateRequest(**{"ref": ref, "address": "http://127.0.0.1:9/a.mp4", "title": "A title", **given})


async def fault_of(call: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await call
    return raised.value


async def settled(destination: GenericDestination, remote_id: str) -> Any:
    while (video := await destination.get(remote_id)).state is RemoteState.PROCESSING:
        await asyncio.sleep(0.005)
    return video


# ------------------------------------------------------------------------------------------------- against the sandbox


async def test_a_video_is_made_read_found_listed_and_deleted(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    made = await host.create(request(title="Füße", metadata={"tenant": "a"}, duration_ms=4020))
    assert (made.ref, made.title, made.state, made.duration_ms) == ("ref-1", "Füße", RemoteState.PROCESSING, None)
    ready = await settled(host, made.remote_id)
    assert (ready.state, ready.duration_ms, ready.width, ready.height) == (RemoteState.READY, 4020, 1280, 720)
    assert ready.playback == f"{sandbox.base_url}/play/{made.remote_id}.m3u8"
    assert list(await host.lookup("ref-1")) == [ready]
    page = await host.list_page(None)
    assert (list(page.videos), page.next_cursor, page.total) == ([ready], None, 1)
    await host.delete(made.remote_id)
    await host.delete(made.remote_id)
    assert (await host.get(made.remote_id)).state is RemoteState.DELETED
    assert list(await host.lookup("ref-1")) == []


async def test_each_method_makes_exactly_one_request(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    made = await host.create(request())
    await host.get(made.remote_id)
    await host.lookup("ref-1")
    await host.list_page(None)
    await host.delete(made.remote_id)
    assert set(sandbox.stats()["requests"].values()) == {1}


async def test_a_failed_video_has_our_reason_and_the_hosts_words(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    for code, reason in (
        ("not_a_video", "not-a-video"),
        ("fetch_failed", "fetch-failed"),
        ("no one has heard of this", "destination-failed"),
    ):
        sandbox.faults(ingest_error_rate=1, ingest_error_code=code)
        video = await settled(host, (await host.create(request())).remote_id)
        assert (video.state, video.reason) == (RemoteState.ERRORED, reason)
        assert video.detail.startswith(code)


async def test_minus_one_means_unknown(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(unknown_as_minus_one=True, ingest_s=60)
    host = open_at(sandbox.base_url)
    video = await host.create(request())
    assert (video.duration_ms, video.width, video.height, video.size) == (None, None, None, None)


async def test_a_lookup_compares_exactly_whatever_the_hosts_search_finds(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(lookup_loose=True)
    host = open_at(sandbox.base_url)
    for ref in ("ref-1", "ref-10", "xref-1", "ref-1"):
        await host.create(request(ref))
    assert [video.ref for video in await host.lookup("ref-1")] == ["ref-1", "ref-1"]


async def test_a_lookup_by_list_finds_the_same(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, options={"lookup": "list", "list_limit": 2})
    for ref in ("a", "b", "a", "c", "a"):
        await host.create(request(ref))
    assert host.capabilities.lookup == "list"
    assert [video.ref for video in await host.lookup("a")] == ["a", "a", "a"]
    assert sandbox.stats()["requests"]["GET /v1/videos"] == 3


async def test_a_lookup_that_goes_on_after_its_page_never_says_there_is_none(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, options={"lookup_param": "q", "list_limit": 1})
    await host.create(request("other"))
    await host.create(request("ref-1"))
    assert (await fault_of(host.lookup("ref-1"))).code == "answer-malformed"


async def test_the_list_is_walked_to_its_end_also_by_another_process(sandbox: Any, open_at: Any) -> None:
    refs = [f"ref-{n}" for n in range(7)]
    for ref in refs:
        await open_at(sandbox.base_url).create(request(ref))
    seen: list[str | None] = []
    cursor = None
    while True:
        page = await open_at(sandbox.base_url, options={"list_limit": 3}).list_page(cursor)
        assert page.total == 7
        seen += [video.ref for video in page.videos]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == refs


async def test_the_first_page_again_on_every_call_fails_loudly(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(list_repeats=True)
    host = open_at(sandbox.base_url, options={"list_limit": 2})
    for n in range(5):
        await host.create(request(f"ref-{n}"))
    first = await host.list_page(None)
    fault = await fault_of(host.list_page(first.next_cursor))
    assert (fault.code, "repeats" in fault.detail) == ("answer-malformed", True)


async def test_a_list_without_paging_is_no_list(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(list_without_paging=True)
    host = open_at(sandbox.base_url)
    assert (await fault_of(host.list_page(None))).code == "answer-malformed"
    assert (await fault_of(host.lookup("ref-1"))).code == "answer-malformed"
    lenient = open_at(sandbox.base_url, options={"list_next_required": False})
    assert (await lenient.list_page(None)).next_cursor is None


@pytest.mark.parametrize(
    ("fault", "reason", "landed"),
    [
        ("refuse_429", "rate-limited", False),
        ("refuse_503", "destination-busy", True),
        ("error_before", "answer-lost", True),
        ("drop_before", "answer-lost", True),
        ("success_false", "destination-error", True),
        ("html_page", "answer-lost", True),
        ("error_after", "answer-lost", True),
        ("lost_answer", "answer-lost", True),
        ("empty_body", "answer-lost", True),
        ("garbled_body", "answer-lost", True),
        ("hang_after", "answer-lost", True),
    ],
)
async def test_every_fault_of_a_create_says_whether_the_video_may_exist(
    sandbox: Any, open_at: Any, fault: str, reason: str, landed: bool
) -> None:
    sandbox.faults(script=[fault], hang_s=30)
    host = open_at(sandbox.base_url, timeout_s=0.5 if fault == "hang_after" else 5)
    seen = await fault_of(host.create(request()))
    assert (seen.code, seen.landed) == (reason, landed)
    assert landed or sandbox.stats()["creates"] == 0, "said not to exist, and does"
    found = await open_at(sandbox.base_url).lookup("ref-1")
    assert len(found) == sandbox.stats()["creates"]


@pytest.mark.parametrize("operation", ["get", "lookup", "list_page", "delete"])
async def test_outside_of_creates_nothing_has_ever_landed(sandbox: Any, open_at: Any, operation: str) -> None:
    patient, impatient = open_at(sandbox.base_url), open_at(sandbox.base_url, timeout_s=0.3)
    made = await patient.create(request())
    expected = {
        "refuse_429": "rate-limited",
        "refuse_503": "destination-busy",
        "error_before": "destination-error",
        "drop_before": "destination-unreachable",
        "success_false": "destination-error",
        "html_page": "destination-error",
        "garbled_body": "answer-malformed",
        "empty_body": "answer-malformed",
        "hang_after": "destination-timeout",
    }
    if operation == "delete":
        # Its good answer has no body that could be spoilt.
        expected = {name: reason for name, reason in expected.items() if not name.endswith("_body")}
    argument = {"lookup": "ref-1", "list_page": None}.get(operation, made.remote_id)
    for name, reason in expected.items():
        sandbox.faults(script=[name], hang_s=30)
        host = impatient if name == "hang_after" else patient
        fault = await fault_of(getattr(host, operation)(argument))
        assert (name, fault.code, fault.landed) == (name, reason, False)


async def test_pushback_stops_the_account_and_brings_its_wait(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    sandbox.faults(limits=[Limit(requests=1, per_s=300, block_s=120)])
    await host.create(request())
    fault = await fault_of(host.create(request()))
    assert (fault.scope, fault.permanent) == (Scope.ACCOUNT, False)
    assert fault.retry_after is not None
    assert 90 <= fault.retry_after <= 120


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ("seconds", 90, 90),
        ("float", 90, 90),
        ("http-date", 85, 91),
        ("http-date-zone", 85, 91),
        ("http-date-past", 0, 0),
        ("negative", 0, 0),
        ("inf", 3600, 3600),
        ("huge", 3600, 3600),
        ("nan", None, None),
        ("empty", None, None),
        ("word", None, None),
        ("absent", None, None),
    ],
)
@pytest.mark.parametrize("status", ["refuse_429", "refuse_503"])
async def test_retry_after_is_read_in_every_form(
    sandbox: Any, open_at: Any, status: str, form: str, low: float | None, high: float | None
) -> None:
    sandbox.faults(script=[status], retry_after=form, retry_after_s=90, refusal_body="html")
    fault = await fault_of(open_at(sandbox.base_url).create(request()))
    assert fault.scope is Scope.ACCOUNT
    if low is None or high is None:
        assert fault.retry_after is None
    else:
        assert fault.retry_after is not None
        assert low <= fault.retry_after <= high


async def test_too_many_in_flight_is_pushback_too(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(in_flight=1, ingest_s=60)
    host = open_at(sandbox.base_url)
    await host.create(request())
    assert (await fault_of(host.create(request()))).code == "rate-limited"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"address": "ftp://h/a"}, "source-address-refused"),
        ({"title": "x" * 513}, "name-too-long"),
        ({"ref": "x" * 256}, "name-too-long"),
        ({"metadata": {"x": "y" * 20_000}}, "destination-refused-input"),
        ({"metadata": {"x": float("nan")}}, "destination-refused-input"),
        ({"metadata": {"x": object()}}, "destination-refused-input"),
        ({"title": "\ud800"}, "destination-refused-input"),
    ],
)
async def test_a_video_that_the_host_refuses_is_the_rows_own_permanent_fault(
    sandbox: Any, open_at: Any, given: dict[str, Any], reason: str
) -> None:
    fault = await fault_of(open_at(sandbox.base_url).create(request(**given)))
    assert (fault.code, fault.scope, fault.permanent, fault.landed) == (reason, Scope.ROW, True, False)
    assert sandbox.stats()["creates"] == 0


async def test_refused_credentials_stop_the_run_and_do_not_appear(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, token="not-the-right-token")
    for call in (host.create(request()), host.get("x"), host.lookup("x"), host.list_page(None), host.delete("x")):
        fault = await fault_of(call)
        assert (fault.code, fault.scope) == ("credentials-refused", Scope.RUN)
        assert "not-the-right-token" not in str(fault)


async def test_an_idempotency_key_makes_a_repeated_create_one_video(sandbox: Any, open_at: Any) -> None:
    sandbox.faults(idempotency_keys=True, script=["lost_answer"])
    host = open_at(sandbox.base_url, options={"idempotency_header": "Idempotency-Key"})
    assert host.capabilities.idempotent_create
    assert (await fault_of(host.create(request()))).landed
    again = await host.create(request())
    assert [video.remote_id for video in await host.lookup("ref-1")] == [again.remote_id]


async def test_ids_from_outside_cannot_leave_their_place_in_the_path(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    video = await host.get("../../_sandbox/stats?x=")
    assert video.state is RemoteState.DELETED
    assert sandbox.stats()["requests"] == {} or set(sandbox.stats()["requests"]) == {"GET /v1/videos/{id}"}


async def test_many_calls_at_once_share_connections_and_none_is_lost(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url)
    results = await gathered(*(host.create(request(f"ref-{n}")) for n in range(150)))
    assert len({video.remote_id for video in results}) == 150
    assert sandbox.stats()["duplicates"] == 0


async def test_a_host_with_other_names_for_everything_is_only_options(rude: Any, open_at: Any) -> None:
    host = open_at(
        rude.url + "/api/",
        token="id:secret",
        options={
            "create_path": "/assets",
            "get_path": "/assets/{id}",
            "list_path": "/assets",
            "auth_scheme": "Basic",
            "headers": {"X-Version": "7"},
            "source_url_field": "input.url",
            "title_field": "meta.name",
            "reference_field": "passthrough",
            "metadata_field": None,
            "headers_field": None,
            "duration_hint_field": None,
            "create_extra": {"playback_policies": ["public"], "meta": {"kind": "vod"}},
            "video_field": "data",
            "state_field": "status.word",
            "duration_field": "duration",
            "duration_unit": "s",
            "playback_field": "playback_ids.0.id",
            "states": {"Preparing": "processing", "ASSET_READY": "ready"},
            "list_items_field": "data",
            "list_next_field": "paging.next",
            "list_limit_param": "per_page",
            "list_limit": 50,
            "list_total_field": "paging.total",
        },
    )
    video = {
        "id": 77,
        "status": {"word": "asset_ready"},
        "passthrough": "ref-1",
        "meta": {"name": "T"},
        "duration": "5.52",
        "playback_ids": [{"id": "p1"}],
    }
    rude.says(201, json.dumps({"data": video}))
    with pytest.raises(Fault) as refused:
        await host.create(request(headers={"b": "c"}))
    assert refused.value.code == "headers-refused", "dropped, they would make the fetch fail later"
    made = await host.create(request(metadata={"a": 1}, duration_ms=5))
    assert (made.remote_id, made.state, made.ref, made.title) == ("77", RemoteState.READY, "ref-1", "T")
    assert (made.duration_ms, made.playback) == (5520, "p1")
    head, _, body = rude.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/assets HTTP/1.1\r\n")
    assert b"authorization: basic awq6c2vjcmv0" in head.lower()
    assert b"x-version: 7" in head.lower()
    assert json.loads(body) == {
        "input": {"url": "http://127.0.0.1:9/a.mp4"},
        "meta": {"name": "A title", "kind": "vod"},
        "passthrough": "ref-1",
        "playback_policies": ["public"],
    }
    rude.says(200, json.dumps({"data": [video], "paging": {"next": "abc", "total": 9}}))
    page = await host.list_page(None)
    assert (page.videos[0].remote_id, page.total) == ("77", 9)
    assert page.next_cursor is not None
    assert page.next_cursor.endswith(".abc")
    assert rude.requests[1].startswith(b"GET /api/assets?per_page=50 ")


# ------------------------------------------------------------------------------------------ against rude little servers


async def test_a_create_that_never_left_us_has_not_landed(open_at: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = await fault_of(open_at(f"http://127.0.0.1:{port}").create(request()))
    assert (refused.code, refused.landed) == ("destination-unreachable", False)
    nameless = await fault_of(open_at("http://no-such-host.invalid").create(request()))
    assert (nameless.code, nameless.landed) == ("destination-unreachable", False)


async def test_a_time_out_before_the_connection_stood_has_not_landed(open_at: Any) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # Fills the queue of connections that nobody accepts; the next one waits for ever.
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            fault = await fault_of(open_at(f"http://127.0.0.1:{port}", timeout_s=0.2).create(request()))
        finally:
            for filler in fillers:
                filler.close()
    assert (fault.code, fault.landed) == ("destination-unreachable", False)


@pytest.mark.parametrize("then", ["hang", "reset", "close"])
async def test_a_create_whose_answer_breaks_off_may_have_landed(rude: Any, open_at: Any, then: str) -> None:
    for answer in (b"", b"HTTP/1.1 201 Cre", b'HTTP/1.1 201 Created\r\ncontent-length: 50\r\n\r\n{"id":"x"'):
        rude.answer, rude.then = answer, then
        fault = await fault_of(open_at(rude.url, timeout_s=0.3).create(request()))
        assert (fault.code, fault.landed) == ("answer-lost", True)


async def test_the_time_limit_is_for_the_whole_call_however_steadily_bytes_drip(rude: Any, open_at: Any) -> None:
    host = open_at(
        rude.says(201, json.dumps({"id": "x", "state": "ready", "pad": "y" * 300}), then="drip"), timeout_s=0.4
    )
    async with asyncio.timeout(60):
        created = await fault_of(host.create(request()))
        read = await fault_of(host.get("x"))
    assert (created.code, created.landed) == ("answer-lost", True)
    assert (read.code, read.landed) == ("destination-timeout", False)


async def test_a_call_works_again_after_many_that_were_given_up(sandbox: Any, open_at: Any) -> None:
    host = open_at(sandbox.base_url, timeout_s=1)
    sandbox.faults(hang_after_rate=1, hang_s=60)
    results = await gathered(*(host.create(request(f"ref-{n}")) for n in range(20)))
    assert all(isinstance(fault, Fault) for fault in results)
    assert sum(fault.landed for fault in results) == sandbox.stats()["creates"]
    sandbox.faults(hang_after_rate=0)
    for n in range(20):
        assert (await host.create(request(f"again-{n}"))).ref == f"again-{n}"


@pytest.mark.parametrize(
    ("status", "reason", "landed"),
    [
        (301, "destination-error", True),
        (303, "destination-error", True),
        (400, "destination-refused-input", False),
        (401, "credentials-refused", False),
        (402, "plan-limit", False),
        (403, "right-missing", False),
        (404, "destination-error", False),
        (408, "answer-lost", True),
        (409, "answer-lost", True),
        (413, "destination-refused-input", False),
        (418, "destination-refused-input", False),
        (422, "destination-refused-input", False),
        (429, "rate-limited", False),
        (500, "answer-lost", True),
        (502, "answer-lost", True),
        (503, "destination-busy", True),
        (504, "answer-lost", True),
        (520, "answer-lost", True),
    ],
)
@pytest.mark.parametrize("body", ["", '{"error":{"message":"no"}}', "<html>no</html>"])
async def test_the_status_of_a_refused_create_decides(
    rude: Any, open_at: Any, status: int, reason: str, landed: bool, body: str
) -> None:
    fault = await fault_of(open_at(rude.says(status, body)).create(request()))
    assert (fault.code, fault.landed) == (reason, landed)
    assert str(status) in fault.detail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<!DOCTYPE html><html>OK</html>",
        b'{"id":"x"',
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"{}",
        b'"x"',
        b'{"id":null,"state":"ready"}',
        b'{"id":"","state":"ready"}',
        b'{"id":{},"state":"ready"}',
        b'{"id":"x"}',
        b"[" * 100_000,
    ],
)
async def test_a_2xx_that_names_no_video_is_a_lost_answer_for_a_create_and_malformed_for_a_get(
    rude: Any, open_at: Any, body: bytes
) -> None:
    host = open_at(rude.says(200, body))
    created, read = await fault_of(host.create(request())), await fault_of(host.get("x"))
    assert (created.code, created.landed) == ("answer-lost", True)
    assert (read.code, read.landed) == ("answer-malformed", False)


@pytest.mark.parametrize(
    ("code", "reason", "landed"),
    [
        ('"not_a_video"', "not-a-video", False),
        ('"rate_limited"', "rate-limited", False),
        ("10013", "destination-error", True),
        ("null", "destination-error", True),
    ],
)
async def test_200_with_success_false_is_a_failure_classified_by_its_code(
    rude: Any, open_at: Any, code: str, reason: str, landed: bool
) -> None:
    body = f'{{"success":false,"errors":[{{"code":{code},"message":"why"}}],"result":null}}'
    host = open_at(rude.says(200, body, "retry-after: 5"))
    fault = await fault_of(host.create(request()))
    assert (fault.code, fault.landed, fault.retry_after) == (reason, landed, 5.0)
    assert "why" in fault.detail
    assert not (await fault_of(host.list_page(None))).landed


@pytest.mark.parametrize("errors", ["[]", "null", '"text"', "{}", '[{"code":{}}]', "[null]"])
async def test_success_false_without_readable_errors_is_a_failure_too(rude: Any, open_at: Any, errors: str) -> None:
    host = open_at(rude.says(200, f'{{"success":false,"errors":{errors},"videos":[],"next_cursor":null}}'))
    assert (await fault_of(host.list_page(None))).code == "destination-error"


@pytest.mark.parametrize(
    "body",
    [
        '{"videos":[]}',
        '{"next_cursor":null}',
        '{"videos":null,"next_cursor":null}',
        '{"videos":{},"next_cursor":null}',
        '{"videos":["x"],"next_cursor":null}',
        '{"videos":[{"state":"ready"}],"next_cursor":null}',
        "[]",
        "0",
        "",
    ],
)
async def test_an_answer_that_is_no_list_is_a_typed_fault_and_never_an_empty_page(
    rude: Any, open_at: Any, body: str
) -> None:
    host = open_at(rude.says(200, body))
    assert (await fault_of(host.list_page(None))).code == "answer-malformed"
    assert (await fault_of(host.lookup("ref-1"))).code == "answer-malformed"


async def test_a_cursor_that_does_not_move_is_noticed(rude: Any, open_at: Any) -> None:
    host = open_at(rude.says(200, '{"videos":[],"next_cursor":"same"}'))
    page = await host.list_page(None)
    assert "repeats" in (await fault_of(host.list_page(page.next_cursor))).detail


async def test_a_lookup_by_list_ends_although_cursors_lead_in_a_circle(rude: Any, open_at: Any) -> None:
    host = open_at(rude.url, options={"lookup": "list"})
    turn = 0

    async def list_page(cursor: str | None) -> Any:
        nonlocal turn
        turn += 1
        rude.says(200, f'{{"videos":[],"next_cursor":"c{turn % 3}"}}')
        return await GenericDestination.list_page(host, cursor)

    host.list_page = list_page
    assert (await fault_of(host.lookup("ref-1"))).code == "answer-malformed"
    assert turn < 10


async def test_an_unknown_state_keeps_the_id_and_counts_as_processing(rude: Any, open_at: Any) -> None:
    made = await open_at(rude.says(201, '{"id":"x","state":"marinating"}')).create(request())
    assert (made.remote_id, made.state) == ("x", RemoteState.PROCESSING)
    assert "marinating" in made.detail


async def test_an_endless_answer_is_cut_off(rude: Any, open_at: Any) -> None:
    host = open_at(rude.says(201, b"x" * 5_000), options={"max_answer_bytes": 1024})
    fault = await fault_of(host.create(request()))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    assert (await fault_of(host.get("x"))).code == "answer-malformed"


async def test_a_broken_content_encoding_is_malformed(rude: Any, open_at: Any) -> None:
    host = open_at(rude.says(200, b"not gzip", "content-encoding: gzip"))
    assert (await fault_of(host.get("x"))).code == "answer-malformed"
    assert (await fault_of(host.create(request()))).landed


async def test_gone_is_deleted_and_deleting_it_again_is_success(rude: Any, open_at: Any) -> None:
    for status in (404, 410):
        host = open_at(rude.says(status, "gone"))
        assert (await host.get("x")).state is RemoteState.DELETED
        await host.delete("x")
    for status, body in ((200, ""), (204, ""), (200, '{"success":true}'), (202, "{}")):
        await open_at(rude.says(status, body)).delete("x")
    assert (await fault_of(open_at(rude.says(200, '{"success":false}')).delete("x"))).code == "destination-error"


async def test_other_headers_can_say_when_to_come_back(rude: Any, open_at: Any) -> None:
    options = {"retry_after_headers": ["Retry-After", "X-RateLimit-Retry-After"], "retry_after_cap_s": 60}
    host = open_at(rude.says(429, "", "retry-after: soon", "x-ratelimit-retry-after: 17"), options=options)
    assert (await fault_of(host.get("x"))).retry_after == 17
    rude.says(429, "", "retry-after: 100")
    assert (await fault_of(host.get("x"))).retry_after == 60


async def test_a_date_is_counted_from_our_own_clock(rude: Any, open_at: Any) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    header = format_datetime(datetime(2030, 1, 1, 0, 0, 40, tzinfo=UTC), usegmt=True)
    host = open_at(rude.says(503, "", f"retry-after: {header}"), clock=now.timestamp)
    assert (await fault_of(host.get("x"))).retry_after == 40


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_no_secret_that_a_host_echoes_is_in_any_fault(rude: Any, open_at: Any, status: int) -> None:
    echo = json.dumps({"error": {"message": f"Bearer {TOKEN} may not fetch {SECRET_ADDRESS} (sig=deadbeefdeadbeef)"}})
    for body in (echo, echo.replace("/", "\\/"), f"<html>{echo}</html>", "x" * 200 + echo):
        host = open_at(rude.says(status, body))
        for call in (host.create(request(address=SECRET_ADDRESS)), host.get("x"), host.list_page(None)):
            fault = await fault_of(call)
            for shown in (str(fault), fault.detail, repr(fault), str(fault.as_application_error())):
                for secret in (TOKEN, "pa55word", "deadbeef"):
                    assert secret not in shown
            assert fault.__cause__ is None


def test_redacting_leaves_the_rest_of_a_message_readable() -> None:
    assert (
        redacted("GET https://u:p@h.example/a/b.mp4?sig=1&x=2#f failed: 403")
        == "GET https://h.example/a/b.mp4?… failed: 403"
    )
    assert redacted("header 'Authorization: Bearer abcdef123' refused") == "header 'Authorization: Bearer …' refused"
    assert redacted("X-Amz-Signature=abc and token=def") == "X-Amz-Signature=… and token=…"
    assert redacted("nothing secret here: 50% of a/b") == "nothing secret here: 50% of a/b"
    assert redacted("the t0ken is t0ken", ["t0ken"]) == "the … is …"
