"""A small library in a real ledger, for tests that look at what a statement does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from destinations.base import RemoteEvent, RemoteState, RemoteVideo
from ledger import claims, listings, runs
from ledger.assets import VIDEO, ref_of
from ledger.claims import Outcome, Place, Window
from ledger.engine import Engine
from ledger.listings import Walker, Written
from sources.base import Item, ListedPage

TENANT, SOURCE, ACCOUNT = "acme", "library", "main"
PLAN = ("list", "inventory", "create", "settle", "reconcile")


async def until(condition: Callable[[], Awaitable[Any]], within: float = 20) -> Any:
    """Waits until the condition gives something true, and returns it."""
    async with asyncio.timeout(within):
        while not (value := await condition()):
            await asyncio.sleep(0.005)
        return value


async def somebody_waits_for_a_lock(engine: Engine) -> bool:
    return bool(
        await engine.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    )


def item(number: int, **more: Any) -> Item:
    values = {"source_id": f"v{number}", "locator": f"https://media.example/v{number}.mp4", "position": number, **more}
    return Item(**values)


def items(numbers: Sequence[int] | range) -> list[Item]:
    return [item(number) for number in numbers]


def ref(number: int) -> str:
    return ref_of(TENANT, SOURCE, VIDEO, f"v{number}")


def video(remote_id: str = "r1", state: RemoteState = RemoteState.READY, **more: Any) -> RemoteVideo:
    return RemoteVideo(remote_id=remote_id, state=state, **{"ref": None, **more})


def event(video: RemoteVideo | None, key: str = "e1") -> RemoteEvent:
    return RemoteEvent(key, video, "video.state")


async def begin(engine: Engine, run: str = "first", *, account: str = ACCOUNT, **more: Any) -> runs.Standing:
    values = {"tenant": TENANT, "source": SOURCE, "source_spec": {"kind": "manifest"}, "plan": PLAN, **more}
    return await runs.open_run(engine, run=run, account=account, **values)


async def walker(
    engine: Engine, run: str = "first", *, walk: int = 1, stripe: int = 0, account: str = ACCOUNT
) -> Walker:
    fence = await runs.open_phase(engine, run, "list", None)
    assert fence is not None
    return Walker(run, TENANT, SOURCE, account, walk, stripe, fence)


async def write(engine: Engine, by: Walker, sequence: int, listed: Sequence[Item], **more: Any) -> Written | None:
    return await listings.write_page(engine, by, sequence, ListedPage(list(listed), **{"next_cursor": "on", **more}))


@dataclass
class Library:
    """One run whose listing gave pages of `page_size` items, numbered from 0."""

    engine: Engine
    run: str = "first"
    refs: list[str] = field(default_factory=list)

    async def fill(self, count: int, *, page_size: int = 500, state: str = "pending", **columns: Any) -> Library:
        await begin(self.engine, self.run)
        by = await walker(self.engine, self.run)
        for page, start in enumerate(range(0, count, page_size)):
            assert await write(self.engine, by, page, items(range(start, min(count, start + page_size))))
        self.refs = [ref(number) for number in range(count)]
        await self.put(self.refs, state=state, **columns)
        return self

    async def put(self, refs: Sequence[str], **columns: Any) -> None:
        """Puts rows into a condition that only a longer story would bring them to."""
        names = list(columns)
        sets = ", ".join(f"{name} = ${n + 2}" for n, name in enumerate(names))
        await self.engine.execute(f"update asset set {sets} where ref = any($1)", list(refs), *columns.values())

    async def open(self, phase: str, page: int = 1) -> Place:
        fence = await runs.open_phase(self.engine, self.run, phase, None)
        assert fence is not None, f"{phase} is closed"
        return Place(self.run, phase, page, fence)

    async def claim(self, place: Place, limit: int = 25, **more: Any) -> Window | None:
        values = {"worker": "w", "key": "k", "lease_s": 60.0, **more}
        if place.phase == "create":
            values.setdefault("quiet_s", 0.0)
        return await claims.claim(self.engine, place, limit=limit, **values)

    async def claimed(self, place: Place, limit: int = 25, **more: Any) -> Window:
        window = await self.claim(place, limit, **more)
        assert window is not None, "there was something to claim"
        return window

    async def finish(self, window: Window, **values: Any) -> frozenset[str]:
        """The same outcome for each of the window's rows."""
        return await claims.finish(self.engine, window.fence, [Outcome(row.ref, **values) for row in window.rows])

    async def lapse(self, *refs: str) -> None:
        """Lets the lease of these rows' claims (default: of all) pass; the quiet time too."""
        await self.engine.execute(
            "update asset set claim_until = now() - interval '1 second', quiet_until = now() - interval '1 second'"
            " where claim is not null and ref = any($1)",
            list(refs or self.refs),
        )

    async def row(self, ref: str | None = None) -> asyncpg.Record:
        record = await self.engine.fetchrow("select * from asset where ref = $1", ref or self.refs[0])
        assert record is not None
        return record

    async def states(self) -> dict[str, int]:
        records = await self.engine.fetch("select state, count(*) as n from asset where run = $1 group by 1", self.run)
        return {record["state"]: record["n"] for record in records}

    async def steps(self, ref: str | None = None) -> list[asyncpg.Record]:
        return await self.engine.fetch("select * from step where ref = $1 order by fence", ref or self.refs[0])
