"""The create phase: makes each video once, whatever happens to calls, answers and workers."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from temporalio import activity

from activities.accounts import Account, Accounts
from activities.items import item_of
from activities.pages import LONGEST_NAP_S, Bench, Paced, PageRun, RowCall
from activities.remote import ask_each, turn
from activities.sending import send
from crossings import crossing
from destinations.base import CreateRequest, RemoteState, RemoteVideo, Turn
from faults import Fault, Scope
from ledger import claims, inbox, remotes
from ledger.assets import Row
from ledger.claims import Outcome
from ledger.engine import Engine
from ledger.inbox import state_of
from settings import Settings
from sources.base import Item, Source
from sources.registry import open_source
from workflows.messages import PageInput, PageResult

log = structlog.get_logger()

CLOCK_S: Final = 2.0
"""Seconds of the quiet time that are kept for clocks and scheduling."""
ASKED: Final = 25
"""Videos that are asked for, one by one, where no place is freed."""
PREPARE_S: Final = 9.0
"""Seconds after the start that a row was claimed for within which its call must be made: where the source took too long
over a fresh address, another start takes some of them."""


@dataclass(slots=True)
class _Crowd:
    """The videos in the making at a host that caps them. Events free places; where none comes for
    `settle_deadline_s`, the host is asked about those that have been processing longest, or no place would ever be
    freed again."""

    engine: Engine
    account: Account
    places: claims.Places
    _waited_since: float | None = None

    @classmethod
    def of(cls, engine: Engine, account: Account) -> _Crowd | None:
        """None where the host has no cap."""
        most = account.settings.in_flight or account.destination.capabilities.in_flight
        if most is None:
            return None
        return cls(engine, account, claims.Places(account.name, max(1, math.floor(most * account.settings.spend))))

    def freed(self) -> asyncio.Event:
        return self.account.governor.freed

    async def wait(self, freed: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time()
        self._waited_since = now if self._waited_since is None else self._waited_since
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(freed.wait(), LONGEST_NAP_S)
        if freed.is_set():
            self._waited_since = None
        elif now - self._waited_since >= self.account.settings.settle_deadline_s:
            self._waited_since = None
            oldest = await remotes.oldest(self.engine, self.account.name, ASKED)
            videos = await ask_each(self.account, oldest)
            with crossing("apply"):
                await inbox.apply(self.engine, self.account.name, videos)
            with crossing("give-up"):
                await remotes.give_up_all(self.engine, self.account.name, self.account.settings.give_up_s)


@dataclass(slots=True)
class CreateActivities:
    bench: Bench
    settings: Settings
    accounts: Accounts

    @activity.defn
    async def create_page(self, page: PageInput) -> PageResult:
        """Creates the page's videos under the account's budget.

        The claim is the intent: it stands in the ledger before the call. Where an earlier intent never got its answer
        the video is looked up by its reference first, and that only after the quiet time in which the earlier call
        could still land.
        """
        assert page.source is not None, "a create page carries its source"
        account = self.accounts.account(page.account)
        offers = account.destination.capabilities
        # A repeated create under the same key gives the same video: nothing has to be quiet for that.
        quiet_s = 0.0 if offers.idempotent_create else account.settings.quiet
        # What of it may pass before the call is made: a longer quiet time is room for late calls and slow look-ups.
        room_s = min(PREPARE_S, account.settings.quiet - account.settings.timeout_s - CLOCK_S / 2)
        may_wait_s = math.inf if offers.idempotent_create else room_s
        async with contextlib.aclosing(open_source(page.source, self.settings)) as source:

            async def prepare(row: Row) -> RowCall:
                return await _prepared(self.bench.engine, account, page, source, row, may_wait_s)

            crowd = _Crowd.of(self.bench.engine, account)
            lead = self.bench.leads[page.source.label]
            return await PageRun(self.bench, page, Paced(account.governor, prepare, lead, quiet_s, may_wait_s, crowd))()


async def _prepared(
    engine: Engine, account: Account, page: PageInput, source: Source, row: Row, may_wait_s: float
) -> RowCall:
    """What is to be done at the row's start: its create call, at most `may_wait_s` seconds later; where an earlier one
    is open, the look-up."""
    if row.intent and row.transfer is None and not account.destination.capabilities.idempotent_create:
        return lambda _: _resolve(account, page, row)
    request = await _request(account, source, row)
    return lambda start: _create(engine, account, page, row, request, call_by=start + may_wait_s)


async def _request(account: Account, source: Source, row: Row) -> CreateRequest:
    """What is asked of the destination, with a fresh address."""
    item = item_of(row)
    _check(row, item, account)
    with crossing("locate"):
        location = await source.locate(item)
    return CreateRequest(
        ref=row.ref,
        address=location.address,
        title=row.title or row.source_id,
        headers=location.headers,
        metadata=row.metadata,
        duration_ms=row.duration_ms,
        about=item.about,
        size=location.size,
    )


async def _create(
    engine: Engine, account: Account, page: PageInput, row: Row, request: CreateRequest, *, call_by: float
) -> Outcome:
    """Makes the video, unless the loop's time is past `call_by`."""
    destination, offers = account.destination, account.destination.capabilities
    if not offers.idempotent_create and asyncio.get_running_loop().time() > call_by:
        # This worker stalled: by now another may be asking whether our call has landed, so it must not be made.
        raise Fault("worker-stalled", "the call's time had passed before it was made")
    if request.is_local and offers.uploads and not offers.fetches_local_paths:
        video = await send(engine, account, page, row, request)
        account.governor.went_well()
        return _made(row, video, "created")
    try:
        with crossing("create"):
            video = await destination.create(request)
    except Fault as fault:
        if not fault.landed or fault.scope is Scope.ACCOUNT:
            raise  # nothing was made, or the host wants no call at all just now
        # What is found now can be adopted at once; what isn't may still land, and waits out its quiet time.
        found = await _found_at_once(account, page, row)
        if not found:
            raise
        return _adopted(row, found)
    account.governor.went_well()
    return _made(row, video, "created")


async def _resolve(account: Account, page: PageInput, row: Row) -> Outcome:
    """An earlier call was never answered and can no longer land: what it made is adopted; where it made nothing, the
    row is as it was before, and the next claim, with a request of its own, creates it."""
    try:
        with crossing("lookup"):
            found = _live(row, await account.destination.lookup(row.ref, turn=_in_turn(account, page)))
    except Fault as fault:
        # Whether the earlier call landed is as open as before.
        raise Fault(fault.code, fault.detail, retry_after=fault.retry_after, landed=True) from fault
    account.governor.went_well()
    return _adopted(row, found) if found else Outcome(row.ref, "inventoried", "looked-up", refund=True)


async def _found_at_once(account: Account, page: PageInput, row: Row) -> Sequence[RemoteVideo]:
    try:
        with crossing("lease"):
            lease = await account.governor.lease(1, "lookup", tenant=page.tenant, lane=page.lane)
        if not lease.starts or not await account.governor.start(asyncio.get_running_loop().time() + lease.starts[0]):
            return ()
        with crossing("lookup"):
            return _live(row, await account.destination.lookup(row.ref, turn=_in_turn(account, page)))
    except Fault as fault:
        # The row's own fault is what counts: its call may have landed.
        log.info("look-up failed", reason=fault.code, detail=fault.detail)
        return ()


def _in_turn(account: Account, page: PageInput) -> Turn:
    """For the pages of a list that a look-up walks: the first is leased with the row."""

    async def in_turn() -> None:
        await turn(account, "lookup", page)

    return in_turn


def _live(row: Row, found: Sequence[RemoteVideo]) -> Sequence[RemoteVideo]:
    """What was found less what this row has given up and shells whose bytes were never sent, the most usable first."""
    order = (RemoteState.READY, RemoteState.PROCESSING, RemoteState.ERRORED)
    usable = [video for video in found if video.state in order and not video.awaits_bytes]
    videos = [video for video in usable if video.remote_id not in row.retired]
    return sorted(videos, key=lambda video: order.index(video.state))


def _made(row: Row, video: RemoteVideo, outcome: str) -> Outcome:
    state, reason = state_of(video)
    return Outcome(
        row.ref,
        state,
        outcome,
        reason=reason,
        detail=video.detail or None,
        remote_id=video.remote_id,
        remote_duration_ms=video.duration_ms,
        remote_width=video.width,
        remote_height=video.height,
        remote_size=video.size,
        playback=video.playback,
    )


def _adopted(row: Row, found: Sequence[RemoteVideo]) -> Outcome:
    if len(found) > 1:
        log.warning("several videos carry this reference", remote_ids=[video.remote_id for video in found])
    return _made(row, found[0], "adopted")


def _check(row: Row, item: Item, account: Account) -> None:
    """What the destination's documented limits rule out is found before the create, and said with the limit; so is a
    private video that would become public."""
    offers = account.destination.capabilities
    hidden = item.about.privacy in ("private", "unlisted")
    if hidden and "privacy" not in offers.carries and not account.settings.publish_private:
        raise Fault(
            "private-refused", f"it is {item.about.privacy} at the source, and {account.name} has no such thing"
        )
    title = row.title or row.source_id
    if offers.title_max is not None and len(title) > offers.title_max:
        raise Fault("name-too-long", f"the title has {len(title)} characters, {account.name} takes {offers.title_max}")
    if offers.ref_max is not None and len(row.ref) > offers.ref_max:
        raise Fault("name-too-long", f"the reference has {len(row.ref)} characters, at most {offers.ref_max} are taken")
