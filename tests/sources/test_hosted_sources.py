"""What holds for every source with an API of its own, each against a server that behaves as its host documents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from conftest import running
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from faults import Fault, Scope
from settings import Settings, SourceSettings
from sources.about import About, Caption
from sources.base import Item, ListedPage, Location
from sources.hosted import HostedSource
from sources.registry import kinds, open_source
from sources.spec import SourceSpec
from tests.sources.hosts import SERVERS
from tests.sources.hosts.base import Clip, Server, echo, page_of_html
from tests.sources.hosts.brightcove import BrightcoveServer
from tests.sources.hosts.bunny import TOKEN_KEY

NAME = "old"
LONG_ID = "no such video"


@dataclass(frozen=True)
class Host:
    """One row of the suite. `about` is what travels with video 1, `metadata` what must be among what is kept."""

    kind: str
    about: Callable[[str], About]
    metadata: dict[str, Any] = field(default_factory=dict)
    stripes: bool = True
    total: bool = True
    says_when: bool = True
    """Whether pushback says for how long."""
    expires: bool = True
    size: int | None = 1000
    titled_privacy: tuple[str | None, str | None] = ("public", "private")
    """Of an open and of a closed video."""
    extra: int = 0
    """Requests of one walk beside its pages and what is asked about single videos."""
    asks: Callable[[list[Clip]], int] = lambda clips: 0
    """Requests about single videos while listing."""
    rights: str = ""


def texts(*tracks: tuple[str, str | None, str | None, str]) -> tuple[Caption, ...]:
    return tuple(Caption(language=tag, key=key, address=at, label=label) for tag, key, at, label in tracks)


def each(clips: list[Clip]) -> int:
    return len(clips)


HOSTS = [
    Host(
        "vimeo",
        lambda files: About(
            description="about 1",
            tags=("spring", "lab"),
            folder="CHEM-101",
            captions=texts(
                ("en", "/videos/1/texttracks/1en", f"{files}/1.en.vtt?…", "English"),
                ("pt-BR", "/videos/1/texttracks/1pt-BR", f"{files}/1.pt-BR.vtt?…", "Português"),
            ),
            poster=f"{files}/poster1.jpg?…",
            privacy="public",
        ),
        {"text_tracks": 2, "language": "en"},
        titled_privacy=("public", "unlisted"),
        asks=lambda clips: sum(1 for clip in clips if clip.tracks),
        rights="video_files",
    ),
    Host(
        "wistia",
        lambda files: About(
            description="about 1",
            tags=("spring", "lab"),
            folder="CHEM-101/Labs",
            captions=texts(("en", "eng", None, "English"), ("pt", "por", None, "Português")),
            poster=f"{files}/poster1.jpg?…",
        ),
        titled_privacy=(None, "private"),
        total=False,
        asks=each,
        rights="Read all folder and media data",
    ),
    Host(
        "jwplayer",
        lambda files: About(
            description="about 1",
            tags=("spring", "lab"),
            captions=texts(
                ("en", "ten", f"{files}/1.en.vtt?…", "English"),
                ("pt-BR", "tpt-BR", f"{files}/1.pt-BR.vtt?…", "Português"),
            ),
            poster=f"{files}/v2/media/media001/poster.jpg",
        ),
        {"category": "Education", "custom_params": {"course": "CHEM-101"}},
        titled_privacy=(None, "private"),
        says_when=False,
        size=None,
        extra=1,
        asks=each,
        rights="API secret",
    ),
    Host(
        "brightcove",
        lambda files: About(
            description="about 1",
            tags=("spring", "lab"),
            folder="CHEM-101",
            captions=texts(
                ("en", "track-en", f"{files}/1.en.vtt?…", "English"),
                ("pt-BR", "track-pt-BR", f"{files}/1.pt-BR.vtt?…", "Português"),
            ),
            poster=f"{files}/poster1.jpg?…",
            privacy="public",
        ),
        says_when=False,
        extra=3,
        rights="Video Read",
    ),
    Host(
        "mux",
        lambda files: About(
            captions=texts(
                ("en", "t-en", f"{files}/stream/play1/text/t-en.vtt", "English"),
                ("pt-BR", "t-pt-BR", f"{files}/stream/play1/text/t-pt-BR.vtt", "Português"),
            ),
            poster=f"{files}/image/play1/thumbnail.jpg",
            privacy="public",
        ),
        {"external_id": "ext1"},
        total=False,
        says_when=False,
        size=None,
        rights="Mux Video Read",
    ),
    Host(
        "cloudflare",
        lambda files: About(
            captions=texts(("en", "en", None, "English"), ("pt-BR", "pt-BR", None, "Português")),
            poster=f"{files}/uid{1:029d}/thumbnails/thumbnail.jpg",
            privacy="public",
        ),
        {"creator": "chemistry", "meta": {"course": "CHEM-101"}},
        stripes=False,
        expires=False,
        size=None,
        extra=2,
        asks=each,
        rights="Stream: Edit",
    ),
    Host(
        "apivideo",
        lambda files: About(
            description="about 1",
            tags=("spring", "lab"),
            captions=texts(
                ("en", "/videos/vi1/captions/en", f"{files}/vod/vi1/captions/en.vtt?…", "English"),
                ("pt-BR", "/videos/vi1/captions/pt-BR", f"{files}/vod/vi1/captions/pt-BR.vtt?…", "Português"),
            ),
            poster=f"{files}/vod/vi1/thumbnail.jpg?…",
            privacy="public",
        ),
        {"metadata": {"course": "CHEM-101"}},
        size=None,
        asks=each,
        rights="API key",
    ),
    Host(
        "bunny",
        lambda files: About(
            description="about 1",
            folder="CHEM-101",
            captions=texts(
                ("en", "en", f"{files}/000000000001/captions/en.vtt", "English"),
                ("pt-BR", "pt-BR", f"{files}/000000000001/captions/pt-BR.vtt", "Português"),
            ),
            poster=f"{files}/000000000001/thumbnail.jpg",
            privacy="public",
        ),
        {"meta_tags": {"course": "CHEM-101"}},
        titled_privacy=("public", "unlisted"),
        says_when=False,
        expires=False,
        size=None,
        extra=1,
        rights="library's API key",
    ),
]
BY_KIND = {host.kind: host for host in HOSTS}


@dataclass
class Place:
    """One host's running server, and sources that are opened as a worker opens them."""

    host: Host
    server: Server
    stack: AsyncExitStack

    async def source(self, *, page_size: int = 5, token: str | None = None, **options: Any) -> HostedSource:
        entry = SourceSettings(
            kind=self.host.kind,
            base_url=self.server.api.url,
            token=self.server.token if token is None else token,
            options={"retry_wait_s": 0.001, **self.server.options(), **options},
        )
        settings = Settings(sources={NAME: entry})
        opened = open_source(SourceSpec(kind=self.host.kind, name=NAME, page_size=page_size), settings)
        assert isinstance(opened, HostedSource)
        return await self.stack.enter_async_context(opened)

    async def walked(self, stripes: int = 1, **how: Any) -> list[ListedPage]:
        """The pages of all stripes, each page asked for by a source of its own, as another worker would."""
        pages: list[ListedPage] = []
        for stripe in range(stripes):
            cursor = None
            while True:
                source = await self.source(**how)
                pages.append(await source.list_page(cursor, stripe=stripe, stripes=stripes))
                await source.aclose()
                cursor = pages[-1].next_cursor
                if cursor is None:
                    break
        return pages

    async def refusal(self, **how: Any) -> Fault:
        with pytest.raises(Fault) as raised:
            await self.walked(**how)
        return raised.value

    async def items(self, **how: Any) -> dict[int, Item]:
        found = [item for page in await self.walked(**how) for item in page.items]
        by_id = {self.server.ref(clip): clip.number for clip in self.server.clips}
        return {by_id[item.source_id]: item for item in found}

    async def video(self, number: int) -> tuple[HostedSource, Item]:
        return await self.source(), (await self.items())[number]


async def once_made(source: HostedSource, item: Item) -> Location:
    """Where a file is, asked again while it is being made, as a row's attempts do."""
    for _ in range(3):
        try:
            return await source.locate(item)
        except Fault as fault:
            if fault.code != "source-busy" or not fault.retry_after:
                raise
    return await source.locate(item)


async def fetched(location: Location) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(location.address, headers=dict(location.headers))).status_code


@pytest.fixture(params=HOSTS, ids=lambda host: host.kind)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await placed(request.param, stack)


async def placed(host: Host, stack: AsyncExitStack, clips: list[Clip] | None = None) -> Place:
    server = SERVERS[host.kind](clips)
    server.api = await stack.enter_async_context(running(server.answer))  # type: ignore[assignment]
    server.files = await stack.enter_async_context(running(server.file))  # type: ignore[assignment]
    return Place(host, server, stack)


def without_signatures(about: About) -> About:
    def cut(address: str | None) -> str | None:
        return None if address is None else address.split("?")[0] + ("?…" if "?" in address else "")

    captions = tuple(track.model_copy(update={"address": cut(track.address)}) for track in about.captions)
    return about.model_copy(update={"poster": cut(about.poster), "captions": captions})


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


@pytest.mark.parametrize("lies", [7, -9])
async def test_a_total_that_does_not_match_is_told_and_costs_no_video(place: Place, lies: int) -> None:
    if not place.host.total:
        pytest.skip("this host says no total")
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


async def test_the_hosts_wish_to_wait_is_heeded(place: Place) -> None:
    if not place.host.says_when:
        pytest.skip("this host does not say when to come back")
    source = await place.source()
    place.server.trouble = [lambda request: place.server.too_many(1)]
    began = time.monotonic()
    await source.list_page(None)
    assert time.monotonic() - began >= 0.9

    place.server.trouble = [lambda request: place.server.too_many(900)]
    with pytest.raises(Fault) as raised:
        await source.list_page(None)
    assert raised.value.code == "source-down"
    assert 890 < (raised.value.retry_after or 0) <= 900


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


async def test_an_answer_without_its_list_is_no_empty_listing(place: Place) -> None:
    if place.host.kind == "brightcove":
        pytest.skip("its list is the answer itself")

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
    secrets = {part for part in place.server.token.split(":") if "s3cret" in part} | {TOKEN_KEY}
    _, item = await place.video(7)
    source = await place.source(retries=0)
    told = []
    for ask in (source.check, lambda: source.list_page(None), lambda: source.locate(item)):
        place.server.trouble = [echo(status)] * 3
        try:
            await ask()  # type: ignore[operator]
        except Fault as fault:
            told.append(f"{fault} {fault.detail} {fault.__cause__ or ''}")
    place.server.trouble = []

    assert told
    for secret in secrets:
        assert secret not in " ".join(told)
        assert secret not in repr(place.host.about("x"))


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


@pytest.mark.parametrize("token", [None, "", "  "])
def test_a_missing_token_is_refused_by_name(token: str | None) -> None:
    for kind, server in SERVERS.items():
        options = {**server().options(), "oauth_url": "http://x", "delivery_url": "http://x", "pull_zone": "x"}
        fields = __import__(f"sources.{kind}", fromlist=["Options"]).Options.model_fields
        options = {name: value for name, value in options.items() if name in fields and value != ""}
        options = {name: ("http://x" if name.endswith("_url") else value) for name, value in options.items()}
        settings = Settings(sources={NAME: SourceSettings(kind=kind, token=token, options=options)})
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
    options = {} if kind == "mux" else {"account": "1"}
    settings = Settings(sources={NAME: SourceSettings(kind=kind, token="s3cret", options=options)})
    with pytest.raises(Fault, match="colon between") as raised:
        open_source(SourceSpec(kind=kind, name=NAME), settings)

    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_the_vendors_own_address_is_the_default(kind: str) -> None:
    options: dict[str, Any] = {
        "jwplayer": {"site": "abcdefgh"},
        "brightcove": {"account": "1"},
        "cloudflare": {"account": "1"},
        "bunny": {"library": 1, "pull_zone": "vz-1.b-cdn.net"},
    }.get(kind, {})
    settings = Settings(sources={NAME: SourceSettings(kind=kind, token="a:b", options=options)})
    source = open_source(SourceSpec(kind=kind, name=NAME), settings)
    assert isinstance(source, HostedSource)
    assert str(source.listing).startswith("https://")
    await source.aclose()
