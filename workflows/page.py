"""One page of a run in one phase."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.calls import call, park_of
    from workflows.messages import EventsHint, PageInput, PageResult


@workflow.defn
class PageWorkflow:
    """Works one page in one phase: one activity that goes through it window by window, or, in the settle phase, a wait
    for the destination's events with a sweep where they don't come."""

    @workflow.init
    def __init__(self, page: PageInput) -> None:
        # Made before the first signal is handled: the relay's hint may come first.
        self._page = page
        self._hinted = False

    @workflow.run
    async def run(self, page: PageInput) -> PageResult:
        try:
            if page.phase == "settle":
                return await self._settle()
            result: PageResult = await call(
                f"{page.phase}_page",
                page,
                PageResult,
                heartbeat_s=page.heartbeat_s,
                summary=f"{page.phase} page {page.page}",
            )
            self._tell(f"{result.done} done, {result.left} left")
            return result
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return PageResult(page=page.page, left=1, park=park_of(error))

    @workflow.signal
    def events(self, hint: EventsHint) -> None:
        """The relay: events have come for this page. The ledger says what they mean."""
        self._hinted = True

    async def _settle(self) -> PageResult:
        """Asks the ledger, and while videos are still processing waits for a hint; without one, until `wait_s` has
        passed, and then has the destination asked."""
        sweep = False
        while True:
            self._hinted = False
            name = "sweep_page" if sweep else "settle_page"
            result: PageResult = await call(
                name, self._page, PageResult, heartbeat_s=self._page.heartbeat_s, summary=f"{name} {self._page.page}"
            )
            if result.left == 0:
                self._tell("all settled")
                return result
            self._tell(f"waiting for {result.left} videos; asks the destination in {result.wait_s:.0f} s")
            try:
                await workflow.wait_condition(
                    lambda: self._hinted,
                    timeout=timedelta(seconds=max(1.0, result.wait_s)),
                    timeout_summary="until the destination is asked",
                )
                sweep = False
            except TimeoutError:
                sweep = True

    def _tell(self, text: str) -> None:
        workflow.set_current_details(
            f"**{self._page.run}** · {self._page.phase} · page {self._page.page} · pass {self._page.passes}\n\n{text}"
        )
