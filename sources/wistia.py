"""Wistia: an account's videos, by its Data API (modern, version 2026-01).

Medias carry their files as assets, the original among them. Captions are files of the API itself and need the token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import httpx

from settings import SourceSettings
from sources import claims
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, paging, required_token

BASE_URL: Final = "https://api.wistia.com/modern"
VERSION: Final = "2026-01"
PAGE_LIMIT: Final = 100
PROCESSING_WAIT_S: Final = 60.0
# Captions are named by ISO 639-2 codes, where BCP 47 wants the two letters that a language has, if it has.
_TWO_LETTERS: Final = MappingProxyType(
    dict(
        pair.split("=")
        for pair in """
            ara=ar bul=bg cat=ca ces=cs cze=cs chi=zh zho=zh cmn=zh dan=da deu=de ger=de ell=el gre=el eng=en est=et
            eus=eu baq=eu fas=fa per=fa fin=fi fra=fr fre=fr gle=ga heb=he hin=hi hrv=hr hun=hu ice=is isl=is ind=id
            ita=it jpn=ja kor=ko lav=lv lit=lt mal=ml may=ms msa=ms nld=nl dut=nl nor=no pol=pl por=pt ron=ro rum=ro
            rus=ru slk=sk slo=sk slv=sl spa=es srp=sr swe=sv tam=ta tel=te tha=th tur=tr ukr=uk urd=ur vie=vi wel=cy
            cym=cy
        """.split()  # noqa: SIM905
    )
)


class Options(ApiOptions):
    """What Wistia's source may be told."""

    folder: str | None = None
    """Hashed id of a folder; None: all of the account's videos."""
    captions: bool = True
    """Whether captions are listed: one request for each video."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> WistiaSource:
    token = required_token(entry, "wistia", 'an API token with the right "Read all folder and media data"')
    return WistiaSource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class WistiaSource(HostedSource):
    rights = 'the API token needs the right "Read all folder and media data"'
    id_field = "hashed_id"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        # UNVERIFIED that the version is chosen by this header; without meaning it does no harm.
        headers = {"Authorization": f"Bearer {token}", "X-Wistia-API-Version": VERSION}
        api = Api(base_url, options, headers=headers, secrets=(token,))
        self._options = options
        params = {"type": "Video", "sort_by": "created", "sort_direction": "1"}
        if options.folder is not None:
            params["folder_id"] = options.folder
        super().__init__(api, api.url("/medias", params), paging("page", PAGE_LIMIT, page_size, options))
        self.asks_captions = options.captions

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"page": str(at // self.paging.size + 1), "per_page": str(self.paging.size)}

    def read(self, entry: Any, position: int) -> Item | Problem:
        return media(entry, position)

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        return tracks(await self.list_of(self.api.url(f"/medias/{seg(item.source_id)}/captions"), None))

    async def locate(self, item: Item) -> Location:
        found = await self.ask(f"/medias/{seg(item.source_id)}")
        status = dig(found, "status")
        if status == "failed":
            raise self.failed(item, text(dig(found, "error")) or "failed")
        if status in ("queued", "processing"):
            raise self.busy(item, f"it is {status} at Wistia", PROCESSING_WAIT_S)
        if dig(found, "archived") is True:
            raise self.failed(item, "archived; restore it there")
        file = next((a for a in dicts(dig(found, "assets")) if a.get("type") == "OriginalFile"), None)
        size = dig(file, "file_size")
        return self.located(
            dig(file, "url"),
            size if isinstance(size, int) and size > 0 else None,
            what=f"{item.source_id!r} has no asset of type OriginalFile",
        )

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """No request: the API serves the file itself, under the track's own name."""
        code = caption.key or caption.language
        return self.own(f"/medias/{seg(item.source_id)}/captions/{seg(code)}.vtt")

    async def fresh_poster(self, item: Item) -> str | None:
        return poster(await self.ask(f"/medias/{seg(item.source_id)}"))


# ------------------------------------------------------------------------------------------------------------- reading


def media(entry: Any, position: int) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    folders = texts((dig(entry, "folder.name"), dig(entry, "subfolder.name")))
    return claims.item(
        position,
        source_id=entry.get("hashed_id"),
        id_field="hashed_id",
        title=entry.get("name"),
        size=next((a.get("file_size") for a in dicts(entry.get("assets")) if a.get("type") == "OriginalFile"), None),
        duration=entry.get("duration"),
        metadata={
            "created": entry.get("created"),
            "status": entry.get("status"),
            "section": entry.get("section"),
            "archived": entry.get("archived") or None,
        },
        about=About(
            description=text(entry.get("description")),
            tags=texts(tag.get("name") for tag in dicts(entry.get("tags"))),
            folder="/".join(folders) or None,
            poster=poster(entry),
            # False says only that no password is asked for, not that anybody may find it.
            privacy="private" if entry.get("protected") is True else None,
        ),
    )


def poster(entry: Any) -> str | None:
    """The still in full: the listing's address asks for a small copy of it by its query."""
    address = http_or_none(dig(entry, "thumbnail.url"))
    if address is None:
        return None
    try:
        return str(httpx.URL(address).copy_remove_param("image_crop_resized"))
    except httpx.InvalidURL:
        return address


def tracks(found: Sequence[Any]) -> tuple[Caption, ...]:
    """Drafts are passed over: nobody has released them."""
    return claims.captions(
        claims.caption(language(track.get("language")), key=track.get("language"), label=track.get("native_name"))
        for track in dicts(list(found))
        if track.get("is_draft") is not True
    )


def language(code: Any) -> Any:
    return _TWO_LETTERS.get(code, code) if isinstance(code, str) else code
