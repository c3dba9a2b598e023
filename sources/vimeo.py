"""Vimeo: one account's own videos, or one of its folders.

The listing names the fields it wants, which raises the account's allowance of requests. Download links are given by the
video itself, redirect to a file, and expire within a day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, paging, required_token

BASE_URL: Final = "https://api.vimeo.com"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0
PICTURES: Final = "pictures.sizes.width,pictures.sizes.link"
LISTED: Final = ",".join(
    (
        "uri",
        "name",
        "description",
        "duration",
        "language",
        "link",
        "created_time",
        "status",
        "tags.name",
        "privacy.view",
        "parent_folder.name",
        PICTURES,
        "metadata.connections.texttracks.total",
    )
)
LOCATED: Final = "uri,status,upload.status,transcode.status,download"
TRACKS: Final = MappingProxyType({"fields": "uri,active,language,name,type,link", "per_page": str(PAGE_LIMIT)})
_URI: Final = re.compile(r"/videos/([0-9]+)")
_FAILED: Final = frozenset({"uploading_error", "transcoding_error", "quota_exceeded", "total_cap_exceeded"})
_UNDER_WAY: Final = frozenset({"uploading", "transcode_starting", "transcoding"})


class Options(ApiOptions):
    """What Vimeo's source may be told."""

    folder: str | None = None
    """Id of a folder ("project" in the API); None: all of the account's videos."""
    file: Literal["source", "best"] = "source"
    """The file that was uploaded, or the largest that can be had where that is gone."""
    captions: bool = True
    """Whether text tracks are listed: one request for each video that has some."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> VimeoSource:
    token = required_token(entry, "vimeo", "an access token with the scopes public, private and video_files")
    return VimeoSource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class VimeoSource(HostedSource):
    rights = "the access token needs the scopes public, private and video_files"
    # UNVERIFIED which of the two a page past the end is answered with; an empty page is understood too.
    past_end: ClassVar[frozenset[int]] = frozenset({400, 404})
    items_field = "data"
    total_field = "total"
    id_field = "uri"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        headers = {"Authorization": f"bearer {token}", "Accept": "application/vnd.vimeo.*+json;version=3.4"}
        api = Api(base_url, options, headers=headers, secrets=(token,))
        self._options = options
        path = "/me/videos" if options.folder is None else f"/me/projects/{seg(options.folder)}/videos"
        # Oldest first: what is uploaded during the listing comes at its end, where it is found.
        listing = api.url(path, {"sort": "date", "direction": "asc", "fields": LISTED})
        super().__init__(api, listing, paging("page", PAGE_LIMIT, page_size, options))
        self.asks_captions = options.captions

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"page": str(at // self.paging.size + 1), "per_page": str(self.paging.size)}

    def read(self, entry: Any, position: int) -> Item | Problem:
        return video(entry, position)

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        if not item.metadata.get("text_tracks"):
            return ()
        return tracks(await self.list_of(self._tracks_url(item), "data"))

    async def locate(self, item: Item) -> Location:
        found = await self.ask(f"/videos/{seg(item.source_id)}", {"fields": LOCATED})
        status = text(dig(found, "status")) or ""
        states = {text(dig(found, "upload.status")), text(dig(found, "transcode.status"))}
        if status in _FAILED or "error" in states:
            raise self.failed(item, status or "error")
        if status in _UNDER_WAY or "in_progress" in states:
            raise self.busy(item, f"it is {status or 'in progress'} at Vimeo", PROCESSING_WAIT_S)
        file = download(found, best=self._options.file == "best")
        what = f"{item.source_id!r} has no {self._options.file} file to download"
        if file is None and self._options.file == "source":
            what += ' (does the token have the scope video_files? If the original is gone, set file = "best")'
        return self.located(dig(file, "link"), size_of(file), what=what)

    async def fresh_captions(self, item: Item) -> Sequence[Caption]:
        found = await self.ask(f"/videos/{seg(item.source_id)}/texttracks", TRACKS)
        return tracks(dicts(dig(found, "data")))

    async def fresh_poster(self, item: Item) -> str | None:
        return poster(await self.ask(f"/videos/{seg(item.source_id)}", {"fields": PICTURES}))

    def _tracks_url(self, item: Item) -> Any:
        return self.api.url(f"/videos/{seg(item.source_id)}/texttracks", TRACKS)


# ------------------------------------------------------------------------------------------------------------- reading


def video(entry: Any, position: int) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    found = _URI.search(text(entry.get("uri")) or "")
    return claims.item(
        position,
        source_id=None if found is None else found[1],
        id_field="uri",
        title=entry.get("name"),
        duration=entry.get("duration"),
        metadata={
            "link": entry.get("link"),
            "created": entry.get("created_time"),
            "language": entry.get("language"),
            "status": entry.get("status"),
            "text_tracks": dig(entry, "metadata.connections.texttracks.total"),
        },
        about=About(
            description=text(entry.get("description")),
            tags=texts(tag.get("name") for tag in dicts(entry.get("tags"))),
            folder=text(dig(entry, "parent_folder.name")),
            poster=poster(entry),
            privacy=privacy(dig(entry, "privacy.view")),
        ),
    )


def privacy(view: Any) -> Literal["public", "unlisted", "private"] | None:
    """All that is neither for anybody nor by link is behind a password, a login or a list of domains."""
    if text(view) is None:
        return None
    return "public" if view == "anybody" else "unlisted" if view == "unlisted" else "private"


def poster(entry: Any) -> str | None:
    """The largest of the pictures."""
    sizes = dicts(dig(entry, "pictures.sizes"))
    widest = max(sizes, key=lambda size: _number(size.get("width")), default={})
    return http_or_none(widest.get("link"))


def download(found: Any, *, best: bool) -> dict[str, Any] | None:
    files = dicts(dig(found, "download"))
    source = next((file for file in files if file.get("quality") == "source"), None)
    if source is None and best:
        return max(files, key=lambda file: (_number(file.get("height")), _number(file.get("size"))), default=None)
    return source


def size_of(file: dict[str, Any] | None) -> int | None:
    return int(_number(dig(file, "size"))) or None


def tracks(found: Sequence[Any]) -> tuple[Caption, ...]:
    return claims.captions(
        claims.caption(
            track.get("language"),
            key=track.get("uri"),
            address=track.get("link"),
            label=track.get("name"),
            sounds=track.get("type") == "captions",
        )
        for track in dicts(list(found))
    )


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
