"""Engines on a ledger of the test's own, as so many processes would have them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from ledger.engine import Engine
from settings import LedgerSettings

OpenEngine = Callable[[], Awaitable[Engine]]


@pytest_asyncio.fixture
async def open_engine(database: str) -> AsyncIterator[OpenEngine]:
    async with contextlib.AsyncExitStack() as stack:

        async def opened() -> Engine:
            engine = await Engine.open(LedgerSettings(dsn=database, pool_size=2))
            stack.push_async_callback(engine.close)
            return engine

        yield opened


@pytest_asyncio.fixture
async def engine(open_engine: OpenEngine) -> Engine:
    return await open_engine()
