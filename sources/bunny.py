"""Bunny Stream as a source: the videos of one library.

Files are read from the library's pull zone, whose name the API does not tell, so it is a setting. Where the pull zone
asks for tokens, addresses are signed here, anew at each question.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field, SecretStr

from faults import Fault
from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, seg, text, texts
from sources.hosted import HostedSource, in_folder, paging, required_token
from sources.walking import whole

BASE_URL: Final = "https://video.bunnycdn.com"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0
# The REST API's numbering; webhooks have another.
_FAILED: Final = frozenset({5, 6})
_UNDER_WAY: Final = frozenset({0, 1, 2, 3})


class Options(ApiOptions):
    """What Bunny Stream's source may be told."""

    library: int = Field(ge=1)
    """Id of the library."""
    pull_zone: str = Field(min_length=1, pattern=r"^(https?://)?[^\s/]+$")
    """Host name of the library's pull zone, such as vz-1a2b3c4d-567.b-cdn.net."""
    file: Literal["original", "mp4"] = "original"
    """The file that was uploaded, or the highest MP4 fallback, where originals are not kept."""
    token_key: SecretStr | None = None
    """The pull zone's token authentication key, where that is on."""
    referer: str | None = None
    """Sent along for the file, where the pull zone lets only some sites in."""
    expires_s: int = Field(default=3600, ge=60, le=604_800)
    """Seconds for which a signed address is good."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> BunnySource:
    token = required_token(entry, "bunny", "the library's API key")
    return BunnySource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class BunnySource(HostedSource):
    rights = "the token must be this library's API key (not the account's)"
    items_field = "items"
    total_field = "totalItems"
    id_field = "guid"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        key = None if options.token_key is None else options.token_key.get_secret_value()
        secrets = (token,) if key is None else (token, key)
        api = Api(base_url, options, headers={"AccessKey": token}, secrets=secrets)
        self._options = options
        self._key = key
        self._library = f"/library/{options.library}"
        zone = options.pull_zone
        self._zone = zone if zone.startswith(("http://", "https://")) else f"https://{zone}"
        self._folders: Mapping[str, str] | None = None
        listing = api.url(f"{self._library}/videos", {"orderBy": "date"})
        super().__init__(api, listing, paging("page", PAGE_LIMIT, page_size, options))

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"page": str(at // self.paging.size + 1), "itemsPerPage": str(self.paging.size)}

    def read(self, entry: Any, position: int) -> Item | Problem:
        return video(entry, position, self._zone)

    async def completed(self, items: list[Item]) -> list[Item]:
        """Collections are named by ids; their names are asked for once, if any is needed."""
        if self._folders is None and any(item.metadata.get("collection_id") for item in items):
            self._folders = await self._collections()
        return [in_folder(item, "collection_id", self._folders or {}) for item in items]

    async def _collections(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for page in range(1, self._options.max_pages + 1):
            params = {"page": str(page), "itemsPerPage": str(PAGE_LIMIT)}
            listed = dicts(await self.list_of(self.api.url(f"{self._library}/collections", params), "items"))
            found |= {key: name for c in listed if (key := text(c.get("guid"))) and (name := text(c.get("name")))}
            if len(listed) < PAGE_LIMIT:
                break
        return found

    # ------------------------------------------------------------------------------------------------------ one video

    async def locate(self, item: Item) -> Location:
        found = await self.ask(f"{self._library}/videos/{seg(item.source_id)}")
        status = whole(dig(found, "status"))
        if status in _FAILED:
            raise self.failed(item, reason(found))
        if status is None:
            raise self.busy(item, "Bunny's answer has no status", PROCESSING_WAIT_S)
        if status in _UNDER_WAY:
            raise self.busy(item, f"it is at {dig(found, 'encodeProgress') or 0} % at Bunny", PROCESSING_WAIT_S)
        if self._options.file == "original":
            if dig(found, "hasOriginal") is False:
                raise Fault(
                    "source-not-found",
                    f'{item.source_id!r}: its original was not kept; set file = "mp4" to take an MP4',
                )
            return self._file(f"/{seg(item.source_id)}/original")
        height = highest(found)
        if height is None:
            raise Fault("source-not-found", f"{item.source_id!r} has no MP4 fallback")
        return self._file(f"/{seg(item.source_id)}/play_{height}p.mp4")

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """No request: the pull zone has the file under the track's own name."""
        return self._file(f"/{seg(item.source_id)}/captions/{seg(caption.key or caption.language)}.vtt")

    async def locate_poster(self, item: Item) -> Location | None:
        """No request."""
        name = item.metadata.get("thumbnail")
        return None if not name else self._file(f"/{seg(item.source_id)}/{seg(name)}")

    def _file(self, path: str) -> Location:
        headers = {} if self._options.referer is None else {"Referer": self._options.referer}
        query = "" if self._key is None else signed(path, self._key, int(time.time()) + self._options.expires_s)
        return Location(self._zone + path + query, headers)


# ------------------------------------------------------------------------------------------------------------- reading


def video(entry: Any, position: int, zone: str) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    tags = {key: tag.get("value") for tag in dicts(entry.get("metaTags")) if (key := text(tag.get("property")))}
    guid, thumbnail = text(entry.get("guid")), text(entry.get("thumbnailFileName"))
    public = entry.get("isPublic")
    return claims.item(
        position,
        source_id=entry.get("guid"),
        id_field="guid",
        title=entry.get("title"),
        # `storageSize` counts all renditions together.
        duration=entry.get("length"),
        metadata={
            "created": entry.get("dateUploaded"),
            "status": entry.get("status"),
            "collection_id": entry.get("collectionId"),
            "category": entry.get("category"),
            "thumbnail": thumbnail,
            "meta_tags": tags,
        },
        about=About(
            description=text(entry.get("description")) or text(tags.get("description")),
            captions=claims.captions(
                claims.caption(
                    track.get("srclang"),
                    key=track.get("srclang"),
                    address=f"{zone}/{seg(guid)}/captions/{seg(track.get('srclang'))}.vtt",
                    label=track.get("label"),
                )
                for track in dicts(entry.get("captions"))
            ),
            poster=None if guid is None or thumbnail is None else f"{zone}/{seg(guid)}/{seg(thumbnail)}",
            # A library lists its public videos on a page of its own; the others play wherever they are embedded.
            privacy=None if not isinstance(public, bool) else "public" if public else "unlisted",
        ),
    )


def reason(found: Any) -> str:
    messages: Sequence[Any] = dicts(dig(found, "transcodingMessages"))
    return "; ".join(texts(message.get("message") for message in messages)) or "upload or encoding failed"


def highest(found: Any) -> int | None:
    """Lines of the highest MP4 fallback: they are made up to 720 lines (UNVERIFIED)."""
    if dig(found, "hasMP4Fallback") is not True:
        return None
    names = str(dig(found, "availableResolutions") or "").split(",")
    heights = [height for name in names if (height := whole(name.strip().removesuffix("p"))) and height <= 720]
    return max(heights, default=None)


def signed(path: str, key: str, expires: int) -> str:
    """The query of a pull zone's basic token authentication: SHA-256 over key, path and end, in URL-safe Base64."""
    digest = hashlib.sha256(f"{key}{path}{expires}".encode()).digest()
    return f"?token={base64.urlsafe_b64encode(digest).decode().rstrip('=')}&expires={expires}"
