"""Cloudflare Stream as a source: the videos of one account.

The original cannot be had. An MP4 is made on request: the first question about a video asks for it and finds it not
ready, a later one finds its address. The listing has neither pages nor a cursor: it is walked by the time of creation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import Field

from faults import Fault
from settings import SourceSettings
from sources import claims, cursors
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, making_s, paging, required_token
from sources.walking import Answer

BASE_URL: Final = "https://api.cloudflare.com/client/v4"
PAGE_LIMIT: Final = 1000
PROCESSING_WAIT_S: Final = 60.0
OVERLAP: Final = timedelta(milliseconds=1)
"""UNVERIFIED whether `start` includes its moment, so each page begins a little before the end of the one before."""


class Options(ApiOptions):
    """What Cloudflare Stream's source may be told."""

    account: str = Field(min_length=1)
    """Id of the account."""
    captions: bool = True
    """Whether captions are listed: one request for each video."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> CloudflareSource:
    token = required_token(entry, "cloudflare", "an API token with the right Stream: Edit")
    return CloudflareSource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class CloudflareSource(HostedSource):
    rights = "the API token needs the right Stream: Edit on this account (asking for a download is a write)"
    items_field = "result"
    total_field = "total"
    id_field = "uid"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        api = Api(base_url, options, headers={"Authorization": f"Bearer {token}"}, secrets=(token,))
        self._options = options
        self._stream = f"/accounts/{seg(options.account)}/stream"
        listing = api.url(self._stream, {"asc": "true", "include_counts": "true"})
        super().__init__(api, listing, paging("cursor", PAGE_LIMIT, page_size, options))
        self.asks_captions = options.captions

    async def ask_cursor(self, cursor: str | None, size: int) -> Answer:
        """The cursor is ours: from when on, which videos of that moment are known, and how many there were."""
        start, seen, listed = _unpacked(cursor)
        given = {"limit": str(size), **({} if start is None else {"start": start})}
        found = self.answer(
            self.api.parsed(self.listing, await self.api.listing(self.listing.copy_merge_params(given))), size
        )
        new = [entry for entry in found.entries if dig(entry, "uid") not in seen]
        listed += len(new)
        full = len(found.entries) >= size
        if not new and full:
            raise Fault("listing-too-long", f"{self.shown}: more than {size} videos were made at {start}")
        if not new or (not full and found.total is not None and listed >= found.total):
            return Answer(new, found.total)
        return Answer(new, found.total, self._following(found.entries, listed))

    def _following(self, entries: Sequence[Any], listed: int) -> str:
        last = _moment(dig(entries[-1], "created"))
        if last is None:
            raise self.malformed("a video does not say when it was created, so the listing cannot be walked")
        start = last - OVERLAP
        # What is known and comes again is on this page; from the whole second on, if fractions are not understood.
        since = start.replace(microsecond=0)
        again = [
            uid
            for entry in entries
            if (uid := text(dig(entry, "uid"))) and ((at := _moment(dig(entry, "created"))) is None or at >= since)
        ]
        return json.dumps([start.isoformat().replace("+00:00", "Z"), again, listed], separators=(",", ":"))

    def read(self, entry: Any, position: int) -> Item | Problem:
        return video(entry, position)

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        return tracks(await self.list_of(self.api.url(f"{self._stream}/{seg(item.source_id)}/captions"), "result"))

    # ------------------------------------------------------------------------------------------------------ one video

    async def locate(self, item: Item) -> Location:
        below = f"{self._stream}/{seg(item.source_id)}"
        made = _result(await self.ask(f"{below}/downloads"))
        if not dig(made, "default"):
            self._refuse_unready(item, _result(await self.ask(below)))
            made = _result(await self.ask(f"{below}/downloads", method="POST", json={}))
        state = dig(made, "default.status")
        if state == "error":
            raise self.failed(item, "its MP4 could not be made")
        if state != "ready":
            percent = dig(made, "default.percentComplete")
            raise self.busy(item, f"Cloudflare makes its MP4 ({percent or 0} %)", making_s(item))
        address = await self._with_token(item, dig(made, "default.url"), downloadable=True)
        return self.located(address, what=f"{item.source_id!r}: its MP4 is ready")

    def _refuse_unready(self, item: Item, found: Any) -> None:
        status = dig(found, "status")
        state = dig(status, "state")
        if state == "error":
            # Both spellings of the fields are in use.
            names = ("errorReasonCode", "errReasonCode", "errorReasonText", "errReasonText")
            raise self.failed(item, ": ".join(texts(dig(status, name) for name in names)) or "error")
        if state != "ready" and dig(found, "readyToStream") is not True:
            raise self.busy(item, f"it is {state or 'not ready'} at Cloudflare", PROCESSING_WAIT_S)

    async def _with_token(self, item: Item, address: Any, *, downloadable: bool = False) -> Any:
        """Where a video is only for those with a token, one made for this purpose stands in its id's place."""
        if item.about.privacy != "private" or not isinstance(address, str):
            return address
        path = f"{self._stream}/{seg(item.source_id)}/token"
        body = {"downloadable": True} if downloadable else {}
        token = text(dig(_result(await self.ask(path, method="POST", json=body)), "token"))
        return address if token is None else address.replace(f"/{item.source_id}/", f"/{token}/", 1)

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """No request: the API serves the file itself."""
        return self.own(f"{self._stream}/{seg(item.source_id)}/captions/{seg(caption.key or caption.language)}/vtt")

    async def fresh_poster(self, item: Item) -> str | None:
        found = await self._with_token(item, item.about.poster)
        return None if found is None else str(found)


# ------------------------------------------------------------------------------------------------------------- reading


def video(entry: Any, position: int) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    meta = entry.get("meta")
    kept = dict(meta) if isinstance(meta, dict) else {}
    title = text(kept.pop("name", None)) or text(kept.pop("filename", None))
    signed = entry.get("requireSignedURLs")
    return claims.item(
        position,
        source_id=entry.get("uid"),
        id_field="uid",
        title=title,
        # `size` is the original's, and the MP4 that can be had is another file.
        duration=entry.get("duration"),
        metadata={
            "created": entry.get("created"),
            "creator": entry.get("creator"),
            "state": dig(entry, "status.state"),
            "meta": kept,
        },
        about=About(
            poster=http_or_none(entry.get("thumbnail")),
            privacy=None if not isinstance(signed, bool) else "private" if signed else "public",
        ),
    )


def tracks(found: Sequence[Any]) -> tuple[Caption, ...]:
    return claims.captions(
        claims.caption(track.get("language"), key=track.get("language"), label=track.get("label"))
        for track in dicts(list(found))
        if track.get("status") in (None, "ready")
    )


def _result(value: Any) -> Any:
    """What the envelope holds. Raises Fault("source-busy") for a failure in a success's clothes."""
    if dig(value, "success") is False:
        words = ": ".join(texts(error.get("message") for error in dicts(dig(value, "errors"))))
        raise Fault("source-busy", f"Cloudflare reports a failure with status 200: {words}")
    return dig(value, "result")


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _unpacked(cursor: str | None) -> tuple[str | None, frozenset[str], int]:
    if cursor is None:
        return None, frozenset(), 0
    try:
        start, seen, listed = json.loads(cursor)
        return str(start), frozenset(map(str, seen)), int(listed)
    except (ValueError, TypeError):
        raise cursors.stale("the cursor's place in the host's listing cannot be read") from None
