"""What is api.video's own: a status apart from the video, an event for each quality, parts of a file in forms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, Response

from destinations import KINDS
from destinations.apivideo import _received, _state
from destinations.base import Attachment, RemoteState, Transfer
from sources.about import About
from tests.destinations.hosts.apivideo import ApiVideoServer
from tests.destinations.test_conformance import Kept, altered, fault_of, no_wait, request_for, walked

TRACK = Attachment("subtitles", "https://files.example/a.vtt", b"WEBVTT\n", "de")


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ApiVideoServer]:
    async with ApiVideoServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def open_one(server: ApiVideoServer) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Any] = []

    def opening(**given: Any) -> Any:
        opened.append(server.open(**given))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


# ------------------------------------------------------------------------------------------------- state and events


def status(playable: bool, *words: str, **more: Any) -> bytes:
    qualities = [{"type": "hls", "quality": "240p", "status": word} for word in words]
    encoding = {"playable": playable, "qualities": qualities, **more}
    return json.dumps({"ingest": {"status": "uploaded"}, "encoding": encoding}).encode()


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (status(True, "encoded", "failed"), RemoteState.READY),
        (status(True), RemoteState.READY),
        (status(False, "failed", "failed"), RemoteState.ERRORED),
        (status(False, "failed", "encoding"), RemoteState.PROCESSING),
        (status(False, "waiting"), RemoteState.PROCESSING),
        (status(False), RemoteState.PROCESSING),
        (b'{"ingest":{"status":"ingesting"},"encoding":null}', RemoteState.PROCESSING),
    ],
)
async def test_ready_is_playable_and_failed_is_all_of_it(
    server: ApiVideoServer, open_one: Any, body: bytes, state: RemoteState
) -> None:
    server.next(Response(body, media_type="application/json"))
    found = await open_one().get("vi1")
    assert (found.state, found.reason) == (state, "destination-failed" if state is RemoteState.ERRORED else None)


async def test_a_status_tells_whole_seconds_and_no_shape(server: ApiVideoServer, open_one: Any) -> None:
    video = server.settle(server.add("ref-1", duration_s=4.9).id, "ready")
    found = await open_one().get(video.id)
    assert (found.duration_ms, found.width, found.height) == (4000, None, None)


async def test_an_answer_without_a_status_is_none(server: ApiVideoServer, open_one: Any) -> None:
    server.next(JSONResponse({"videoId": "vi1"}))
    assert (await fault_of(open_one().get("vi1"))).code == "answer-malformed"


async def test_whatever_stands_in_any_place_of_a_status_it_is_read(server: ApiVideoServer, open_one: Any) -> None:
    for state, content in (("ready", b""), ("errored", b""), ("waiting", b"xx")):
        video = server.add("ref-1", state=state, duration_s=4.0)
        video.extra["parts"] = {0: content}
        await open_one().get(video.id)
        for body in altered(json.loads(server.seen[-1].answer)):
            assert _state(body)[0] in RemoteState
            assert 0 <= _received(body, 10) <= 10


async def test_the_events_of_all_qualities_are_one_effect(server: ApiVideoServer, open_one: Any) -> None:
    video = server.add("ref-1")
    host, seen = open_one(), []
    for quality in ("720p", "240p", "360p"):
        body = server.event(video, "ready", quality=quality)
        assert body is not None
        seen.append(host.parse_event({}, body))
    assert {event.dedupe_key for event in seen} == {f"{video.id}:ready"}
    assert all(event.video.state is RemoteState.READY for event in seen)


async def test_an_mp4_or_a_caption_says_nothing_of_whether_the_stream_plays(
    server: ApiVideoServer, open_one: Any
) -> None:
    mp4 = server.event(server.add("ref-1"), "ready", encoding="mp4")
    assert mp4 is not None
    for body in (mp4, b'{"type":"video.caption.generated","videoId":"vi1"}', b'{"videoId":"vi1"}'):
        assert open_one().parse_event({}, body).video is None


async def test_a_list_tells_no_state_and_says_so(server: ApiVideoServer, open_one: Any) -> None:
    video = server.settle(server.add("ref-1").id, "ready")
    host = open_one()
    assert not host.capabilities.list_tells_state
    (listed,) = (await host.list_page(None)).videos
    assert (listed.remote_id, listed.ref, listed.state) == (video.id, "ref-1", RemoteState.PROCESSING)


# --------------------------------------------------------------------------------------------------------- finding


async def test_a_list_is_asked_for_from_the_oldest_on(server: ApiVideoServer, open_one: Any) -> None:
    server.page_max = 10
    for n in range(35):
        server.add(f"ref-{n}")
    assert await walked(open_one()) == list(server.videos)
    assert all("sortBy=createdAt&sortOrder=asc" in seen.query for seen in server.seen)


async def test_another_page_than_was_asked_for_is_noticed(server: ApiVideoServer, open_one: Any) -> None:
    server.page_max = 10
    for n in range(35):
        server.add(f"ref-{n}")
    host = open_one()
    first = await host.list_page(None)
    pagination = {"currentPage": 1, "pagesTotal": 4, "itemsTotal": 35}
    bodies = [server.body(video) for video in server.listed()[10:20]]
    server.next(JSONResponse({"data": bodies, "pagination": pagination}))
    assert "page 2 was asked for, and 1 came" in (await fault_of(host.list_page(first.next_cursor))).detail


async def test_a_look_up_whose_filter_is_ignored_never_says_there_is_none(
    server: ApiVideoServer, open_one: Any
) -> None:
    bodies = [server.body(server.add(f"other-{n}")) for n in range(100)]
    pagination = {"currentPage": 1, "pagesTotal": 2, "itemsTotal": 101}
    server.next(JSONResponse({"data": bodies, "pagination": pagination}))
    assert (await fault_of(open_one().lookup("ref-1"))).code == "answer-malformed"


async def test_what_the_host_keeps_in_its_bin_is_deleted(server: ApiVideoServer, open_one: Any) -> None:
    body = server.body(server.add("ref-1")) | {"discarded": True}
    assert open_one().video_of(body).state is RemoteState.DELETED


async def test_a_refusal_is_told_with_the_field_that_it_is_about(server: ApiVideoServer, open_one: Any) -> None:
    server.next(server.error(400, "This attribute is required.", "attribute-required"))
    fault = await fault_of(open_one().create(request_for()))
    assert fault.detail == "status 400: attribute-required: This attribute is required. (videoId)"


# --------------------------------------------------------------------------------------------------------- uploads


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / 'a "film" & more.mp4'
    path.write_bytes(bytes(range(256)) * 45_000)
    return path


async def test_an_upload_says_what_a_create_says(server: ApiVideoServer, open_one: Any, film: Path) -> None:
    about = About(description="Füße", tags=("a", "b"), folder="Attic", privacy="private")
    request = request_for("ref-1", address=str(film), about=about, metadata={"tenant": "acme", "n": 7})
    made = await open_one().upload(request, None, keep=Kept(), turn=no_wait)
    copied = await open_one().create(request_for("ref-1", about=about, metadata={"tenant": "acme", "n": 7}))
    sent, fetched = server.videos[made.remote_id].asked, server.videos[copied.remote_id].asked
    assert sent == {name: value for name, value in fetched.items() if name != "source"}
    assert {"key": "tenant", "value": "acme"} in sent["metadata"]


async def test_a_file_of_one_part_needs_no_range(server: ApiVideoServer, open_one: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"\r\n--boundary" * 1000)
    made = await open_one().upload(request_for(address=str(path)), None, keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == path.read_bytes()
    (sent,) = (seen for seen in server.seen if seen.path.endswith("/source"))
    assert "content-range" not in sent.headers


async def test_a_video_that_was_announced_and_never_kept_is_used_again(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    async def killed(_: Transfer) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=killed, turn=no_wait)
    made = await open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    assert list(server.videos) == [made.remote_id]
    assert not (await open_one().lookup("ref-1"))[0].awaits_bytes


async def test_a_file_that_changed_is_not_put_behind_what_came_of_it_before(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    film.write_bytes(film.read_bytes()[::-1])
    made = await open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()
    assert len(server.videos) == 2


async def test_a_video_that_was_deleted_while_it_waited_is_announced_anew(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    server.videos.clear()
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_video_that_came_whole_and_failed_is_not_taken_for_one_that_waits(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    first = await open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    server.settle(first.remote_id, "errored")
    second = await open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    assert first.remote_id != second.remote_id
    assert server.videos[second.remote_id].content == film.read_bytes()


async def test_a_last_part_whose_answer_was_lost_is_not_sent_into_a_second_video(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    class LosingTheLast(Kept):
        async def __call__(self, transfer: Transfer) -> None:
            await super().__call__(transfer)
            if transfer.sent < film.stat().st_size <= transfer.sent + server.chunk_bytes:
                server.next("lost")

    made = await open_one().upload(request_for(address=str(film)), None, keep=LosingTheLast(), turn=no_wait)
    assert list(server.videos) == [made.remote_id]
    assert server.videos[made.remote_id].content == film.read_bytes()


async def test_a_video_that_came_whole_and_failed_before_that_was_said_is_none_either(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    kept = Kept(kill_at=film.stat().st_size)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    (first,) = server.videos
    assert (await open_one().lookup("ref-1"))[0].awaits_bytes
    server.settle(first, "errored")
    second = await open_one().upload(request_for(address=str(film)), None, keep=Kept(), turn=no_wait)
    assert second.remote_id != first


async def test_a_host_that_has_everything_before_it_says_so_is_not_sent_it_for_ever(
    server: ApiVideoServer, open_one: Any, film: Path
) -> None:
    class LosingTheLast(Kept):
        async def __call__(self, transfer: Transfer) -> None:
            await super().__call__(transfer)
            if transfer.sent < film.stat().st_size <= transfer.sent + server.chunk_bytes and not self.lost:
                self.lost = True
                parts = [{"from": 0, "to": transfer.sent - 1, "total": film.stat().st_size}]
                late = {"ingest": {"status": "uploading", "receivedBytes": parts}, "encoding": {}}
                server.next("lost", JSONResponse(late))

        lost = False

    kept = LosingTheLast()
    made = await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    assert server.videos[made.remote_id].content == film.read_bytes()
    refused = [seen.status for seen in server.seen if seen.path.endswith("/source")]
    assert refused[-1] == 400


async def test_only_what_came_without_a_gap_counts(server: ApiVideoServer, open_one: Any, film: Path) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(asyncio.CancelledError):
        await open_one().upload(request_for(address=str(film)), None, keep=kept, turn=no_wait)
    (video,) = server.videos.values()
    first = video.extra["parts"][0]
    video.extra["parts"] = {0: first, 2 * len(first): b"x" * 100}
    before = len(server.seen)
    made = await open_one().upload(request_for(address=str(film)), kept[-1], keep=Kept(), turn=no_wait)
    ranges = [seen.headers.get("content-range", "") for seen in server.seen[before:] if seen.path.endswith("/source")]
    assert ranges[0].startswith(f"bytes {len(first)}-")
    assert server.videos[made.remote_id].content == film.read_bytes()


# ---------------------------------------------------------------------------------------------- tracks and posters


async def test_a_track_is_asked_for_before_it_is_put_on(server: ApiVideoServer, open_one: Any) -> None:
    video = server.add("ref-1")
    for _ in range(2):
        await open_one().attach(video.id, TRACK, turn=no_wait)
    assert [seen.method for seen in server.seen] == ["GET", "POST", "GET"]


async def test_whether_a_track_is_there_is_never_guessed(server: ApiVideoServer, open_one: Any) -> None:
    video = server.add("ref-1")
    server.next(server.error(500))
    assert not (await fault_of(open_one().attach(video.id, TRACK, turn=no_wait))).permanent
    assert not video.captions


async def test_a_poster_of_unknown_kind_and_one_too_large(server: ApiVideoServer, open_one: Any) -> None:
    video = server.add("ref-1")
    await open_one().attach(video.id, Attachment("poster", "x", b"picture", format=""), turn=no_wait)
    assert len(video.posters) == 1
    large = Attachment("poster", "x", b"x" * 8_388_609, format="png")
    before = len(server.seen)
    assert (await fault_of(open_one().attach(video.id, large, turn=no_wait))).permanent
    assert len(server.seen) == before


# ------------------------------------------------------------------------------------------------------ before a run


async def findings(host: Any) -> dict[str, Any]:
    return {finding.name: finding for finding in await host.check()}


async def test_a_check_tells_where_deliveries_go_and_whether_their_secret_is_known(
    server: ApiVideoServer, open_one: Any
) -> None:
    found = (await findings(open_one()))["webhook"]
    assert found.good and "https://longhaul.example/hooks/apivideo" in found.words
    server.hooks[0]["signatureSecret"] = "another"
    found = (await findings(open_one()))["webhook"]
    assert found.good is False and "another" not in found.words
    server.hooks[0]["events"] = ["live-stream.broadcast.started"]
    found = (await findings(open_one()))["webhook"]
    assert found.good is False and "POST /webhooks" in found.words


async def test_the_sandbox_is_told(server: ApiVideoServer, open_one: Any) -> None:
    assert "sandbox" not in await findings(open_one())
    assert "sandbox.api.video" in KINDS["apivideo"].address_of(server.account(base_url="https://sandbox.api.video"))
    host = open_one()
    host._account = server.account(base_url="https://sandbox.api.video")
    assert (await findings(host))["sandbox"].good is False
