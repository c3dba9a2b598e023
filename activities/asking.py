"""Who puts a question to the ledger: one activity, with all its attempts."""

from __future__ import annotations

from temporalio import activity


def asker() -> str:
    """The same for every attempt of the activity that runs now, and for no other: what one attempt began, another goes
    on with, and one that stalled takes from nobody."""
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}"
