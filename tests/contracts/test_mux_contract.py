"""What is said to Mux, and what its test server answers, against Mux's own description of 2022."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from destinations.mux import MuxDestination, upload_in
from sources.about import About
from tests.contracts.describing import Description, needs_descriptions
from tests.destinations.hosts.mux import MuxServer

pytestmark = needs_descriptions

NEWER: Final = {
    "inputs": "its older name is input",
    "playback_policies": "its older name is playback_policy",
    "meta": "title, creator and external id came in 2024",
    "video_quality": "its older name is encoding_tier, which is not there either",
    "max_resolution_tier": "came in 2023",
    "?cursor": "lists were walked by page alone",
}
"""Fields and parameters of ours that the description lacks, and why they are right. Within `new_asset_settings` too."""
ANSWERED: Final = {
    "next_cursor": "lists were walked by page alone",
    "meta": "as in requests",
    "video_quality": "as in requests",
    "max_resolution_tier": "as in requests",
    "progress": "came in 2025",
    "ingest_type": "came in 2023",
    "status": "of a track: came in 2022, after the description",
    "playback_policies": "as in requests",
}
"""The same of answers."""


def last(place: str) -> str:
    return place.rpartition(".")[2]


@pytest.fixture(scope="module")
def described() -> Description:
    return Description("mux-2022.json", "https://api.mux.com")


async def everything(server: MuxServer, folder: Path) -> None:
    """Each call that the module can make, once at least."""
    options = {"video_quality": "basic", "max_resolution_tier": "1080p", "test": True}
    destination = MuxDestination(server.account(options=options))
    server.page_max = 1

    async def turn() -> None:
        pass

    async def keep(_: Transfer) -> None:
        pass

    try:
        about = About(folder="Attic", privacy="private")
        made = await destination.create(CreateRequest("ref-1", "https://files.example/a.mp4", "A", about=about))
        film = folder / "a.mp4"
        film.write_bytes(b"x" * 1000)
        sent = await destination.upload(CreateRequest("ref-2", str(film), "B"), None, keep=keep, turn=turn)
        server.settle(sent.remote_id, "ready")
        await destination.get(sent.remote_id)
        assert len(await destination.lookup("ref-2")) == 1
        for kind in ("subtitles", "captions"):
            attachment = Attachment(kind, "https://files.example/a.vtt", language="de-CH", label=kind)  # type: ignore[arg-type]
            await destination.attach(sent.remote_id, attachment, turn=turn)
        server.videos[sent.remote_id].extra["tracks"][0]["status"] = "errored"
        again = Attachment("subtitles", "https://files.example/a.vtt", language="de-CH", label="subtitles")
        await destination.attach(sent.remote_id, again, turn=turn)
        await destination.check()
        await destination.delete(made.remote_id)
    finally:
        await destination.aclose()


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    async with MuxServer().serving() as running:
        await everything(running, tmp_path)
        yield running


async def test_every_request_is_as_mux_describes_it(server: MuxServer, described: Description) -> None:
    asked = [seen for seen in server.seen if seen.path.startswith("/video/")]
    assert {(seen.method, seen.path.count("/")) for seen in asked} >= {
        ("POST", 3), ("GET", 3), ("GET", 4), ("DELETE", 4), ("PUT", 5), ("POST", 5), ("DELETE", 6),
    }  # fmt: skip
    for seen in asked:
        assert not [words for words in described.wrong(seen) if last(words) not in NEWER], (seen.method, seen.path)


async def test_every_answer_of_the_test_server_is_as_mux_describes_it(
    server: MuxServer, described: Description
) -> None:
    for seen in server.seen:
        if seen.path.startswith("/video/") and seen.status in range(200, 300):
            assert not [words for words in described.wrong_answer(seen) if last(words) not in ANSWERED], seen.path


async def test_nothing_is_excused_that_is_not_said(server: MuxServer, described: Description) -> None:
    asked = [seen for seen in server.seen if seen.path.startswith("/video/")]
    assert set(NEWER) == {last(words) for seen in asked for words in described.wrong(seen)}
    good = [seen for seen in asked if seen.status in range(200, 300)]
    assert set(ANSWERED) == {last(words) for seen in good for words in described.wrong_answer(seen)}


def test_every_documented_asset_is_understood(described: Description) -> None:
    destination = MuxDestination(MuxServer().account(base_url=None))
    examples = [
        *described.examples("POST", "/video/v1/assets"),
        *described.examples("GET", "/video/v1/assets/{ASSET_ID}"),
        *described.examples("PATCH", "/video/v1/assets/{ASSET_ID}"),
    ]
    listed = [entry for example in described.examples("GET", "/video/v1/assets") for entry in example["data"]]
    assert len(examples) >= 3
    assert listed
    for body in [*(destination.body_of(example) for example in examples), *listed]:
        video = destination.video_of(body)
        assert video is not None
        assert video.remote_id == body["id"]
        assert video.state is not RemoteState.ERRORED
        assert (video.duration_ms is None) == ("duration" not in body)


def test_every_documented_upload_is_understood(described: Description) -> None:
    uploads: list[Any] = []
    for method, path in (
        ("POST", "/video/v1/uploads"),
        ("GET", "/video/v1/uploads"),
        ("GET", "/video/v1/uploads/{UPLOAD_ID}"),
        ("PUT", "/video/v1/uploads/{UPLOAD_ID}/cancel"),
    ):
        for example in described.examples(method, path):
            # Some of these examples are lists, with and without `data`.
            found = example if isinstance(example, list) else example["data"]
            uploads += found if isinstance(found, list) else [found]
    assert len(uploads) >= 4
    for upload in uploads:
        assert upload_in({"data": upload})["id"] == upload["id"]
