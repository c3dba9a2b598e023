"""Look-ups at a host without a filter: together on one walk of its list, and none on a walk that may have missed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from faults import Fault
from tests.destinations.hosts.mux import MuxServer
from tests.sandbox.serving import until

VIDEOS = 20


@pytest_asyncio.fixture
async def server() -> AsyncIterator[MuxServer]:
    async with MuxServer().serving() as running:
        assert isinstance(running, MuxServer)
        running.page_max = 2
        for n in range(VIDEOS):
            running.add(f"ref-{n}")
        yield running


@pytest_asyncio.fixture
async def host(server: MuxServer) -> AsyncIterator[Any]:
    opened = server.open()
    yield opened
    await opened.aclose()


def refs(found: Any) -> list[str | None]:
    return [video.ref for video in found]


async def test_those_who_look_at_the_same_time_go_on_one_walk(server: MuxServer, host: Any) -> None:
    found = await asyncio.gather(*(host.lookup(f"ref-{n}") for n in range(VIDEOS)), host.lookup("none"))
    assert [refs(one) for one in found] == [*([f"ref-{n}"] for n in range(VIDEOS)), []]
    assert len(server.seen) == VIDEOS // 2


async def test_who_comes_during_a_walk_goes_on_the_next_one_and_finds_what_was_made_meanwhile(
    server: MuxServer, host: Any
) -> None:
    first = asyncio.create_task(host.lookup("ref-0"))
    late = []
    await until(lambda: len(server.seen) >= 2)
    server.add("new")
    for page, ref in ((3, "new"), (4, "ref-3"), (5, "ref-4")):
        await until(lambda page=page: len(server.seen) >= page)
        late.append(asyncio.create_task(host.lookup(ref)))
    assert refs(await first) == ["ref-0"]
    assert [refs(await one) for one in late] == [["new"], ["ref-3"], ["ref-4"]]
    assert len(server.seen) <= VIDEOS + 2, "two walks"


async def test_each_page_but_the_first_has_its_turn(server: MuxServer, host: Any) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    await host.lookup("ref-0", turn=turn)
    assert turns == len(server.seen) - 1 == VIDEOS // 2 - 1


async def test_who_gives_up_does_not_disturb_the_others(server: MuxServer, host: Any) -> None:
    one, other = (asyncio.create_task(host.lookup(ref)) for ref in ("ref-1", "ref-2"))
    await until(lambda: server.seen)
    one.cancel()
    assert refs(await other) == ["ref-2"]
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_a_walk_that_nobody_waits_for_ends_and_the_next_look_up_works(server: MuxServer, host: Any) -> None:
    gate = asyncio.Event()
    lost = asyncio.create_task(host.lookup("ref-1", turn=gate.wait))
    await until(lambda: server.seen)
    lost.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lost
    assert refs(await host.lookup("ref-2")) == ["ref-2"]
    assert len(server.seen) == 1 + VIDEOS // 2


async def test_a_fault_reaches_all_who_are_on_the_walk_and_not_the_next(server: MuxServer, host: Any) -> None:
    server.next(server.error(503))
    faults = await asyncio.gather(host.lookup("ref-1"), host.lookup("ref-2"), return_exceptions=True)
    assert all(isinstance(fault, Fault) and fault.code == "destination-busy" for fault in faults)
    assert refs(await host.lookup("ref-1")) == ["ref-1"]


async def test_closing_ends_every_walk(server: MuxServer) -> None:
    opened = server.open()
    never = asyncio.Event()
    lost = [asyncio.create_task(opened.lookup("ref-1", turn=never.wait)) for _ in range(2)]
    await until(lambda: server.seen)
    lost.append(asyncio.create_task(opened.lookup("ref-3")))
    await asyncio.sleep(0)
    await opened.aclose()
    ended = await asyncio.gather(*lost, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
