"""What is said to FastPix, and what its test server answers, against FastPix's own description."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from destinations.fastpix import FastPixDestination
from sources.about import About
from tests.contracts.describing import Description, needs_descriptions
from tests.destinations.hosts.fastpix import FastPixServer

pytestmark = needs_descriptions

TWICE: Final = "is valid under each of {'$ref': '#/components/schemas/SubtitleTrack'}"
"""What it holds against every media with a subtitle track: its kinds of tracks exclude each other (`oneOf`), and demand
so little that one track is of several. The vendor's own client reads them."""


@pytest.fixture(scope="module")
def described() -> Description:
    return Description("fastpix.yaml", "https://api.fastpix.com/v1")


async def everything(server: FastPixServer, folder: Path) -> None:
    """Each call that the module can make, once at least."""
    destination = FastPixDestination(server.account(options={"media_quality": "pro", "max_resolution": "720p"}))
    server.page_max = 1

    async def turn() -> None:
        pass

    class Stop(Exception):
        pass

    places: list[Transfer] = []

    async def keep(transfer: Transfer) -> None:
        places.append(transfer)
        if len(places) == 1:
            raise Stop

    try:
        about = About(folder="Attic", privacy="private", tags=("a", "b"))
        made = await destination.create(CreateRequest("ref-1", "https://files.example/a.mp4", "A", about=about))
        film = folder / "a.mp4"
        film.write_bytes(b"x" * 1000)
        request = CreateRequest("ref-2", str(film), "B")
        with pytest.raises(Stop):
            await destination.upload(request, None, keep=keep, turn=turn)
        sent = await destination.upload(request, places[0], keep=keep, turn=turn)
        server.settle(sent.remote_id, "ready")
        await destination.get(sent.remote_id)
        assert len(await destination.lookup("ref-2")) == 1
        attachment = Attachment("subtitles", "https://files.example/a.vtt", language="de-CH", label="Deutsch")
        await destination.attach(sent.remote_id, attachment, turn=turn)
        await destination.get(sent.remote_id)
        await destination.check()
        await destination.delete(made.remote_id)
    finally:
        await destination.aclose()


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    async with FastPixServer().serving() as running:
        await everything(running, tmp_path)
        yield running


async def test_every_request_is_as_fastpix_describes_it(server: FastPixServer, described: Description) -> None:
    asked = [seen for seen in server.seen if seen.path.startswith("/v1/")]
    assert {(seen.method, seen.path.count("/")) for seen in asked} >= {
        ("POST", 2), ("GET", 2), ("POST", 3), ("GET", 3), ("DELETE", 3), ("PUT", 5), ("POST", 4),
    }  # fmt: skip
    for seen in asked:
        assert not described.wrong(seen, prefix="/v1"), (seen.method, seen.path)


async def test_every_answer_of_the_test_server_is_as_fastpix_describes_it(
    server: FastPixServer, described: Description
) -> None:
    wrong = [
        words
        for seen in server.seen
        if seen.path.startswith("/v1/") and seen.status in range(200, 300)
        for words in described.wrong_answer(seen, prefix="/v1")
    ]
    assert [words for words in wrong if TWICE not in words] == []
    assert wrong, "the excuse is needed"


def test_every_documented_media_is_understood(described: Description) -> None:
    destination = FastPixDestination(FastPixServer().account(base_url=None))
    examples = [
        *described.examples("POST", "/on-demand"),
        *described.examples("GET", "/on-demand/{mediaId}"),
        *described.examples("PATCH", "/on-demand/{mediaId}"),
    ]
    assert len(examples) >= 3
    for example in examples:
        video = destination.video_of(destination.body_of(example))
        assert video is not None
        assert video.remote_id == example["data"]["id"]
        assert (video.duration_ms == 10_000) == (video.state is RemoteState.READY)
        assert video.playback is not None


def test_the_documented_list_is_understood_as_pages(described: Description) -> None:
    destination = FastPixDestination(FastPixServer().account(base_url=None))
    (example,) = described.examples("GET", "/on-demand")
    items, cursor, total = destination.listing_of(example, "")
    assert (len(items), cursor, total) == (1, "2", 100)
    assert destination.video_of(items[0]) is not None
