"""Engines on the test's own database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest_asyncio
from ledger_rig import Library

from ledger.engine import Engine
from settings import LedgerSettings

OpenEngine = Callable[..., Awaitable[Engine]]


@pytest_asyncio.fixture
async def open_engine(database: str) -> AsyncIterator[OpenEngine]:
    """Opens engines of their own pools, as so many processes would have them."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(**settings: Any) -> Engine:
            engine = await Engine.open(LedgerSettings(dsn=database, **{"pool_size": 2, **settings}))
            stack.push_async_callback(engine.close)
            return engine

        yield opened


@pytest_asyncio.fixture
async def engine(open_engine: OpenEngine) -> Engine:
    return await open_engine(pool_size=4)


@pytest_asyncio.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection beside the engine's, for what somebody else does meanwhile."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def library(engine: Engine) -> Library:
    return Library(engine)
