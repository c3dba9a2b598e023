"""How workflows call activities: for each its task queue, time-outs and retry policy, side by side.

Activities are named here by strings, so that workflow code imports none of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from faults import LEDGER_RETRY, PAGE_RETRY, REASONS, Scope
from workflows.messages import Park

TASK_QUEUE: Final = "longhaul"
"""Runs; each kind of activity has a queue of its own, with its kind as suffix."""
PAGE_QUEUE: Final = f"{TASK_QUEUE}-pages"
"""Pages and stripes: their own queue, so that they can stay with the build of the workers that began them."""

PAGE_LIMIT: Final = timedelta(hours=24)
"""A page's activity returns long before; it can be this long where an account is paused for hours."""


class _Options(TypedDict, total=False):
    task_queue: str
    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy


_LEDGER: Final = _Options(
    task_queue=f"{TASK_QUEUE}-ledger", start_to_close_timeout=timedelta(minutes=2), retry_policy=LEDGER_RETRY
)
_CALLS: Final[dict[str, _Options]] = {
    "open_run": _LEDGER,
    "advance": _LEDGER,
    "check_listing": _LEDGER,
    "take_dead_letters": _LEDGER,
    "set_run_state": _LEDGER,
    "set_pace": _LEDGER,
    "cancel_run": _LEDGER,
    "estimate": _LEDGER,
    "finish_run": _LEDGER,
    "settle_page": _LEDGER,
    **{
        name: _Options(
            task_queue=f"{TASK_QUEUE}-{kind}",
            start_to_close_timeout=PAGE_LIMIT,
            retry_policy=PAGE_RETRY,
        )
        for name, kind in {
            "list_pages": "probe",
            "inventory_page": "probe",
            "create_page": "provider",
            "attach_page": "provider",
            "sweep_page": "provider",
            "list_remote": "provider",
            "reconcile_page": "ledger",
        }.items()
    },
}


async def call(
    name: str, argument: Any, result: type[Any], *, heartbeat_s: float = 30.0, summary: str | None = None
) -> Any:
    """Runs the activity of this name; `result` is the type of what it returns. A worker that has not been heard of for
    `heartbeat_s` seconds is taken for dead, and another takes the work."""
    return await workflow.execute_activity(
        name,
        argument,
        result_type=result,
        heartbeat_timeout=timedelta(seconds=heartbeat_s),
        summary=summary,
        **_CALLS[name],
    )


def park_of(error: ActivityError) -> Park:
    """Why the run has to park, from the typed error that ended an activity."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        kind = cause.type or "unknown"
        reason = kind if kind in REASONS else "unknown"
        wait = cause.next_retry_delay.total_seconds() if cause.next_retry_delay else None
        if wait is None and REASONS[reason].scope is Scope.RUN and not REASONS[reason].permanent:
            wait = 60.0
        return Park(reason=reason, detail=cause.message[:2000], wait_s=wait)
    if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START:
        return Park(reason="unknown", detail="no worker took the work")
    return Park(reason="unknown", detail=str(cause or error)[:2000])
