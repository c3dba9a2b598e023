"""The inventory phase: reads each file where it is, and decides whether it can be moved. Nothing remote is touched."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from temporalio import activity

import media
from activities.accounts import Accounts
from activities.items import item_of
from activities.leading import Lead
from activities.pages import Bench, PageRun
from crossings import crossing
from faults import Fault
from ledger.assets import Row
from ledger.claims import Outcome
from settings import Settings
from sources.base import Source
from sources.registry import open_source
from workflows.messages import PageInput, PageResult


@dataclass(slots=True)
class InventoryActivities:
    bench: Bench
    settings: Settings
    accounts: Accounts
    probes: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.probes = asyncio.Semaphore(self.settings.worker.probes_at_once)

    @activity.defn
    async def inventory_page(self, page: PageInput) -> PageResult:
        """Probes the page's files; a row leaves as "inventoried" with its facts, or as "rejected" with a reason."""
        assert page.source is not None, "an inventory page carries its source"
        offers = self.accounts.account(page.account).destination.capabilities
        limits = media.Limits(offers.duration_min_ms, offers.duration_max_ms, offers.size_max)
        lead = self.bench.leads[page.source.label]
        async with contextlib.aclosing(open_source(page.source, self.settings)) as source:

            async def probe(row: Row) -> Outcome:
                async with self.probes:
                    found = await self._inspected(source, row, limits, lead)
                facts = found.facts
                if not found.verdict.accepted:
                    return Outcome(
                        row.ref,
                        "rejected",
                        "rejected",
                        reason=found.verdict.reason,
                        detail=found.verdict.words,
                        facts=facts.to_json(),
                        duration_ms=facts.duration_ms,
                    )
                return Outcome(
                    row.ref, "inventoried", "inventoried", facts=facts.to_json(), duration_ms=facts.duration_ms
                )

            return await PageRun(self.bench, page, probe)()

    async def _inspected(self, source: Source, row: Row, limits: media.Limits, lead: Lead) -> media.Inspection:
        """What was found in the row's file. An address that is refused may have run out between listing and use: the
        source is asked for a fresh one, once."""
        with crossing("locate"), lead.measured():  # the creates' calls come to know it here
            location = await source.locate(item_of(row))
        try:
            with crossing("probe"):
                return await media.inspect(location, settings=self.settings.media, limits=limits)
        except Fault as fault:
            if fault.code != "source-forbidden" or location.is_local:
                raise
            with crossing("locate"):
                fresh = await source.locate(item_of(row))
            if fresh == location:
                raise  # a lasting address, which asking again doesn't mend
            with crossing("probe"):
                return await media.inspect(fresh, settings=self.settings.media, limits=limits)
