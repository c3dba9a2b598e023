"""What only Mux has: direct uploads and how they end, text tracks that failed, its events, its options."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from destinations import mux
from destinations.base import Attachment, CreateRequest, RemoteState, Transfer
from faults import Fault, Scope
from sources.about import About
from tests.destinations.hosts.mux import MuxServer

ADDRESS = "https://files.example/a.mp4"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[MuxServer]:
    async with MuxServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def open_one(server: MuxServer) -> AsyncIterator[Callable[..., mux.MuxDestination]]:
    opened: list[mux.MuxDestination] = []

    def opening(**given: Any) -> mux.MuxDestination:
        opened.append(server.open(**given))
        opened[-1].chunk_bytes = server.chunk_bytes
        return opened[-1]

    yield opening
    for destination in opened:
        await destination.aclose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mux's asset is waited for in milliseconds."""
    monkeypatch.setattr(mux, "ASSET_WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def film(tmp_path: Path) -> str:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"0123456789abcdef" * 90_000)
    return str(path)


async def turn() -> None:
    """Always free."""


async def keep(_: Transfer) -> None:
    """Nothing is killed."""


async def begun(host: mux.MuxDestination, film: str) -> Transfer:
    """A transfer that was given up after its first chunk."""
    kept: list[Transfer] = []

    class Killed(Exception):
        pass

    async def killing(transfer: Transfer) -> None:
        kept.append(transfer)
        if transfer.sent:
            raise Killed

    with pytest.raises(Killed):
        await host.upload(CreateRequest("ref-1", film, "A"), None, keep=killing, turn=turn)
    return kept[-1]


async def fault_of(call: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await call
    return raised.value


async def test_what_a_create_says_of_the_asset(server: MuxServer, open_one: Any) -> None:
    options = {"video_quality": "plus", "max_resolution_tier": "2160p", "test": True, "playback_policy": "public"}
    about = About(folder="Attic/Films", privacy="public")
    made = await open_one(options=options).create(CreateRequest("ref-1", ADDRESS, "A", about=about))
    assert server.videos[made.remote_id].asked == {
        "inputs": [{"url": ADDRESS}],
        "playback_policies": ["public"],
        "passthrough": "ref-1",
        "meta": {"title": "A", "external_id": "ref-1", "creator_id": "Attic/Films"},
        "video_quality": "plus",
        "max_resolution_tier": "2160p",
        "test": True,
    }


async def test_a_folder_that_is_too_long_is_left_out_and_the_video_made(server: MuxServer, open_one: Any) -> None:
    made = await open_one().create(CreateRequest("ref-1", ADDRESS, "A", about=About(folder="f" * 129)))
    assert "creator_id" not in server.videos[made.remote_id].asked["meta"]


async def test_an_account_can_make_every_video_signed(server: MuxServer, open_one: Any) -> None:
    made = await open_one(options={"playback_policy": "signed"}).create(CreateRequest("ref-1", ADDRESS, "A"))
    assert server.videos[made.remote_id].private


async def test_an_upload_whose_session_is_gone_is_begun_anew(server: MuxServer, open_one: Any, film: str) -> None:
    transfer = await begun(open_one(), film)
    server.gone |= set(server.uploads)
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), transfer, keep=keep, turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()
    assert len(server.uploads) == 2


@pytest.mark.parametrize("status", ["timed_out", "cancelled"])
async def test_an_upload_that_expired_is_begun_anew(server: MuxServer, open_one: Any, film: str, status: str) -> None:
    transfer = await begun(open_one(), film)
    next(iter(server.uploads.values()))["status"] = status
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), transfer, keep=keep, turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()


async def test_an_upload_that_mux_no_longer_knows_is_begun_anew(server: MuxServer, open_one: Any, film: str) -> None:
    transfer = await begun(open_one(), film)
    server.uploads.clear()
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), transfer, keep=keep, turn=turn)
    assert server.videos[made.remote_id].content == Path(film).read_bytes()


async def test_an_uploads_address_is_asked_for_as_long_as_mux_grants_it(
    server: MuxServer, open_one: Any, film: str
) -> None:
    await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=keep, turn=turn)
    assert [upload["timeout"] for upload in server.uploads.values()] == [604_800]


async def test_an_upload_that_had_arrived_when_it_was_killed_is_not_sent_again(
    server: MuxServer, open_one: Any, film: str
) -> None:
    kept: list[Transfer] = []

    async def keeping(transfer: Transfer) -> None:
        kept.append(transfer)

    made = await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=keeping, turn=turn)
    before = len(server.seen)
    again = await open_one().upload(CreateRequest("ref-1", film, "A"), kept[-1], keep=keep, turn=turn)
    assert again.remote_id == made.remote_id
    assert all(seen.method == "GET" for seen in server.seen[before:])


@pytest.mark.usefixtures("quick")
async def test_an_asset_that_comes_late_is_waited_for(server: MuxServer, open_one: Any, film: str) -> None:
    server.asset_after = 2
    made = await open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=keep, turn=turn)
    assert made.ref == "ref-1"


@pytest.mark.usefixtures("quick")
async def test_an_asset_that_does_not_come_may_exist_later(server: MuxServer, open_one: Any, film: str) -> None:
    server.asset_after = 100
    fault = await fault_of(open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=keep, turn=turn))
    assert (fault.code, fault.landed) == ("answer-lost", True)


async def test_an_upload_that_mux_could_not_make_an_asset_of_has_its_words(
    server: MuxServer, open_one: Any, film: str
) -> None:
    transfer = await begun(open_one(), film)
    next(iter(server.uploads.values())).update(
        status="errored", error={"type": "invalid_input", "message": "this is no video"}
    )
    fault = await fault_of(open_one().upload(CreateRequest("ref-1", film, "A"), transfer, keep=keep, turn=turn))
    assert fault.code == "file-corrupt"
    assert "this is no video" in fault.detail


async def test_an_address_that_keeps_nothing_is_given_up_after_a_few_tries(
    server: MuxServer, open_one: Any, film: str
) -> None:
    async def forgetting(_: Transfer) -> None:
        next(iter(server.uploads.values()))["forgets"] = True

    upload = open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=forgetting, turn=turn)
    fault = await fault_of(upload)
    assert (fault.code, fault.permanent) == ("destination-error", False)
    assert sum(seen.method == "PUT" for seen in server.seen) < 10


async def test_an_address_that_is_no_longer_good_is_not_the_accounts_credentials(
    server: MuxServer, open_one: Any, film: str
) -> None:
    async def expiring(_: Transfer) -> None:
        next(iter(server.uploads.values()))["signature"] = "another"

    fault = await fault_of(open_one().upload(CreateRequest("ref-1", film, "A"), None, keep=expiring, turn=turn))
    assert (fault.code, fault.scope) == ("destination-error", Scope.ROW)


async def test_a_title_that_is_too_long_is_refused_for_an_upload_too(
    server: MuxServer, open_one: Any, film: str
) -> None:
    fault = await fault_of(open_one().upload(CreateRequest("ref-1", film, "t" * 600), None, keep=keep, turn=turn))
    assert (fault.code, fault.permanent) == ("destination-refused-input", True)


async def test_a_track_that_failed_is_replaced(server: MuxServer, open_one: Any) -> None:
    video, host = server.add("ref-1"), open_one()
    attachment = Attachment("captions", "https://files.example/a.vtt", language="de", label="Deutsch")
    await host.attach(video.id, attachment, turn=turn)
    video.extra["tracks"][0]["status"] = "errored"
    await host.attach(video.id, attachment, turn=turn)
    (track,) = video.extra["tracks"]
    assert (track["status"], track["closed_captions"]) == ("preparing", True)


async def test_an_asset_in_preparation_is_deleted_later(server: MuxServer, open_one: Any) -> None:
    video = server.add("ref-1", extra={"undeletable": True})
    fault = await fault_of(open_one().delete(video.id))
    assert (fault.code, fault.permanent) == ("destination-error", False)


async def test_a_token_that_may_only_read_is_told_before_a_run(server: MuxServer, open_one: Any) -> None:
    found = {finding.name: finding for finding in await open_one().check()}
    assert found["write"].good
    server.read_only = True
    found = {finding.name: finding for finding in await open_one().check()}
    assert found["write"].good is False
    assert "read and write" in found["write"].words


def test_a_known_signature_is_believed() -> None:
    settings = MuxServer().account(base_url=None, webhook_secrets=["SuperSecret123"])
    host = mux.MuxDestination(settings, clock=lambda: 1_565_125_718)
    signature = "854ece4c22acef7c66b57d4e504153bc512595e8e9c772ece2a68150548c19a7"
    host.verify({"mux-signature": f"t=1565125718,v1=00,v1={signature}"}, b'{"test":"body"}')


@pytest.mark.parametrize("kind", ["video.asset.track.ready", "video.upload.asset_created", "video.live_stream.idle"])
def test_an_event_whose_data_is_no_asset_tells_nothing(kind: str) -> None:
    host = mux.MuxDestination(MuxServer().account(base_url=None))
    body = json.dumps({"type": kind, "id": "e1", "data": {"id": "t1", "status": "ready", "asset_id": "a1"}}).encode()
    seen = host.parse_event({}, body)
    assert (seen.video, seen.dedupe_key) == (None, "e1")


@pytest.mark.parametrize(
    "words", [{"error": {"type": "a", "messages": ["b", "c"]}}, {"errors": {"messages": ["b; c"]}}]
)
def test_a_refusal_is_read_in_both_spellings(words: Any) -> None:
    host = mux.MuxDestination(MuxServer().account(base_url=None))
    assert host.error_of(words)[1] == "b; c"


def test_an_unknown_status_keeps_the_id() -> None:
    host = mux.MuxDestination(MuxServer().account(base_url=None))
    video = host.video_of({"id": "a1", "status": "marinating"})
    assert video is not None
    assert (video.remote_id, video.state) == ("a1", RemoteState.PROCESSING)


@pytest.mark.parametrize("place", [{"passthrough": "ref-1"}, {"meta": {"external_id": "ref-1"}}])
def test_the_reference_is_found_in_either_of_its_places(place: Any) -> None:
    host = mux.MuxDestination(MuxServer().account(base_url=None))
    video = host.video_of({"id": "a1", "status": "ready", **place})
    assert video is not None
    assert video.ref == "ref-1"
