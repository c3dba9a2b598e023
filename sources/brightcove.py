"""Brightcove: the videos of one account, by the CMS API.

Tokens are had from the OAuth service for five minutes each. Addresses of files, captions and pictures are signed and
expire within hours. The uploaded file (the "digital master") cannot be had by this API; the largest MP4 is taken.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
from pydantic import Field

from faults import Fault
from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.asking import Api, ApiOptions, Refused
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, basic, in_folder, paging, pair, required_token
from sources.walking import Answer, whole

BASE_URL: Final = "https://cms.api.brightcove.com"
OAUTH_URL: Final = "https://oauth.brightcove.com"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0
RENEW_BEFORE_S: Final = 30.0
"""A token that ends within this is renewed before it is used."""


class Options(ApiOptions):
    """What Brightcove's source may be told."""

    account: str = Field(min_length=1)
    """Id of the account."""
    oauth_url: str = Field(default=OAUTH_URL, pattern=r"^https?://[^\s]+$")
    """Where tokens are had."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> BrightcoveSource:
    words = "the client id and client secret of API credentials, with a colon between"
    client, secret = pair(required_token(entry, "brightcove", words), "brightcove", words)
    return BrightcoveSource(entry.base_url or BASE_URL, options, client, secret, page_size=page_size)


class BrightcoveSource(HostedSource):
    rights = "the API credentials need the right CMS: Video Read (and Folder Read) on this account"

    def __init__(self, base_url: str, options: Options, client: str, secret: str, *, page_size: int) -> None:
        self._oauth = Api(
            options.oauth_url, options, headers={"Authorization": basic(client, secret)}, secrets=(client, secret)
        )
        self._token, self._ends = "", 0.0
        self._renewing = asyncio.Lock()
        self._folders: Mapping[str, str] | None = None
        api = Api(base_url, options, secrets=(secret,), authorize=self._authorize)
        self._account = f"/v1/accounts/{seg(options.account)}"
        listing = api.url(f"{self._account}/videos", {"sort": "created_at"})
        super().__init__(api, listing, paging("offset", PAGE_LIMIT, page_size, options))

    async def aclose(self) -> None:
        await self._oauth.aclose()
        await super().aclose()

    async def _authorize(self, method: str, url: httpx.URL, renew: bool) -> Mapping[str, str]:
        refused = self._token if renew else None
        async with self._renewing:
            # Of those who are refused together, one asks for a new token.
            if self._token == refused or time.monotonic() > self._ends:
                await self._renew()
        return {"Authorization": f"Bearer {self._token}"}

    async def _renew(self) -> None:
        asked = self._oauth.url("/v4/access_token", {"grant_type": "client_credentials"})
        try:
            body = await self._oauth.listing(asked, method="POST")
        except Refused as refused:
            if refused.status in (400, 401, 403):
                raise Fault("source-credentials-refused", f"{refused.words}; {self.rights}") from None
            raise self._oauth.fault(refused) from None
        try:
            found = json.loads(body)
            self._token = str(found["access_token"])
            self.api.hide(self._token)
            self._ends = time.monotonic() + max(0.0, float(found.get("expires_in", 300)) - RENEW_BEFORE_S)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._oauth.malformed(asked, "it gave no access token") from None

    # -------------------------------------------------------------------------------------------------- the listing

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"offset": str(at), "limit": str(size)}

    async def ask_place(self, at: int, size: int) -> Answer:
        """The count is a question of its own, asked once."""
        if self._total is None:
            url = self.api.url(f"{self._account}/counts/videos")
            try:
                self._total = whole(dig(self.api.parsed(url, await self.api.listing(url)), "count"))
            except Refused as refused:
                raise self.api.fault(refused, self.rights) from None
        found = await super().ask_place(at, size)
        return Answer(found.entries, self._total)

    def read(self, entry: Any, position: int) -> Item | Problem:
        return video(entry, position)

    async def completed(self, items: list[Item]) -> list[Item]:
        """Folders are named by ids; their names are asked for once, if any is needed."""
        if self._folders is None and any(item.metadata.get("folder_id") for item in items):
            self._folders = await self._named_folders()
        return [in_folder(item, "folder_id", self._folders or {}) for item in items]

    async def _named_folders(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for page in range(self.paging.max_pages):
            params = {"limit": str(PAGE_LIMIT), "offset": str(page * PAGE_LIMIT)}
            listed = dicts(await self.list_of(self.api.url(f"{self._account}/folders", params), None))
            found |= {key: name for f in listed if (key := text(f.get("id"))) and (name := text(f.get("name")))}
            if len(listed) < PAGE_LIMIT:
                break
        return found

    # ------------------------------------------------------------------------------------------------------ one video

    async def locate(self, item: Item) -> Location:
        below = f"{self._account}/videos/{seg(item.source_id)}"
        file = largest(await self.ask(f"{below}/sources"))
        if file is None:
            state, words = ingested(await self.ask(f"{below}/ingest_jobs"))
            if state == "failed":
                raise self.failed(item, words)
            if state == "under way":
                raise self.busy(item, f"it is {words} at Brightcove", PROCESSING_WAIT_S)
        return self.located(
            dig(file, "src"),
            whole(dig(file, "size")) or None,
            what=f"{item.source_id!r} has no MP4 to download",
        )

    async def fresh_captions(self, item: Item) -> Sequence[Caption]:
        return tracks(await self.ask(f"{self._account}/videos/{seg(item.source_id)}"))

    async def fresh_poster(self, item: Item) -> str | None:
        return poster(await self.ask(f"{self._account}/videos/{seg(item.source_id)}"))


# ------------------------------------------------------------------------------------------------------------- reading


def video(entry: Any, position: int) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    state = entry.get("state")
    return claims.item(
        position,
        source_id=entry.get("id"),
        title=entry.get("name"),
        duration=entry.get("duration"),
        per_second=1000,
        metadata={
            "created": entry.get("created_at"),
            "reference_id": entry.get("reference_id"),
            "folder_id": entry.get("folder_id"),
            "custom_fields": entry.get("custom_fields"),
            "complete": entry.get("complete"),
        },
        about=About(
            description=text(entry.get("long_description")) or text(entry.get("description")),
            tags=texts(entry.get("tags")),
            captions=tracks(entry),
            poster=poster(entry),
            privacy="public" if state == "ACTIVE" else "private" if state == "INACTIVE" else None,
        ),
    )


def poster(entry: Any) -> str | None:
    return http_or_none(dig(entry, "images.poster.src")) or http_or_none(dig(entry, "images.thumbnail.src"))


def tracks(entry: Any) -> tuple[Caption, ...]:
    """Subtitles and captions; chapters, descriptions and metadata are neither."""
    return claims.captions(
        claims.caption(
            track.get("srclang"),
            key=track.get("id"),
            address=track.get("src") or next((s.get("src") for s in dicts(track.get("sources"))), None),
            label=track.get("label"),
            sounds=track.get("kind") == "captions",
        )
        for track in dicts(dig(entry, "text_tracks"))
        if track.get("kind") in ("captions", "subtitles")
    )


def largest(sources: Any) -> dict[str, Any] | None:
    """The MP4 with most lines, then most bytes; the secure address of two that are the same file."""
    files = [s for s in dicts(sources) if s.get("container") == "MP4" and http_or_none(s.get("src"))]

    def rank(file: dict[str, Any]) -> tuple[int, int, bool]:
        return (whole(file.get("height")) or 0, whole(file.get("size")) or 0, str(file["src"]).startswith("https:"))

    return max(files, key=rank, default=None)


def ingested(jobs: Any) -> tuple[str, str]:
    """How the newest of the video's ingest jobs stands ("failed", "under way", "done"), and in whose words."""
    newest = max(dicts(jobs), key=lambda job: str(job.get("submitted_at") or job.get("updated_at") or ""), default={})
    state = text(newest.get("state")) or ""
    if state == "failed":
        told = texts((newest.get("error_code"), newest.get("error_message")))
        return "failed", ": ".join(told) or "failed"
    return ("under way", state) if state in ("processing", "publishing", "published") else ("done", state)
