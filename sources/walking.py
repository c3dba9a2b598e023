"""Walking a host's paged listing, by place (an offset or a page number) or by the cursor that each answer gives.

Hosts' listings are wrong in well-known ways, and each must end loudly instead of in a short listing that looks whole:

* One that ignores its paging parameters gives its first page for ever. The fingerprint of the last page read travels
  in the cursor, so that a repetition is seen across calls, processes and stripes. Empty pages are alike and are no
  repetition: by offset or number they are the end, by cursor they are pages whose items were filtered out.
* One whose pages or cursors go in a larger circle is caught by Brent's algorithm; the mark it remembers travels too.
* One that gives fewer items than asked for has come to its end, or silently caps the size of a page. Unless it says a
  total that agrees, the next page is asked for, and only an empty one is the end.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Self

import httpx

from faults import Fault
from sources import cursors, values
from sources.addresses import redact
from sources.asking import Api, Refused
from sources.base import Item, ListedExtras, ListedPage, Location, Problem
from sources.cycles import Trail

STALE_STATUSES: Final = frozenset({400, 404, 410, 422})
"""What hosts answer to a cursor that they no longer know."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One page of the host. `next_named` says whether the field of the next cursor was there at all. `last`, by place:
    whether this is known to be the last page, or known not to be, however few entries it has; None: as usual."""

    entries: Sequence[Any] = ()
    total: int | None = None
    next_cursor: str | None = None
    next_named: bool = True
    last: bool | None = None


@dataclass(frozen=True, slots=True)
class Paging:
    """How a host pages. `style` "page": pages are numbered, and begin at multiples of `size`; "offset": at any item.
    `size` is the most items of one of its pages, `span` what one of ours may hold. `next_field` and `cursor_param` are
    what the host calls them, `sizable` whether the size of a page can be asked for."""

    style: Literal["offset", "page", "cursor"]
    size: int
    span: int
    max_pages: int
    next_field: str | None = None
    cursor_param: str = "cursor"
    sizable: bool = True


@dataclass(slots=True)
class _Page:
    """What is gathered for one of our pages."""

    items: list[Item] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    total: int | None = None


@dataclass(slots=True)
class _Guard:
    """What tells a listing that goes in circles from one that goes on; small enough to travel in a cursor."""

    previous: str = ""
    pages: Trail = field(default_factory=Trail)
    cursors: Trail = field(default_factory=Trail)

    def packed(self) -> list[Any]:
        trails = [part for trail in (self.pages, self.cursors) for part in (trail.mark, trail.power, trail.steps)]
        return [self.previous, *trails]

    @classmethod
    def unpacked(cls, parts: list[Any]) -> _Guard:
        if [type(part) for part in parts] != [str, str, int, int, str, int, int]:
            raise cursors.stale("the cursor's field 'seen' cannot be read")
        return cls(parts[0], Trail(*parts[1:4]), Trail(*parts[4:7]))


class PagedSource(ListedExtras, ABC):
    """A source whose listing is paged. A host's module says how one page is asked for, and what an entry means."""

    rights: ClassVar[str] = ""
    """Which rights the credentials need, for a person whose credentials were refused."""

    def __init__(self, api: Api, listing: httpx.URL, paging: Paging) -> None:
        self.api = api
        self.listing = listing
        self.paging = paging
        self.stripeable = paging.style != "cursor"
        """Whether a page can be asked for by its number."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.api.aclose()

    # ------------------------------------------------------------------------------------- what a host's module says

    async def ask_place(self, at: int, size: int) -> Answer:
        """The host's page that begins with item `at` (counted from 0), of at most `size` items."""
        raise AssertionError("never asked of a host that is listed the other way")

    async def ask_cursor(self, cursor: str | None, size: int) -> Answer:
        """The host's page at its cursor, or its first one, of at most `size` items."""
        raise AssertionError("never asked of a host that is listed the other way")

    @abstractmethod
    def read(self, entry: Any, position: int) -> Item | Problem | None:
        """An entry as an item; None where it is no video and is passed over."""

    @abstractmethod
    def identify(self, entry: Any) -> Any:
        """What tells this entry from others: a JSON value."""

    async def completed(self, items: list[Item]) -> list[Item]:
        """These items with what must be asked for apart from the listing."""
        return items

    def kept(self, item: Item) -> Item:
        """The item as it may be written down, without what is good for whoever reads it."""
        return item

    @abstractmethod
    async def locate(self, item: Item) -> Location:
        """As `sources.base.Source` has it."""

    # ------------------------------------------------------------------------------------------------------- the walk

    async def check(self) -> None:
        """Asks for the first page. Raises the faults of `list_page`; Fault("listing-malformed") also where not one of
        its entries can be read, since then the field names are wrong."""
        size = self.paging.size
        answer = await (self._asked_cursor(None, size) if self.paging.style == "cursor" else self.ask_place(0, size))
        page = _Page()
        self._gather(page, answer, 0)
        if page.problems and not page.items:
            first = page.problems[0]
            raise self.malformed(f"none of its {len(page.problems)} entries can be read: {first.column} {first.words}")

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """The page at `cursor`, of as many pages of the host as fit into it. Positions count from 1; by offset and
        number they are exact as long as nothing moves. A page may be empty: go by `next_cursor`.

        Stripe k of n owns pages k, k+n, …; by cursor, the first stripe owns all.
        Raises Fault("listing-repeats" | "listing-cycles" | "listing-too-long" | "listing-malformed" | "cursor-stale" |
        "source-down" | "source-credentials-refused").
        """
        if self.paging.style == "cursor":
            return ListedPage((), None) if stripe else await self._list_by_cursor(cursor)
        return await self._list_by_place(cursor, stripe, stripes)

    @property
    def shown(self) -> str:
        """The listing's address as it may be told."""
        return redact(str(self.listing))

    def malformed(self, words: str) -> Fault:
        return self.api.malformed(self.listing, words)

    # -------------------------------------------------------------------------------------------- by offset or number

    async def _list_by_place(self, cursor: str | None, stripe: int, stripes: int) -> ListedPage:
        index, guard, span = stripe, _Guard(), self.paging.span
        if cursor is not None:
            place = cursors.Unpacked(cursor)
            if place.count("span") != span:
                raise cursors.stale("the page sizes in the settings have changed")
            index, guard = place.count("page"), _Guard.unpacked(place.get("seen", list))
        page = _Page()
        at, end = index * span, (index + 1) * span
        ended = short = False
        while at < end and not ended:
            asked = min(self.paging.size, end - at)
            answer = await self.ask_place(at, asked)
            page.total = answer.total if answer.total is not None else page.total
            got = len(answer.entries)
            if not got and answer.last is False:
                at += self.paging.size
                continue
            if not got:
                ended = True
                break
            self._capped(at // self.paging.size)
            await self._guard_place(guard, answer, at, got)
            self._gather(page, answer, at)
            short = got < asked and answer.last is None
            ended = answer.last or (short and answer.total is not None and at + got >= answer.total)
            at += self._step(got)
        if short and not ended and at >= end:
            ended = not (await self.ask_place(at, self.paging.size)).entries
        following = cursors.pack(span=span, page=index + stripes, seen=guard.packed())
        items = await self._finished(page)
        return ListedPage(items, None if ended else following, page.problems, total=page.total)

    def _step(self, got: int) -> int:
        return got if self.paging.style == "offset" else self.paging.size

    async def _guard_place(self, guard: _Guard, answer: Answer, at: int, got: int) -> None:
        mark = self._mark(answer.entries)
        if mark == guard.previous:
            # As many new videos at the front of a listing as fit a page shift the last page to the next place, once.
            # Only a page that comes a third time is a listing that stands still.
            beyond = at + self._step(got)
            if self._mark((await self.ask_place(beyond, self.paging.size)).entries) == mark:
                raise Fault(
                    "listing-repeats", f"{self.shown}: the page at {at} is the one before it, and so is the next"
                )
            return
        guard.previous = mark
        guard.pages, length = guard.pages.step(mark)
        if length:
            raise Fault("listing-cycles", f"{self.shown}: the page at {at} had been read already")

    # ---------------------------------------------------------------------------------------------------- by cursor

    async def _list_by_cursor(self, cursor: str | None) -> ListedPage:
        host_cursor, listed, pages, guard = None, 0, 0, _Guard()
        if cursor is not None:
            place = cursors.Unpacked(cursor)
            host_cursor = place.get("host", str)
            listed, pages = place.count("listed"), place.count("pages")
            guard = _Guard.unpacked(place.get("seen", list))
        page = _Page()
        for _ in range(self.paging.span // self.paging.size):
            answer = await self._asked_cursor(host_cursor, self.paging.size)
            pages += 1
            page.total = answer.total if answer.total is not None else page.total
            mark = self._mark(answer.entries)
            if mark:
                self._guard_page(guard, mark)
            self._gather(page, answer, listed)
            listed += len(answer.entries)
            if answer.next_cursor is None:
                if pages == 1:
                    await self._prove_end(answer)
                return ListedPage(await self._finished(page), None, page.problems, total=page.total)
            guard.cursors, length = guard.cursors.step(answer.next_cursor)
            if length or answer.next_cursor == host_cursor:
                raise Fault("listing-cycles", f"{self.shown}: the cursor after page {pages} had been followed already")
            self._capped(pages)
            host_cursor = answer.next_cursor
        following = cursors.pack(host=host_cursor, listed=listed, pages=pages, seen=guard.packed())
        return ListedPage(await self._finished(page), following, page.problems, total=page.total)

    def _guard_page(self, guard: _Guard, mark: str) -> None:
        if mark == guard.previous:
            raise Fault(
                "listing-repeats",
                f"{self.shown}: a page has the items of the one before it; is cursor_param = "
                f"{self.paging.cursor_param!r} what the host calls it?",
            )
        guard.previous = mark
        guard.pages, length = guard.pages.step(mark)
        if length:
            raise Fault("listing-cycles", f"{self.shown}: a page of items comes again after {length} pages")

    async def _prove_end(self, answer: Answer) -> None:
        """Makes sure of a first page that seems to be the last, but is full and lacks the field of the next cursor: the
        field may have another name, and then the rest of the library would be lost without a word.

        A smaller page is asked for, which cannot be the last."""
        got = len(answer.entries)
        name = self.paging.next_field
        if answer.next_named or got < self.paging.size:
            return
        wrong = self.malformed(f"a full page has no field {name!r}, though there are more items; correct next_cursor")
        if answer.total is not None:
            if answer.total > got:
                raise wrong
            return
        if got > 1 and self.paging.sizable:
            smaller = await self._asked_cursor(None, got - 1)
            if len(smaller.entries) < got and not smaller.next_named:
                raise wrong

    async def _asked_cursor(self, cursor: str | None, size: int) -> Answer:
        try:
            return await self.ask_cursor(cursor, size)
        except Refused as refused:
            if cursor is not None and refused.status in STALE_STATUSES:
                raise cursors.stale(f"{self.shown}: the host refused its cursor: {refused.words}") from None
            raise self.api.fault(refused, self.rights) from None

    # --------------------------------------------------------------------------------------------- reading an answer

    def _mark(self, entries: Sequence[Any]) -> str:
        """Fingerprint of the items on a page, in whatever order; "" for none."""
        if not entries:
            return ""
        texts = sorted(json.dumps(self.identify(entry), sort_keys=True) for entry in entries)
        return hashlib.blake2b("\n".join(texts).encode(), digest_size=12).hexdigest()

    def _gather(self, page: _Page, answer: Answer, before: int) -> None:
        for position, entry in enumerate(answer.entries, start=before + 1):
            match self.read(entry, position):
                case Item() as item:
                    page.items.append(item)
                case Problem() as problem:
                    page.problems.append(problem)

    async def _finished(self, page: _Page) -> list[Item]:
        return [self.kept(item) for item in await self.completed(page.items)]

    def _capped(self, pages: int) -> None:
        """`pages`: how many of the host's pages come before the one just read, or have been read with more to come."""
        if pages >= self.paging.max_pages:
            raise Fault(
                "listing-too-long", f"{self.shown}: more than max_pages = {self.paging.max_pages} pages of the host"
            )


def whole(value: Any) -> int | None:
    """A total as a number; None for whatever is none, since a claim that can't be read is no claim."""
    try:
        return values.size(value)
    except ValueError:
        return None


def known(value: Any) -> Any:
    """None for the negative numbers by which hosts say "not known yet"."""
    number = value.strip() if isinstance(value, str) else value
    if isinstance(number, str):
        return None if number.startswith("-") and number[1:].replace(".", "", 1).isdecimal() else value
    negative = isinstance(number, int | float) and not isinstance(number, bool) and number < 0
    return None if negative else value
