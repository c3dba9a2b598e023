"""JW Player: the media of one property ("site"), by the Management API v2.

Of any question only the first 10 000 results can be reached, so a larger library is asked for in ranges of the time
that media were made, each small enough. All stripes make the same ranges as long as nothing is added or deleted while
the first pages are asked for; the library's total, which each page carries, tells whether something was missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from faults import Fault
from settings import SourceSettings
from sources import claims, cursors
from sources.about import About, Caption
from sources.asking import Api, ApiOptions
from sources.base import Item, ListedPage, Location, Problem
from sources.claims import dicts, dig, http_or_none, seg, text, texts
from sources.hosted import HostedSource, paging, required_token
from sources.walking import Answer, whole

BASE_URL: Final = "https://api.jwplayer.com"
DELIVERY_URL: Final = "https://cdn.jwplayer.com"
PAGE_LIMIT: Final = 100
"""UNVERIFIED; a smaller page than was asked for is noticed."""
ALL: Final = MappingProxyType({"page_length": str(PAGE_LIMIT)})
"""Ten are given without it; a video has fewer tracks than this."""
REACHABLE: Final = 10_000
"""Results of one question (docs.jwplayer.com, "Listing Media")."""
PROCESSING_WAIT_S: Final = 60.0
DAY_S: Final = 86_400
_ODD_MICROSECOND: Final = 271_828
"""Ranges within a day meet at a moment at which nothing was made, so that it is all the same whether it is included."""

Range = tuple[int | None, int | None, int]
"""Media made from one second since 1970 on to another (None: without a bound), and how many there are."""


class Options(ApiOptions):
    """What JW Player's source may be told."""

    site: str = Field(min_length=1)
    """Id of the property."""
    file: Literal["original", "rendition"] = "original"
    """The file that was uploaded, or the largest MP4 that was made of it, from the public Delivery API."""
    captions: bool = True
    """Whether text tracks are listed: one request for each video."""
    delivery_url: str = Field(default=DELIVERY_URL, pattern=r"^https?://[^\s]+$")
    """Where the Delivery API is."""
    retry_wait_s: float = Field(default=4.0, ge=0)
    """60 requests a minute are allowed, and a refusal doesn't say when to come back: 4, 8, 16 and 32 s are a minute."""
    reachable: int = Field(default=REACHABLE, ge=1, le=REACHABLE)
    """Results of one question that the host lets us reach."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> JwPlayerSource:
    token = required_token(entry, "jwplayer", "an API secret of the Management API v2")
    return JwPlayerSource(entry.base_url or BASE_URL, options, token=token, page_size=page_size)


class JwPlayerSource(HostedSource):
    rights = "the API secret must be one of v2 and be allowed to read this property"
    past_end: ClassVar[frozenset[int]] = frozenset({400, 404})
    items_field = "media"
    total_field = "total"

    def __init__(self, base_url: str, options: Options, *, token: str, page_size: int) -> None:
        api = Api(base_url, options, headers={"Authorization": f"Bearer {token}"}, secrets=(token,))
        self._options = options
        self._site = f"/v2/sites/{seg(options.site)}"
        self._delivery = Api(options.delivery_url, options)
        self._ranges: Sequence[Range] | None = None
        self._here = 0
        listing = api.url(f"{self._site}/media/", {"sort": "created:asc"})
        super().__init__(api, listing, paging("page", PAGE_LIMIT, page_size, options))
        self.asks_captions = options.captions

    async def aclose(self) -> None:
        await self._delivery.aclose()
        await super().aclose()

    # -------------------------------------------------------------------------------------------------- the listing

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """As everywhere; the cursor carries the ranges too."""
        inner = None
        if cursor is None:
            self._ranges = await self._planned()
        else:
            place = cursors.Unpacked(cursor)
            self._ranges, inner = unpacked(place.get("ranges", list)), place.get("walk", str)
            self._total = place.count("total")
        page = await super().list_page(inner, stripe=stripe, stripes=stripes)
        following = page.next_cursor and cursors.pack(ranges=self._ranges, total=self._total, walk=page.next_cursor)
        return ListedPage(page.items, following, page.problems, total=self._total)

    def place(self, at: int, size: int) -> Mapping[str, str]:
        return {"page": str(at // self.paging.size + 1), "page_length": str(self.paging.size)}

    async def ask_place(self, at: int, size: int) -> Answer:
        """The ranges' pages, one range after the other. A range begins on a page of its own."""
        before, ranges = 0, self._ranges or [(None, None, 0)]
        for since, until, count in ranges:
            pages = -(-count // self.paging.size)
            last = (since, until, count) == ranges[-1]
            if last or at < before + pages * self.paging.size:
                break
            before += pages * self.paging.size
        self._here = count
        url = self.listing.copy_merge_params({**self.place(at - before, size), **query(since, until)})
        answer = await self.ask_at(url, at - before, size)
        if len(ranges) == 1:
            return answer
        reached = at - before + len(answer.entries)
        ended = last and len(answer.entries) < size and answer.total is not None and reached >= answer.total
        return Answer(answer.entries, self._total, last=ended if ended or not last else None)

    async def _beyond(self, at: int, size: int) -> bool:
        several = self._ranges is not None and len(self._ranges) > 1
        return at >= self._here if several else await super()._beyond(at, size)

    async def _planned(self) -> list[Range]:
        total = self._total = await self._count(None, None)
        if total <= self._options.reachable:
            return [(None, None, total)]
        oldest, newest = [await self._created(order) for order in ("asc", "dsc")]
        found = await self._halved(None, None, total, oldest, newest + 1)
        if sum(count for _, _, count in found) < total:
            raise self.malformed(f"ranges of the time made hold fewer media than its total of {total}")
        return found

    async def _halved(self, since: int | None, until: int | None, count: int, low: int, high: int) -> list[Range]:
        """Ranges of which each can be reached whole. Raises Fault("listing-too-long") where media of one second are
        too many, or where the host ignores what it is asked."""
        if count <= self._options.reachable:
            return [(since, until, count)]
        if high - low < 2:
            raise Fault(
                "listing-too-long",
                f"{self.shown}: {count} media were made in the second {moment(low)}, of which the host lets only "
                f"{self._options.reachable} be reached (or it ignores the range that it was asked for)",
            )
        middle = parting(low, high)
        first = await self._halved(since, middle, await self._count(since, middle), low, middle)
        return first + await self._halved(middle, until, await self._count(middle, until), middle, high)

    async def _count(self, since: int | None, until: int | None) -> int:
        url = self.listing.copy_merge_params({"page": "1", "page_length": "1", **query(since, until)})
        answer = await self.ask_at(url, 0, 1)
        if answer.total is None:
            raise self.malformed("its answer has no total")
        return answer.total

    async def _created(self, order: str) -> int:
        """When the oldest or newest media was made, in seconds since 1970."""
        url = self.listing.copy_merge_params({"page": "1", "page_length": "1", "sort": f"created:{order}"})
        entries = (await self.ask_at(url, 0, 1)).entries
        try:
            return int(datetime.fromisoformat(str(dig(entries[0], "created"))).timestamp())
        except (ValueError, IndexError):
            raise self.malformed("it does not say when its media were made") from None

    async def ask_at(self, url: Any, at: int, size: int) -> Answer:
        total = self._total
        answer = await super().ask_at(url, at, size)
        # The total of one range is not the library's.
        self._total = total if total is not None else answer.total
        return answer

    def read(self, entry: Any, position: int) -> Item | Problem:
        return media(entry, position, self._options.delivery_url)

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        return tracks(await self.list_of(self.api.url(self._media(item, "/text_tracks/"), ALL), "text_tracks"))

    # ------------------------------------------------------------------------------------------------------ one video

    def _media(self, item: Item, below: str = "/") -> str:
        return f"{self._site}/media/{seg(item.source_id)}{below}"

    async def locate(self, item: Item) -> Location:
        found = await self.ask(self._media(item))
        status = text(dig(found, "status"))
        if status == "failed":
            raise self.failed(item, text(dig(found, "error_message")) or "failed")
        if status in ("created", "processing", "updating"):
            raise self.busy(item, f"it is {status} at JW Player", PROCESSING_WAIT_S)
        if dig(found, "hosting_type") == "external":
            return self.located(dig(found, "source_url"), what=f"{item.source_id!r} is hosted elsewhere")
        if self._options.file == "original":
            listed = await self.ask(self._media(item, "/originals/"), ALL)
            what = f'{item.source_id!r}: the API gives no address of its original (set file = "rendition")'
            return self.located(original(listed), what=what)
        url = self._delivery.url(f"/v2/media/{seg(item.source_id)}")
        file = rendition(await self._delivery.of_video(url))
        return self.located(file, what=f"{item.source_id!r} has no MP4 rendition")

    async def fresh_captions(self, item: Item) -> Sequence[Caption]:
        return tracks(dicts(dig(await self.ask(self._media(item, "/text_tracks/"), ALL), "text_tracks")))


# ------------------------------------------------------------------------------------------------------------- reading


def query(since: int | None, until: int | None) -> dict[str, str]:
    """UNVERIFIED how moments are written in a range: days are said as days, and only what is within one as a moment.
    Where a day as the end of a range means all of it, two ranges share that day, and the ledger collapses what comes
    twice. A host that ignores the range is noticed by its counts."""
    if since is None and until is None:
        return {}
    ends = ["*" if second is None else f'"{moment(second)}"' for second in (since, until)]
    return {"q": f"created:[{ends[0]} TO {ends[1]}]"}


def parting(low: int, high: int) -> int:
    """A second between these two, about half way: a midnight where there is one."""
    middle = (low + high) // 2
    for midnight in (middle - middle % DAY_S, middle - middle % DAY_S + DAY_S):
        if low < midnight < high:
            return midnight
    return middle


def moment(second: int) -> str:
    at = datetime.fromtimestamp(second, UTC)
    return at.date().isoformat() if second % DAY_S == 0 else at.replace(microsecond=_ODD_MICROSECOND).isoformat()


def unpacked(ranges: list[Any]) -> list[Range]:
    """Raises Fault("cursor-stale")."""
    found: list[Range] = []
    for entry in ranges:
        match entry:
            case [int() | None as since, int() | None as until, int() as count]:
                found.append((since, until, count))
            case _:
                raise cursors.stale("the cursor's ranges cannot be read")
    if not found:
        raise cursors.stale("the cursor has no ranges")
    return found


def media(entry: Any, position: int, delivery_url: str) -> Item | Problem:
    if not isinstance(entry, dict):
        return claims.no_object(position)
    metadata = entry.get("metadata")
    told: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    key = text(entry.get("id"))
    return claims.item(
        position,
        source_id=entry.get("id"),
        title=told.get("title"),
        duration=entry.get("duration"),
        metadata={
            "created": entry.get("created"),
            "status": entry.get("status"),
            "external_id": entry.get("external_id"),
            "category": told.get("category"),
            "author": told.get("author"),
            "custom_params": told.get("custom_params"),
        },
        about=About(
            description=text(told.get("description")),
            tags=texts(told.get("tags")),
            poster=None if key is None else f"{delivery_url.rstrip('/')}/v2/media/{seg(key)}/poster.jpg",
            privacy="private" if told.get("protection_rule_key") else None,
        ),
    )


def original(listed: Any) -> str | None:
    """The address of the uploaded picture. UNVERIFIED how the field is called: each name that addresses have elsewhere
    in this API is understood."""
    for entry in dicts(dig(listed, "originals")):
        for name in ("download_url", "file_url", "delivery_url", "source_url"):
            if address := http_or_none(entry.get(name)):
                return address
    return None


def rendition(playlist: Any) -> str | None:
    """The highest MP4."""
    media = next(iter(dicts(dig(playlist, "playlist"))), {})
    files = [source for source in dicts(media.get("sources")) if source.get("type") == "video/mp4"]
    best = max(files, key=lambda source: whole(source.get("height")) or 0, default={})
    return http_or_none(best.get("file"))


def tracks(found: Sequence[Any]) -> tuple[Caption, ...]:
    """Subtitles and captions; chapters are neither. UNVERIFIED: the fields' names are those of one secondary place."""
    return claims.captions(
        claims.caption(
            dig(track, "metadata.srclang"),
            key=track.get("id"),
            address=track.get("delivery_url"),
            label=dig(track, "metadata.label"),
            sounds=track.get("track_kind") == "captions",
        )
        for track in dicts(list(found))
        if track.get("track_kind") in ("captions", "subtitles") and track.get("status") in (None, "ready")
    )
