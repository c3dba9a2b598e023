"""Engines on a ledger that is empty at the start of each test."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest_asyncio
from ledger_rig import Library

from ledger import schema
from ledger.engine import Engine
from settings import LedgerSettings

OpenEngine = Callable[..., Awaitable[Engine]]


TABLES = (
    "step", "inbox", "remote", "remote_listing", "budget", "account", "share", "spare", "problem", "listing", "phase",
    "asset", "run",
)  # fmt: skip


@pytest_asyncio.fixture(scope="session")
async def _ledger(postgres: Any, _template: str) -> AsyncIterator[str]:
    """One database for all of these many small tests: to empty it takes a tenth of the time that a new one takes."""
    name = f"longhaul_ledger_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    try:
        await admin.execute(f'create database "{name}" template "{_template}"')
        yield postgres.dsn(name)
        await admin.execute(f'drop database "{name}" with (force)')
    finally:
        await admin.close()


@pytest_asyncio.fixture
async def database(_ledger: str) -> AsyncIterator[str]:
    connection = await asyncpg.connect(_ledger)
    try:
        await connection.execute("; ".join(f"delete from {table}" for table in TABLES))
        left = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
        assert {row["tablename"] for row in left} == {*TABLES, "alembic_version"}
        await connection.execute(f"update alembic_version set version_num = '{schema.newest()}'")
    finally:
        await connection.close()
    yield _ledger


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
