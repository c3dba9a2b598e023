"""What is said to api.video, and what its test server answers, against api.video's own description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from destinations.apivideo import ApiVideoDestination, _received, _state
from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from sources.about import About
from tests.contracts.describing import Description, needs_descriptions
from tests.destinations.hosts.apivideo import ApiVideoServer

pytestmark = needs_descriptions

EXCUSED: Final = {
    "?metadata[longhaul-ref]": "metadata is described as an object, whose keys go in brackets",
    "Content-Range": "its pattern stands between slashes, as JavaScript writes them: no value matches it",
}
"""What the description holds against requests of ours, and why they are right."""


@pytest.fixture(scope="module")
def described() -> Description:
    return Description("apivideo.yaml", "https://ws.api.video")


async def everything(server: ApiVideoServer, folder: Path) -> None:
    """Each call that the module can make, once at least."""
    destination = ApiVideoDestination(server.account())
    destination.chunk_bytes = server.chunk_bytes

    async def turn() -> None:
        pass

    async def keep(_: Transfer) -> None:
        pass

    try:
        about = About(description="About it", tags=("a", "b"), folder="Attic", privacy="private")
        made = await destination.create(CreateRequest("ref-1", "https://files.example/a.mp4", "A", about=about))
        film = folder / "a.mp4"
        film.write_bytes(b"x" * (server.chunk_bytes + 1000))
        sent = await destination.upload(CreateRequest("ref-2", str(film), "B"), None, keep=keep, turn=turn)
        server.settle(sent.remote_id, "ready")
        await destination.get(sent.remote_id)
        assert len(await destination.lookup("ref-2")) == 1
        await destination.list_page(None)
        for _ in range(2):
            await destination.attach(sent.remote_id, Attachment("subtitles", "x", b"WEBVTT\n", "de-CH"), turn=turn)
        await destination.attach(sent.remote_id, Attachment("poster", "x", b"picture", format="png"), turn=turn)
        await destination.check()
        await destination.delete(made.remote_id)
    finally:
        await destination.aclose()


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    async with ApiVideoServer().serving() as running:
        await everything(running, tmp_path)  # type: ignore[arg-type]
        yield running


async def test_every_request_is_as_apivideo_describes_it(server: ApiVideoServer, described: Description) -> None:
    assert {(seen.method, seen.path.count("/")) for seen in server.seen} == {
        ("POST", 1), ("GET", 1), ("PATCH", 2), ("DELETE", 2), ("GET", 3), ("POST", 3), ("GET", 4), ("POST", 4),
    }  # fmt: skip
    wrong = [words for seen in server.seen for words in described.wrong(seen)]
    assert not [words for words in wrong if not any(excuse in words for excuse in EXCUSED)]
    assert all(any(excuse in words for words in wrong) for excuse in EXCUSED), "each is needed"
    sent = [seen.headers["content-range"] for seen in server.seen if "content-range" in seen.headers]
    assert sent
    assert all(re.fullmatch(r"bytes \d+-\d+/\d+", given) for given in sent)


async def test_every_answer_of_the_test_server_is_as_apivideo_describes_it(
    server: ApiVideoServer, described: Description
) -> None:
    for seen in server.seen:
        if seen.status in range(200, 300):
            assert not described.wrong_answer(seen), (seen.method, seen.path)


def test_every_documented_video_is_understood(described: Description) -> None:
    destination = ApiVideoDestination(ApiVideoServer().account(base_url=None))
    videos = [
        *described.examples("POST", "/videos"),
        *described.examples("GET", "/videos/{videoId}"),
        *described.examples("PATCH", "/videos/{videoId}"),
        *described.examples("POST", "/videos/{videoId}/source"),
    ]
    assert len(videos) >= 3
    for body in videos:
        video = destination.video_of(body)
        assert video is not None
        assert (video.remote_id, video.title) == (body["videoId"], body["title"])
        assert video.playback is not None
        assert (video.ref, video.awaits_bytes) == (None, False)


def test_the_documented_list_is_understood_as_a_page(described: Description) -> None:
    destination = ApiVideoDestination(ApiVideoServer().account(base_url=None))
    (example,) = described.examples("GET", "/videos")
    items, cursor, total = destination.listing_of(example, "")
    assert (len(items), cursor, total) == (len(example["data"]), None, example["pagination"]["itemsTotal"])
    assert all(destination.video_of(item) is not None for item in items)


def test_the_documented_status_is_understood(described: Description) -> None:
    examples = list(described.examples("GET", "/videos/{videoId}/status"))
    assert examples
    for example in examples:
        assert _state(example)[0] is RemoteState.READY
        assert _received(example | {"ingest": example["ingest"] | {"status": "uploading"}}, 273579401) == 273579401
