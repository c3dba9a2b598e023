"""One walker of a source's listing."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.calls import call, park_of
    from workflows.messages import StripeInput, StripeResult


@workflow.defn
class ListStripeWorkflow:
    """Walks every n-th page of the listing in one activity, whose retry goes on at the cursor in the ledger."""

    @workflow.run
    async def run(self, stripe: StripeInput) -> StripeResult:
        try:
            result: StripeResult = await call(
                "list_pages",
                stripe,
                StripeResult,
                heartbeat_s=stripe.heartbeat_s,
                summary=f"walk {stripe.walk}, stripe {stripe.stripe + 1}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            if isinstance(error.cause, ApplicationError) and error.cause.type == "cursor-stale":
                return StripeResult(stale=True)
            return StripeResult(park=park_of(error))
        workflow.set_current_details(f"listed {result.listed}, new {result.added}")
        return result
