"""The schema: anyone may bring it up at any time, and code that needs more than it has says so."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from ledger_rig import Library
from typer.testing import CliRunner

from faults import Fault
from ledger import __main__ as commands
from ledger import schema
from ledger.engine import Engine
from settings import LedgerSettings


@pytest_asyncio.fixture
async def empty(postgres) -> AsyncIterator[str]:
    """The DSN of a database with nothing in it."""
    name = f"longhaul_empty_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    try:
        await admin.execute(f'create database "{name}"')
        yield postgres.dsn(name)
        await admin.execute(f'drop database "{name}" with (force)')
    finally:
        await admin.close()


async def test_four_that_migrate_at_once_all_succeed(empty: str) -> None:
    assert await asyncio.gather(*(schema.migrate(empty) for _ in range(4))) == [schema.newest()] * 4
    connection = await asyncpg.connect(empty)
    try:
        assert await schema.current(connection) == schema.newest()
        await schema.check(connection)
    finally:
        await connection.close()


async def test_a_ledger_that_is_there_is_left_as_it_is(library: Library, database: str) -> None:
    await library.fill(2)
    assert await schema.migrate(database) == schema.newest()
    assert await library.states() == {"pending": 2}


async def test_an_empty_database_is_refused_with_what_to_run(empty: str) -> None:
    with pytest.raises(Fault, match="python -m ledger migrate") as fault:
        await Engine.open(LedgerSettings(dsn=empty))
    assert fault.value.code == "settings-refused"
    assert "none" in fault.value.detail


async def test_an_older_schema_is_refused_and_a_newer_one_is_not(database: str, connection) -> None:
    await connection.execute("update alembic_version set version_num = '0000'")
    with pytest.raises(Fault, match="python -m ledger migrate"):
        await Engine.open(LedgerSettings(dsn=database))
    await connection.execute("update alembic_version set version_num = '9999'")
    await (await Engine.open(LedgerSettings(dsn=database))).close()


async def test_a_server_that_is_not_there_is_named_by_the_migration_too() -> None:
    with pytest.raises(Fault) as fault:
        await schema.migrate("postgresql://someone:s3cret@127.0.0.1:9/library")
    assert fault.value.code == "ledger-unreachable"
    assert "127.0.0.1:9/library" in str(fault.value)
    assert "s3cret" not in str(fault.value)


async def test_the_command_line_migrates_and_tells_versions(empty: str) -> None:
    run = CliRunner().invoke
    told = await asyncio.to_thread(run, commands.app, ["version", "--dsn", empty])
    assert (told.exit_code, told.output) == (0, f"ledger: none, code: {schema.newest()}\n")
    for _ in range(2):
        done = await asyncio.to_thread(run, commands.app, ["migrate", "--dsn", empty])
        assert (done.exit_code, done.output) == (0, f"ledger schema at version {schema.newest()}\n")
    told = await asyncio.to_thread(run, commands.app, ["version", "--dsn", empty])
    assert told.output == f"ledger: {schema.newest()}, code: {schema.newest()}\n"
