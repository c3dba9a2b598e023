"""What every hosted video API's module must do, each against a real server that behaves as its host documents.

One row a host (tests/destinations/hosts). What a host doesn't have its server declares in `lacks`, with the reason; the
statement isn't made of it then, and docs/destinations/conformance.md says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from destinations import KINDS, check_options, check_webhooks
from destinations.base import Attachment, CreateRequest, RemoteState, SignatureRefused, Transfer
from faults import Fault, Scope
from sources.about import About
from tests.destinations.hosts import ROWS
from tests.destinations.hosts.base import HTML, HostServer
from tests.sandbox.serving import served

NOW = 1_700_000_000.0
ADDRESS = "https://user:pa55word@files.example/a.mp4?X-Amz-Signature=deadbeefdeadbeef"

Statement = TypeVar("Statement", bound=Callable[..., Any])


def needs(*words: str) -> Callable[[Statement], Statement]:
    """The statement is made of a host only if it lacks none of these."""

    def declared(test: Statement) -> Statement:
        test.needs = words  # type: ignore[attr-defined]
        return test

    return declared


def partly(*words: str) -> Callable[[Statement], Statement]:
    """What a host lacks of these is left out of the statement, which is made all the same."""

    def declared(test: Statement) -> Statement:
        test.partly = words  # type: ignore[attr-defined]
        return test

    return declared


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" not in metafunc.fixturenames:
        return
    wanted = getattr(metafunc.function, "needs", ())
    rows = [kind for kind, row in ROWS.items() if not any(word in row.lacks for word in wanted)]
    metafunc.parametrize("server", rows, indirect=True)


@pytest_asyncio.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HostServer]:
    async with ROWS[request.param]().serving() as running:
        yield running


@pytest_asyncio.fixture
async def open_one(server: HostServer) -> AsyncIterator[Callable[..., Any]]:
    """Opens destinations at the server, and closes them."""
    opened: list[Any] = []

    def opening(**given: Any) -> Any:
        opened.append(server.open(**given))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


@pytest.fixture
def host(open_one: Callable[..., Any]) -> Any:
    return open_one()


def request_for(ref: str = "ref-1", **given: Any) -> CreateRequest:
    return CreateRequest(**{"ref": ref, "address": ADDRESS, "title": "Füße & “Küsse” 日本", **given})


async def fault_of(call: Awaitable[Any]) -> Fault:
    with pytest.raises(Fault) as raised:
        await call
    return raised.value


async def no_wait() -> None:
    """A turn in an account's budget that is always free."""


def silent(server: HostServer, *texts: object) -> None:
    """No secret of the account or of the source's address is in any of these."""
    token = server.token.partition(":")[2] or server.token
    for shown in map(str, texts):
        for secret in (server.token, token, server.secret, "pa55word", "deadbeef", *server.signatures):
            assert secret not in shown


# --------------------------------------------------------------------------------------------------- create and find


async def test_a_video_is_made_read_found_listed_and_deleted(server: HostServer, host: Any) -> None:
    """a video is made, read, found, listed and deleted"""
    made = await host.create(request_for())
    assert (made.ref, made.state) == ("ref-1", RemoteState.PROCESSING)
    server.settle(made.remote_id, "ready")
    ready = await host.get(made.remote_id)
    assert (ready.remote_id, ready.state) == (made.remote_id, RemoteState.READY)
    assert [video.remote_id for video in await host.lookup("ref-1")] == [made.remote_id]
    page = await host.list_page(None)
    assert [video.remote_id for video in page.videos] == [made.remote_id]
    await host.delete(made.remote_id)
    assert (await host.get(made.remote_id)).state is RemoteState.DELETED
    assert list(await host.lookup("ref-1")) == []


@needs("whole-get")
async def test_a_video_that_is_asked_for_tells_its_reference_and_where_it_plays(server: HostServer, host: Any) -> None:
    video = server.settle(server.add("ref-1").id, "ready")
    found = await host.get(video.id)
    assert found.ref == "ref-1"
    assert found.playback is not None


async def test_the_title_arrives_whole(server: HostServer, host: Any) -> None:
    made = await host.create(request_for())
    assert server.videos[made.remote_id].title == "Füße & “Küsse” 日本"


@needs("cheap-calls")
async def test_create_get_list_and_delete_are_one_request_each(server: HostServer, host: Any) -> None:
    """create, get, list and delete are one request each"""
    made = await host.create(request_for())
    for call in (host.get(made.remote_id), host.list_page(None), host.delete(made.remote_id)):
        before = len(server.seen)
        await call
        assert len(server.seen) == before + 1


async def test_a_lookup_compares_whole_references(server: HostServer, host: Any) -> None:
    for ref in ("ref-1", "ref-10", "xref-1", "REF-1", "ref-1"):
        server.add(ref)
    assert [video.ref for video in await host.lookup("ref-1")] == ["ref-1", "ref-1"]
    assert list(await host.lookup("ref-2")) == []


@pytest.mark.parametrize("trouble", ["lost", "late", "error-after", "empty", "html", "truncated"])
async def test_a_create_whose_answer_is_lost_may_exist_and_is_found_and_not_made_again(
    server: HostServer, open_one: Any, trouble: Any
) -> None:
    """a create whose answer is lost (cut, late, 500, empty, a web page, half of it) is found, and not made again"""
    host = open_one(timeout_s=0.5 if trouble == "late" else 5)
    server.next(trouble)
    fault = await fault_of(host.create(request_for()))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    found = await open_one().lookup("ref-1")
    assert [video.remote_id for video in found] == [video.id for video in server.carrying("ref-1")]
    assert len(found) == 1


async def test_a_create_repeated_without_looking_makes_a_second_video_which_both_are_found(
    server: HostServer, host: Any
) -> None:
    """a create repeated without looking makes a second video, and a look-up finds both"""
    assert not host.capabilities.idempotent_create
    for _ in range(2):
        await host.create(request_for())
    assert len(await host.lookup("ref-1")) == len(server.carrying("ref-1")) == 2


async def test_a_create_whose_connection_is_cut_may_exist(server: HostServer, host: Any) -> None:
    server.next("cut")
    fault = await fault_of(host.create(request_for()))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    assert list(await host.lookup("ref-1")) == []


async def test_a_conflict_on_a_create_is_a_video_that_may_exist(server: HostServer, host: Any) -> None:
    server.next(server.error(409))
    fault = await fault_of(host.create(request_for()))
    assert (fault.code, fault.landed) == ("answer-lost", True)


# ----------------------------------------------------------------------------------------------------- refused calls


def calls(host: Any) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "create": lambda: host.create(request_for()),
        "get": lambda: host.get("x"),
        "list": lambda: host.list_page(None),
        "lookup": lambda: host.lookup("ref-1"),
        "delete": lambda: host.delete("x"),
    }


@pytest.mark.parametrize("operation", ["create", "get", "list", "lookup", "delete"])
@pytest.mark.parametrize(
    ("status", "reason", "scope"),
    [
        (401, "credentials-refused", Scope.RUN),
        (403, "right-missing", Scope.RUN),
        (429, "rate-limited", Scope.ACCOUNT),
        (503, "destination-busy", Scope.ACCOUNT),
    ],
)
async def test_a_refusal_stops_what_it_is_about(
    server: HostServer, host: Any, operation: str, status: int, reason: str, scope: Scope
) -> None:
    """401 and 403 stop the run, 429 and 503 the account, whichever call they answer"""
    server.next(server.too_many(70) if status == 429 else server.error(status, f"{server.token} may not"))
    fault = await fault_of(calls(host)[operation]())
    assert (fault.code, fault.scope) == (reason, scope)
    assert not fault.landed or status == 503
    assert not server.videos
    silent(server, fault, fault.detail, repr(fault))


@needs("retry-after")
async def test_a_429_brings_the_wait_that_the_host_names(server: HostServer, host: Any) -> None:
    for operation in ("create", "list"):
        server.next(server.too_many(70))
        fault = await fault_of(calls(host)[operation]())
        assert fault.retry_after is not None
        assert 40 <= fault.retry_after <= 70


async def test_a_429_without_a_wait_is_one_too(server: HostServer, host: Any) -> None:
    server.next(server.too_many(None))
    assert (await fault_of(host.create(request_for()))).retry_after is None


async def test_wrong_credentials_are_refused_by_the_server_itself_and_not_shown(
    server: HostServer, open_one: Any
) -> None:
    wrong = server.token[:-4] + "zzzz"
    host = open_one(token=wrong)
    for call in calls(host).values():
        fault = await fault_of(call())
        assert fault.code == "credentials-refused"
        assert wrong not in str(fault)


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_5xx_with_an_empty_body_is_ambiguous_for_a_create_and_transient_for_the_rest(
    server: HostServer, host: Any, status: int
) -> None:
    """a 5xx with an empty body leaves a create open, and is transient for the rest"""
    for operation, call in calls(host).items():
        server.next(Response(b"", status))
        fault = await fault_of(call())
        assert not fault.permanent
        assert (fault.code == "answer-lost", fault.landed) == ((operation == "create",) * 2)


@needs("failure-inside")
async def test_a_failure_inside_a_200_is_a_failure(server: HostServer, host: Any) -> None:
    for call in (host.get("x"), host.list_page(None), host.create(request_for())):
        server.next(server.failure_inside("it did not work"))
        fault = await fault_of(call)
        assert "it did not work" in fault.detail
    assert not server.videos


@pytest.mark.parametrize("trouble", ["empty", "html", "truncated"])
async def test_an_answer_that_cannot_be_read_is_a_typed_fault(server: HostServer, host: Any, trouble: Any) -> None:
    """an answer that is empty, a web page or cut off is a typed fault"""
    server.add("ref-1")
    for call in (host.get(next(iter(server.videos))), host.list_page(None), host.lookup("ref-1")):
        server.next(trouble)
        assert (await fault_of(call)).code == "answer-malformed"


async def test_an_html_error_page_keeps_its_status(server: HostServer, host: Any) -> None:
    server.next(Response(HTML, 502, media_type="text/html"))
    assert (await fault_of(host.get("x"))).code == "destination-error"
    server.next(Response(HTML, 429, media_type="text/html"))
    assert (await fault_of(host.create(request_for()))).code == "rate-limited"


async def test_an_input_that_the_host_refuses_is_the_rows_own_permanent_fault(server: HostServer, host: Any) -> None:
    """an input that the host refuses rejects its row, and no other"""
    server.next(server.error(400, "no such thing"))
    fault = await fault_of(host.create(request_for()))
    assert (fault.scope, fault.permanent, fault.landed) == (Scope.ROW, True, False)
    assert "no such thing" in fault.detail


async def test_no_secret_that_a_host_echoes_is_in_any_fault(server: HostServer, host: Any) -> None:
    for status in (400, 401, 403, 409, 500):
        for call in (host.create(request_for()), host.get("x"), host.list_page(None)):
            half = server.token.partition(":")[2]
            server.next(server.error(status, f"{server.token} {half} {server.secret} cannot fetch {ADDRESS}"))
            fault = await fault_of(call)
            silent(server, fault, fault.detail, fault.as_application_error())


async def test_an_address_that_needs_headers_is_refused_where_the_host_sends_none(
    server: HostServer, host: Any
) -> None:
    request = request_for(headers={"x-access": "abc"})
    if host.capabilities.fetches_with_headers:
        made = await host.create(request)
        assert "abc" in json.dumps(server.videos[made.remote_id].asked)
        return
    assert (await fault_of(host.create(request))).code == "headers-refused"
    assert not server.videos


async def test_a_path_of_this_machine_is_no_address(server: HostServer, host: Any) -> None:
    assert (await fault_of(host.create(request_for(address="/videos/a.mp4")))).code == "local-file-refused"
    assert not server.seen


# ------------------------------------------------------------------------------------------------------------- lists


async def walked(host: Any) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        page = await host.list_page(cursor)
        seen += [video.remote_id for video in page.videos]
        cursor = page.next_cursor
        if cursor is None:
            return seen


async def test_a_list_of_several_pages_has_each_video_once(server: HostServer, host: Any) -> None:
    server.page_max = 3
    for n in range(11):
        server.add(f"ref-{n}")
    assert sorted(await walked(host)) == sorted(server.videos)
    assert len([s for s in server.seen if s.method == "GET"]) >= 4


async def test_a_list_whose_last_page_is_full_ends(server: HostServer, host: Any) -> None:
    server.page_max = 3
    for n in range(6):
        server.add(f"ref-{n}")
    assert sorted(await walked(host)) == sorted(server.videos)


async def test_an_empty_account_has_an_empty_list(server: HostServer, host: Any) -> None:
    page = await host.list_page(None)
    assert (list(page.videos), page.next_cursor) == ([], None)


async def test_a_video_deep_in_the_list_is_found_by_its_reference(server: HostServer, host: Any) -> None:
    server.page_max = 2
    for n in range(7):
        server.add(f"ref-{n}")
    for n in (0, 3, 6):
        assert [video.ref for video in await host.lookup(f"ref-{n}")] == [f"ref-{n}"]


async def test_a_list_that_repeats_is_noticed(server: HostServer, host: Any) -> None:
    server.page_max = 3
    server.repeats = True
    for n in range(11):
        server.add(f"ref-{n}")
    assert (await fault_of(walked(host))).code == "answer-malformed"


@needs("paging-block")
async def test_a_list_that_does_not_say_how_it_goes_on_is_no_list(server: HostServer, host: Any) -> None:
    server.add("ref-1")
    server.without_paging = True
    assert (await fault_of(host.list_page(None))).code == "answer-malformed"


async def test_an_answer_that_is_no_list_is_never_an_empty_page(server: HostServer, host: Any) -> None:
    for body in (b"{}", b"null", b'"x"', b"7", b'{"data":null}', b'{"result":{}}', b'{"items":"x"}'):
        for call in (host.list_page(None), host.lookup("ref-1")):
            server.next(Response(body, 200, media_type="application/json"))
            assert not (await fault_of(call)).landed


ODD = (None, True, 0, -1, 1.5, math.inf, 10**400, "", "x", "9" * 400, [], {}, [None], [1], [[]], [{}], {"a": 1})
"""What an answer may have in place of what it should."""


def altered(value: Any) -> Iterator[Any]:
    """The value with each of its parts, and itself, replaced by each odd one."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: odd} for odd in altered(part))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from ([*value[:place], odd, *value[place + 1 :]] for odd in altered(part))


async def test_whatever_stands_in_any_place_of_an_answer_is_read_or_is_a_typed_fault(
    server: HostServer, host: Any
) -> None:
    ready, failed = server.add("ref-1", duration_s=4.0), server.add("ref-2")
    server.settle(ready.id, "ready")
    server.settle(failed.id, "errored", code=next(iter(server.failures)))

    async def answer(call: Awaitable[Any]) -> Any:
        await call
        return json.loads(server.seen[-1].answer)

    refusal, event = json.loads(bytes(server.error(400).body)), server.event(ready, "ready")
    assert event is not None
    listed, got = await answer(host.list_page(None)), [await answer(host.get(v.id)) for v in (ready, failed)]
    readings: list[tuple[Any, Callable[[Any], Any]]] = [
        (listed, lambda body: host._listing(body, "")),
        *((body, lambda body: host.video_of(host.body_of(body))) for body in got),
        (refusal, lambda body: (host.error_of(body), host.failure_of(body))),
        (json.loads(event), lambda body: host.parse_event({}, json.dumps(body).encode())),
    ]
    for whole, read in readings:
        for body in altered(whole):
            with contextlib.suppress(Fault):
                read(body)


# ------------------------------------------------------------------------------------------------------------ states


async def test_a_ready_video_has_its_duration(server: HostServer, host: Any) -> None:
    video = server.add("ref-1", duration_s=4.0)
    server.settle(video.id, "ready")
    found = await host.get(video.id)
    assert (found.state, found.duration_ms) == (RemoteState.READY, 4000)


async def test_a_video_in_the_making_has_no_duration(server: HostServer, host: Any) -> None:
    video = await host.get(server.add("ref-1").id)
    assert (video.state, video.duration_ms, video.width, video.height) == (RemoteState.PROCESSING, None, None, None)


@needs("failures")
async def test_each_documented_failure_has_its_reason(server: HostServer, host: Any) -> None:
    for code, reason in server.failures.items():
        video = server.add("ref-1")
        server.settle(video.id, "errored", code=code)
        found = await host.get(video.id)
        assert (code, found.state, found.reason) == (code, RemoteState.ERRORED, reason)


async def test_a_video_that_takes_long_goes_on_processing_and_then_is_ready(server: HostServer, host: Any) -> None:
    made = await host.create(request_for())
    for _ in range(3):
        assert (await host.get(made.remote_id)).state is RemoteState.PROCESSING
    server.settle(made.remote_id, "ready")
    assert (await host.get(made.remote_id)).state is RemoteState.READY


async def test_what_is_gone_is_deleted_and_deleting_it_again_is_fine(server: HostServer, host: Any) -> None:
    video = server.add("ref-1")
    assert (await host.get("no-such-video")).state is RemoteState.DELETED
    await host.delete(video.id)
    await host.delete(video.id)
    assert not server.videos
    assert (await host.get(video.id)).state is RemoteState.DELETED


async def test_an_id_cannot_leave_its_place_in_the_path(server: HostServer, host: Any) -> None:
    server.add("ref-1")
    await host.delete("../../x?y=")
    assert len(server.videos) == 1


# ------------------------------------------------------------------------------------------------ what is carried over


@needs("privacy")
@pytest.mark.parametrize("privacy", ["private", "unlisted"])
async def test_a_private_video_stays_private(server: HostServer, host: Any, privacy: Any) -> None:
    assert "privacy" in host.capabilities.carries
    made = await host.create(request_for(about=About(privacy=privacy)))
    assert server.videos[made.remote_id].private


async def test_a_host_without_privacy_says_so(server: HostServer, host: Any) -> None:
    assert ("privacy" in host.capabilities.carries) == ("privacy" not in server.lacks)


async def test_a_public_video_can_be_seen(server: HostServer, host: Any) -> None:
    for about in (About(), About(privacy="public")):
        made = await host.create(request_for(about=about))
        assert not server.videos[made.remote_id].private


async def test_what_is_said_to_be_carried_over_is_there(server: HostServer, host: Any) -> None:
    about = About(description="What it is about", tags=("tag-a", "tag-b"), folder="Attic/Films")
    made = await host.create(request_for(about=about))
    if {"description", "tags", "folder"} & host.capabilities.carries:
        kept = json.dumps([server.videos[made.remote_id].asked, server.videos[made.remote_id].extra])
        for name, words in (("description", "What it is about"), ("tags", "tag-b"), ("folder", "Attic/Films")):
            assert (words in kept) == (name in host.capabilities.carries)


async def test_limits_are_declared_and_a_reference_of_that_length_is_taken(server: HostServer, host: Any) -> None:
    offers = host.capabilities
    assert offers.list_limit <= server.list_limit
    title = "t" * (offers.title_max or 100)
    ref = "r" * min(offers.ref_max or 100, 255)
    made = await host.create(request_for(ref, title=title))
    assert server.videos[made.remote_id].title == title
    assert [video.remote_id for video in await host.lookup(ref)] == [made.remote_id]


# ----------------------------------------------------------------------------------------------------------- uploads


class Kept(list[Transfer]):
    """What a transfer wrote down of itself; it can end a process at a moment of the test's choosing."""

    def __init__(self, kill_at: int | None = None) -> None:
        super().__init__()
        self._kill_at = kill_at

    async def __call__(self, transfer: Transfer) -> None:
        self.append(transfer)
        if self._kill_at is not None and transfer.sent >= self._kill_at:
            raise asyncio.CancelledError


@pytest.fixture
def film(tmp_path: Path, server: HostServer) -> Path:
    """Of three chunks and a half."""
    path = tmp_path / "it's a film & 50%.mp4"
    path.write_bytes(os.urandom(server.chunk_bytes * 7 // 2 + 17))
    return path


@needs("uploads")
async def test_a_local_file_arrives_byte_for_byte(server: HostServer, host: Any, film: Path) -> None:
    assert host.capabilities.uploads
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    kept = Kept()
    made = await host.upload(request_for(address=str(film)), None, keep=kept, turn=turn)
    assert made.ref == "ref-1"
    assert not made.awaits_bytes
    assert [video.id for video in server.carrying("ref-1")] == [made.remote_id]
    assert server.videos[made.remote_id].content == film.read_bytes()
    assert turns == len(server.seen), "each request has its turn"
    assert [transfer.sent for transfer in kept] == sorted(transfer.sent for transfer in kept)
    silent(server, *kept)


@needs("uploads")
async def test_no_secret_is_logged_or_kept_while_a_file_is_sent(
    server: HostServer, host: Any, film: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    server.cut_upload_after = server.chunk_bytes // 2
    # As the programs have it (telemetry.py): httpx would log whole addresses.
    with caplog.at_level("DEBUG"), caplog.at_level("WARNING", "httpx"), caplog.at_level("WARNING", "httpcore"):
        await host.upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    silent(server, caplog.text, *kept)


@needs("uploads", "resumes")
async def test_an_upload_killed_midway_goes_on_where_it_was(server: HostServer, open_one: Any, film: Path) -> None:
    kept = Kept(kill_at=server.chunk_bytes)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    before = len(server.seen)
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()
    assert len(server.carrying("ref-1")) == 1
    again = sum(len(seen.body) for seen in server.seen[before:])
    assert again <= film.stat().st_size - server.chunk_bytes + 10_000, "what was there was not sent again"


@needs("uploads")
async def test_an_upload_killed_midway_and_begun_anew_is_one_video(
    server: HostServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    found = await open_one().lookup("ref-1")
    assert all(video.awaits_bytes for video in found), "no shell without bytes passes for a video"
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()
    assert [v.remote_id for v in await open_one().lookup("ref-1") if not v.awaits_bytes] == [made.remote_id]


@needs("uploads")
async def test_a_connection_that_breaks_within_a_chunk_is_mended_by_itself(
    server: HostServer, host: Any, film: Path
) -> None:
    server.cut_upload_after = server.chunk_bytes // 2
    made = await host.upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    assert server.cut_upload_after is None
    assert server.videos[made.remote_id].content == film.read_bytes()
    assert len(server.carrying("ref-1")) == 1


@needs("uploads")
async def test_a_file_that_changed_since_is_not_gone_on_with(server: HostServer, open_one: Any, film: Path) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    film.write_bytes(os.urandom(film.stat().st_size))
    os.utime(film, ns=(0, film.stat().st_mtime_ns + 1_000_000))
    fault = await fault_of(open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait))
    assert (fault.code, fault.permanent) == ("file-changed", True)


@needs("uploads")
async def test_a_file_that_changes_while_it_is_sent_is_noticed(server: HostServer, host: Any, film: Path) -> None:
    class Changing(Kept):
        async def __call__(self, transfer: Transfer) -> None:
            await super().__call__(transfer)
            if transfer.sent >= server.chunk_bytes:
                os.utime(film, ns=(0, 1))

    fault = await fault_of(host.upload(request_for(address=str(film)), None, keep=Changing(), turn=no_wait))
    assert fault.code == "file-changed"


@needs("uploads")
@pytest.mark.parametrize(("content", "reason"), [(None, "source-not-found"), (b"", "file-empty")])
async def test_a_file_that_is_not_there_or_empty_is_refused_before_anything_is_announced(
    server: HostServer, host: Any, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "a.mp4"
    if content is not None:
        path.write_bytes(content)
    fault = await fault_of(host.upload(request_for(address=str(path)), None, keep=Kept(), turn=no_wait))
    assert fault.code == reason
    assert not server.seen


@needs("uploads", "privacy")
async def test_a_private_file_stays_private(server: HostServer, host: Any, film: Path) -> None:
    request = request_for(address=str(film), about=About(privacy="private"))
    made = await host.upload(request, None, keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].private


# ------------------------------------------------------------------------------------------------- captions and poster


def track(host: Any, language: str = "de", **given: Any) -> Attachment:
    content = b"WEBVTT\n\n00:00.000 --> 00:01.000\nHallo\n" if host.capabilities.captions == "bytes" else None
    whole = {"kind": "subtitles", "address": ADDRESS, "content": content, "language": language, "label": "Deutsch"}
    return Attachment(**{**whole, **given})


@needs("captions")
async def test_captions_put_on_twice_are_there_once(server: HostServer, host: Any) -> None:
    assert host.capabilities.captions in ("address", "bytes")
    video = server.add("ref-1")
    server.settle(video.id, "ready")
    for attachment in (track(host), track(host), track(host, "fr", label="Français"), track(host)):
        await host.attach(video.id, attachment, turn=no_wait)
    assert sorted(language for language, _ in server.videos[video.id].captions) == ["de", "fr"]
    what = "Hallo" if host.capabilities.captions == "bytes" else ADDRESS
    assert all(what in content for _, content in server.videos[video.id].captions)


@needs("posters")
async def test_a_poster_put_on_twice_is_there_once(server: HostServer, host: Any) -> None:
    content = b"\xff\xd8\xff\xe0picture" if host.capabilities.poster == "bytes" else None
    poster = Attachment("poster", "https://files.example/poster.jpg", content=content, format="jpeg")
    video = server.add("ref-1")
    server.settle(video.id, "ready")
    for _ in range(2):
        await host.attach(video.id, poster, turn=no_wait)
    assert len(set(server.videos[video.id].posters)) == 1


@needs("captions")
async def test_each_request_of_an_attachment_has_its_turn(server: HostServer, host: Any) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    video = server.add("ref-1")
    server.settle(video.id, "ready")
    await host.attach(video.id, track(host), turn=turn)
    assert turns == len(server.seen)


async def test_what_a_host_lacks_its_capabilities_do_not_offer(server: HostServer, host: Any) -> None:
    offers = host.capabilities
    assert (offers.captions is None) == ("captions" in server.lacks)
    assert (offers.poster is None) == ("posters" in server.lacks)
    assert offers.uploads == ("uploads" not in server.lacks)
    assert ("captions" in offers.carries) == (offers.captions is not None)
    assert ("poster" in offers.carries) == (offers.poster is not None)


# ---------------------------------------------------------------------------------------------------------- webhooks


@partly("created-event", "errored-event", "deleted-event")
@pytest.mark.parametrize("what", ["created", "ready", "errored", "deleted"])
async def test_an_event_says_what_became_of_the_video(server: HostServer, host: Any, what: str) -> None:
    video = server.add("ref-1", duration_s=4.0)
    if what in ("ready", "errored"):
        server.settle(video.id, what, code=next(iter(server.failures), None))  # type: ignore[arg-type]
    body = server.event(video, what)
    if body is None:
        assert f"{what}-event" in server.lacks
        return
    assert f"{what}-event" not in server.lacks
    seen = host.parse_event(server.sign(body, server.secret, NOW), body)
    assert seen.video is not None
    assert (seen.video.remote_id, seen.video.state) == (
        video.id,
        {"created": RemoteState.PROCESSING}.get(what) or RemoteState(what),
    )
    if host.capabilities.event_carries_ref:
        assert seen.video.ref == "ref-1"
    if what == "errored":
        assert seen.video.reason in server.failures.values()


async def test_an_event_delivered_twice_has_one_key_and_two_states_have_two(server: HostServer, host: Any) -> None:
    video = server.add("ref-1")
    server.settle(video.id, "ready")
    ready, other = server.event(video, "ready"), server.add("ref-2")
    server.settle(other.id, "ready")
    second = server.event(other, "ready")
    assert ready is not None
    assert second is not None
    keys = [host.parse_event(server.sign(body, server.secret, NOW), body).dedupe_key for body in (ready, ready, second)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 50_000])
async def test_a_delivery_that_is_no_event_is_a_typed_fault(server: HostServer, host: Any, body: bytes) -> None:
    fault = None
    try:
        host.parse_event({}, body)
    except Fault as raised:
        fault = raised
    assert fault is not None
    assert fault.code == "answer-malformed"


async def test_an_event_about_something_else_tells_nothing_and_is_no_error(server: HostServer, host: Any) -> None:
    seen = host.parse_event({}, b'{"type":"account.changed","data":{"plan":"gold"}}')
    assert seen.video is None
    assert seen.dedupe_key


def delivery(server: HostServer) -> bytes:
    video = server.add("ref-1", title="é 5.50 1e3")
    server.settle(video.id, "ready")
    body = server.event(video, "ready")
    assert body is not None
    return body


async def test_a_delivery_signed_by_the_host_is_believed(server: HostServer, open_one: Any) -> None:
    body = delivery(server)
    open_one(clock=lambda: NOW).verify(server.sign(body, server.secret, NOW), body)


async def test_a_delivery_altered_or_encoded_again_is_refused(server: HostServer, open_one: Any) -> None:
    body, host = delivery(server), open_one(clock=lambda: NOW)
    again = json.dumps(json.loads(body), indent=1).encode()
    for other in (body + b" ", body.replace(b"0", b"1"), again, b"", b"\xff\xfe"):
        with pytest.raises(SignatureRefused):
            host.verify(server.sign(body, server.secret, NOW), other)


async def test_during_a_rotation_either_secret_is_believed_and_afterwards_only_the_new(
    server: HostServer, open_one: Any
) -> None:
    body = delivery(server)
    both = open_one(clock=lambda: NOW, webhook_secrets=[server.old_secret, server.secret])
    for secret in (server.old_secret, server.secret):
        both.verify(server.sign(body, secret, NOW), body)
    with pytest.raises(SignatureRefused) as raised:
        open_one(clock=lambda: NOW).verify(server.sign(body, server.old_secret, NOW), body)
    silent(server, raised.value)


async def test_a_delivery_without_a_signature_or_with_nonsense_is_refused(server: HostServer, open_one: Any) -> None:
    body, host = delivery(server), open_one(clock=lambda: NOW)
    good = server.sign(body, server.secret, NOW)
    for headers in ({}, dict.fromkeys(good, ""), dict.fromkeys(good, "nonsense é"), {"x": "y"}):
        with pytest.raises(SignatureRefused):
            host.verify(headers, body)
    with pytest.raises(SignatureRefused):
        open_one(webhook_secrets=[], clock=lambda: NOW).verify(good, body)


@needs("timestamps")
@pytest.mark.parametrize("away", [-301, 301, 299, -299])
async def test_a_delivery_is_good_for_five_minutes_on_either_side(server: HostServer, open_one: Any, away: int) -> None:
    body, host = delivery(server), open_one(clock=lambda: NOW)
    headers = server.sign(body, server.secret, NOW + away)
    if abs(away) < 300:
        host.verify(headers, body)
        return
    with pytest.raises(SignatureRefused):
        host.verify(headers, body)


async def test_a_delivery_over_http_is_believed_and_understood(server: HostServer, host: Any) -> None:
    seen: list[Any] = []

    async def take(request: Request) -> Response:
        raw = await request.body()
        host.verify(dict(request.headers), raw)
        seen.append(host.parse_event(dict(request.headers), raw))
        return Response(status_code=204)

    body = delivery(server)
    async with (
        served(Starlette(routes=[Route("/hook", take, methods=["POST"])])) as base,
        httpx.AsyncClient() as sender,
    ):
        answer = await sender.post(f"{base}/hook", content=body, headers=server.sign(body, server.secret, now()))
    assert answer.status_code == 204
    assert seen[0].video.state is RemoteState.READY


def now() -> float:
    """Seconds since 1970: hosts sign by the real clock."""
    return time.time()


# ------------------------------------------------------------------------------------------------- before a run begins


async def test_a_check_tells_of_credentials_webhook_and_clock_and_makes_nothing(server: HostServer, host: Any) -> None:
    found = {finding.name: finding for finding in await host.check()}
    assert found["credentials"].good
    assert found["clock"].good
    assert "webhook" in found
    assert all(finding.words for finding in found.values())
    assert not server.videos
    silent(server, *found.values())


async def test_a_check_with_refused_credentials_says_so(server: HostServer, open_one: Any) -> None:
    assert (await fault_of(open_one(token=server.token[:-4] + "zzzz").check())).code == "credentials-refused"


async def test_a_check_without_webhook_secrets_says_what_to_set(server: HostServer, open_one: Any) -> None:
    found = {finding.name: finding for finding in await open_one(webhook_secrets=[]).check()}
    assert found["webhook"].good is False
    assert "webhook_secrets" in found["webhook"].words


async def test_a_clock_that_is_off_is_told(server: HostServer, open_one: Any) -> None:
    found = {finding.name: finding for finding in await open_one(clock=lambda: now() + 900).check()}
    assert found["clock"].good is False


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize("kind", ROWS)
def test_the_account_needs_no_address_and_the_hosts_limits_count(kind: str) -> None:
    settings = ROWS[kind]().account(base_url=None)
    check_options(settings)
    check_webhooks(settings)
    assert KINDS[kind].address_of(settings).startswith("https://")


@pytest.mark.parametrize("kind", ROWS)
def test_a_wrong_option_or_token_is_named_and_no_secret_shown(kind: str) -> None:
    row = ROWS[kind]()
    for given in ({"options": {"nonsense": 1}}, {"token": "two\nlines"}, {"token": "schlüssel"}):
        with pytest.raises(Fault) as raised:
            check_options(row.account(base_url=None, **given))
        assert raised.value.code == "settings-refused"
        assert "nonsense" in raised.value.detail or "token" in raised.value.detail
        for secret in ("two", "schlüssel", row.secret):
            assert secret not in str(raised.value)


def test_every_lack_is_one_that_a_statement_needs() -> None:
    wanted = {word for test in globals().values() for which in ("needs", "partly") for word in getattr(test, which, ())}
    for row in ROWS.values():
        assert set(row.lacks) <= wanted
        assert all(row.lacks.values()), "with the reason"


def test_every_kind_of_a_real_host_has_a_row() -> None:
    assert set(KINDS) - {"generic", "sandbox"} == set(ROWS)
