"""The vendors' own clients judge the test servers: they drive them, and read every answer with their own types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import fastpix_python
import httpx
import mux_python
import pytest
import pytest_asyncio
from fastpix_python import models

from destinations.fastpix import REFERENCE
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
