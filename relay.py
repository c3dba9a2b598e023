"""The relay: turns applied webhook events into hints for the workflows that wait for them.

A hint is sent when the last video that a page waits for has settled: one signal a page, however many events there were.
The ledger is the truth; a hint that is lost costs the time until the page asks for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from crossings import crossing
from faults import SIGNAL_RETRY, Fault
from ledger import inbox
from ledger.engine import Engine
from ledger.inbox import Hint
from workflows.ids import page_id
from workflows.messages import EventsHint

log = structlog.get_logger()

IDLE_S: Final = 5.0
"""How long the relay sleeps when nothing wakes it: events that another endpoint stored are found then."""


@dataclass(slots=True)
class Relay:
    """`wake` after an event was stored; `run` until cancelled."""

    engine: Engine
    client: Client
    interval_s: float = 0.25
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            try:
                await self.once()
            except Fault as fault:
                log.warning("relay waits", reason=fault.code, detail=fault.detail)
            except Exception:
                # Without its relay the endpoint would go on taking events, and every page wait for its own sweep.
                log.exception("relay failed, and goes on")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), IDLE_S)
            self._woken.clear()
            await asyncio.sleep(self.interval_s)

    async def once(self) -> int:
        """Applies events whose row is known by now, and sends what hints are due; returns how many."""
        with crossing("apply"):
            await inbox.apply_waiting(self.engine)
        with crossing("hints"):
            hints = await inbox.take_hints(self.engine)
        due = [hint for hint in hints if hint.left == 0]
        await asyncio.gather(*(self._signal(hint) for hint in due))
        return len(due)

    async def _signal(self, hint: Hint) -> None:
        handle = self.client.get_workflow_handle(page_id(hint.run, "settle", hint.page))
        for attempt in range(SIGNAL_RETRY.maximum_attempts):
            try:
                with crossing("signal"):
                    await handle.signal("events", EventsHint(events=hint.events, left=hint.left))
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return  # not begun, or ended: it asks the ledger itself
                log.warning("hint not delivered", run=hint.run, page=hint.page, attempt=attempt + 1, error=str(error))
                await asyncio.sleep(SIGNAL_RETRY.initial_interval.total_seconds() * 2.0**attempt)
            else:
                return
