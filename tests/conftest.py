"""What every test may ask for: a fresh database in a real PostgreSQL, a real Temporal server; no process stays."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import hypothesis
import psutil
import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from devstack.postgres import EmbeddedPostgres, ExistingPostgres
from devstack.temporal import TemporalDevServer
from ledger import schema
from workflows.attributes import NAMES as SEARCH_ATTRIBUTES

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script, where Ctrl-C is ignored: the programs under test must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The examples are the same in every run: what a change breaks is then its own doing. New ones: `make fuzz`.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.register_profile("search", derandomize=False)
hypothesis.settings.load_profile("same")

DSN_VARIABLE = "LONGHAUL_TEST_DSN"
SESSION_VARIABLE = "LONGHAUL_TEST_SESSION"
"""Inherited by every process that a test starts, however it detaches itself: by this the strays are found."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dsn",
        default=os.environ.get(DSN_VARIABLE),
        help="test against this PostgreSQL server instead of the embedded one; its role must be allowed to create "
        f"databases (default: ${DSN_VARIABLE})",
    )


@pytest.fixture(scope="session", autouse=True)
def _no_process_survives() -> Iterator[None]:
    """Set up first, so torn down last: whatever still runs then, a test has forgotten."""
    mark = secrets.token_hex(8)
    os.environ[SESSION_VARIABLE] = mark
    yield
    deadline = time.monotonic() + 20.0
    while strays := _strays(mark):
        if time.monotonic() > deadline:
            named = "\n".join(f"  {p.pid} {' '.join(p.cmdline())[:200]}" for p in strays if p.is_running())
            for stray in strays:
                stray.kill()
            pytest.fail(f"processes started by tests still run after the last one:\n{named}")
        time.sleep(0.05)


def _strays(mark: str) -> list[psutil.Process]:
    found = {p.pid: p for p in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(SESSION_VARIABLE) == mark:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue
    return [p for p in found.values() if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


# ---------------------------------------------------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres | ExistingPostgres]:
    """One server for the whole session. `.dsn(database)` names a database of it; most tests want `database`."""
    given = request.config.getoption("--dsn")
    if given:
        yield ExistingPostgres(given)
        return
    # Not pytest's own folder: only its owner can enter it, and as root the server runs as somebody else.
    server = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="longhaul-test-")), fast=True)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest_asyncio.fixture(scope="session")
async def _template(postgres: EmbeddedPostgres | ExistingPostgres) -> AsyncIterator[str]:
    """The name of a database that has the ledger's schema and nothing else."""
    name = f"longhaul_template_{secrets.token_hex(4)}"
    await _execute(postgres, f'CREATE DATABASE "{name}"')
    try:
        await schema.migrate(postgres.dsn(name))
        yield name
    finally:
        await _execute(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest_asyncio.fixture
async def database(postgres: EmbeddedPostgres | ExistingPostgres, _template: str) -> AsyncIterator[str]:
    """The DSN of a database of the test's own, with the ledger's schema and no rows."""
    name = f"longhaul_test_{secrets.token_hex(6)}"
    await _execute(postgres, f'CREATE DATABASE "{name}" TEMPLATE "{_template}"')
    try:
        yield postgres.dsn(name)
    finally:
        await _execute(postgres, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _execute(server: EmbeddedPostgres | ExistingPostgres, statement: str) -> None:
    connection = await asyncio.wait_for(asyncpg.connect(server.dsn("postgres")), 30)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


# ------------------------------------------------------------------------------------------------------------ Temporal


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalDevServer]:
    """One dev server in memory for the whole session, at `.address`; tests keep apart by workflow ids and task queues.

    A test that kills its server, or needs it to outlive a restart, starts a `TemporalDevServer` of its own.
    """
    log = tmp_path_factory.mktemp("temporal") / "temporal.log"
    with TemporalDevServer(search_attributes=SEARCH_ATTRIBUTES, log=log) as server:
        yield server


@pytest_asyncio.fixture
async def temporal_client(temporal: TemporalDevServer) -> Client:
    """A client as the programs make it, with the pydantic converter."""
    return await Client.connect(temporal.address, data_converter=pydantic_data_converter)


@pytest.fixture
def unique() -> str:
    """A short word that no other test has: for workflow ids, task queues and run names."""
    return f"t{secrets.token_hex(5)}"
