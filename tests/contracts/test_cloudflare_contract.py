"""What is said to Cloudflare Stream, and what its test server answers, against Cloudflare's own description of 2024."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from destinations.cloudflare import _STATES, CloudflareDestination
from sources.about import About
from tests.contracts.describing import Description, needs_descriptions
from tests.destinations.hosts.base import Seen
from tests.destinations.hosts.cloudflare import ACCOUNT, CloudflareServer

pytestmark = needs_descriptions

NEWER: Final = {
    "input": "its older name is url",
    "?limit": "came after the description",
    "?video_name": "came after the description",
    "SecurityValidationError": "it demands a token, a key and an email address at once; each alone is documented",
}
"""What the description holds against requests of ours, and why they are right."""
NULL: Final = {
    "creator": "null in the vendor's own example of a delivery",
    "maxDurationSeconds": "null in the vendor's own example of a delivery",
    "uploadExpiry": "null in the vendor's own example of a delivery",
    "watermark": "null where there is none",
}
"""Fields of answers that are null, where the description has only values."""
ROOT: Final = f"/accounts/{ACCOUNT}/stream"


@pytest.fixture(scope="module")
def described() -> Description:
    # Not sound: it has words where a moment's default would be.
    return Description("cloudflare-stream.json", "https://api.cloudflare.com/client/v4", sound=False)


async def everything(server: CloudflareServer, folder: Path) -> None:
    """Each call that the module can make, once at least."""
    server.together = 1

    async def turn() -> None:
        pass

    async def keep(_: Transfer) -> None:
        pass

    for way in ("creator", "name"):
        destination = CloudflareDestination(server.account(options={"reference_in": way, "list_limit": 2}))
        try:
            about = About(description="About it", tags=("a", "b"), folder="Attic", privacy="private")
            made = await destination.create(CreateRequest("ref-1", "https://files.example/a.mp4", "A", about=about))
            film = folder / "a.mp4"
            film.write_bytes(b"x" * 1000)
            request = CreateRequest("ref-2", str(film), "B", about=about)
            sent = await destination.upload(request, None, keep=keep, turn=turn)
            server.settle(sent.remote_id, "ready")
            await destination.get(sent.remote_id)
            await destination.lookup("ref-2")
            first = await destination.list_page(None)
            if first.next_cursor:
                await destination.list_page(first.next_cursor)
            await destination.attach(sent.remote_id, Attachment("subtitles", "x", b"WEBVTT\n", "de-CH"), turn=turn)
            await destination.check()
            await destination.delete(made.remote_id)
        finally:
            await destination.aclose()


@pytest.fixture
async def asked(tmp_path: Path) -> Any:
    """What was asked of the described API: not of the tokens', and not tus's own way with a file."""
    async with CloudflareServer().serving() as running:
        await everything(running, tmp_path)  # type: ignore[arg-type]
        yield [seen for seen in running.seen if seen.path.startswith(ROOT) and seen.method not in ("HEAD", "PATCH")]


async def test_every_request_is_as_cloudflare_describes_it(asked: list[Seen], described: Description) -> None:
    assert {(seen.method, seen.path.removeprefix(ROOT).count("/")) for seen in asked} == {
        ("POST", 0), ("GET", 0), ("POST", 1), ("GET", 1), ("DELETE", 1), ("PUT", 3),
    }  # fmt: skip
    wrong = [words for seen in asked for words in described.wrong(seen)]
    assert not [words for words in wrong if not words.startswith(tuple(NEWER))]
    assert all(any(words.startswith(excuse) for words in wrong) for excuse in NEWER), "each is needed"
    # What it holds against the credentials is not of ours: it wants three kinds of them at once.
    assert all(seen.headers["authorization"] == f"Bearer {CloudflareServer.token}" for seen in asked)


async def test_every_answer_of_the_test_server_is_as_cloudflare_describes_it(
    asked: list[Seen], described: Description
) -> None:
    nulls: set[str] = set()
    for seen in asked:
        if seen.status == 201:  # tus's own, where the description has 200
            assert not seen.answer
            assert (seen.method, seen.path) == ("POST", ROOT)
            continue
        if seen.method == "DELETE":  # "application/json" is described, without a schema
            assert not seen.answer
            continue
        body = json.loads(seen.answer)
        for video in body["result"] if isinstance(body["result"], list) else [body["result"]]:
            for name in [name for name, value in video.items() if value is None]:
                nulls.add(name)
                del video[name]
        assert not described.wrong_answer(replace(seen, answer=json.dumps(body).encode())), (seen.method, seen.path)
    assert nulls == set(NULL)


def test_every_state_that_is_described_is_known(described: Description) -> None:
    states = described.resolved({"$ref": "#/components/schemas/stream_media_state"})["enum"]
    assert set(states) | {"live-inprogress"} == set(_STATES)


def test_the_documented_video_is_understood(described: Description) -> None:
    # The description has an example of each field, and none of the whole.
    properties = described.resolved({"$ref": "#/components/schemas/stream_videos"})["properties"]

    def example(schema: Any) -> Any:
        schema = described.resolved(schema)
        if "example" in schema:
            return schema["example"]
        return {name: example(inner) for name, inner in schema.get("properties", {}).items()} or None

    video = CloudflareDestination(CloudflareServer().account(base_url=None)).video_of(
        {name: example(schema) for name, schema in properties.items()}
    )
    assert video is not None
    assert (video.remote_id, video.ref) == ("ea95132c15732412d22c1476fa83f27a", "creator-id_abcde12345")
    assert (video.state, video.title) == (RemoteState.PROCESSING, "video12345.mp4")
    assert video.playback is not None
    assert video.playback.endswith(".m3u8")
