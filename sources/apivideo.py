"""api.video as a source: the videos of one project.

The file that can be had is the MP4 of a video that was made with `mp4Support`. A private video's addresses carry a
token that is new with each question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.addresses import HIDDEN
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, basic, paging, required_token

BASE_URL: Final = "https://ws.api.video"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0
_TOKEN: Final = re.compile(r"/token/[^/?#]+/")


class Options(ApiOptions):
    """What api.video's source may be told."""

    captions: bool = True
    """Whether captions are listed: one request for each video."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> ApiVideoSource:
    token = required_token(entry, "apivideo", "an API key of the project")
    return ApiVideoSource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class ApiVideoSource(HostedSource):
    rights = "the API key must be one of this project, production or sandbox as base_url says"
    # UNVERIFIED which of the two a page past the end is answered with; an empty page is understood too.
    past_end: ClassVar[frozenset[int]] = frozenset({400, 404})
    items_field = "data"
    total_field = "pagination.itemsTotal"
    id_field = "videoId"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        api = Api(base_url, options, headers={"Authorization": basic(token)}, secrets=(token,))
        self._options = options
        listing = api.url("/videos", {"sortBy": "createdAt", "sortOrder": "asc"})
        super().__init__(api, listing, paging("page", PAGE_LIMIT, page_size, options))
        self.asks_captions = options.captions

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"currentPage": str(at // self.paging.size + 1), "pageSize": str(self.paging.size)}

    def read(self, entry: Any, position: int) -> Item | Problem:
        return video(entry, position)

    def told(self, address: str | None) -> str | None:
        """A private video's token stands in the path."""
        return None if address is None else _TOKEN.sub(f"/token/{HIDDEN}/", super().told(address) or "")

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        url = self.api.url(f"/videos/{seg(item.source_id)}/captions", {"pageSize": str(PAGE_LIMIT)})
        return tracks(await self.list_of(url, "data"))

    async def locate(self, item: Item) -> Location:
        """Two requests: how the video stands, and where its file is, are told apart."""
        below = f"/videos/{seg(item.source_id)}"
        status = await self.ask(f"{below}/status")
        if dig(status, "encoding.playable") is not True:
            states = {text(quality.get("status")) for quality in dicts(dig(status, "encoding.qualities"))}
            # There is no state that says so: a video has failed when each of its renditions has.
            if states == {"failed"}:
                raise self.failed(item, "every rendition failed")
            raise self.busy(
                item, f"it is {dig(status, 'ingest.status') or 'not ready'} at api.video", PROCESSING_WAIT_S
            )
        what = f"{item.source_id!r} has no MP4 (it was made without mp4Support; turn that on at api.video)"
        return self.located(dig(await self.ask(below), "assets.mp4"), what=what)

    async def fresh_captions(self, item: Item) -> Sequence[Caption]:
        found = await self.ask(f"/videos/{seg(item.source_id)}/captions", {"pageSize": str(PAGE_LIMIT)})
        return tracks(dicts(dig(found, "data")))

    async def fresh_poster(self, item: Item) -> str | None:
        return http_or_none(dig(await self.ask(f"/videos/{seg(item.source_id)}"), "assets.thumbnail"))


# ------------------------------------------------------------------------------------------------------------- reading


def video(entry: Any, position: int) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    public = entry.get("public")
    return claims.item(
        position,
        source_id=entry.get("videoId"),
        id_field="videoId",
        title=entry.get("title"),
        metadata={
            "created": entry.get("createdAt"),
            "published": entry.get("publishedAt"),
            "language": entry.get("language"),
            "metadata": {
                key: pair.get("value") for pair in dicts(entry.get("metadata")) if (key := text(pair.get("key")))
            },
        },
        about=About(
            description=text(entry.get("description")),
            tags=texts(entry.get("tags")),
            poster=http_or_none(dig(entry, "assets.thumbnail")),
            privacy=None if not isinstance(public, bool) else "public" if public else "private",
        ),
    )


def tracks(found: Sequence[Any]) -> tuple[Caption, ...]:
    return claims.captions(
        claims.caption(
            track.get("srclang"), key=track.get("uri"), address=track.get("src"), label=track.get("languageName")
        )
        for track in dicts(list(found))
    )
