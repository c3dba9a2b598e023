"""Signed events about videos, delivered until the receiver accepts them."""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from pydantic import SecretStr
from standardwebhooks import Webhook

from sandbox.config import SandboxConfig, webhook_keys
from sandbox.ingest import client
from sandbox.misbehaviour import Misbehaviour
from sandbox.store import Event, Store

log = logging.getLogger(__name__)

DUPLICATE_COPIES: Final = 3
"""How often a duplicated event is sent."""


class Outbox:
    """The events that are still to be delivered: stored, so that a restart loses none."""

    def __init__(self, config: SandboxConfig, store: Store, misbehaviour: Misbehaviour) -> None:
        self._config = config
        self._store = store
        self._misbehaviour = misbehaviour
        self._waiting: list[tuple[float, int, Event]] = []
        self._held: dict[int, Event] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._clients: set[httpx.AsyncClient] = set()
        self._free: list[httpx.AsyncClient] = []
        self._url: str | None = None
        self._signers: tuple[Webhook, ...] = ()
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Begins to deliver, with everything that an earlier process left undelivered."""
        stored = self._store.registered("webhook_secret")
        secret = self._config.webhook_secret or (SecretStr(stored) if stored else None)
        self.direct(self._config.webhook_url or self._store.registered("webhook_url"), secret)
        for event in self._store.undelivered():
            self._push(event)
        self._loop_task = asyncio.create_task(self._run(), name="webhooks")

    def direct(self, url: str | None, secret: SecretStr | None) -> None:
        """Sets where events go and what signs them. Without both, events are not made at all."""
        self._url = url if secret else None
        self._signers = tuple(Webhook(key) for key in webhook_keys(secret)) if secret else ()

    async def stop(self) -> None:
        if self._loop_task is not None:
            self._loop_task.cancel()
        tasks = [*self._sending, *([self._loop_task] if self._loop_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for http in self._clients:
            await http.aclose()

    def clear(self) -> None:
        """Forgets every waiting event and every count."""
        self._waiting.clear()
        self._held.clear()
        for task in self._sending:
            task.cancel()
        self.counts.clear()

    @property
    def waiting(self) -> int:
        """Events of which a delivery is still to come."""
        return len(self._waiting) + len(self._sending)

    def add(self, kind: str, video: dict[str, Any]) -> None:
        """Queues an event about a video, unless a switch makes it go missing."""
        faults = self._misbehaviour.faults
        if self._url is None or not faults.webhooks or self._misbehaviour.strikes("webhook_missing"):
            return
        due = now = time.time()
        late = self._misbehaviour.strikes("webhook_late")
        held = self._misbehaviour.strikes("webhook_reorder")
        if late:
            due = now + faults.webhook_late_s
        if held:
            due = max(due, now + faults.webhook_reorder_s)
        event = self._store.add_event(
            f"evt_{uuid.uuid4().hex}",
            kind,
            json.dumps(
                {"type": kind, "timestamp": datetime.fromtimestamp(now, UTC).isoformat(), "data": video},
                ensure_ascii=False,
                separators=(",", ":"),
            ),
            due=due,
            copies=DUPLICATE_COPIES if self._misbehaviour.strikes("webhook_duplicate") else 1,
        )
        if held and not late:
            self._held[event.seq] = event
        self._push(event)

    def _push(self, event: Event) -> None:
        heapq.heappush(self._waiting, (event.due, event.seq, event))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            now = time.time()
            while self._waiting and self._waiting[0][0] <= now and len(self._sending) < self._config.webhooks_at_once:
                _, _, event = heapq.heappop(self._waiting)
                task = asyncio.create_task(self._deliver(event), name=f"webhook {event.event_id}")
                self._sending.add(task)
                task.add_done_callback(self._sent)
            self._wake.clear()
            full = len(self._sending) >= self._config.webhooks_at_once
            wait = None if full or not self._waiting else max(0.0, self._waiting[0][0] - now)
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("webhook delivery failed in the sandbox itself", exc_info=error)

    async def _deliver(self, event: Event) -> None:
        # A receiver must never hear of a video that a kill could still undo.
        await self._store.durable()
        if self._misbehaviour.strikes("webhook_forged"):
            forged = event.body.replace('"data":{', '"data":{"forged":true,', 1)
            if await self._post(event, forged, signed=event.body):
                self.counts["forged_accepted"] += 1
        if await self._post(event, event.body, signed=event.body):
            self.counts["delivered"] += 1
            event.copies -= 1
            self._release(event)
        else:
            self.counts["failed_attempts"] += 1
            event.attempts += 1
            backoff = min(self._config.webhook_retry_max_s, self._config.webhook_retry_s * 2.0 ** (event.attempts - 1))
            event.due = time.time() + backoff * (0.5 + self._misbehaviour.stream("webhook_retry").random())
        self._store.save_event(event)
        if event.copies > 0:
            self._push(event)

    def _release(self, delivered: Event) -> None:
        """Lets the events go that were held back until a later one was delivered."""
        self._held.pop(delivered.seq, None)
        free = [seq for seq in self._held if seq < delivered.seq]
        if not free:
            return
        for seq in free:
            self._held.pop(seq).due = 0.0
        self._waiting = [(event.due, event.seq, event) for _, _, event in self._waiting]
        heapq.heapify(self._waiting)
        self._wake.set()

    async def _post(self, event: Event, body: str, *, signed: str) -> bool:
        """Sends one delivery; whether it was answered 2xx in time."""
        if self._url is None:
            return False
        now = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "longhaul-sandbox",
            "webhook-id": event.event_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signer.sign(event.event_id, now, signed) for signer in self._signers),
        }
        http = self._free.pop() if self._free else self._new_client()
        try:
            async with asyncio.timeout(self._config.webhook_timeout_s):
                answer = await http.post(self._url, content=body.encode(), headers=headers)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
            self._clients.discard(http)
            await http.aclose()
            return False
        self._free.append(http)
        return answer.is_success

    def _new_client(self) -> httpx.AsyncClient:
        """A client for one delivery at a time. Each has a single connection: httpx's own pool looks at every connection
        for every other one on each request, which costs more than the request."""
        http = client(None, 1)
        self._clients.add(http)
        return http
