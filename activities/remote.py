"""Asking the destination: for single videos, or for everything on the account."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import structlog
from temporalio import activity

from activities.accounts import Account
from activities.heartbeats import note
from activities.pages import nap_s
from crossings import crossing
from destinations.base import RemotePage, RemoteVideo
from faults import Fault, Scope
from ledger import remotes
from ledger.budgets import Lease
from ledger.engine import Engine
from settings import Operation
from workflows.messages import PageInput

log = structlog.get_logger()

T = TypeVar("T")

TRIES: Final = 4
"""Tries of one question before the activity's own retry takes over; each has its turn in the account's budget."""


async def turn(account: Account, operation: Operation, page: PageInput | None = None) -> Lease:
    """Waits until the account's budget gives leave for one request of this kind, and until it may start. It counts for
    the page's tenant and lane; None: a question about the whole account."""
    tenant, lane = ("default", "bulk") if page is None else (page.tenant, page.lane)
    while True:
        changed = account.governor.changed
        with crossing("lease"):
            lease = await account.governor.lease(1, operation, tenant=tenant, lane=lane)
        if not lease.starts:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), nap_s(lease))
        elif await account.governor.start(asyncio.get_running_loop().time() + lease.starts[0], lease.cuts):
            return lease
        else:
            with crossing("budget"):
                await account.governor.give_back(lease, lease.starts)


async def walk_all(engine: Engine, account: Account, run: str, asker: str) -> tuple[int, int]:
    """Lists everything on the account into the ledger's remote view; returns videos and requests.

    Each page is written with the cursor that leads on, so that the same `asker` of this run goes on there when it was
    interrupted. Raises the destination's own faults.
    """
    with crossing("remote-page"):
        walk = await remotes.begin(engine, account.name, run, asker)
    cursor, videos, requests = walk.cursor, 0, 0
    while True:
        page = await _asked(account, "list", partial(account.destination.list_page, cursor))
        requests += 1
        if page.next_cursor is not None and page.next_cursor == cursor:
            raise Fault("answer-malformed", f"the list of {account.name} gives the same cursor again: {cursor!r}")
        told = None
        if not account.destination.capabilities.list_tells_state:
            page, told = await _with_states(engine, account, run, page)
            requests += len(told)
        with crossing("remote-page"):
            await remotes.write_page(engine, account.name, walk, page, told=told)
        videos += len(page.videos)
        note(videos=videos, requests=requests)
        log.debug("remote page listed", videos=videos)
        cursor = page.next_cursor
        if cursor is None:
            return videos, requests


async def _with_states(
    engine: Engine, account: Account, run: str, page: RemotePage
) -> tuple[RemotePage, Collection[str]]:
    """A page of a list that tells no states, with those of the run's own videos, each asked for; and their ids."""
    with crossing("remote-page"):
        own = await remotes.own(engine, account.name, run, [video.remote_id for video in page.videos])
    told = {video.remote_id: video for video in await ask_each(account, own)}
    videos = [
        replace(
            listed,
            state=single.state,
            reason=single.reason,
            detail=single.detail,
            duration_ms=single.duration_ms,
            width=single.width,
            height=single.height,
            size=single.size,
        )
        if (single := told.get(listed.remote_id)) is not None
        else listed
        for listed in page.videos
    ]
    return replace(page, videos=videos), told.keys()


async def ask_each(account: Account, remote_ids: Sequence[str], page: PageInput | None = None) -> list[RemoteVideo]:
    """Asks for single videos, one request each, in the page's turn."""
    found = []
    for remote_id in remote_ids:
        found.append(await _asked(account, "get", partial(account.destination.get, remote_id), page))
        note(asked=len(found), of=len(remote_ids))
    return found


async def _asked(
    account: Account, operation: Operation, question: Callable[[], Awaitable[T]], page: PageInput | None = None
) -> T:
    """One question to the destination, in its turn. Pushback pauses the account; other transient faults are tried again
    a few times."""
    tries = 0
    while True:
        lease = await turn(account, operation, page)
        try:
            with crossing("ask"):
                answer = await question()
        except Fault as stop:
            if activity.is_worker_shutdown():
                raise
            fault = account.governor.judged(stop)
            if fault.scope is Scope.ACCOUNT:
                with crossing("pause"):
                    await account.governor.push_back(fault, lease.cuts)
                continue
            tries += 1
            if fault.permanent or fault.scope is Scope.RUN or tries >= TRIES:
                if fault is stop:
                    raise
                raise fault from stop
            await asyncio.sleep(0.5 * 2.0**tries)
        else:
            account.governor.went_well()
            return answer
