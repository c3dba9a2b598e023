"""The vendors' own clients judge the test servers: they drive them, and read every answer with their own types."""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import apivideo.apis
import cloudflare
import fastpix_python
import httpx
import mux_python
import pytest
import pytest_asyncio
import tusclient.client
import tusclient.exceptions
from apivideo.exceptions import ApiException, NotFoundException
from apivideo.model.metadata import Metadata
from apivideo.model.video_creation_payload import VideoCreationPayload
from cloudflare import AsyncCloudflare
from fastpix_python import models

from destinations.fastpix import REFERENCE
from tests.destinations.hosts.apivideo import SMALLEST, ApiVideoServer
from tests.destinations.hosts.bunny import LIBRARY, BunnyServer
from tests.destinations.hosts.cloudflare import ACCOUNT, CloudflareServer
from tests.destinations.hosts.fastpix import FastPixServer
from tests.destinations.hosts.mux import MuxServer

# --------------------------------------------------------------------------------------------------------------- Mux


@pytest_asyncio.fixture
async def mux() -> AsyncIterator[MuxServer]:
    async with MuxServer().serving() as running:
        yield running  # type: ignore[misc]


def mux_client(server: MuxServer, token: str | None = None) -> Any:
    username, _, password = (token or server.token).partition(":")
    configuration = mux_python.Configuration(host=server.url, username=username, password=password)
    return mux_python.ApiClient(configuration)


async def asked(call: Any, *arguments: Any, **named: Any) -> Any:
    """The clients block."""
    return await asyncio.to_thread(call, *arguments, **named)


async def test_muxs_client_makes_reads_lists_and_deletes_assets(mux: MuxServer) -> None:
    assets = mux_python.AssetsApi(mux_client(mux))
    settings = mux_python.CreateAssetRequest(
        inputs=[mux_python.InputSettings(url="https://files.example/a.mp4")],
        playback_policies=[mux_python.PlaybackPolicy.SIGNED],
        passthrough="ref-1",
        meta=mux_python.AssetMetadata(title="A title", external_id="ref-1"),
        video_quality="basic",
    )
    made = (await asked(assets.create_asset, settings)).data
    assert (made.passthrough, made.status, made.meta.title) == ("ref-1", "preparing", "A title")
    assert made.playback_ids[0].policy == "signed"
    mux.settle(made.id, "ready")
    ready = (await asked(assets.get_asset, made.id)).data
    assert (ready.status, ready.duration, ready.tracks[0].max_width) == ("ready", 4.02, 320)
    track = mux_python.CreateTrackRequest(
        url="https://files.example/a.vtt", type="text", text_type="subtitles", language_code="de", name="Deutsch"
    )
    assert (await asked(assets.create_asset_track, made.id, track)).data.language_code == "de"
    mux.page_max = 1
    mux.add("ref-2")
    first = await asked(assets.list_assets, limit=1)
    second = await asked(assets.list_assets, limit=1, cursor=first.next_cursor)
    assert [page.data[0].passthrough for page in (first, second)] == ["ref-2", "ref-1"]
    assert second.next_cursor is None
    await asked(assets.delete_asset, made.id)
    with pytest.raises(mux_python.exceptions.NotFoundException):
        await asked(assets.get_asset, made.id)


async def test_muxs_client_reads_why_an_asset_failed(mux: MuxServer) -> None:
    video = mux.settle(mux.add("ref-1").id, "errored", code="invalid_input")
    errors = (await asked(mux_python.AssetsApi(mux_client(mux)).get_asset, video.id)).data.errors
    assert (errors.type, errors.messages) == ("invalid_input", ["it did not work", "at all"])


async def test_muxs_client_uploads(mux: MuxServer) -> None:
    uploads = mux_python.DirectUploadsApi(mux_client(mux))
    settings = mux_python.CreateAssetRequest(playback_policies=[mux_python.PlaybackPolicy.PUBLIC], passthrough="ref-1")
    request = mux_python.CreateUploadRequest(new_asset_settings=settings, cors_origin="*", timeout=3600)
    upload = (await asked(uploads.create_direct_upload, request)).data
    assert (upload.status, upload.asset_id) == ("waiting", None)
    async with httpx.AsyncClient() as plain:
        await plain.put(upload.url, content=b"x" * 10, headers={"content-range": "bytes 0-9/10"})
    done = (await asked(uploads.get_direct_upload, upload.id)).data
    assert done.status == "asset_created"
    assert mux.videos[done.asset_id].content == b"x" * 10
    assert (await asked(uploads.cancel_direct_upload, upload.id)).data.status == "cancelled"


async def test_muxs_client_knows_the_refusals(mux: MuxServer) -> None:
    wrong = mux_python.AssetsApi(mux_client(mux, "id:wrong"))
    with pytest.raises(mux_python.exceptions.UnauthorizedException):
        await asked(wrong.list_assets)
    mux.next(mux.too_many(None))
    with pytest.raises(mux_python.exceptions.ApiException) as raised:
        await asked(mux_python.AssetsApi(mux_client(mux)).list_assets)
    assert raised.value.status == 429


# ----------------------------------------------------------------------------------------------------------- FastPix


@pytest_asyncio.fixture
async def fastpix() -> AsyncIterator[FastPixServer]:
    async with FastPixServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def fastpix_client(fastpix: FastPixServer) -> AsyncIterator[Any]:
    username, _, password = fastpix.token.partition(":")
    async with fastpix_python.Fastpix(
        security=models.Security(username=username, password=password), server_url=fastpix.url + "/v1"
    ) as client:
        yield client


async def test_fastpixs_client_makes_reads_lists_and_deletes_media(fastpix: FastPixServer, fastpix_client: Any) -> None:
    made = await fastpix_client.input_video.create_media_async(
        inputs=[{"type": "video", "url": "https://files.example/a.mp4"}],
        metadata={REFERENCE: "ref-1"},
        access_policy="private",
    )
    assert made.success
    assert (made.data.metadata, made.data.status) == ({REFERENCE: "ref-1"}, "Created")
    # Description and client disagree; the module reads both.
    fastpix.durations = "seconds"
    fastpix.settle(made.data.id, "ready")
    ready = (await fastpix_client.manage_videos.get_media_async(media_id=made.data.id)).data
    assert (ready.status, ready.duration) == ("Ready", 4.02)
    assert ready.playback_ids[0].access_policy == "private"
    fastpix.page_max = 1
    fastpix.add("ref-2")
    pages = [
        (await fastpix_client.manage_videos.list_media_async(limit=1, offset=offset, order_by="desc"))
        for offset in (1, 2)
    ]
    assert [page.data[0].metadata[REFERENCE] for page in pages] == ["ref-2", "ref-1"]
    assert (pages[0].pagination.total_records, pages[0].pagination.offset_count) == (2, 2)
    await fastpix_client.manage_videos.delete_media_async(media_id=made.data.id)
    assert made.data.id not in fastpix.videos


async def test_fastpixs_client_announces_an_upload_and_finds_it_unused(
    fastpix: FastPixServer, fastpix_client: Any
) -> None:
    upload = await fastpix_client.input_video.direct_upload_video_media_async(
        request={
            "cors_origin": "*",
            "push_media_settings": {"access_policy": "public", "metadata": {REFERENCE: "ref-1"}},
        }
    )
    waiting = await fastpix_client.manage_videos.list_uploads_async(limit=10, offset=1, order_by="desc")
    assert upload.data.status == "waiting"
    assert [(found.upload_id, found.url) for found in waiting.data] == [(upload.data.upload_id, upload.data.url)]
    async with httpx.AsyncClient() as plain:
        await plain.put(upload.data.url, content=b"x" * 10, headers={"content-range": "bytes 0-9/10"})
    media = await fastpix_client.manage_videos.get_media_async(media_id=upload.data.upload_id)
    assert media.data.metadata == {REFERENCE: "ref-1"}
    assert not (await fastpix_client.manage_videos.list_uploads_async(limit=10, offset=1, order_by="desc")).data


async def test_fastpixs_client_adds_subtitles(fastpix: FastPixServer, fastpix_client: Any) -> None:
    video = fastpix.add("ref-1")
    track = {
        "url": "https://files.example/a.vtt",
        "type": "subtitle",
        "language_code": "de",
        "language_name": "Deutsch",
    }
    made = await fastpix_client.manage_videos.add_media_track_async(media_id=video.id, tracks=track)
    assert made.data.language_code == "de"
    assert video.captions == [("de", "https://files.example/a.vtt")]


async def test_fastpixs_client_knows_the_refusals(fastpix: FastPixServer) -> None:
    security = models.Security(username="id", password="wrong")
    async with fastpix_python.Fastpix(security=security, server_url=fastpix.url + "/v1") as client:
        with pytest.raises(fastpix_python.errors.FastpixError) as raised:
            await client.manage_videos.list_media_async(limit=1, offset=1, order_by="desc")
    assert raised.value.status_code == 401


# -------------------------------------------------------------------------------------------------- Cloudflare Stream


@pytest_asyncio.fixture
async def stream() -> AsyncIterator[CloudflareServer]:
    async with CloudflareServer().serving() as running:
        yield running  # type: ignore[misc]


@pytest_asyncio.fixture
async def cloudflare_client(stream: CloudflareServer) -> AsyncIterator[AsyncCloudflare]:
    async with AsyncCloudflare(api_token=stream.token, base_url=stream.url, max_retries=0) as client:
        yield client


async def test_cloudflares_client_makes_reads_lists_and_deletes_videos(
    stream: CloudflareServer, cloudflare_client: AsyncCloudflare
) -> None:
    videos = cloudflare_client.stream
    made = await videos.copy.create(
        account_id=ACCOUNT,
        input="https://files.example/a.mp4",
        meta={"name": "A title"},
        creator="ref-1",
        require_signed_urls=True,
    )
    assert made is not None and made.uid and made.status
    assert (made.creator, made.status.state, made.duration, made.require_signed_urls) == (
        "ref-1",
        "downloading",
        -1,
        True,
    )
    stream.settle(made.uid, "ready")
    ready = await videos.get(made.uid, account_id=ACCOUNT)
    assert ready is not None and ready.status and ready.input
    assert (ready.status.state, ready.duration, ready.input.width) == ("ready", 4.02, 320)
    assert ready.status.pct_complete == "39.000000"
    stream.add("ref-2", "Another title")
    for filters in ({"creator": "ref-1"}, {"video_name": "A title"}, {"id": made.uid}, {"status": "ready"}):
        found = [video async for video in videos.list(account_id=ACCOUNT, limit=10, **filters)]  # type: ignore[arg-type]
        assert [video.uid for video in found] == [made.uid]
    everything = [video async for video in videos.list(account_id=ACCOUNT, asc=True, start=ready.created or "")]
    assert [video.creator for video in everything] == ["ref-1", "ref-2"]
    await videos.delete(made.uid, account_id=ACCOUNT)
    with pytest.raises(cloudflare.NotFoundError):
        await videos.get(made.uid, account_id=ACCOUNT)


async def test_cloudflares_client_reads_why_a_video_failed(
    stream: CloudflareServer, cloudflare_client: AsyncCloudflare
) -> None:
    video = stream.settle(stream.add("ref-1").id, "errored", code="ERR_NON_VIDEO")
    found = await cloudflare_client.stream.get(video.id, account_id=ACCOUNT)
    assert found is not None and found.status
    assert (found.status.state, found.status.error_reason_code) == ("error", "ERR_NON_VIDEO")


async def test_cloudflares_client_puts_captions_on_and_asks_where_deliveries_go(
    stream: CloudflareServer, cloudflare_client: AsyncCloudflare
) -> None:
    video = stream.add("ref-1")
    language = cloudflare_client.stream.captions.language
    for _ in range(2):
        track = "WEBVTT\n\n00:00.000 --> 00:01.000\nHallo\n"
        await language.update("de", account_id=ACCOUNT, identifier=video.id, file=track)
    assert [known for known, _ in video.captions] == ["de"]
    captions = cloudflare_client.stream.captions.get(video.id, account_id=ACCOUNT)
    assert [caption.language async for caption in captions] == ["de"]
    hook = await cloudflare_client.stream.webhooks.get(account_id=ACCOUNT)
    assert "longhaul.example" in str(hook)
    verified = await cloudflare_client.user.tokens.verify()
    assert verified is not None
    assert verified.status == "active"


async def test_cloudflares_client_knows_the_refusals(stream: CloudflareServer) -> None:
    async with AsyncCloudflare(api_token="wrong", base_url=stream.url, max_retries=0) as client:
        with pytest.raises(cloudflare.AuthenticationError):
            await client.stream.get("x", account_id=ACCOUNT)
    async with AsyncCloudflare(api_token=stream.token, base_url=stream.url, max_retries=0) as client:
        stream.next(stream.too_many(7))
        with pytest.raises(cloudflare.RateLimitError) as raised:
            await client.stream.get("x", account_id=ACCOUNT)
    assert raised.value.response.headers["retry-after"] == "7"
    assert [error.code for error in raised.value.errors] == [971]


# ---------------------------------------------------------------------------------------------------------- api.video


@pytest_asyncio.fixture
async def apivideo_server() -> AsyncIterator[ApiVideoServer]:
    async with ApiVideoServer().serving() as running:
        yield running  # type: ignore[misc]


async def apivideo_client(server: ApiVideoServer) -> Any:
    client = apivideo.AuthenticatedApiClient(server.token)
    client.configuration.host = server.url
    await asked(client.connect)
    return client


async def test_apivideos_client_makes_reads_lists_and_deletes_videos(apivideo_server: ApiVideoServer) -> None:
    client = await apivideo_client(apivideo_server)
    videos = apivideo.apis.VideosApi(client)
    metadata = [Metadata(key="longhaul-ref", value="ref-1")]
    payload = VideoCreationPayload(
        title="A title", source="https://files.example/a.mp4", public=False, metadata=metadata, tags=["a"]
    )
    made = await asked(videos.create, payload)
    assert (made.title, made.public, made.metadata[0].value) == ("A title", False, "ref-1")
    assert (await asked(videos.get_status, made.video_id)).encoding.playable is False
    apivideo_server.settle(made.video_id, "ready")
    status = await asked(videos.get_status, made.video_id)
    assert (status.encoding.playable, status.encoding.metadata.duration) == (True, 4)
    assert (await asked(videos.get, made.video_id)).assets.hls.endswith(".m3u8")
    apivideo_server.page_max = 1
    apivideo_server.add("ref-2")
    second = await asked(videos.list, current_page=2, page_size=10, sort_by="createdAt", sort_order="asc")
    assert (second.pagination.pages_total, second.data[0].metadata[0].value) == (2, "ref-2")
    found = await asked(videos.list, metadata={"longhaul-ref": "ref-1"})
    assert [video.video_id for video in found.data] == [made.video_id]
    await asked(videos.delete, made.video_id)
    with pytest.raises(NotFoundException):
        await asked(videos.get, made.video_id)


async def test_apivideos_client_uploads_in_parts_and_may_do_so_once(apivideo_server: ApiVideoServer) -> None:
    client = await apivideo_client(apivideo_server)
    videos = apivideo.apis.VideosApi(client)
    made = await asked(videos.create, VideoCreationPayload(title="A title"))
    content = bytes(range(256)) * (SMALLEST * 2 // 256 + 40)
    client.configuration.chunk_size = SMALLEST

    class Named(io.BytesIO):
        name = "a.mp4"

    await asked(videos.upload, made.video_id, Named(content))
    assert apivideo_server.videos[made.video_id].content == content
    assert (await asked(videos.get_status, made.video_id)).ingest.status == "uploaded"
    with pytest.raises(ApiException) as raised:
        await asked(videos.upload, made.video_id, Named(b"x"))
    assert raised.value.status == 400


async def test_apivideos_client_puts_on_captions_and_a_thumbnail_and_lists_webhooks(
    apivideo_server: ApiVideoServer,
) -> None:
    client = await apivideo_client(apivideo_server)
    video = apivideo_server.add("ref-1")

    class Track(io.BytesIO):
        name = "de.vtt"

    class Picture(io.BytesIO):
        name = "a.jpg"

    captions = apivideo.apis.CaptionsApi(client)
    assert (await asked(captions.upload, video.id, "de", Track(b"WEBVTT\n"))).srclang == "de"
    assert (await asked(captions.get, video.id, "de")).src.endswith("de.vtt")
    assert [track.srclang for track in (await asked(captions.list, video.id)).data] == ["de"]
    thumbnail = await asked(apivideo.apis.VideosApi(client).upload_thumbnail, video.id, Picture(b"\xff\xd8"))
    assert thumbnail.video_id == video.id
    assert len(video.posters) == 1
    (hook,) = (await asked(apivideo.apis.WebhooksApi(client).list)).data
    assert hook.events == ["video.encoding.quality.completed"]


async def test_apivideos_client_knows_the_refusals(apivideo_server: ApiVideoServer) -> None:
    client = await apivideo_client(apivideo_server)
    apivideo_server.next(apivideo_server.too_many(7))
    with pytest.raises(ApiException) as raised:
        await asked(apivideo.apis.VideosApi(client).list)
    assert (raised.value.status, raised.value.headers["X-RateLimit-Retry-After"]) == (429, "7")


# ------------------------------------------------------------------------------------------------------- tus, by tuspy

FILM = bytes(range(256)) * 23_000


def tus(address: str, headers: dict[str, str], **named: Any) -> Any:
    return tusclient.client.TusClient(address, headers=headers).uploader(file_stream=io.BytesIO(FILM), **named)


async def test_a_client_of_tus_sends_a_file_to_cloudflare_and_goes_on_with_it(stream: CloudflareServer) -> None:
    address = f"{stream.url}/accounts/{ACCOUNT}/stream"
    credentials = {"Authorization": f"Bearer {stream.token}", "Upload-Creator": "ref-1"}
    about = {"name": "A title", "requiresignedurls": ""}
    upload = await asked(tus, address, credentials, chunk_size=5_242_880, metadata=about)
    await asked(upload.upload_chunk)
    assert upload.offset == 5_242_880
    again = await asked(tus, address, credentials, chunk_size=5_242_880, url=upload.url)
    assert again.offset == 5_242_880
    await asked(again.upload)
    (video,) = stream.videos.values()
    assert (video.ref, video.title, video.private, video.content) == ("ref-1", "A title", True, FILM)


async def test_cloudflare_refuses_parts_of_a_wrong_size(stream: CloudflareServer) -> None:
    address, credentials = f"{stream.url}/accounts/{ACCOUNT}/stream", {"Authorization": f"Bearer {stream.token}"}
    for size in (1_048_576, 5_242_881):
        upload = await asked(tus, address, credentials, chunk_size=size)
        with pytest.raises(tusclient.exceptions.TusUploadFailed):
            await asked(upload.upload_chunk)


async def test_a_client_of_tus_sends_a_file_to_bunny_with_a_signature_alone() -> None:
    async with BunnyServer().serving() as running:
        assert isinstance(running, BunnyServer)
        async with httpx.AsyncClient(headers={"AccessKey": running.token}) as plain:
            made = (await plain.post(f"{running.url}/library/{LIBRARY}/videos", json={"title": "A title"})).json()
        until = str(int(time.time()) + 3600)
        signed = f"{LIBRARY}{running.token}{until}{made['guid']}"
        credentials = {
            "AuthorizationSignature": hashlib.sha256(signed.encode()).hexdigest(),
            "AuthorizationExpire": until,
            "LibraryId": str(LIBRARY),
            "VideoId": made["guid"],
        }
        about = {"filetype": "video/mp4", "title": "A title"}
        upload = await asked(tus, f"{running.url}/tusupload", credentials, chunk_size=2_000_000, metadata=about)
        await asked(upload.upload)
        assert running.videos[made["guid"]].content == FILM
        with pytest.raises(tusclient.exceptions.TusCommunicationError):
            await asked(tus, f"{running.url}/tusupload", credentials | {"VideoId": "another"}, url=upload.url)
