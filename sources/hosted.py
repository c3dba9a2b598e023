"""What the modules of hosts with an API of their own have in common: how they page, and how their claims are read.

A host's module names its places and says what its answers mean. A listing's addresses are never used for a file: each
`locate` asks for a fresh one.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal

import httpx

from faults import Fault
from settings import SourceSettings
from sources import claims, values
from sources.about import Caption
from sources.addresses import bears_secret, canonical, redact
from sources.asking import Api, ApiOptions, Refused
from sources.base import Item, Location
from sources.claims import dig
from sources.walking import Answer, PagedSource, Paging, whole

ASKED_AT_ONCE: Final = 4
"""Questions about single videos side by side while listing: below any host's limit of concurrent requests."""


def required_token(entry: SourceSettings, kind: str, words: str) -> str:
    """Raises Fault("settings-refused") that says which token is needed."""
    token = "" if entry.token is None else entry.token.get_secret_value().strip()
    if not token:
        raise Fault("settings-refused", f"a source of kind {kind!r} needs token: {words}")
    return token


def pair(token: str, kind: str, words: str) -> tuple[str, str]:
    """A token of two parts with a colon between. Raises Fault("settings-refused")."""
    first, colon, second = token.partition(":")
    if not (first and colon and second):
        raise Fault("settings-refused", f"the token of a source of kind {kind!r} must be {words}")
    return first, second


def basic(user: str, password: str = "") -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def paging(style: Literal["offset", "page", "cursor"], size: int, page_size: int, options: ApiOptions) -> Paging:
    """`size`: the most items that the host gives at once; `page_size`: the most that one of our pages holds."""
    if page_size < 1:
        raise ValueError("page_size must be at least 1")
    size = min(size, page_size)
    return Paging(style, size, size * max(1, page_size // size), options.max_pages)


def making_s(item: Item) -> float:
    """Seconds before a file that its host makes on request is asked for again. A row has few attempts, so long videos
    are given a tenth of their length, within half a minute and ten."""
    return min(600.0, max(30.0, (item.duration_ms or 0) / 10_000))


def in_folder(listed: Item, key: str, names: Mapping[str, str]) -> Item:
    """The item with the name of its folder, whose id is kept under `key`."""
    folder = names.get(str(listed.metadata.get(key)))
    return replace(listed, about=listed.about.model_copy(update={"folder": folder})) if folder else listed


class HostedSource(PagedSource):
    """One account at one host."""

    past_end: ClassVar[frozenset[int]] = frozenset()
    """Statuses by which this host says that a place lies past the end, instead of an empty page."""
    items_field: ClassVar[str | None] = None
    """Where the list is in an answer; None: the answer is the list."""
    total_field: ClassVar[str | None] = None
    id_field: ClassVar[str] = "id"

    def __init__(self, api: Api, listing: httpx.URL, paging: Paging) -> None:
        super().__init__(api, listing, paging)
        self._total: int | None = None
        self.asks_captions = False
        """Whether each video's captions are asked for while listing, since its host lists them apart."""

    # -------------------------------------------------------------------------------------------------- the listing

    def place(self, at: int, size: int) -> Mapping[str, str]:
        """The parameters by which the page that begins with item `at` is asked for; a host that is listed by cursor has
        `ask_cursor` instead."""
        raise AssertionError("never asked of a host that is listed by cursor")

    async def ask_place(self, at: int, size: int) -> Answer:
        return await self.ask_at(self.listing.copy_merge_params(dict(self.place(at, size))), at, size)

    async def ask_at(self, url: httpx.URL, at: int, size: int) -> Answer:
        try:
            body = await self.api.listing(url)
        except Refused as refused:
            if at and refused.status in self.past_end and await self._beyond(at, size):
                return Answer()
            raise self.api.fault(refused, self.rights) from None
        answer = self.answer(self.api.parsed(self.listing, body), size)
        self._total = answer.total if answer.total is not None else self._total
        return answer

    async def _beyond(self, at: int, size: int) -> bool:
        """Whether a refusal means that item `at` lies past the end: by the host's own total, or, where that says
        otherwise, since the same question is answered at the first page. The total then tells what was missed."""
        if self._total is None or at < self._total:
            await self.ask_place(0, size)
        return True

    def answer(self, value: Any, size: int) -> Answer:
        """One page of the host out of its JSON. Raises Fault("listing-malformed") where it has no list of at most
        `size` entries."""
        entries = value if self.items_field is None else dig(value, self.items_field)
        if not isinstance(entries, list):
            where = "the answer" if self.items_field is None else f"its field {self.items_field!r}"
            raise self.malformed(f"{where} should be the list of videos and is none")
        if len(entries) > size:
            raise self.malformed(f"{len(entries)} videos came where at most {size} were asked for")
        total = None if self.total_field is None else whole(dig(value, self.total_field))
        return Answer(entries, total)

    def identify(self, entry: Any) -> Any:
        found = dig(entry, self.id_field)
        return entry if found is None else found

    def kept(self, item: Item) -> Item:
        """Signed addresses of captions and posters are asked for again where they are used, so they are kept without
        what they are signed with."""
        about = item.about
        tracks = tuple(track.model_copy(update={"address": self.told(track.address)}) for track in about.captions)
        told = about.model_copy(update={"captions": tracks, "poster": self.told(about.poster)})
        return replace(item, about=told)

    def told(self, address: str | None) -> str | None:
        """An address as it may be written down."""
        return redact(address) if address is not None and bears_secret(address) else address

    async def completed(self, items: list[Item]) -> list[Item]:
        """These items with the captions that `captions_of` finds, a few asked about side by side."""
        if not self.asks_captions:
            return items
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(item: Item) -> Item:
            async with turns:
                found = await self.captions_of(item)
            return replace(item, about=item.about.model_copy(update={"captions": found})) if found else item

        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(one(item)) for item in items]
        except BaseExceptionGroup as errors:
            # The first; the others were cancelled, so that a host in trouble is not asked on behalf of each item.
            raise errors.exceptions[0] from None
        return [task.result() for task in asked]

    async def captions_of(self, item: Item) -> tuple[Caption, ...]:
        """The text tracks of one video, where its host lists them apart."""
        return ()

    async def list_of(self, url: httpx.URL, field: str | None) -> list[Any]:
        """A short list that belongs to the listing: the text tracks of one video, the names of folders. Empty where the
        video has gone meanwhile (404). Raises what the listing raises."""
        try:
            value = self.api.parsed(url, await self.api.listing(url))
        except Refused as refused:
            if refused.status == 404:
                return []
            raise self.api.fault(refused, self.rights) from None
        found = value if field is None else dig(value, field)
        if not isinstance(found, list):
            raise self.api.malformed(url, f"should have a list in {field or 'its answer'} and has none")
        return found

    # ------------------------------------------------------------------------------------------------------ one video

    async def ask(
        self, path: str, params: Mapping[str, str] | None = None, *, method: str = "GET", json: Any = None
    ) -> Any:
        """The JSON of one video. Raises as `locate`, and Fault("source-credentials-refused")."""
        return await self.api.of_video(self.api.url(path, params), method=method, json=json, rights=self.rights)

    def located(self, address: Any, size: int | None = None, *, what: str) -> Location:
        """Where the file is; it is asked for without the token. Raises Fault("source-not-found") where the host named
        no address; `what` says what that means."""
        try:
            return Location(canonical(values.http_address(address)), size=size)
        except ValueError as error:
            raise Fault("source-not-found", f"{what}: its address {error}") from None

    def own(self, path: str, params: Mapping[str, str] | None = None) -> Location:
        """A file that the API itself serves, which needs its token."""
        return Location(str(self.api.url(path, params)), dict(self.api.headers))

    def failed(self, item: Item, words: Any) -> Fault:
        """The video had failed at the source, for the reason that the source gives."""
        return Fault("source-failed", f"{item.source_id!r}: the source says: {self.api.scrubbed(str(words))}")

    def busy(self, item: Item, words: str, wait_s: float) -> Fault:
        """The source is not done with the video yet."""
        return Fault("source-busy", f"{item.source_id!r}: {words}", retry_after=wait_s)

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """A fresh address: the tracks are asked for again, and the same one is taken. One request."""
        found = claims.pick(await self.fresh_captions(item), caption)
        what = f"{item.source_id!r} has no {caption.language} {caption.kind} any more"
        return self.located(None if found is None else found.address, what=what)

    async def fresh_captions(self, item: Item) -> Sequence[Caption]:
        """The text tracks of one video now, with addresses. Raises as `locate`."""
        return item.about.captions

    async def locate_poster(self, item: Item) -> Location | None:
        """A fresh address where the host's expire; one request then, else none."""
        if item.about.poster is None:
            return None
        return self.located(await self.fresh_poster(item), what=f"{item.source_id!r} has no poster any more")

    async def fresh_poster(self, item: Item) -> str | None:
        return item.about.poster
