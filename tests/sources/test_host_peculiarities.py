"""What only one host does, or what its documents leave open: both readings of each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from faults import Fault
from sources import brightcove, bunny, cloudflare, jwplayer, mux, vimeo, wistia
from sources.base import Problem
from tests.sources.host_rig import BY_KIND, Place, fetched, once_made, placed
from tests.sources.hosts.base import BEGAN, Clip, library
from tests.sources.hosts.brightcove import BrightcoveServer
from tests.sources.hosts.cloudflare import CloudflareServer
from tests.sources.hosts.jwplayer import JwPlayerServer

At = Callable[..., Awaitable[Place]]


@pytest.fixture
async def at() -> AsyncIterator[At]:
    async with AsyncExitStack() as stack:

        async def place(kind: str, clips: list[Clip] | None = None) -> Place:
            return await placed(BY_KIND[kind], stack, clips)

        yield place


# ---------------------------------------------------------------------------------------------------------------- Vimeo


async def test_vimeo_is_never_asked_without_fields(at: At) -> None:
    place = await at("vimeo")
    source, item = await place.video(1)
    await source.locate(item)
    await source.locate_caption(item, item.about.captions[0])

    assert all(request.query_params.get("fields") for request in place.server.api.requests)


async def test_vimeo_takes_the_largest_file_only_where_that_is_wished(at: At) -> None:
    place = await at("vimeo")
    found = {"download": [{"quality": "sd", "height": 360, "link": "https://x/sd"}, {"quality": "hd", "height": 720}]}

    assert vimeo.download(found, best=False) is None
    assert (vimeo.download(found, best=True) or {})["quality"] == "hd"
    source, item = await place.video(1)
    place.server.trouble = [lambda request: JSONResponse({**found, "status": "available"})]
    with pytest.raises(Fault, match=r'video_files.*set file = "best"') as raised:
        await source.locate(item)
    assert raised.value.code == "source-not-found"


async def test_a_folder_at_vimeo_is_listed_by_itself(at: At) -> None:
    source = await (await at("vimeo")).source(folder="77")

    assert source.listing.path == "/me/projects/77/videos"


# --------------------------------------------------------------------------------------------------------------- Wistia


def test_three_letters_of_a_language_become_two_where_there_are_two() -> None:
    codes = ["eng", "fre", "cmn", "haw", None, 7]

    assert [wistia.language(code) for code in codes] == ["en", "fr", "zh", "haw", None, 7]


def test_drafts_of_captions_are_not_taken() -> None:
    found = [{"language": "eng", "is_draft": True}, {"language": "deu", "is_draft": False}, {"language": "?!"}]

    assert [track.language for track in wistia.tracks(found)] == ["de"]


# ------------------------------------------------------------------------------------------------------------ JW Player


@pytest.mark.parametrize("stripes", [1, 3])
@pytest.mark.parametrize("count", [20, 21, 97])
async def test_a_library_beyond_reach_is_listed_in_ranges_of_time(at: At, count: int, stripes: int) -> None:
    place = await at("jwplayer", library(count))
    assert isinstance(place.server, JwPlayerServer)
    place.server.reachable = 20
    pages = await place.walked(stripes, reachable=20, captions=False)

    listed = [item.source_id for page in pages for item in page.items]
    assert sorted(listed) == sorted(place.server.ref(clip) for clip in place.server.clips)
    assert {page.total for page in pages} == {count}
    assert all(request.query_params.get("q") for request in place.server.api.requests[-3:]) is (count > 20)


@pytest.mark.parametrize("whole_days", [False, True])
async def test_a_library_of_years_is_parted_at_days_however_they_are_read(at: At, whole_days: bool) -> None:
    @dataclass(frozen=True)
    class Daily(Clip):
        @property
        def created(self) -> datetime:
            return BEGAN + timedelta(days=self.number * 3, seconds=self.number)

    place = await at("jwplayer", [Daily(n) for n in range(1, 120)])
    assert isinstance(place.server, JwPlayerServer)
    place.server.reachable, place.server.whole_days = 20, whole_days
    pages = await place.walked(3, reachable=20, captions=False)

    assert {item.source_id for page in pages for item in page.items} == {*map(place.server.ref, place.server.clips)}
    asked = [request.query_params.get("q", "") for request in place.server.api.requests]
    assert any(re.fullmatch(r'created:\["\d{4}-\d\d-\d\d" TO "\d{4}-\d\d-\d\d"\]', q) for q in asked)
    assert not any("T" in q.replace(" TO ", "") for q in asked)


async def test_more_in_one_second_than_can_be_reached_fails_loudly(at: At) -> None:
    @dataclass(frozen=True)
    class Bulk(Clip):
        @property
        def created(self) -> datetime:
            return BEGAN + timedelta(seconds=0 if self.number <= 25 else self.number)

    place = await at("jwplayer", [Bulk(n) for n in range(1, 40)])
    assert isinstance(place.server, JwPlayerServer)
    place.server.reachable = 20
    fault = await place.refusal(reachable=20, captions=False)

    assert (fault.code, fault.permanent) == ("listing-too-long", True)
    assert "25 media were made in the second 2021-03-01T12:00:00" in fault.detail


async def test_a_host_that_ignores_the_range_fails_loudly(at: At) -> None:
    place = await at("jwplayer", library(50))
    assert isinstance(place.server, JwPlayerServer)
    place.server.reachable, place.server.ignores_query = 20, True
    fault = await place.refusal(reachable=20, captions=False)

    assert fault.code == "listing-too-long"
    assert "ignores the range" in fault.detail


async def test_media_deleted_from_a_range_do_not_end_the_listing(at: At) -> None:
    place = await at("jwplayer", library(60))
    assert isinstance(place.server, JwPlayerServer)
    place.server.reachable = 20
    source = await place.source(reachable=20, captions=False)
    cursor = (await source.list_page(None)).next_cursor
    place.server.clips = [clip for clip in place.server.clips if not 3 <= clip.number <= 14]
    seen: list[str] = []
    while cursor is not None:
        page = await source.list_page(cursor)
        cursor = page.next_cursor
        seen += [item.source_id for item in page.items]

    assert {place.server.ref(Clip(n)) for n in range(16, 61)} <= set(seen)


async def test_a_cursor_of_ranges_is_checked(at: At) -> None:
    source = await (await at("jwplayer")).source()
    for ranges in ("", '"ranges":[],', '"ranges":[["a",1,2]],', '"ranges":[[1,2]],'):
        cursor = "{" + ranges + '"total":3,"walk":"{}"}'
        with pytest.raises(Fault, match="cursor-stale"):
            await source.list_page(cursor)


async def test_a_rendition_is_taken_from_the_public_api_without_the_secret(at: At) -> None:
    place = await at("jwplayer")
    source = await place.source(file="rendition")
    item = (await place.items())[7]
    location = await source.locate(item)

    assert location.address.startswith(f"{place.server.files.url}/7-720.mp4")
    assert all("authorization" not in request.headers for request in place.server.files.requests)


@pytest.mark.parametrize("name", ["download_url", "file_url", "delivery_url"])
def test_an_originals_address_is_found_under_each_name_that_it_may_have(name: str) -> None:
    assert jwplayer.original({"originals": [{"id": "o"}, {name: "https://x/o.mp4"}]}) == "https://x/o.mp4"
    assert jwplayer.original({"originals": [{"id": "o", name: None}]}) is None


# ----------------------------------------------------------------------------------------------------------- Brightcove


async def test_an_access_token_that_ended_is_renewed_and_the_question_asked_again(at: At) -> None:
    place = await at("brightcove")
    assert isinstance(place.server, BrightcoveServer)
    source = await place.source()
    page = await source.list_page(None)
    place.server.end_access()

    assert await fetched(await source.locate(page.items[6 - 2])) == 200
    assert (await source.list_page(page.next_cursor)).items
    asked = [r for r in place.server.api.requests if r.url.path == "/oauth/v4/access_token"]
    assert len(asked) == 2


async def test_the_clients_secret_goes_to_the_oauth_service_only(at: At) -> None:
    place = await at("brightcove")
    await place.walked()

    for request in place.server.api.requests:
        assert request.headers["authorization"].startswith("Basic") is ("oauth" in request.url.path)


async def test_a_service_that_gives_no_token_is_told(at: At) -> None:
    place = await at("brightcove")
    place.server.trouble = [lambda request: JSONResponse({"token": "?"})]

    assert "gave no access token" in (await place.refusal()).detail


def test_the_secure_address_of_two_is_taken() -> None:
    file = {"container": "MP4", "height": 720, "size": 5}
    found = brightcove.largest([{**file, "src": "http://x/a"}, {**file, "src": "https://x/a"}, {**file, "src": None}])

    assert (found or {})["src"] == "https://x/a"


# ------------------------------------------------------------------------------------------------------------------ Mux


async def test_mux_is_listed_by_cursor_where_that_is_wished(at: At) -> None:
    place = await at("mux")
    pages = await place.walked(3, paging="cursor")

    assert sorted(i.source_id for page in pages for i in page.items) == sorted(
        map(place.server.ref, place.server.clips)
    )
    assert not (await place.source(paging="cursor")).stripeable
    assert {request.query_params["limit"] for request in place.server.api.requests} == {"5"}


async def test_a_master_is_asked_for_once_and_then_waited_for(at: At) -> None:
    place = await at("mux")
    source, item = await place.video(7)
    del place.server.api.requests[:]
    with pytest.raises(Fault, match=r"source-busy.*makes its master"):
        await source.locate(item)
    assert await fetched(await source.locate(item)) == 200

    assert [request.method for request in place.server.api.requests] == ["GET", "PUT", "GET"]


@pytest.mark.parametrize("policy", ["signed", "drm"])
async def test_tracks_behind_a_signed_policy_have_no_address_that_could_be_made(at: At, policy: str) -> None:
    entry = {
        "id": "a",
        "playback_ids": [{"id": "p", "policy": policy}],
        "tracks": [{"id": "t", "type": "text", "language_code": "en"}],
    }
    item = mux.asset(entry, 1, "https://stream", "https://image")
    assert not isinstance(item, Problem)
    source = await (await at("mux")).source()

    with pytest.raises(Fault, match="source-not-found"):
        await source.locate_caption(item, item.about.captions[0])
    assert await source.locate_poster(item) is None


# ----------------------------------------------------------------------------------------------------------- Cloudflare


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 23])
async def test_cloudflare_is_listed_whole_however_start_is_read(
    at: At, inclusive: bool, counts: bool, count: int
) -> None:
    place = await at("cloudflare", library(count))
    assert isinstance(place.server, CloudflareServer)
    place.server.inclusive, place.server.counts = inclusive, counts
    pages = await place.walked(captions=False)

    assert [item.source_id for page in pages for item in page.items] == [
        place.server.ref(c) for c in place.server.clips
    ]


async def test_videos_of_the_same_moment_are_listed_once_each(at: At) -> None:
    @dataclass(frozen=True)
    class Together(Clip):
        @property
        def created(self) -> datetime:
            return BEGAN + timedelta(seconds=self.number // 4, milliseconds=self.number)

    place = await at("cloudflare", [Together(n) for n in range(1, 30)])
    pages = await place.walked(captions=False, page_size=6)

    assert len({i.source_id for page in pages for i in page.items}) == sum(len(page.items) for page in pages) == 29


async def test_more_of_one_moment_than_a_page_holds_fails_loudly(at: At) -> None:
    @dataclass(frozen=True)
    class Bulk(Clip):
        @property
        def created(self) -> datetime:
            return BEGAN

    place = await at("cloudflare", [Bulk(n) for n in range(1, 30)])

    assert (await place.refusal(captions=False)).code == "listing-too-long"


async def test_a_download_is_ordered_once_and_then_waited_for(at: At) -> None:
    place = await at("cloudflare")
    source, item = await place.video(7)
    del place.server.api.requests[:]
    with pytest.raises(Fault, match=r"source-busy.*12.5 %"):
        await source.locate(item)
    assert await fetched(await source.locate(item)) == 200

    assert [request.method for request in place.server.api.requests] == ["GET", "GET", "POST", "GET"]


async def test_a_failure_with_status_200_is_no_address(at: At) -> None:
    place = await at("cloudflare")
    source, item = await place.video(7)
    place.server.trouble = [lambda request: JSONResponse({"success": False, "errors": [{"message": "not now"}]})]
    with pytest.raises(Fault, match=r"source-busy.*not now"):
        await source.locate(item)


@pytest.mark.parametrize("cursor", ['{"host":"x","listed":0,"pages":1,"seen":["","",1,0,"",1,0]}'])
async def test_a_place_in_the_listing_that_cannot_be_read_is_stale(at: At, cursor: str) -> None:
    source = await (await at("cloudflare")).source()
    with pytest.raises(Fault, match="cursor-stale"):
        await source.list_page(cursor)


def test_numbers_below_zero_mean_not_known_yet() -> None:
    item = cloudflare.video({"uid": "u", "duration": -1, "status": {"state": "downloading"}}, 1)

    assert not isinstance(item, Problem)
    assert item.duration_ms is None


# ------------------------------------------------------------------------------------------------------------ api.video


async def test_a_video_without_mp4_says_what_to_turn_on(at: At) -> None:
    place = await at("apivideo")
    source, item = await place.video(7)
    bare = {"videoId": "vi7", "assets": {"hls": "https://x/manifest.m3u8"}}
    status = {"encoding": {"playable": True}}
    place.server.trouble = [lambda request: JSONResponse(status), lambda request: JSONResponse(bare)]
    with pytest.raises(Fault, match=r"source-not-found.*mp4Support"):
        await source.locate(item)


async def test_a_video_of_which_a_rendition_is_left_has_not_failed(at: At) -> None:
    place = await at("apivideo")
    source, item = await place.video(7)
    qualities = [{"quality": "240p", "status": "failed"}, {"quality": "720p", "status": "waiting"}]
    place.server.trouble = [lambda request: JSONResponse({"encoding": {"playable": False, "qualities": qualities}})]
    with pytest.raises(Fault, match="source-busy"):
        await source.locate(item)


# ---------------------------------------------------------------------------------------------------------------- Bunny


async def test_an_original_that_was_not_kept_says_what_to_take_instead(at: At) -> None:
    place = await at("bunny")
    source, item = await place.video(7)
    found = {"guid": item.source_id, "status": 4, "hasOriginal": False}
    place.server.trouble = [lambda request: JSONResponse(found)]
    with pytest.raises(Fault, match=r'source-not-found.*set file = "mp4"'):
        await source.locate(item)

    location = await (await place.source(file="mp4")).locate(item)
    assert re.search(r"/play_720p\.mp4\?token=", location.address)
    assert await fetched(location) == 200


@pytest.mark.parametrize(
    ("status", "outcome"), [(0, "busy"), (3, "busy"), (4, ""), (5, "failed"), (6, "failed"), (8, "")]
)
async def test_states_are_counted_as_the_rest_api_counts_them(at: At, status: int, outcome: str) -> None:
    place = await at("bunny")
    source, item = await place.video(7)

    def answer(request: Request) -> Response:
        return JSONResponse({"guid": item.source_id, "status": status, "hasOriginal": True})

    place.server.trouble = [answer]
    if outcome:
        with pytest.raises(Fault, match=f"source-{outcome}"):
            await source.locate(item)
    else:
        assert await fetched(await once_made(source, item)) == 200


def test_an_address_is_signed_as_the_pull_zone_checks_it() -> None:
    # As openssl has it: printf 'key/a/original1700000000' | openssl dgst -sha256 -binary | base64, made safe for URLs
    token = "ys_marx1eHOoQ-CggMBBvkJ5gUo7nC1TRMLjyJK1oFY"
    assert bunny.signed("/a/original", "key", 1_700_000_000) == f"?token={token}&expires=1700000000"


async def test_a_referer_is_sent_where_the_pull_zone_wants_one(at: At) -> None:
    place = await at("bunny")
    source = await place.source(referer="https://campus.example/")
    location = await source.locate((await place.items())[7])

    assert location.headers == {"Referer": "https://campus.example/"}


# ---------------------------------------------------------------------------------------------------- what they share


@pytest.mark.parametrize(("minutes", "wait_s"), [(None, 30), (1, 30), (30, 180), (600, 600)])
async def test_a_file_that_is_made_on_request_is_given_time_by_its_length(
    at: At, minutes: int | None, wait_s: float
) -> None:
    place = await at("mux")
    source, item = await place.video(7)
    item = replace(item, duration_ms=None if minutes is None else minutes * 60_000)
    with pytest.raises(Fault) as raised:
        await source.locate(item)
    assert raised.value.retry_after == wait_s


async def test_a_host_that_fails_while_captions_are_asked_for_is_not_asked_for_each_video(at: At) -> None:
    place = await at("wistia")
    source = await place.source(page_size=23, retries=0)

    def answer(request: Request) -> Response:
        return Response(status_code=500)

    await source.check()
    place.server.trouble = [place.server.respond, *[answer] * 30]
    with pytest.raises(Fault, match="source-down"):
        await source.list_page(None)
    assert len(place.server.api.requests) < 12


async def test_captions_are_not_asked_for_where_nobody_wants_them(at: At) -> None:
    for kind in ("vimeo", "wistia", "jwplayer", "cloudflare", "apivideo"):
        place = await at(kind)
        items = await place.items(captions=False)
        assert not any(item.about.captions for item in items.values())
        paths: list[Any] = [request.url.path for request in place.server.api.requests]
        assert not any("caption" in path or "track" in path for path in paths)
