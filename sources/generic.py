"""A paged listing over HTTP, described by its settings: any host that lists its videos as JSON.

Three styles of paging are spoken: an offset, a page number, or a cursor that each answer gives for the next. How they
are walked, and what of a wrong listing is noticed, is in `sources.walking`. An answer without the list where it should
be is an error and never an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote, urljoin

import httpx
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from faults import Fault
from settings import SourceSettings
from sources import claims, values
from sources.about import About
from sources.addresses import canonical, redact, scrub
from sources.asking import BODY_LIMIT, Api, ApiOptions, Refused
from sources.base import PAGE_SIZE, Item, Location, Problem
from sources.walking import Answer, PagedSource, Paging, known, whole

FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
"""Names on the way into a JSON value, divided by dots; a whole number picks from a list (`files.0.link`)."""
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]


class AboutFields(BaseModel):
    """What the fields are called that travel with a video beside its file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: FieldPath | None = None
    tags: FieldPath | None = None
    """A list of texts."""
    folder: FieldPath | None = None
    poster: FieldPath | None = None
    public: FieldPath | None = None
    """True or false."""
    captions: FieldPath | None = None
    """Where the list of text tracks is."""
    caption_language: FieldPath = "language"
    """Within one of them, as the next two."""
    caption_url: FieldPath = "url"
    caption_label: FieldPath | None = None


class Options(ApiOptions):
    """How this host pages, and what its fields are called."""

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
    about: AboutFields = AboutFields()
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
    if entry.base_url is None:
        raise Fault("settings-refused", "a source of kind 'generic' needs base_url, the address of the host's API")
    token = None if entry.token is None else entry.token.get_secret_value().strip()
    return GenericSource(entry.base_url, options, token=token, page_size=page_size)


_ABSENT: Final = object()


class GenericSource(PagedSource):
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
        if not options.size_param and options.host_page_size > page_size:
            raise Fault(
                "settings-refused",
                f"host_page_size {options.host_page_size} is more than a page of {page_size} can hold",
            )
        self._options = options
        self._secrets = () if not token else (token,)
        headers = {options.auth_header: f"{options.auth_scheme} {token}".strip()} if token else {}
        api = Api(base_url, options, headers=headers, secrets=self._secrets, body_limit=BODY_LIMIT, transport=transport)
        size = min(options.host_page_size, page_size)
        paging = Paging(
            options.style,
            size,
            size * max(1, page_size // size),
            options.max_pages,
            next_field=options.next_cursor,
            cursor_param=options.cursor_param,
            sizable=bool(options.size_param),
        )
        super().__init__(api, api.url(options.path), paging)

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
        headers = dict(self.api.headers) if self._options.files_need_auth and self.api.owns(address) else {}
        return Location(canonical(address), headers, item.size)

    # --------------------------------------------------------------------------------------------------------- asking

    async def ask_place(self, at: int, size: int) -> Answer:
        options = self._options
        if options.style == "offset":
            params = {options.offset_param: str(at)}
        else:
            params = {options.page_param: str(options.first_page + at // self.paging.size)}
        try:
            return self._read(await self.api.listing(self._with(params, size)), size)
        except Refused as refused:
            if at and refused.status in options.past_end_statuses:
                return Answer()
            raise self.api.fault(refused) from None

    async def ask_cursor(self, cursor: str | None, size: int) -> Answer:
        params = {} if cursor is None else {self._options.cursor_param: cursor}
        return self._read(await self.api.listing(self._with(params, size)), self.paging.size)

    def _with(self, params: Mapping[str, str], size: int) -> httpx.URL:
        sizes = {self._options.size_param: str(size)} if self._options.size_param else {}
        return self.listing.copy_merge_params({**self._options.params, **sizes, **params})

    # --------------------------------------------------------------------------------------------- reading an answer

    def _read(self, body: bytes, asked: int) -> Answer:
        options = self._options
        value = self.api.parsed(self.listing, body)
        entries = value if options.items is None else _dig(value, options.items)
        where = "the answer itself" if options.items is None else f"its field {options.items!r}"
        if not isinstance(entries, list):
            raise self.malformed(f"{where} should be the list of items and is none: {self.api.excerpt(body)}")
        if len(entries) > asked:
            raise self.malformed(
                f"{len(entries)} items came where at most {asked} were asked for; set size_param to the host's own "
                "parameter, and host_page_size to the most that it gives"
            )
        total = None if options.total is None else whole(_dig(value, options.total))
        following = _ABSENT if options.next_cursor is None else _dig(value, options.next_cursor)
        if isinstance(following, dict | list | float) or following is True:
            raise self.malformed(f"its field {options.next_cursor!r} holds no cursor")
        cursor = None if following in (_ABSENT, None, False, "") else str(following)
        return Answer(entries, total, cursor, following is not _ABSENT)

    def identify(self, entry: Any) -> Any:
        found = _dig(entry, self._options.id)
        return entry if found is _ABSENT else found

    def read(self, entry: Any, position: int) -> Item | Problem:
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
            size = values.size(known(find(options.size)))
            column = options.duration
            per_second = 1000 if options.duration_unit == "ms" else 1
            duration_ms = values.duration_ms(known(find(options.duration)), per_second=per_second)
        except ValueError as error:
            return Problem(position, column, scrub(str(error), self._secrets))
        kept = {name: value for name, path in options.metadata.items() if (value := find(path)) is not None}
        return Item(source_id, address, position, title, size, duration_ms, kept, self._about(entry))

    def _about(self, entry: Any) -> About:
        """What is none of what it should be is left out: a video does not stay behind for it."""
        fields = self._options.about

        def find(name: FieldPath | None, value: Any = entry) -> Any:
            found = _ABSENT if name is None else _dig(value, name)
            return None if found is _ABSENT else found

        public = find(fields.public)
        tracks = (
            claims.caption(
                find(fields.caption_language, track),
                key=number,
                address=self._address_or_none(find(fields.caption_url, track)),
                label=find(fields.caption_label, track),
            )
            for number, track in enumerate(claims.dicts(find(fields.captions)), start=1)
        )
        return About(
            description=claims.text(find(fields.description)),
            tags=claims.texts(find(fields.tags)),
            folder=claims.text(find(fields.folder)),
            captions=claims.captions(tracks),
            poster=self._address_or_none(find(fields.poster)),
            privacy=None if not isinstance(public, bool) else "public" if public else "private",
        )

    def _address_or_none(self, address: Any) -> str | None:
        try:
            return self._absolute(address)
        except ValueError:
            return None

    def _absolute(self, address: Any) -> str:
        """An address out of the host's answer. A path is one on the host, never one on our disk."""
        if isinstance(address, str) and address.strip():
            address = urljoin(str(self.listing.copy_with(query=None)), address.strip())
        return values.http_address(address)

    # ------------------------------------------------------------------------------------------------------ one item

    async def _fresh(self, item: Item) -> str:
        options = self._options
        path = (options.item_path or "").replace("{id}", quote(item.source_id, safe=""))
        url = self.api.url(path)
        value = await self.api.of_video(url)
        name = options.item_url or options.url or ""
        try:
            return self._absolute(_dig(value, name) if _dig(value, name) is not _ABSENT else None)
        except ValueError as error:
            raise Fault("source-not-found", f"{redact(str(url))}: its field {name!r} {error}") from None


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
