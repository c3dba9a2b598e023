"""The attach phase: what needs its video to be there before it can be put on it — text tracks and posters."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from temporalio import activity

import media
from activities.accounts import Account, Accounts
from activities.items import item_of
from activities.pages import Bench, PageRun
from activities.remote import turn
from crossings import crossing
from destinations.base import Attachment
from faults import Fault, Scope
from ledger.assets import Row
from ledger.claims import Outcome
from media.attachments import as_vtt, picture_format
from settings import Settings
from sources.base import Item, Location, Source
from sources.registry import open_source
from workflows.messages import PageInput, PageResult

CAPTION_BYTES: Final = 10_485_760
"""Cloudflare's limit for a text track; a longer one is none."""
POSTER_BYTES: Final = 20_971_520


@dataclass(slots=True)
class AttachActivities:
    bench: Bench
    settings: Settings
    accounts: Accounts

    @activity.defn
    async def attach_page(self, page: PageInput) -> PageResult:
        """Puts the page's text tracks and posters on their videos, as far as the destination has a place for them. What
        is lost for good leaves its video as it is, and is told when that is reconciled."""
        assert page.source is not None, "an attach page carries its source"
        account = self.accounts.account(page.account)
        async with contextlib.aclosing(open_source(page.source, self.settings)) as source:

            async def attach(row: Row) -> Outcome:
                lost = await self._put_on(account, page, source, row)
                if not lost:
                    return Outcome(row.ref, "attached", "attached")
                return Outcome(row.ref, "attached", "attachment-lost", reason="attachment-lost", detail="; ".join(lost))

            return await PageRun(self.bench, page, attach)()

    async def _put_on(self, account: Account, page: PageInput, source: Source, row: Row) -> list[str]:
        """Attaches one after the other; returns words for each that can never be. Raises Fault for what may still be,
        when everything else is on the video."""
        assert row.remote_id is not None, "a video that is ready has its id"
        lost: list[str] = []
        later: Fault | None = None
        for name, make in self._wanted(account, source, item_of(row)):
            try:
                attachment = await make()
                if attachment is not None:
                    await _pushed_back(account, partial(self._attach, account, page, row.remote_id, attachment))
            except Fault as fault:
                if fault.scope is not Scope.ROW:
                    raise
                lost.append(f"{name}: {fault.reason.words} ({fault.detail})")
                if not fault.permanent:
                    later = later or fault
        if later is not None:
            raise Fault(later.code, "; ".join(lost), retry_after=later.retry_after)
        return lost

    @staticmethod
    async def _attach(account: Account, page: PageInput, remote_id: str, attachment: Attachment) -> None:
        async def in_turn() -> None:
            await turn(account, "attach", page)

        with crossing("attach"):
            await account.destination.attach(remote_id, attachment, turn=in_turn)

    def _wanted(
        self, account: Account, source: Source, item: Item
    ) -> Sequence[tuple[str, Callable[[], Awaitable[Attachment | None]]]]:
        """What the item has that the destination takes: words for it, and how it is fetched."""
        offers = account.destination.capabilities
        wanted: list[tuple[str, Callable[[], Awaitable[Attachment | None]]]] = []

        async def caption(position: int) -> Attachment:
            track = item.about.captions[position]
            with crossing("locate"):
                location = await source.locate_caption(item, track)
            content = None
            if offers.captions == "bytes":
                # Those that take bytes all take WebVTT; those that fetch take SubRip too.
                content = await asyncio.to_thread(as_vtt, await self._content(location, CAPTION_BYTES))
            return Attachment(track.kind, location.address, content, language=track.language, label=track.label)

        async def no_place(language: str) -> Attachment:
            raise Fault("attachment-lost", f"{account.name} has one track a language, and another {language} one is it")

        async def poster() -> Attachment | None:
            with crossing("locate"):
                location = await source.locate_poster(item)
            if location is None:
                return None
            if offers.poster == "address":
                return Attachment("poster", location.address, format="")
            content = await self._content(location, POSTER_BYTES)
            return Attachment("poster", location.address, content, format=picture_format(content))

        taken: set[str] = set()
        for position, track in enumerate(item.about.captions if offers.captions is not None else ()):
            language = track.language.casefold()
            there = language in taken and not offers.several_tracks_a_language
            make = partial(no_place, track.language) if there else partial(caption, position)
            wanted.append((f"the {track.language} {track.kind}", make))
            taken.add(language)
        if offers.poster is not None and item.about.poster is not None:
            wanted.append(("the poster", poster))
        return wanted

    async def _content(self, location: Location, limit: int) -> bytes:
        with crossing("fetch"):
            return await media.read_small(location, limit=limit, settings=self.settings.media)


async def _pushed_back(account: Account, work: Callable[[], Awaitable[None]]) -> None:
    """Does the work; where the destination refuses for load, the whole account pauses, and the row loses nothing."""
    try:
        await work()
    except Fault as stop:
        fault = account.governor.judged(stop)
        if fault.scope is Scope.ACCOUNT:
            with crossing("pause"):
                await account.governor.push_back(fault)
        if fault is stop:
            raise
        raise fault from stop
    account.governor.went_well()
