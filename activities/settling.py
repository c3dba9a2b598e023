"""The settle phase: the ledger says what events have done; where they don't come, the destination is asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from temporalio import activity

from activities.accounts import Account, Accounts
from activities.remote import ask_each, walk_all
from crossings import crossing
from destinations.base import RemoteVideo
from ledger import inbox, remotes
from ledger.engine import Engine
from settings import Settings
from workflows.messages import PageInput, PageResult

SINGLE_QUESTIONS: Final = 25
"""Videos that are asked for one by one; for more, one walk over the account's list serves every page."""


@dataclass(slots=True)
class SettleActivities:
    engine: Engine
    settings: Settings

    @activity.defn
    async def settle_page(self, page: PageInput) -> PageResult:
        """How many of the page's videos are still processing. Asks only the ledger."""
        return await result(self.engine, page, self.settings.account(page.account).settle_deadline_s)


async def result(engine: Engine, page: PageInput, deadline_s: float) -> PageResult:
    found = await remotes.waiting(engine, page.run, page.page)
    left = len(found.remote_ids)
    wait_s = max(0.0, deadline_s - found.quiet_s) if left else 0.0
    return PageResult(page=page.page, done=found.ready, left=left, wait_s=wait_s)


@dataclass(slots=True)
class SweepActivities:
    engine: Engine
    settings: Settings
    accounts: Accounts
    _walking: dict[tuple[str, str], asyncio.Lock] = field(default_factory=dict)

    @activity.defn
    async def sweep_page(self, page: PageInput) -> PageResult:
        """Asks the destination about the page's videos whose events have not come, and gives up on those that have been
        processing for too long. Makes no request where events still arrive."""
        account = self.accounts.account(page.account)
        deadline = account.settings.settle_deadline_s
        found = await remotes.waiting(self.engine, page.run, page.page)
        if found.remote_ids and found.quiet_s >= deadline:
            told = account.destination.capabilities.list_tells_state
            if len(found.remote_ids) <= SINGLE_QUESTIONS or not told:
                videos = await ask_each(account, found.remote_ids, page)
            else:
                videos = list((await self._view(account, page, deadline)).values())
            with crossing("apply"):
                await inbox.apply(self.engine, account.name, videos)
            with crossing("give-up"):
                await remotes.give_up(self.engine, page.run, page.page, account.settings.give_up_s)
        after = await result(self.engine, page, deadline)
        # What was asked just now is not asked again at once.
        return after if after.left == 0 else after.model_copy(update={"wait_s": max(after.wait_s, deadline)})

    async def _view(self, account: Account, page: PageInput, deadline_s: float) -> dict[str, RemoteVideo]:
        """The page's videos in a view of the account that is younger than the deadline: all pages share one walk."""
        async with self._walking.setdefault((account.name, page.run), asyncio.Lock()):
            age = await remotes.age_s(self.engine, account.name, page.run)
            if age is None or age > deadline_s:
                await walk_all(self.engine, account, page.run, "sweep")
        return dict(await remotes.seen(self.engine, account.name, page.run, page.page))
