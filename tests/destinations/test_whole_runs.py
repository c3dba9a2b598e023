"""A whole migration to each host: through Temporal, the ledger and the endpoint, with answers that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.responses import Response

from tests.destinations.hosts import ROWS
from tests.destinations.hosts.base import HostServer
from tests.run.conftest import media, rig_factory  # noqa: F401 - fixtures

SECONDS = 2.0
"""Of the film that the inventory finds."""


@pytest_asyncio.fixture(params=ROWS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HostServer]:
    async with ROWS[request.param]().serving() as running:
        yield running


@contextlib.asynccontextmanager
async def working(server: HostServer, hook: str, seconds: float = SECONDS) -> AsyncIterator[None]:
    """The host makes what it has ready, of this length, and says so to the endpoint as it does."""
    told: set[str] = set()

    async def work() -> None:
        async with httpx.AsyncClient() as sender:
            while True:
                for video in [v for v in server.listed() if v.state == "processing" and v.id not in told]:
                    told.add(video.id)
                    video.duration_s = seconds
                    server.settle(video.id, "ready")
                    if (body := server.event(video, "ready")) is not None:
                        await sender.post(hook, content=body, headers=server.sign(body, server.secret, time.time()))
                await asyncio.sleep(0.02)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def account_at(server: HostServer) -> dict[str, Any]:
    """The row's account, at a pace that no test waits for, and asked soon where no event comes."""
    given = server.account().model_dump(exclude_unset=True)
    fast = {"limits": [{"requests": 1000, "per_s": 1}], "settle_deadline_s": 2.0}
    return {**given, **fast, "token": server.token, "webhook_secrets": [server.secret]}


async def test_every_video_arrives_once_although_answers_are_lost(
    server: HostServer,
    rig_factory: Any,  # noqa: F811
    unique: str,
) -> None:
    rig = await rig_factory(account=account_at(server))
    server.page_max = 7
    server.next("lost", "empty", "error-after")
    async with working(server, f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"):
        result = await rig.migrate(unique, rig.manifest(rig.videos(20)))
    assert result["states"] == {"verified": 20}
    refs = [video.ref for video in server.listed()]
    assert len(refs) == len(set(refs)) == 20


async def test_two_runs_at_one_account_are_held_against_its_list_side_by_side(
    rig_factory: Any,  # noqa: F811
    unique: str,
) -> None:
    """At a host whose list tells no states, so that each run asks for its own videos alone. All walk at once: the first
    page comes when all have asked for it."""
    together = asyncio.Barrier(3)

    class Held(ROWS["apivideo"]):  # type: ignore[misc]
        async def list(self, request: Request) -> Response:
            if request.query_params.get("currentPage", "1") == "1":
                async with asyncio.timeout(60):
                    await together.wait()
            answer: Response = await super().list(request)
            return answer

    async with Held().serving() as server:
        rig = await rig_factory(account=account_at(server))
        server.page_max = 4
        async with working(server, f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"):
            handles = [
                await rig.start(f"{unique}-{n}", rig.manifest(rig.videos(10, f"r{n}-"), f"{n}.csv"), tenant=f"t{n}")
                for n in range(3)
            ]
            for handle in handles:
                assert (await asyncio.wait_for(handle.result(), 90))["states"] == {"verified": 10}


async def test_local_files_are_sent_and_verified(
    server: HostServer,
    rig_factory: Any,  # noqa: F811
    media: Path,  # noqa: F811
    unique: str,
) -> None:
    rig = await rig_factory(account=account_at(server))
    async with working(server, f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"):
        result = await rig.migrate(unique, rig.manifest([(f"v{n}", str(media / "good.mp4")) for n in range(3)]))
    assert result["states"] == {"verified": 3}
    assert [video.content for video in server.listed()] == [(media / "good.mp4").read_bytes()] * 3


async def test_a_film_of_another_length_at_the_host_is_a_mismatch(
    server: HostServer,
    rig_factory: Any,  # noqa: F811
    unique: str,
) -> None:
    rig = await rig_factory(account=account_at(server))
    hook = f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"
    async with working(server, hook, seconds=30.0):
        result = await rig.migrate(unique, rig.manifest(rig.videos(3)))
    assert result["states"] == {"mismatched": 3}
    assert result["reasons"] == {"mismatched": {"duration-differs": 3}}


async def test_without_declared_limits_the_hosts_documented_pace_is_kept(
    rig_factory: Any,  # noqa: F811
    unique: str,
) -> None:
    async with ROWS["mux"]().serving() as server:
        rig = await rig_factory(account={**account_at(server), "limits": []})
        async with working(server, f"http://127.0.0.1:{rig.settings.endpoint.port}/webhooks/sandbox"):
            result = await rig.migrate(unique, rig.manifest(rig.videos(6)))
        assert result["states"] == {"verified": 6}
        made = [seen.at_s for seen in server.seen if seen.method == "POST"]
    assert len(made) == 6
    # One POST a second, of which nine tenths are spent. No start is before the phase, and no call before its start;
    # how late a call may come is not said here, so that a slow machine proves nothing.
    opened = await rig.engine.fetchval("select opened_at from phase where phase = 'create'")
    assert made[-1] - opened.timestamp() >= 5 * 1.1
