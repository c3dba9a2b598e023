"""The vendors' own clients judge the test servers of sources: each reads a library with its own types."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import apivideo.apis
import mux_python
import pytest
from apivideo.api_client import ApiClient
from apivideo.configuration import Configuration
from cloudflare import AsyncCloudflare

from tests.sources.host_rig import BY_KIND, Place, placed


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


async def place_of(kind: str, stack: AsyncExitStack) -> Place:
    return await placed(BY_KIND[kind], stack)


async def test_muxs_client_lists_the_library_and_has_a_master_made(stack: AsyncExitStack) -> None:
    place = await place_of("mux", stack)
    user, _, password = place.server.token.partition(":")
    configuration = mux_python.Configuration(host=place.server.api.url, username=user, password=password)
    assets = mux_python.AssetsApi(mux_python.ApiClient(configuration))
    pages = [(await asyncio.to_thread(assets.list_assets, limit=10, page=n)).data for n in (1, 2, 3, 4)]
    ours = await place.items()
    theirs = {asset.id: asset for page in pages for asset in page}

    assert set(theirs) == {item.source_id for item in ours.values()}
    assert theirs["asset1"].meta.title == ours[1].title
    assert [track.language_code for track in theirs["asset1"].tracks if track.type == "text"] == ["en", "pt-BR"]
    assert theirs["asset2"].errors.messages == ["not a video"]
    wish = mux_python.UpdateAssetMasterAccessRequest(master_access="temporary")
    made = (await asyncio.to_thread(assets.update_asset_master_access, "asset7", wish)).data
    assert made.master.status == "preparing"
    done = (await asyncio.to_thread(assets.get_asset, "asset7")).data
    assert (done.master_access, done.master.status) == ("temporary", "ready")
    assert done.master.url.startswith("http")


async def test_cloudflares_client_lists_the_library_and_orders_a_download(stack: AsyncExitStack) -> None:
    place = await place_of("cloudflare", stack)
    client = AsyncCloudflare(
        api_token=place.server.token, base_url=place.server.api.url, max_retries=0, _strict_response_validation=True
    )
    await stack.enter_async_context(client)
    ours = await place.items()
    listed = await client.stream.list(account_id="acc", asc=True, extra_query={"limit": "100"})
    theirs = {video.uid: video for video in listed.result}

    assert set(theirs) == {item.source_id for item in ours.values()}
    first, failed = theirs[ours[1].source_id], theirs[ours[2].source_id]
    assert (first.duration, first.require_signed_urls) == (61.0, False)
    assert failed.status is not None
    assert (failed.status.state, failed.status.error_reason_code) == ("error", "ERR_NON_VIDEO")
    seventh = ours[7].source_id
    await client.stream.downloads.create(seventh, account_id="acc")
    made: Any = await client.stream.downloads.get(seventh, account_id="acc")
    assert "ready" in str(made)
    captions = [caption async for caption in client.stream.captions.get(ours[1].source_id, account_id="acc")]
    assert [caption.language for caption in captions] == ["en", "pt-BR"]
    assert (await client.stream.token.create(ours[4].source_id, account_id="acc")) is not None


async def test_api_videos_client_lists_the_library_and_its_states(stack: AsyncExitStack) -> None:
    place = await place_of("apivideo", stack)
    key = base64.b64encode(f"{place.server.token}:".encode()).decode()
    client = ApiClient(Configuration(host=place.server.api.url), "Authorization", f"Basic {key}")
    videos = apivideo.apis.VideosApi(client)
    ours = await place.items()
    page = await asyncio.to_thread(videos.list, current_page=1, page_size=100)
    theirs = {video.video_id: video for video in page.data}

    assert page.pagination.items_total == 23
    assert set(theirs) == {item.source_id for item in ours.values()}
    assert (theirs["vi1"].title, theirs["vi1"].tags) == (ours[1].title, list(ours[1].about.tags))
    assert {pair.key: pair.value for pair in theirs["vi1"].metadata} == ours[1].metadata["metadata"]
    status = await asyncio.to_thread(videos.get_status, "vi2")
    assert not status.encoding.playable
    assert {quality.status for quality in status.encoding.qualities} == {"failed"}
    tracks = await asyncio.to_thread(apivideo.apis.CaptionsApi(client).list, "vi1", page_size=100)
    assert [track.srclang for track in tracks.data] == ["en", "pt-BR"]
