"""Sources with an API of their own beside running servers of their hosts: what is expected of each, how it is asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from faults import Fault
from settings import Settings, SourceSettings
from sources.about import About, Caption
from sources.base import Item, ListedPage, Location
from sources.hosted import HostedSource
from sources.registry import open_source
from sources.spec import SourceSpec
from tests.sources.hosts import SERVERS
from tests.sources.hosts.base import Clip, Server
from tests.sources.hosts.serving import Answer, running

NAME = "old"


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


async def placed(
    host: Host,
    stack: AsyncExitStack,
    clips: list[Clip] | None = None,
    *,
    files: Callable[[Server], Answer] = lambda server: server.file,
) -> Place:
    """`files` makes the handler of the server's files."""
    server = SERVERS[host.kind](clips)
    server.api = await stack.enter_async_context(running(server.answer))  # type: ignore[assignment]
    server.files = await stack.enter_async_context(running(files(server)))  # type: ignore[assignment]
    return Place(host, server, stack)


def without_signatures(about: About) -> About:
    def cut(address: str | None) -> str | None:
        return None if address is None else address.split("?")[0] + ("?…" if "?" in address else "")

    captions = tuple(track.model_copy(update={"address": cut(track.address)}) for track in about.captions)
    return about.model_copy(update={"poster": cut(about.poster), "captions": captions})
