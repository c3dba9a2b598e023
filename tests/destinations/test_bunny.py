"""What is Bunny Stream's own: a reference within the title, two numberings of states, uploads that are signed for."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse, Response

from destinations.base import RemoteState, SignatureRefused, Transfer
from destinations.bunny import BunnyDestination
from ledger.assets import ref_of
from sources.about import About
from tests.destinations.hosts.bunny import LIBRARY, BunnyServer
from tests.destinations.test_conformance import Kept, fault_of, no_wait, request_for

REF = ref_of("acme", "films", "video", "1")


@pytest_asyncio.fixture
async def server() -> AsyncIterator[BunnyServer]:
    async with BunnyServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def open_one(server: BunnyServer) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Any] = []

    def opening(*, options: dict[str, Any] | None = None, **given: Any) -> Any:
        opened.append(server.open(options=options or {}, **given))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mkv"
    path.write_bytes(bytes(range(256)) * 9_000)
    return path


# ----------------------------------------------------------------------------------------------------- the reference


async def test_a_fetch_without_an_id_in_its_answer_is_a_video_to_be_looked_up(
    server: BunnyServer, open_one: Any
) -> None:
    server.fetch_tells_id = False
    fault = await fault_of(open_one().create(request_for(REF)))
    assert (fault.code, fault.landed) == ("answer-lost", True)
    assert [video.remote_id for video in await open_one().lookup(REF)] == list(server.videos)


@given(title=st.text(min_size=1).map(lambda text: text.encode("utf-8", "replace").decode()), sent=st.booleans())
def test_every_title_comes_back_without_the_reference_and_the_reference_without_the_title(
    title: str, sent: bool
) -> None:
    destination = BunnyDestination(BunnyServer().account(base_url=None))
    shown = f"{title} [{REF}{' sent' if sent else ''}]"
    video = destination.video_of({"guid": "g", "status": 0, "title": shown})
    assert video is not None
    assert (video.title, video.ref, video.awaits_bytes) == (title, REF, sent)


@pytest.mark.parametrize("title", ["A film", "A film [2019 cut]", "[lh-a] A film", "A film [lh-a] ", "A [lh-a][lh-b]"])
def test_other_peoples_titles_have_no_reference(title: str) -> None:
    destination = BunnyDestination(BunnyServer().account(base_url=None))
    video = destination.video_of({"guid": "g", "status": 4, "title": title})
    assert video is not None
    assert (video.title, video.ref) == (title, None)


async def test_a_search_that_is_not_one_never_says_there_is_none(server: BunnyServer, open_one: Any) -> None:
    items = [server.body(server.add(f"other-{n}")) for n in range(100)]
    server.next(JSONResponse({"items": items, "totalItems": 101, "currentPage": 1, "itemsPerPage": 100}))
    assert (await fault_of(open_one().lookup(REF))).code == "answer-malformed"


async def test_a_page_in_the_middle_that_is_empty_is_no_end(server: BunnyServer, open_one: Any) -> None:
    server.next(JSONResponse({"items": [], "totalItems": 101, "currentPage": 1, "itemsPerPage": 100}))
    assert (await fault_of(open_one().list_page(None))).code == "answer-malformed"


async def test_everything_goes_into_the_collection_that_is_set(server: BunnyServer, open_one: Any, film: Path) -> None:
    host = open_one(options={"collection_id": "c-1"})
    await host.create(request_for(REF))
    assert server.seen[-1].query == "collectionId=c-1"
    made = await host.upload(request_for("ref-2", address=str(film)), None, keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].asked["collectionId"] == "c-1"
    assert all(upload.about["collection"] == "c-1" for upload in server.uploads.values())


# ---------------------------------------------------------------------------------------------------- two numberings


@pytest.mark.parametrize(
    ("number", "asked", "delivered"),
    [
        (0, RemoteState.PROCESSING, RemoteState.PROCESSING),
        (1, RemoteState.PROCESSING, RemoteState.PROCESSING),
        (2, RemoteState.PROCESSING, RemoteState.PROCESSING),
        (3, RemoteState.PROCESSING, RemoteState.READY),
        (4, RemoteState.READY, RemoteState.READY),
        (5, RemoteState.ERRORED, RemoteState.ERRORED),
        (6, RemoteState.ERRORED, RemoteState.PROCESSING),
        (7, RemoteState.PROCESSING, RemoteState.PROCESSING),
        (8, RemoteState.READY, None),
        (9, RemoteState.PROCESSING, None),
        (10, RemoteState.PROCESSING, None),
        (99, RemoteState.PROCESSING, None),
    ],
)
async def test_a_number_means_one_thing_in_an_answer_and_another_in_a_delivery(
    server: BunnyServer, open_one: Any, number: int, asked: RemoteState, delivered: RemoteState | None
) -> None:
    video = server.add(REF)
    assert open_one().video_of(server.body(video) | {"status": number}).state is asked
    body = server.event(video, "", number=number)
    assert body is not None
    event = open_one().parse_event({}, body)
    assert (None if event.video is None else event.video.state) is delivered


async def test_the_first_resolution_and_the_last_are_one_effect(server: BunnyServer, open_one: Any) -> None:
    video = server.add(REF)
    keys = set()
    for number in (4, 4, 3):
        body = server.event(video, "", number=number)
        assert body is not None
        keys.add(open_one().parse_event({}, body).dedupe_key)
    assert keys == {f"{video.id}:ready"}


async def test_a_delivery_for_another_library_tells_nothing(server: BunnyServer, open_one: Any) -> None:
    for library in (LIBRARY + 1, str(LIBRARY), None):
        body = json.dumps({"VideoLibraryId": library, "VideoGuid": "g", "Status": 3}).encode()
        assert open_one().parse_event({}, body).video is None


async def test_a_signature_of_another_version_is_not_believed(server: BunnyServer, open_one: Any) -> None:
    body = server.event(server.add(REF), "ready")
    assert body is not None
    good = server.sign(body, server.secret, time.time())
    open_one().verify(good, body)
    for name, value in (("version", "v2"), ("algorithm", "hmac-sha1")):
        with pytest.raises(SignatureRefused):
            open_one().verify(good | {f"x-bunnystream-signature-{name}": value}, body)


async def test_a_video_that_waits_to_be_fetched_is_not_one_that_waits_for_our_bytes(
    server: BunnyServer, open_one: Any
) -> None:
    made = await open_one().create(request_for(REF))
    server.videos[made.remote_id].state = "waiting"
    assert server.body(server.videos[made.remote_id])["status"] == 0
    assert [video.awaits_bytes for video in await open_one().lookup(REF)] == [False]


# ----------------------------------------------------------------------------------------------------------- privacy


async def test_a_private_video_goes_only_into_a_library_that_is_private(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    for privacy in ("private", "unlisted"):
        about = About.model_validate({"privacy": privacy})
        assert (await fault_of(open_one().create(request_for(REF, about=about)))).code == "private-refused"
        request = request_for(REF, address=str(film), about=about)
        upload = open_one().upload(request, None, keep=Kept(), turn=no_wait)
        assert (await fault_of(upload)).code == "private-refused"
    assert not server.seen
    closed = open_one(options={"private_library": True})
    assert "privacy" in closed.capabilities.carries
    await closed.create(request_for(REF, about=About(privacy="private")))
    await open_one(publish_private=True).create(request_for(REF, about=About(privacy="private")))
    assert len(server.videos) == 2


# ----------------------------------------------------------------------------------------------------------- uploads


async def test_each_request_of_an_upload_is_signed_for_and_the_place_is_not(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    kept = Kept()
    await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    sent = [seen for seen in server.seen if seen.path.startswith("/tusupload")]
    assert {seen.method for seen in sent} == {"POST", "PATCH"}
    for seen in sent:
        head = seen.headers
        signed = head["libraryid"] + server.token + head["authorizationexpire"] + head["videoid"]
        assert head["authorizationsignature"] == hashlib.sha256(signed.encode()).hexdigest()
        assert int(head["authorizationexpire"]) > time.time() + 3600
        assert not any(head["authorizationsignature"] in place.place for place in kept)


async def test_an_upload_is_gone_on_with_by_another_process_a_day_later(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    before = len(server.seen)
    later = open_one()
    later._clock = lambda: time.time() + 86_400
    made = await later.upload(request_for(REF, address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert [seen.method for seen in server.seen[before:]] == ["HEAD", "PATCH", "PATCH"]
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_video_that_was_announced_and_never_kept_is_used_again(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    async def killed(_: Transfer) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(REF, address=str(film)), None, keep=killed, turn=no_wait)
    made = await open_one().upload(request_for(REF, address=str(film)), None, keep=Kept(), turn=no_wait)
    assert list(server.videos) == [made.remote_id]


async def test_a_transfer_that_the_host_forgot_begins_anew_in_the_same_video(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    server.uploads.clear()
    made = await open_one().upload(request_for(REF, address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert list(server.videos) == [made.remote_id]
    assert server.videos[made.remote_id].content == film.read_bytes()


@pytest.mark.parametrize("place", [0, 1, -1])
async def test_a_video_that_was_deleted_while_it_waited_is_announced_anew(
    server: BunnyServer, open_one: Any, film: Path, place: int
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    server.videos.clear()
    server.uploads.clear()
    made = await open_one().upload(request_for(REF, address=str(film)), kept[place], keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_host_that_forgets_while_it_is_sent_to_is_a_fault_and_no_loop(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    server.upload_gone = True
    fault = await fault_of(open_one().upload(request_for(REF, address=str(film)), None, keep=Kept(), turn=no_wait))
    assert (fault.code, fault.permanent) == ("destination-error", False)
    assert len(server.seen) < 10


async def test_a_file_that_had_come_whole_when_the_answer_was_lost_is_not_sent_again(
    server: BunnyServer, open_one: Any, film: Path
) -> None:
    kept = Kept()
    made = await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    server.upload_gone, before = True, len(server.seen)
    again = await open_one().upload(request_for(REF, address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert again.remote_id == made.remote_id
    assert [seen.method for seen in server.seen[before:]] == ["HEAD", "GET"]


@pytest.mark.parametrize(
    ("status", "offset"), [(409, ""), (423, ""), (500, ""), (204, ""), (204, "0"), (204, "-1"), (204, "999999999")]
)
async def test_a_part_that_is_refused_or_answered_with_nonsense_is_sent_from_where_the_host_stands(
    server: BunnyServer, open_one: Any, film: Path, status: int, offset: str
) -> None:
    class OnceRefused(Kept):
        async def __call__(self, transfer: Transfer) -> None:
            await super().__call__(transfer)
            if transfer.sent == server.chunk_bytes and len({kept.sent for kept in self}) == 2 and not self.refused:
                self.refused = True
                server.next(Response(status_code=status, headers={"upload-offset": offset}))

        refused = False

    kept = OnceRefused()
    made = await open_one().upload(request_for(REF, address=str(film)), None, keep=kept, turn=no_wait)
    assert kept.refused
    assert server.videos[made.remote_id].content == film.read_bytes()


# ------------------------------------------------------------------------------------------------------ before a run


async def test_the_librarys_own_key_is_no_webhook_secret(server: BunnyServer, open_one: Any) -> None:
    found = {finding.name: finding for finding in await open_one(webhook_secrets=[server.token]).check()}
    assert found["webhook"].good is False
    assert "read-only" in found["webhook"].words
    found = {finding.name: finding for finding in await open_one().check()}
    assert found["webhook"].good is None
