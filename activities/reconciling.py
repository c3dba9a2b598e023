"""The reconcile phase: the destination's own view, listed in bulk, against what the inventory found."""

from __future__ import annotations

from dataclasses import dataclass, replace

from temporalio import activity

from activities.accounts import Accounts
from activities.asking import asker
from activities.pages import Bench, PageRun
from activities.remote import walk_all
from destinations.base import RemoteState, RemoteVideo
from ledger import remotes
from ledger.assets import Row
from ledger.claims import Outcome
from ledger.engine import Engine
from media.compare import compare
from media.facts import MediaFacts
from settings import Settings
from workflows.messages import PageInput, PageResult, RemoteListingInput, RemoteListingResult


@dataclass(slots=True)
class RemoteListingActivities:
    engine: Engine
    settings: Settings
    accounts: Accounts

    @activity.defn
    async def list_remote(self, asked: RemoteListingInput) -> RemoteListingResult:
        """Lists everything on the account, once for the whole run. Tried again, this activity goes on where it stood;
        another one, of a run that parked meanwhile, begins anew, since what was seen before is too old."""
        account = self.accounts.account(asked.account)
        videos, requests = await walk_all(self.engine, account, asked.run, asker())
        return RemoteListingResult(videos=videos, requests=requests)


@dataclass(slots=True)
class ReconcileActivities:
    bench: Bench

    @activity.defn
    async def reconcile_page(self, page: PageInput) -> PageResult:
        """Compares each of the page's videos with the destination's view: "verified", or "mismatched" with words."""
        view = await remotes.seen(self.bench.engine, page.account, page.run, page.page)

        async def held_against(row: Row) -> Outcome:
            return verdict(row, view.get(row.remote_id or ""))

        return await PageRun(self.bench, page, held_against)()


def verdict(row: Row, video: RemoteVideo | None) -> Outcome:
    """What the destination's view of a video says about its row."""
    if video is None:
        return _mismatched(row, "remote-missing", f"{row.remote_id} is not in the destination's list")
    if video.state is not RemoteState.READY:
        return _mismatched(row, "state-differs", f"the destination calls {video.remote_id} {video.state.value}")
    if video.ref is not None and video.ref != row.ref:
        return _mismatched(row, "reference-differs", f"{video.remote_id} carries {video.ref}")
    if row.reason == "attachment-lost":
        return _mismatched(row, row.reason, row.detail or "", video)
    if row.facts is not None:
        facts = MediaFacts.from_json(row.facts)
        found = compare(facts, duration_ms=video.duration_ms, width=video.width, height=video.height)
        if found is not None:
            return _mismatched(row, found.reason, found.words, video)
    return _seen(video, Outcome(row.ref, "verified", "verified"))


def _mismatched(row: Row, reason: str, words: str, video: RemoteVideo | None = None) -> Outcome:
    outcome = Outcome(row.ref, "mismatched", "mismatched", reason=reason, detail=words)
    return outcome if video is None else _seen(video, outcome)


def _seen(video: RemoteVideo, outcome: Outcome) -> Outcome:
    return replace(
        outcome,
        remote_duration_ms=video.duration_ms,
        remote_width=video.width,
        remote_height=video.height,
        remote_size=video.size,
    )
