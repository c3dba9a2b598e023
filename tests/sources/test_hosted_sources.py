"""What holds for every source with an API of its own, each against a server that behaves as its host documents."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from faults import Fault, Scope
from settings import Settings, SourceSettings
from sources.about import About
from sources.hosted import HostedSource
from sources.registry import kinds, open_source
from sources.spec import SourceSpec
from tests.sources.host_rig import BY_KIND, HOSTS, NAME, Host, Place, fetched, once_made, placed, without_signatures
from tests.sources.hosts import SERVERS
from tests.sources.hosts.base import Clip, echo, page_of_html
from tests.sources.hosts.brightcove import BrightcoveServer
from tests.sources.hosts.bunny import TOKEN_KEY


@pytest.fixture(params=HOSTS, ids=lambda host: host.kind)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await placed(request.param, stack)


def only(which: Callable[[Host], bool]) -> pytest.MarkDecorator:
    """The rows for which something can be asked at all."""
    return pytest.mark.parametrize(
        "place", [host for host in HOSTS if which(host)], indirect=True, ids=lambda host: host.kind
    )


def test_every_host_has_a_server_and_a_row() -> None:
    others = {"manifest", "folder", "generic", "s3"}
    assert set(kinds()) - others == set(SERVERS) == set(BY_KIND)


# -------------------------------------------------------------------------------------------------------------- listing


@pytest.mark.parametrize("stripes", [1, 3])
async def test_each_video_is_listed_once(place: Place, stripes: int) -> None:
    pages = await place.walked(stripes)
    listed = [item.source_id for page in pages for item in page.items]

    assert sorted(listed) == sorted(place.server.ref(clip) for clip in place.server.clips)
    assert [problem for page in pages for problem in page.problems] == []
    assert all(len(page.items) <= 5 for page in pages)
    source = await place.source()
    assert source.stripeable is place.host.stripes
    if stripes == 1:
        assert [item.position for page in pages for item in page.items] == list(range(1, 24))


async def test_all_that_is_known_of_a_video_travels_with_it(place: Place) -> None:
    items = await place.items()
    first, closed = items[1], items[4]

    assert first.title == "Lecture 1: naïve & “quoted”"
    assert without_signatures(first.about) == place.host.about(place.server.files.url)
    assert place.host.metadata.items() <= dict(first.metadata).items()
    assert first.duration_ms in (61_000, None)
    assert (first.about.privacy, closed.about.privacy) == place.host.titled_privacy
    assert items[10].about.captions == ()
    assert About.from_json(first.about.to_json()) == first.about


async def test_a_walk_takes_no_more_requests_than_it_must(place: Place) -> None:
    source = await place.source()
    cursor: str | None = None
    while True:
        cursor = (await source.list_page(cursor)).next_cursor
        if cursor is None:
            break

    pages = 5 if place.host.total else 6  # without a total, only an empty page is the end
    allowed = pages + place.host.extra + place.host.asks(place.server.clips)
    assert len(place.server.api.requests) <= allowed


async def test_an_empty_library_is_no_error(place: Place) -> None:
    place.server.clips = []

    assert [page.items for page in await place.walked()] == [[]]
    await (await place.source()).check()


async def test_a_library_of_whole_pages_is_listed_to_its_end(place: Place) -> None:
    place.server.clips = place.server.clips[:10]

    assert len(await place.items()) == 10


@only(lambda host: host.total)
@pytest.mark.parametrize("lies", [7, -9])
async def test_a_total_that_does_not_match_is_told_and_costs_no_video(place: Place, lies: int) -> None:
    place.server.lies = lies
    pages = await place.walked()

    assert {page.total for page in pages} == {23 + lies}
    assert sum(len(page.items) for page in pages) == 23


async def test_the_first_page_for_ever_is_noticed(place: Place) -> None:
    place.server.stuck = True
    fault = await place.refusal()

    assert fault.code in ("listing-repeats", "listing-cycles", "listing-too-long")
    assert fault.permanent


async def test_an_entry_that_cannot_be_read_is_reported_and_the_others_are_listed(place: Place) -> None:
    source = await place.source()
    problem = source.read("what?", 7)
    nameless = source.read({}, 8)

    assert problem is not None
    assert (problem.position, getattr(problem, "words", "")) == (7, "the entry is no object")
    assert getattr(nameless, "column", None) == source.id_field


# ------------------------------------------------------------------------------------------------- a host that refuses


async def test_pushback_in_the_hosts_own_words_is_waited_out(place: Place) -> None:
    place.server.trouble = [lambda request: place.server.too_many(0)] * 2

    assert len(await place.items()) == 23


@only(lambda host: host.says_when)
async def test_the_hosts_wish_to_wait_is_heeded(place: Place) -> None:
    source = await place.source()
    place.server.trouble = [lambda request: place.server.too_many(1)]
    began = time.monotonic()
    await source.list_page(None)
    assert time.monotonic() - began >= 0.9

    place.server.trouble = [lambda request: place.server.too_many(900)]
    with pytest.raises(Fault) as raised:
        await source.list_page(None)
    assert raised.value.code == "source-down"
    assert 870 < (raised.value.retry_after or 0) <= 900


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_name_the_right_that_is_needed(place: Place, status: int) -> None:
    refuse = place.server.unauthorized if status == 401 else place.server.forbidden
    place.server.trouble = [lambda request: refuse()] * 3
    fault = await place.refusal()

    assert (fault.code, fault.scope) == ("source-credentials-refused", Scope.RUN)
    assert place.host.rights in fault.detail
    with pytest.raises(Fault, match="source-credentials-refused"):
        await (await place.source(token=place.server.token + "x")).check()


async def test_a_web_page_is_no_listing(place: Place) -> None:
    source = await place.source()
    if isinstance(place.server, BrightcoveServer):
        await source.list_page(None)
        del place.server.api.requests[:]
    place.server.trouble = [page_of_html]
    with pytest.raises(Fault) as raised:
        await source.list_page(None)

    assert raised.value.code == "listing-malformed"
    assert "a web page" in raised.value.detail


@only(lambda host: host.kind != "brightcove")
async def test_an_answer_without_its_list_is_no_empty_listing(place: Place) -> None:
    def without(request: Request) -> Response:
        return JSONResponse({"success": True, "message": "ok"})

    place.server.trouble = [without]
    fault = await place.refusal()
    assert fault.code == "listing-malformed"


async def test_a_host_in_lasting_trouble_is_down(place: Place) -> None:
    place.server.trouble = [lambda request: Response(status_code=502)] * 9
    fault = await place.refusal(retries=2)

    assert (fault.code, fault.permanent) == ("source-down", False)


# ------------------------------------------------------------------------------------------------------------ one video


async def test_a_file_is_asked_for_anew_at_each_attempt(place: Place) -> None:
    source, item = await place.video(7)
    first = await once_made(source, item)
    assert await fetched(first) == 200
    assert first.size == place.host.size

    place.server.expire()
    if place.host.expires:
        assert await fetched(first) == 403
    again = await once_made(source, item)
    assert await fetched(again) == 200
    if place.host.expires:
        assert again.address != first.address


async def test_a_closed_video_can_be_fetched_too(place: Place) -> None:
    source, item = await place.video(4)

    assert await fetched(await once_made(source, item)) == 200


async def test_captions_and_posters_are_asked_for_anew(place: Place) -> None:
    source, item = await place.video(1)
    place.server.expire()
    for caption in item.about.captions:
        assert await fetched(await source.locate_caption(item, caption)) == 200
    poster = await source.locate_poster(item)
    assert poster is not None
    assert await fetched(poster) == 200


async def test_a_video_that_had_failed_there_is_skipped_with_the_sources_own_reason(place: Place) -> None:
    source, item = await place.video(2)
    with pytest.raises(Fault) as raised:
        await source.locate(item)

    assert (raised.value.code, raised.value.scope, raised.value.permanent) == ("source-failed", Scope.ROW, True)
    assert place.server.reason in raised.value.detail


async def test_a_video_that_is_still_processed_there_is_tried_again_later(place: Place) -> None:
    source, item = await place.video(3)
    with pytest.raises(Fault) as raised:
        await source.locate(item)

    assert (raised.value.scope, raised.value.permanent) == (Scope.ROW, False)
    assert raised.value.retry_after
    place.server.clips[2] = Clip(3)
    assert await fetched(await once_made(source, item)) == 200


async def test_a_video_that_has_gone_is_not_found(place: Place) -> None:
    source, item = await place.video(7)
    place.server.clips = []
    with pytest.raises(Fault) as raised:
        await source.locate(item)

    assert (raised.value.code, raised.value.scope) == ("source-not-found", Scope.ROW)


async def test_credentials_that_are_revoked_meanwhile_are_no_fault_of_the_videos(place: Place) -> None:
    source, item = await place.video(7)
    place.server.trouble = [lambda request: place.server.unauthorized()] * 3
    with pytest.raises(Fault) as raised:
        await source.locate(item)

    assert (raised.value.code, raised.value.scope) == ("source-credentials-refused", Scope.RUN)


async def test_pushback_costs_a_video_no_attempt(place: Place) -> None:
    source, item = await place.video(7)
    place.server.trouble = [lambda request: place.server.too_many(0)] * 2

    assert await fetched(await once_made(source, item)) == 200


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda request: Response(status_code=500), "source-busy"),
        (page_of_html, "source-returned-html"),
        (lambda request: Response(b""), "source-busy"),
    ],
)
async def test_trouble_with_one_video_is_the_rows_alone(
    place: Place, answer: Callable[[Request], Response], reason: str
) -> None:
    source, item = await place.video(7)
    await source.check()  # so that there is an access token where one is needed
    place.server.trouble = [answer]
    with pytest.raises(Fault) as raised:
        await source.locate(item)

    assert (raised.value.code, raised.value.scope) == (reason, Scope.ROW)


# -------------------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500])
async def test_no_secret_stands_in_any_fault(place: Place, status: int) -> None:
    token = place.server.token
    forms = {base64.b64encode(text.encode()).decode() for text in (token, f"{token}:")}
    secrets = {part for part in token.split(":") if "s3cret" in part} | {TOKEN_KEY} | forms
    _, item = await place.video(7)
    source = await place.source(retries=0)
    await source.check()  # so that there is an access token where one is needed
    told = []
    for ask in (source.check, lambda: source.list_page(None), lambda: source.locate(item)):
        place.server.trouble = [echo(status)] * 3
        try:
            await ask()  # type: ignore[operator]
        except Fault as fault:
            told.append(f"{fault} {fault.detail} {fault.__cause__ or ''}")
    place.server.trouble = []

    assert told
    assert not re.search(r"access-[0-9]", " ".join(told))
    for secret in secrets:
        assert secret not in " ".join(told)
        assert secret not in repr(place.host.about("x"))


async def test_no_address_is_written_down_with_what_it_is_signed_with(place: Place) -> None:
    pages = await place.walked()
    written = json.dumps([(item.locator, item.about.to_json(), dict(item.metadata)) for p in pages for item in p.items])
    assert not re.search(r"sig[0-9]|token/private|s3cret", written)
    assert all(item.locator is None for page in pages for item in page.items)


async def test_the_token_goes_to_the_api_and_not_to_where_files_are(place: Place) -> None:
    source, item = await place.video(1)
    locations = [await once_made(source, item), await source.locate_poster(item)]
    locations += [await source.locate_caption(item, caption) for caption in item.about.captions]
    for location in locations:
        assert location is not None
        assert await fetched(location) == 200

    assert place.server.files.requests
    for asked in place.server.files.requests:
        sent = f"{asked.url} {asked.headers}"
        assert "s3cret" not in sent
        assert "authorization" not in asked.headers
    api = place.server.api.url
    assert all(not location.headers or location.address.startswith(api) for location in locations if location)


# ------------------------------------------------------------------------------------------------------------- settings


NEEDED: dict[str, dict[str, Any]] = {
    "jwplayer": {"site": "abcdefgh"},
    "brightcove": {"account": "1"},
    "cloudflare": {"account": "1"},
    "bunny": {"library": 1, "pull_zone": "vz-1.b-cdn.net"},
}
"""Options that a kind cannot do without."""


@pytest.mark.parametrize("token", [None, "", "  "])
@pytest.mark.parametrize("kind", list(SERVERS))
def test_a_missing_token_is_refused_by_name(kind: str, token: str | None) -> None:
    settings = Settings(sources={NAME: SourceSettings(kind=kind, token=token, options=NEEDED.get(kind, {}))})
    with pytest.raises(Fault) as raised:
        open_source(SourceSpec(kind=kind, name=NAME), settings)
    assert raised.value.code == "settings-refused"
    assert f"a source of kind '{kind}' needs token" in raised.value.detail


@pytest.mark.parametrize("kind", list(SERVERS))
def test_a_wrong_option_is_named_and_its_value_is_not(kind: str) -> None:
    settings = Settings(sources={NAME: SourceSettings(kind=kind, options={"tokn": "s3cret", "timeout_s": "s3cret"})})
    with pytest.raises(Fault) as raised:
        open_source(SourceSpec(kind=kind, name=NAME), settings)

    assert raised.value.code == "settings-refused"
    assert "tokn" in raised.value.detail
    assert "timeout_s" in raised.value.detail
    assert "s3cret" not in raised.value.detail


@pytest.mark.parametrize("kind", ["mux", "brightcove"])
def test_a_token_of_two_parts_must_have_both(kind: str) -> None:
    settings = Settings(sources={NAME: SourceSettings(kind=kind, token="s3cret", options=NEEDED.get(kind, {}))})
    with pytest.raises(Fault, match="colon between") as raised:
        open_source(SourceSpec(kind=kind, name=NAME), settings)

    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_the_vendors_own_address_is_the_default(kind: str) -> None:
    settings = Settings(sources={NAME: SourceSettings(kind=kind, token="a:b", options=NEEDED.get(kind, {}))})
    source = open_source(SourceSpec(kind=kind, name=NAME), settings)
    assert isinstance(source, HostedSource)
    assert str(source.listing).startswith("https://")
    await source.aclose()
