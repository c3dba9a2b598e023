"""A paged listing over HTTP, described by its settings: any host that lists its videos as JSON.

Three styles of paging are spoken: an offset, a page number, or a cursor that each answer gives for the next. Hosts'
listings are wrong in well-known ways, and each must end loudly instead of in a short listing that looks complete:

* One that ignores its paging parameters gives its first page for ever. The fingerprint of the last page read travels
  in the cursor, so that a repetition is seen across calls, processes and stripes. Empty pages are alike and are no
  repetition: by offset or number they are the end, by cursor they are pages whose items were filtered out.
* One whose pages or cursors go in a larger circle is caught by Brent's algorithm; the mark it remembers travels too.
* One that gives fewer items than asked for has come to its end, or silently caps the size of a page. Unless it says a
  total that agrees, the next page is asked for, and only an empty one is the end.
* An answer without the list where it should be is an error and never an empty list.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote, urljoin, urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from faults import Fault, of_source_status
from governor.retry_after import parse_retry_after
from settings import SourceSettings
from sources import cursors, values
from sources.addresses import canonical, redact, scrub
from sources.base import PAGE_SIZE, Item, ListedExtras, ListedPage, Location, Problem
from sources.cycles import Trail

BODY_LIMIT: Final = 33_554_432
"""Bytes of one answer: 500 items of 64 kB. More is not a listing."""
RETRY_WAIT_CAP_S: Final = 60.0
"""Seconds that are waited here for a host that asked for it. A longer wish parks the run, which then waits."""
RETRY_AFTER_CAP_S: Final = 86_400.0
STALE_STATUSES: Final = frozenset({400, 404, 410, 422})
"""What hosts answer to a cursor that they no longer know."""

FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
"""Names on the way into a JSON value, divided by dots; a whole number picks from a list (`files.0.link`)."""
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_ENTITY_START: Final = re.compile(rb"\s*<")


class Options(BaseModel):
    """How this host pages, and what its fields are called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = "/"
    """Of the listing, below base_url."""
    style: Literal["offset", "page", "cursor"]
    offset_param: str = "offset"
    page_param: str = "page"
    cursor_param: str = "cursor"
    size_param: str = "limit"
    """Empty: the size of a page can't be asked for; host_page_size then says what it is."""
    host_page_size: int = Field(default=100, ge=1, le=1000)
    """Items that the host gives at most in one answer."""
    first_page: int = Field(default=1, ge=0)
    """Number of the first page, in style "page"."""
    past_end_statuses: tuple[int, ...] = ()
    """Statuses by which this host says that an offset or page number lies past the end, instead of an empty page."""
    items: FieldPath | None = None
    """Where the list is; None: the answer is the list."""
    next_cursor: FieldPath | None = None
    total: FieldPath | None = None
    id: FieldPath = "id"
    url: FieldPath | None = "url"
    title: FieldPath | None = None
    size: FieldPath | None = None
    """In bytes."""
    duration: FieldPath | None = None
    duration_unit: Literal["s", "ms"] = "s"
    metadata: dict[str, FieldPath] = Field(default_factory=dict)
    """Further fields to keep, by the name they are kept under."""
    address: Literal["listing", "item"] = "listing"
    """Where a file's address is had: from the listing, or by asking for the item at the moment of use."""
    item_path: str | None = None
    """Of one item, below base_url; {id} stands for its id."""
    item_url: FieldPath | None = None
    """Where the address is in the item's answer; None: as in the listing."""
    files_need_auth: bool = False
    """Whether a file's address needs the same header as the listing. Sent only to base_url's own host and port."""
    auth_header: HeaderName = "Authorization"
    auth_scheme: str = "Bearer"
    """What stands before the token; empty for nothing."""
    params: dict[str, str] = Field(default_factory=dict)
    """Sent with every request for the listing."""
    max_pages: int = Field(default=100_000, ge=1)
    """Pages of the host after which the listing is taken to be endless."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Wall-clock limit of one request, its answer included."""
    retries: int = Field(default=4, ge=0, le=10)
    """Further attempts at a request that met a 429, a 5xx or a broken connection."""
    retry_wait_s: float = Field(default=1.0, ge=0)
    """Before the first of them, where the host asks for nothing; then twice as long each time."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.style == "cursor" and self.next_cursor is None:
            raise ValueError('style "cursor" needs next_cursor: where each answer has the cursor of the next page')
        if self.address == "listing" and self.url is None:
            raise ValueError('address "listing" needs url: where each item has its file\'s address')
        if self.address == "item":
            if self.item_path is None or "{id}" not in self.item_path:
                raise ValueError('address "item" needs item_path with {id} in it')
            if self.item_url is None and self.url is None:
                raise ValueError("address \"item\" needs item_url: where the item's answer has its file's address")
        return self


def open_named(entry: SourceSettings, options: Options, page_size: int) -> GenericSource:
    token = None if entry.token is None else entry.token.get_secret_value().strip()
    return GenericSource(entry.base_url, options, token=token, page_size=page_size)


_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class _Answer:
    """One page of the host. `mark` is the fingerprint of its items, "" where it has none; `next_named` says whether the
    field of the next cursor was there at all."""

    entries: Sequence[Any] = ()
    mark: str = ""
    total: int | None = None
    next_cursor: str | None = None
    next_named: bool = False


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


class _Refused(Exception):
    """The host answered with a status that is no success."""

    def __init__(self, status: int, words: str, retry_after: float | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.words = words
        self.retry_after = retry_after


class _NoAnswer(Exception):
    """No answer could be had. `timed_out`: within `timeout_s`."""

    def __init__(self, words: str, *, timed_out: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.timed_out = timed_out


class GenericSource(ListedExtras):
    """One account at one listing host. `page_size` is the most items of a page; fewer where it is no multiple of the
    host's own. `token` goes into the header that the options name. `transport` stands in for the network.

    Raises Fault("settings-refused") for a token that no header can carry, and for page sizes that do not fit."""

    def __init__(
        self,
        base_url: str,
        options: Options,
        *,
        token: str | None = None,
        page_size: int = PAGE_SIZE,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        if token is not None and (not token.isascii() or not token.isprintable()):
            # Checked here because an HTTP library would name the token in its complaint.
            raise Fault("settings-refused", "the source's token holds characters that no header can carry")
        if not options.size_param and options.host_page_size > page_size:
            raise Fault(
                "settings-refused",
                f"host_page_size {options.host_page_size} is more than a page of {page_size} can hold",
            )
        self.stripeable = options.style != "cursor"
        """Whether a page can be asked for by its number."""
        self._options = options
        self._base = base_url.rstrip("/")
        self._secrets = () if not token else (token,)
        self._headers = {}
        if token:
            self._headers[options.auth_header] = f"{options.auth_scheme} {token}".strip()
        self._size = min(options.host_page_size, page_size)
        self._span = self._size * max(1, page_size // self._size)
        try:
            self._listing = httpx.URL(f"{self._base}/{options.path.lstrip('/')}")
            self._client = httpx.AsyncClient(
                headers={"Accept": "application/json"},
                timeout=options.timeout_s,
                transport=transport,
                verify=_certificates(),
            )
        except httpx.InvalidURL as error:
            raise Fault("settings-refused", f"base_url or path make no address: {scrub(str(error))}") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def check(self) -> None:
        """Asks for the first page. Raises the faults of `list_page`; Fault("listing-malformed") also where not one of
        its entries can be read, since then the field names are wrong."""
        answer = await self._ask_cursor(None) if self._options.style == "cursor" else await self._ask_place(0)
        page = _Page()
        self._gather(page, answer, 0)
        if page.problems and not page.items:
            first = page.problems[0]
            raise self._malformed(f"none of its {len(page.problems)} entries can be read: {first.column} {first.words}")

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """The page at `cursor`, of as many pages of the host as fit into it. Positions count from 1; in style "page"
        and "offset" they are exact as long as nothing moves. A page may be empty: go by `next_cursor`.

        Stripe k of n owns pages k, k+n, …; where the style is "cursor", the first stripe owns all.
        Raises Fault("listing-repeats" | "listing-cycles" | "listing-too-long" | "listing-malformed" | "cursor-stale" |
        "source-down" | "source-credentials-refused").
        """
        if self._options.style == "cursor":
            return ListedPage((), None) if stripe else await self._list_by_cursor(cursor)
        return await self._list_by_place(cursor, stripe, stripes)

    async def locate(self, item: Item) -> Location:
        """The address from the listing, or a fresh one. One request with address "item", else none; nothing is tried
        twice, since the caller counts a row's attempts.

        Raises Fault with a source reason of scope "row"; `retry_after` in seconds where the host wishes one.
        """
        address = item.locator
        if self._options.address == "item":
            address = await self._fresh(item)
        if address is None:
            raise Fault("source-not-found", f"the listing has no address for {item.source_id!r}")
        own = _origin(address) == _origin(self._base)
        headers = dict(self._headers) if self._options.files_need_auth and own else {}
        return Location(canonical(address), headers, item.size)

    # -------------------------------------------------------------------------------------------- by offset or number

    async def _list_by_place(self, cursor: str | None, stripe: int, stripes: int) -> ListedPage:
        index, guard = stripe, _Guard()
        if cursor is not None:
            place = cursors.Unpacked(cursor)
            if place.count("span") != self._span:
                raise cursors.stale("the page sizes in the settings have changed")
            index, guard = place.count("page"), _Guard.unpacked(place.get("seen", list))
        page = _Page()
        at, end = index * self._span, (index + 1) * self._span
        ended = short = False
        while at < end and not ended:
            asked = min(self._size, end - at)
            answer = await self._ask_place(at, asked)
            page.total = answer.total if answer.total is not None else page.total
            got = len(answer.entries)
            if not got:
                ended = True
                break
            self._capped(at // self._size)
            await self._guard_place(guard, answer, at, got)
            self._gather(page, answer, at)
            short = got < asked
            ended = short and answer.total is not None and at + got >= answer.total
            at += got if self._options.style == "offset" else self._size
        if short and not ended and at >= end:
            ended = not (await self._ask_place(at)).entries
        following = cursors.pack(span=self._span, page=index + stripes, seen=guard.packed())
        return ListedPage(page.items, None if ended else following, page.problems, total=page.total)

    async def _guard_place(self, guard: _Guard, answer: _Answer, at: int, got: int) -> None:
        if answer.mark == guard.previous:
            # As many new videos at the front of a listing as fit a page shift the last page to the next place, once.
            # Only a page that comes a third time is a listing that stands still.
            beyond = at + (got if self._options.style == "offset" else self._size)
            if (await self._ask_place(beyond)).mark == answer.mark:
                raise Fault(
                    "listing-repeats", f"{self._shown}: the page at {at} is the one before it, and so is the next"
                )
            return
        guard.previous = answer.mark
        guard.pages, length = guard.pages.step(answer.mark)
        if length:
            raise Fault("listing-cycles", f"{self._shown}: the page at {at} had been read already")

    async def _ask_place(self, at: int, size: int | None = None) -> _Answer:
        """The host's page that begins with item `at` (counted from 0)."""
        options = self._options
        size = size or self._size
        if options.style == "offset":
            params = {options.offset_param: str(at)}
        else:
            params = {options.page_param: str(options.first_page + at // self._size)}
        try:
            return self._read(await self._get(self._with(params, size)), size)
        except _Refused as refused:
            if at and refused.status in options.past_end_statuses:
                return _Answer()
            raise self._fault(refused) from None

    # ---------------------------------------------------------------------------------------------------- by cursor

    async def _list_by_cursor(self, cursor: str | None) -> ListedPage:
        host_cursor, listed, pages, guard = None, 0, 0, _Guard()
        if cursor is not None:
            place = cursors.Unpacked(cursor)
            host_cursor = place.get("host", str)
            listed, pages = place.count("listed"), place.count("pages")
            guard = _Guard.unpacked(place.get("seen", list))
        page = _Page()
        for _ in range(self._span // self._size):
            answer = await self._ask_cursor(host_cursor)
            pages += 1
            page.total = answer.total if answer.total is not None else page.total
            if answer.mark:
                self._guard_page(guard, answer.mark)
            self._gather(page, answer, listed)
            listed += len(answer.entries)
            if answer.next_cursor is None:
                if pages == 1:
                    await self._prove_end(answer)
                return ListedPage(page.items, None, page.problems, total=page.total)
            guard.cursors, length = guard.cursors.step(answer.next_cursor)
            if length or answer.next_cursor == host_cursor:
                raise Fault("listing-cycles", f"{self._shown}: the cursor after page {pages} had been followed already")
            self._capped(pages)
            host_cursor = answer.next_cursor
        following = cursors.pack(host=host_cursor, listed=listed, pages=pages, seen=guard.packed())
        return ListedPage(page.items, following, page.problems, total=page.total)

    def _guard_page(self, guard: _Guard, mark: str) -> None:
        if mark == guard.previous:
            raise Fault(
                "listing-repeats",
                f"{self._shown}: a page has the items of the one before it; is cursor_param = "
                f"{self._options.cursor_param!r} what the host calls it?",
            )
        guard.previous = mark
        guard.pages, length = guard.pages.step(mark)
        if length:
            raise Fault("listing-cycles", f"{self._shown}: a page of items comes again after {length} pages")

    async def _prove_end(self, answer: _Answer) -> None:
        """Makes sure of a first page that seems to be the last, but is full and lacks the field of the next cursor: the
        field may have another name, and then the rest of the library would be lost without a word.

        A smaller page is asked for, which cannot be the last."""
        got = len(answer.entries)
        name = self._options.next_cursor
        if answer.next_named or got < self._size:
            return
        wrong = self._malformed(f"a full page has no field {name!r}, though there are more items; correct next_cursor")
        if answer.total is not None:
            if answer.total > got:
                raise wrong
            return
        if got > 1 and self._options.size_param:
            smaller = await self._ask_cursor(None, got - 1)
            if len(smaller.entries) < got and not smaller.next_named:
                raise wrong

    async def _ask_cursor(self, cursor: str | None, size: int | None = None) -> _Answer:
        size = size or self._size
        params = {} if cursor is None else {self._options.cursor_param: cursor}
        try:
            return self._read(await self._get(self._with(params, size)), self._size)
        except _Refused as refused:
            if cursor is not None and refused.status in STALE_STATUSES:
                raise cursors.stale(f"{self._shown}: the host refused its cursor: {refused.words}") from None
            raise self._fault(refused) from None

    # --------------------------------------------------------------------------------------------- reading an answer

    def _read(self, body: bytes, asked: int) -> _Answer:
        options = self._options
        value = self._json(body)
        if isinstance(value, dict) and (value.get("success") is False or value.get("errors")):
            # A failure in a success's clothes; some hosts put an empty list beside it.
            raise self._malformed(f"the host reports a failure with status 200: {self._excerpt(body)}")
        entries = value if options.items is None else _dig(value, options.items)
        where = "the answer itself" if options.items is None else f"its field {options.items!r}"
        if not isinstance(entries, list):
            raise self._malformed(f"{where} should be the list of items and is none: {self._excerpt(body)}")
        if len(entries) > asked:
            raise self._malformed(
                f"{len(entries)} items came where at most {asked} were asked for; set size_param to the host's own "
                "parameter, and host_page_size to the most that it gives"
            )
        total = None if options.total is None else _whole(_dig(value, options.total))
        following = _ABSENT if options.next_cursor is None else _dig(value, options.next_cursor)
        if isinstance(following, dict | list | float) or following is True:
            raise self._malformed(f"its field {options.next_cursor!r} holds no cursor")
        cursor = None if following in (_ABSENT, None, False, "") else str(following)
        return _Answer(entries, self._mark(entries), total, cursor, following is not _ABSENT)

    def _mark(self, entries: Sequence[Any]) -> str:
        """Fingerprint of the items on a page, in whatever order; "" for none."""
        if not entries:
            return ""
        ids = (_dig(entry, self._options.id) for entry in entries)
        texts = sorted(json.dumps(e if i is _ABSENT else i, sort_keys=True) for i, e in zip(ids, entries, strict=True))
        return hashlib.blake2b("\n".join(texts).encode(), digest_size=12).hexdigest()

    def _gather(self, page: _Page, answer: _Answer, before: int) -> None:
        for position, entry in enumerate(answer.entries, start=before + 1):
            item = self._item(entry, position)
            if isinstance(item, Item):
                page.items.append(item)
            else:
                page.problems.append(item)

    def _item(self, entry: Any, position: int) -> Item | Problem:
        options = self._options
        if not isinstance(entry, dict):
            return Problem(position, None, "the entry is no object")

        def find(name: FieldPath | None) -> Any:
            value = _ABSENT if name is None else _dig(entry, name)
            return None if value is _ABSENT else value

        column: str | None = options.id
        try:
            source_id = values.source_id(find(options.id))
            column = options.url
            address = find(options.url)
            if address is not None or options.address == "listing":
                address = self._absolute(address)
            column = options.title
            title = values.title(find(options.title))
            column = options.size
            size = values.size(_known(find(options.size)))
            column = options.duration
            per_second = 1000 if options.duration_unit == "ms" else 1
            duration_ms = values.duration_ms(_known(find(options.duration)), per_second=per_second)
        except ValueError as error:
            return Problem(position, column, scrub(str(error), self._secrets))
        kept = {name: value for name, path in options.metadata.items() if (value := find(path)) is not None}
        return Item(source_id, address, position, title, size, duration_ms, kept)

    def _absolute(self, address: Any) -> str:
        """An address out of the host's answer. A path is one on the host, never one on our disk."""
        if isinstance(address, str) and address.strip():
            address = urljoin(str(self._listing.copy_with(query=None)), address.strip())
        return values.http_address(address)

    def _json(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            kind = "a web page" if _ENTITY_START.match(body) else "something that is not JSON"
            raise self._malformed(f"it answered with {kind}: {self._excerpt(body)}") from None

    def _excerpt(self, body: bytes) -> str:
        text = " ".join(body[:2000].decode("utf-8", "replace").split())
        return repr(scrub(text, self._secrets)[:200])

    # ------------------------------------------------------------------------------------------------------ one item

    async def _fresh(self, item: Item) -> str:
        options = self._options
        path = (options.item_path or "").replace("{id}", quote(item.source_id, safe=""))
        url = httpx.URL(f"{self._base}/{path.lstrip('/')}")
        try:
            body = await self._once(url)
        except _NoAnswer as error:
            raise Fault("source-timeout" if error.timed_out else "source-unreachable", error.words) from None
        except _Refused as error:
            reason = "source-not-found" if error.status < 400 else of_source_status(error.status)
            raise Fault(reason, error.words, retry_after=error.retry_after) from None
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            reason = "source-returned-html" if _ENTITY_START.match(body) else "source-busy"
            raise Fault(reason, f"{redact(str(url))}: no JSON: {self._excerpt(body)}") from None
        name = options.item_url or options.url or ""
        try:
            return self._absolute(_dig(value, name) if _dig(value, name) is not _ABSENT else None)
        except ValueError as error:
            raise Fault("source-not-found", f"{redact(str(url))}: its field {name!r} {error}") from None

    # ------------------------------------------------------------------------------------------------------ requests

    @property
    def _shown(self) -> str:
        return redact(str(self._listing))

    def _with(self, params: Mapping[str, str], size: int) -> httpx.URL:
        sizes = {self._options.size_param: str(size)} if self._options.size_param else {}
        return self._listing.copy_merge_params({**self._options.params, **sizes, **params})

    async def _get(self, url: httpx.URL) -> bytes:
        """The body of a 2xx answer; tried again a bounded number of times.

        Raises _Refused for a status that trying again does not mend, Fault("source-down") when the tries are spent."""
        tries = self._options.retries + 1
        for attempt in range(tries):
            wish: float | None = None
            try:
                return await self._once(url)
            except _NoAnswer as error:
                words = error.words
            except _Refused as error:
                if error.status != 429 and error.status < 500:
                    raise
                words, wish = error.words, error.retry_after
            if wish is not None and wish > RETRY_WAIT_CAP_S:
                raise Fault("source-down", f"{words}; it asks to wait {wish:.0f} s", retry_after=wish)
            if attempt + 1 < tries:
                backoff = min(RETRY_WAIT_CAP_S, self._options.retry_wait_s * 2.0**attempt)
                # Jitter keeps stripes that were refused together from coming back together.
                await asyncio.sleep(max(wish or 0.0, backoff * (0.5 + random.random())))  # noqa: S311
        raise Fault("source-down", f"{words} ({tries} attempts)", retry_after=wish)

    async def _once(self, url: httpx.URL) -> bytes:
        shown = redact(str(url))
        body = bytearray()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                async with self._client.stream("GET", url, headers=self._headers) as response:
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > BODY_LIMIT:
                            raise self._malformed(f"its answer is longer than {BODY_LIMIT} bytes")
        except (TimeoutError, httpx.TimeoutException):
            raise _NoAnswer(f"{shown}: no whole answer in {self._options.timeout_s:g} s", timed_out=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _NoAnswer(f"{shown}: {type(error).__name__}: {scrub(str(error), self._secrets)}") from None
        if response.is_success:
            return bytes(body)
        words = f"{shown}: status {response.status_code}: {self._excerpt(bytes(body))}"
        if response.is_redirect:
            # Not followed: the token would go wherever the answer says.
            words += f", a redirect to {redact(response.headers.get('location', ''))}; set base_url and path to that"
        wish = parse_retry_after(response.headers.get("retry-after"), now=datetime.now(UTC), cap=RETRY_AFTER_CAP_S)
        raise _Refused(response.status_code, words, wish)

    def _fault(self, refused: _Refused) -> Fault:
        if refused.status in (401, 403):
            return Fault("source-credentials-refused", refused.words)
        return Fault("listing-malformed", refused.words)

    def _malformed(self, words: str) -> Fault:
        return Fault("listing-malformed", f"{self._shown}: {words}")

    def _capped(self, pages: int) -> None:
        """`pages`: how many of the host's pages come before the one just read, or have been read with more to come."""
        if pages >= self._options.max_pages:
            raise Fault(
                "listing-too-long", f"{self._shown}: more than max_pages = {self._options.max_pages} pages of the host"
            )


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the trusted certificates takes some 50 ms; a source is opened for every page."""
    return httpx.create_ssl_context()


def _dig(value: Any, path: str) -> Any:
    """The value at the end of a dotted path, or `_ABSENT`."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value


def _whole(value: Any) -> int | None:
    """A total as a number; None for whatever is none, since a claim that can't be read is no claim."""
    try:
        return values.size(value)
    except ValueError:
        return None


def _known(value: Any) -> Any:
    """None for the negative numbers by which hosts say "not known yet"."""
    number = value.strip() if isinstance(value, str) else value
    if isinstance(number, str):
        return None if number.startswith("-") and number[1:].replace(".", "", 1).isdecimal() else value
    negative = isinstance(number, int | float) and not isinstance(number, bool) and number < 0
    return None if negative else value


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return (parts.scheme, parts.hostname, port)
