"""An activity's heartbeats, for as long as it runs: a single slow row must not look like a dead worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from temporalio import activity

_details: ContextVar[dict[str, Any]] = ContextVar("heartbeat details")


def note(**details: Any) -> None:
    """What the next heartbeat tells, for people who look at the activity in the Web UI."""
    _details.get().update(details)


@contextlib.asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Heartbeats, three in each heartbeat time-out of the running activity, while the block runs."""
    details: dict[str, Any] = {}
    token = _details.set(details)
    timeout = activity.info().heartbeat_timeout
    task = None if timeout is None else asyncio.create_task(_beat(details, timeout.total_seconds() / 3))
    try:
        yield
    finally:
        _details.reset(token)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _beat(details: dict[str, Any], every_s: float) -> None:
    while True:
        # Not at once: heartbeats are billed, and most activities have ended before the first is due.
        await asyncio.sleep(every_s)
        activity.heartbeat(dict(details))
