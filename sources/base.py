"""What every place videos come from offers: pages of items, and a fresh address for each at the moment of use.

A source knows nothing of Temporal and nothing of the ledger. It is opened by `sources.open_source` from a
`SourceSpec`, is an async context manager, and raises `faults.Fault` for everything it can name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from faults import Fault
from sources.about import NOTHING, About, Caption
from sources.addresses import canonical

PAGE_SIZE = 500
"""Items listed together: one page of the run."""


@dataclass(frozen=True, slots=True)
class Item:
    """One video as its source lists it.

    `position` is where it stands (a manifest's line number, an index in a listing), for messages to a person.
    `locator` is the address or path that the listing gave; it may be None where one must be asked for at use.
    `size` in bytes and `duration_ms` are what the source claims, or None. `about` is what travels with the video.
    """

    source_id: str
    locator: str | None
    position: int
    title: str | None = None
    size: int | None = None
    duration_ms: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    about: About = NOTHING


@dataclass(frozen=True, slots=True)
class Problem:
    """One entry that could not be read; the others are unaffected. `position` is its line or index, `column` a header
    or field name where one is to blame, `words` say what is wrong and what to do."""

    position: int
    column: str | None
    words: str


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Up to `PAGE_SIZE` items that were listed together.

    `next_cursor` is what `list_page` takes to go on, or None at the end of this walk. `total` is the source's own claim
    of how many items there are in all, where it makes one.
    """

    items: Sequence[Item]
    next_cursor: str | None
    problems: Sequence[Problem] = ()
    skipped_blank: int = 0
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """Where a file can be read now: `address` is an http(s) address or an absolute path, `headers` must be sent along,
    `size` is the expected number of bytes where known."""

    address: str
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None

    @property
    def is_local(self) -> bool:
        return not self.address.lower().startswith(("http://", "https://"))


class ListedExtras:
    """Captions and posters for sources whose listing gives lasting addresses of them: those are used."""

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """No request. Raises Fault("source-not-found") where the listing has no address."""
        if caption.address is None:
            raise Fault("source-not-found", f"{item.source_id!r}: no address for its {caption.language} {caption.kind}")
        return Location(canonical(caption.address))

    async def locate_poster(self, item: Item) -> Location | None:
        """No request."""
        return None if item.about.poster is None else Location(canonical(item.about.poster))


class Source(Protocol):
    """One place videos come from."""

    stripeable: bool
    """Whether page n can be asked for without having read page n-1, so that several stripes can walk the listing."""

    async def check(self) -> None:
        """Refuses, before anything is imported, what can never be read (a missing file, a bad header, wrong bytes).
        Raises Fault("manifest-refused" | "settings-refused" | "source-credentials-refused" | "source-down")."""

    async def list_page(self, cursor: str | None, *, stripe: int = 0, stripes: int = 1) -> ListedPage:
        """The page at `cursor`; None is the first page of this stripe. Stripe k of n owns pages k, k+n, k+2n, …

        Raises Fault("listing-repeats" | "listing-cycles" | "listing-too-long" | "listing-malformed" | "cursor-stale" |
        "source-down" | "source-credentials-refused").
        """
        ...

    async def locate(self, item: Item) -> Location:
        """A fresh address for this item, asked of the source where its listing's one expires.
        Raises Fault with a source reason of scope "row": "source-failed" where the video had already failed there."""
        ...

    async def locate_caption(self, item: Item, caption: Caption) -> Location:
        """A fresh address for one of the item's text tracks (SubRip or WebVTT). Raises as `locate`."""
        ...

    async def locate_poster(self, item: Item) -> Location | None:
        """A fresh address for the item's poster; None where it has none. Raises as `locate`."""
        ...

    async def aclose(self) -> None: ...
