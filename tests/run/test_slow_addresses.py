"""A source that takes its time over a fresh address: the destination is called as evenly as ever."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from governor.account import Governor
from governor.budget import LEAD_S
from ledger.budgets import Lease
from settings import Operation

VIDEOS = 5


class Slow:
    """A listing host that gives each video's address one by one, and holds back the first one that a create asks for
    until it is let go."""

    def __init__(self) -> None:
        self.files = ""
        self.videos = VIDEOS
        self.asked: Counter[str] = Counter()
        self.held: str | None = None
        self.let_go = asyncio.Event()
        self.takes_s = 0.0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/videos", self.listing), Route("/videos/{id}", self.item)])

    async def listing(self, request: Request) -> Response:
        at = int(request.query_params.get("offset", 0))
        return JSONResponse([{"id": f"v{n}"} for n in range(self.videos)][at:])

    async def item(self, request: Request) -> Response:
        name = request.path_params["id"]
        self.asked[name] += 1
        await asyncio.sleep(self.takes_s)
        if self.asked[name] > 1:  # the first time is the inventory's
            self.held = self.held or name
        if self.held == name:
            await self.let_go.wait()
        return JSONResponse({"url": f"{self.files}/good.mp4?n={name}"})


@pytest_asyncio.fixture
async def slow() -> AsyncIterator[tuple[Slow, str]]:
    host = Slow()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(host.app(), log_config=None, lifespan="off"))
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign, attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield host, f"http://127.0.0.1:{listener.getsockname()[1]}"
    host.let_go.set()
    server.should_exit = True
    await task


async def _rig(rig_factory: Any, host: Slow, base: str, per_s: float = 20, quiet_s: float = 30) -> Any:
    options = {"path": "/videos", "style": "offset", "address": "item", "item_path": "/videos/{id}", "item_url": "url"}
    rig = await rig_factory(
        sources={"host": {"kind": "generic", "base_url": base, "options": options}},
        account={
            "limits": [{"requests": 20, "per_s": per_s, "operations": ["create"]}],
            "timeout_s": 5.0,
            "quiet_s": quiet_s,
        },
    )
    host.files = rig.files
    return rig


async def test_a_call_whose_address_came_after_its_start_takes_a_start_of_its_own(
    rig_factory: Any, unique: str, slow: tuple[Slow, str]
) -> None:
    """Made at once, it would come together with the call of another row."""
    host, base = slow
    rig = await _rig(rig_factory, host, base)
    handle = await rig.start(unique, rig.folder, source={"kind": "generic", "name": "host"})
    await rig.until(lambda: rig.sandbox.stats()["creates"] >= VIDEOS - 2, "others are made")
    assert host.held is not None
    host.let_go.set()
    result = await asyncio.wait_for(handle.result(), 90)
    assert result["states"] == {"verified": VIDEOS}
    order = await rig.engine.fetch("select source_id from asset order by processing_at")
    assert order[-1]["source_id"] == host.held, "its start is after those that were leased before"


async def test_a_source_that_always_takes_longer_than_rows_are_prepared_ahead_costs_no_starts(
    rig_factory: Any, unique: str, slow: tuple[Slow, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, base = slow
    host.let_go.set()
    host.takes_s, host.videos = LEAD_S + 1, 20
    again: list[Any] = []
    leased = Governor.lease

    async def noted(self: Governor, requests: int, operation: Operation = "create", **more: Any) -> Lease:
        lease = await leased(self, requests, operation, **more)
        if operation == "create" and not more["lead_s"]:
            again.append(lease)
        return lease

    monkeypatch.setattr(Governor, "lease", noted)
    rig = await _rig(rig_factory, host, base, per_s=4)
    result = await rig.migrate(unique, rig.folder, source={"kind": "generic", "name": "host"})
    assert result["states"] == {"verified": 20}
    assert len(again) < 10, "starts of their own: for those alone that were still later than the rest"


async def test_a_source_that_is_too_slow_for_the_quiet_time_is_no_endless_round(
    rig_factory: Any, unique: str, slow: tuple[Slow, str]
) -> None:
    host, base = slow
    host.let_go.set()
    host.takes_s, host.videos = LEAD_S + 1.5, 1
    rig = await _rig(rig_factory, host, base, quiet_s=7)
    handle = await rig.start(unique, rig.folder, source={"kind": "generic", "name": "host"})
    ended = "select outcome, detail from step where phase = 'create' and reason = 'source-timeout'"
    step = await rig.until(lambda: rig.engine.fetchrow(ended), "the row was charged an attempt")
    assert step["outcome"] == "again"
    assert "accounts.sandbox.quiet_s" in step["detail"]
    await handle.cancel()
