"""What only FastPix has: three kinds of upload addresses, durations in two forms, a list by the number of its pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from destinations import check_options, fastpix
from destinations.base import CreateRequest, RemoteState, Transfer
from faults import Fault
from sources.about import About
from tests.destinations.hosts.fastpix import FastPixServer

ADDRESS = "https://files.example/a.mp4"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FastPixServer]:
    async with FastPixServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def open_one(server: FastPixServer) -> AsyncIterator[Callable[..., fastpix.FastPixDestination]]:
    opened: list[fastpix.FastPixDestination] = []

    def opening(**given: Any) -> fastpix.FastPixDestination:
        opened.append(server.open(**given))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastPix's media is waited for in milliseconds."""
    monkeypatch.setattr(fastpix, "MADE_WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def film(tmp_path: Path) -> str:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"0123456789abcdef" * 90_000)
    return str(path)


async def turn() -> None:
    """Always free."""


class Kept(list[Transfer]):
    """Gives a transfer up once so many bytes are there."""

    def __init__(self, kill_at: int | None = None) -> None:
        super().__init__()
        self._kill_at = kill_at

    async def __call__(self, transfer: Transfer) -> None:
        self.append(transfer)
        if self._kill_at is not None and transfer.sent >= self._kill_at:
            raise Killed


class Killed(Exception):
    pass


async def test_what_a_create_says_of_the_media(server: FastPixServer, open_one: Any) -> None:
    about = About(folder="Attic/Films", tags=("a", "b c"), privacy="public")
    host = open_one(options={"media_quality": "pro", "max_resolution": "2160p"})
    made = await host.create(CreateRequest("ref-1", ADDRESS, "A", about=about))
    assert server.videos[made.remote_id].asked == {
        "inputs": [{"type": "video", "url": ADDRESS}],
        "accessPolicy": "public",
        "metadata": {"longhaul_ref": "ref-1", "folder": "Attic/Films", "tags": "a, b c"},
        "title": "A",
        "mediaQuality": "pro",
        "maxResolution": "2160p",
    }


async def test_of_many_tags_as_many_whole_ones_are_kept_as_there_is_room(server: FastPixServer, open_one: Any) -> None:
    tags = ("a" * 200, "b" * 100, "c" * 40)
    made = await open_one().create(CreateRequest("ref-1", ADDRESS, "A", about=About(tags=tags, folder="f" * 256)))
    metadata = server.videos[made.remote_id].asked["metadata"]
    assert metadata == {"longhaul_ref": "ref-1", "tags": f"{'a' * 200}, {'c' * 40}"}


@pytest.mark.parametrize("style", ["session", "start", "plain"])
async def test_each_kind_of_upload_address_is_used_as_it_wants(
    server: FastPixServer, open_one: Any, film: str, style: Any
) -> None:
    server.upload_style = style
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=Kept(), turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()
    puts = sum(seen.method == "PUT" for seen in server.seen)
    assert (puts == 1) == (style == "plain")


@pytest.mark.parametrize("style", ["session", "start", "plain"])
async def test_after_a_kill_each_kind_ends_as_one_media(
    server: FastPixServer, open_one: Any, film: str, style: Any
) -> None:
    server.upload_style = style
    kept = Kept(kill_at=0)
    with pytest.raises(Killed):
        await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=kept, turn=turn)
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), kept[-1], keep=Kept(), turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()
    assert len(server.uploads) == len(server.videos) == 1


async def test_an_upload_that_had_arrived_when_it_was_killed_is_not_sent_again(
    server: FastPixServer, open_one: Any, film: str
) -> None:
    kept = Kept(kill_at=Path(film).stat().st_size)
    with pytest.raises(Killed):
        await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=kept, turn=turn)
    before = len(server.seen)
    await open_one().upload(CreateRequest("ref-1", film, "A"), kept[-1], keep=Kept(), turn=turn)
    assert [seen.method for seen in server.seen[before:]] == ["GET"]
    assert len(server.videos) == 1


@pytest.mark.usefixtures("quick")
async def test_an_upload_that_is_no_longer_known_is_begun_anew(server: FastPixServer, open_one: Any, film: str) -> None:
    kept = Kept(kill_at=1)
    with pytest.raises(Killed):
        await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=kept, turn=turn)
    server.uploads.clear()
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), kept[-1], keep=Kept(), turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()


@pytest.mark.usefixtures("quick")
async def test_an_upload_that_arrived_and_became_nothing_is_not_sent_again(
    server: FastPixServer, open_one: Any, film: str
) -> None:
    kept = Kept(kill_at=Path(film).stat().st_size)
    with pytest.raises(Killed):
        await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=kept, turn=turn)
    server.videos.clear()
    with pytest.raises(Fault) as raised:
        await open_one().upload(CreateRequest("ref-1", film, "A"), kept[-1], keep=Kept(), turn=turn)
    assert (raised.value.code, raised.value.landed) == ("answer-lost", True)
    assert len(server.uploads) == 1


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("00:00:10", 10_000),
        ("01:02:03", 3_723_000),
        ("00:00:04.5", 4_500),
        (4.02, 4_020),
        ("7", 7_000),
        ("00:00:00", None),
        (0, None),
        (-1, None),
        (None, None),
        ("", None),
        ("soon", None),
        ("1:2", None),
        ("00:00:99", None),
        (True, None),
        ([], None),
    ],
)
def test_durations_are_read_in_every_form(duration: Any, ms: int | None) -> None:
    assert fastpix.milliseconds(duration) == ms


@pytest.mark.parametrize(
    "pagination",
    [
        {"totalRecords": 100, "currentOffset": 1, "offsetCount": 1},
        {"totalRecords": 3, "currentOffset": 1, "offsetCount": 50},
        {"totalRecords": "100", "currentOffset": 1, "offsetCount": 2},
        {"totalRecords": 100, "currentOffset": 1},
        {"totalRecords": -1, "offsetCount": 1},
        None,
    ],
)
def test_a_list_whose_offsets_are_no_pages_is_refused_rather_than_read_to_the_wrong_end(pagination: Any) -> None:
    host = fastpix.FastPixDestination(FastPixServer().account(base_url=None))
    with pytest.raises(Fault) as raised:
        host.listing_of({"success": True, "data": [], "pagination": pagination}, "")
    assert raised.value.code == "answer-malformed"


@pytest.mark.parametrize(
    "word", ["Created", "Downloading", "Downloaded", "Validating", "In Queue", "Processing", "New"]
)
def test_every_state_on_the_way_is_processing(word: str) -> None:
    host = fastpix.FastPixDestination(FastPixServer().account(base_url=None))
    video = host.video_of({"id": "m1", "status": word})
    assert video is not None
    assert video.state is RemoteState.PROCESSING


def test_an_events_type_says_the_state_whatever_its_data_says() -> None:
    host = fastpix.FastPixDestination(FastPixServer().account(base_url=None))
    for kind, state in (("ready", RemoteState.READY), ("failed", RemoteState.ERRORED)):
        event = {"type": f"video.media.{kind}", "id": "e1", "data": {"id": "m1", "status": "Processing"}}
        seen = host.parse_event({}, json.dumps(event).encode())
        assert seen.video is not None
        assert seen.video.state is state


def test_an_event_about_an_upload_tells_nothing() -> None:
    host = fastpix.FastPixDestination(FastPixServer().account(base_url=None))
    event = {"type": "video.media.upload", "id": "e1", "data": {"uploadId": "u1", "status": "waiting"}}
    assert host.parse_event({}, json.dumps(event).encode()).video is None


def test_a_webhook_secret_that_is_no_base64_is_named() -> None:
    with pytest.raises(Fault, match="webhook_secrets: number 1") as raised:
        check_options(FastPixServer().account(base_url=None, webhook_secrets=["no base64!"]))
    assert "no base64!" not in str(raised.value)


def test_a_known_signature_is_believed() -> None:
    settings = FastPixServer().account(base_url=None, webhook_secrets=["c2VjcmV0"])
    # openssl dgst -sha256 -hmac secret -binary | base64
    headers = {"fastpix-signature": "a0k59r1ZnHqL2r61evpZxNL0A4zET+zyduu9XCJ4JWY="}
    fastpix.FastPixDestination(settings).verify(headers, b'{"test":"body"}')
