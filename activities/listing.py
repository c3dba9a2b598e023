"""The list phase: walks a source's listing, page by page, into the ledger."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import structlog
from temporalio import activity

from activities.heartbeats import note
from crossings import crossing
from faults import Fault
from ledger import listings
from ledger.engine import Engine
from ledger.listings import Walker
from settings import Settings
from sources.registry import open_source
from workflows.messages import StripeInput, StripeResult

log = structlog.get_logger()


@dataclass(slots=True)
class ListingActivities:
    engine: Engine
    settings: Settings

    @activity.defn
    async def list_pages(self, stripe: StripeInput) -> StripeResult:
        """Walks one stripe to its end. Each page is written together with the cursor that leads on, so that a retry
        goes on where the last one was written. On SIGTERM it stops after a page, and its retry goes on elsewhere."""
        walker = Walker(
            stripe.run, stripe.tenant, stripe.source_label, stripe.account, stripe.walk, stripe.stripe, stripe.fence
        )
        listed = added = 0
        async with contextlib.aclosing(open_source(stripe.source, self.settings)) as source:
            stripes = stripe.stripes if source.stripeable else 1
            if stripe.stripe >= stripes:
                return StripeResult()
            overtaken = 0
            place = await listings.place(self.engine, walker)
            while not place.ended:
                if activity.is_worker_shutdown():
                    raise Fault("worker-stopping", f"stripe {stripe.stripe} goes on at page {place.sequence}")
                with crossing("list"):
                    page = await source.list_page(place.cursor, stripe=stripe.stripe, stripes=stripes)
                with crossing("listing-page"):
                    written = await listings.write_page(self.engine, walker, place.sequence, page)
                if written is None:
                    # An earlier attempt of ours that was thought dead may have written it; more than that is a rival.
                    overtaken += 1
                    if overtaken > 3:
                        raise Fault("fence-lost", f"the listing of run {stripe.run} is walked by someone else")
                else:
                    listed += len(page.items)
                    added += written.added
                    note(listed=listed)
                    log.debug("page listed", sequence=place.sequence, items=len(page.items), added=written.added)
                place = await listings.place(self.engine, walker)
        return StripeResult(listed=listed, added=added)
