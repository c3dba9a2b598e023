"""Mux as a source: the assets of one environment.

The original is had as the "master", which Mux makes on request and keeps for 24 hours: the first question about a video
asks for it and finds it not ready, a later one finds its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, seg, text, texts
from sources.hosted import HostedSource, basic, making_s, paging, pair, required_token
from sources.walking import Answer

BASE_URL: Final = "https://api.mux.com"
STREAM_URL: Final = "https://stream.mux.com"
IMAGE_URL: Final = "https://image.mux.com"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0


class Options(ApiOptions):
    """What Mux's source may be told."""

    paging: Literal["page", "cursor"] = "page"
    """By page number, several walkers can list side by side; the cursor loses nothing where assets are deleted
    meanwhile."""
    stream_url: str = Field(default=STREAM_URL, pattern=r"^https?://[^\s]+$")
    """Where text tracks are, for a domain of one's own."""
    image_url: str = Field(default=IMAGE_URL, pattern=r"^https?://[^\s]+$")
    """Where stills are, for a domain of one's own."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> MuxSource:
    words = "the access token's id and secret, with a colon between"
    key, secret = pair(required_token(entry, "mux", words), "mux", words)
    return MuxSource(entry.base_url or BASE_URL, options, key, secret, page_size=page_size)


class MuxSource(HostedSource):
    rights = "the access token needs the rights Mux Video Read and Write (asking for a master is a write)"
    items_field = "data"

    def __init__(self, base_url: str, options: Options, key: str, secret: str, *, page_size: int) -> None:
        api = Api(base_url, options, headers={"Authorization": basic(key, secret)}, secrets=(key, secret))
        self._options = options
        super().__init__(api, api.url("/video/v1/assets"), paging(options.paging, PAGE_LIMIT, page_size, options))

    def place(self, at: int, size: int) -> Mapping[str, str]:
        # The default size of a page is documented in two ways, so it is always sent.
        return {"page": str(at // self.paging.size + 1), "limit": str(self.paging.size)}

    async def ask_cursor(self, cursor: str | None, size: int) -> Answer:
        given = {} if cursor is None else {"cursor": cursor}
        value = self.api.parsed(
            self.listing, await self.api.listing(self.listing.copy_merge_params({"limit": str(size), **given}))
        )
        following = text(dig(value, "next_cursor"))
        return Answer(self.answer(value, self.paging.size).entries, None, following, "next_cursor" in value)

    def read(self, entry: Any, position: int) -> Item | Problem:
        return asset(entry, position, self._options.stream_url.rstrip("/"), self._options.image_url.rstrip("/"))

    async def locate(self, item: Item) -> Location:
        below = f"/video/v1/assets/{seg(item.source_id)}"
        found = dig(await self.ask(below), "data")
        status = dig(found, "status")
        if status == "errored":
            raise self.failed(item, reason(dig(found, "errors")))
        if status == "preparing":
            raise self.busy(item, "it is preparing at Mux", PROCESSING_WAIT_S)
        master = dig(found, "master")
        if dig(found, "master_access") != "temporary" or dig(master, "status") not in (
            "ready",
            "preparing",
        ):
            asked = await self.ask(f"{below}/master-access", method="PUT", json={"master_access": "temporary"})
            master = dig(asked, "data.master")
        if dig(master, "status") == "errored":
            raise self.failed(item, "its master could not be made")
        if dig(master, "status") != "ready":
            raise self.busy(item, "Mux makes its master", making_s(item))
        return self.located(dig(master, "url"), what=f"{item.source_id!r}: its master is ready")


# ------------------------------------------------------------------------------------------------------------- reading


def asset(entry: Any, position: int, stream_url: str, image_url: str) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    ids = dicts(entry.get("playback_ids"))
    public = next((text(p.get("id")) for p in ids if p.get("policy") == "public"), None)
    return claims.item(
        position,
        source_id=entry.get("id"),
        title=dig(entry, "meta.title"),
        duration=entry.get("duration"),
        metadata={
            "created": entry.get("created_at"),
            "passthrough": entry.get("passthrough"),
            "external_id": dig(entry, "meta.external_id"),
            "creator_id": dig(entry, "meta.creator_id"),
            "status": entry.get("status"),
        },
        about=About(
            captions=tracks(entry, None if public is None else f"{stream_url}/{seg(public)}/text"),
            poster=None if public is None else f"{image_url}/{seg(public)}/thumbnail.jpg",
            privacy="public" if public is not None else "private" if ids else None,
        ),
    )


def tracks(entry: Any, below: str | None) -> tuple[Caption, ...]:
    """Text tracks that are done. Behind a signed playback policy alone they have no address that we could make."""
    return claims.captions(
        claims.caption(
            track.get("language_code"),
            key=track.get("id"),
            address=None if below is None else f"{below}/{seg(track.get('id'))}.vtt",
            label=track.get("name"),
            sounds=track.get("closed_captions") is True,
        )
        for track in dicts(dig(entry, "tracks"))
        if track.get("type") == "text" and track.get("status") in (None, "ready")
    )


def reason(errors: Any) -> str:
    messages = dig(errors, "messages")
    return ": ".join(texts((dig(errors, "type"), *(messages if isinstance(messages, list) else ())))) or "errored"
