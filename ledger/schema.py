"""Which version the ledger's schema has, and how it gets to the one this code needs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import asyncpg

from faults import Fault

_LOCK: Final = 0x10A6_0001
"""Advisory lock number that lets one migrator at a time in; arbitrary, and ours alone in this database."""
_MIGRATIONS: Final = Path(__file__).parent / "migrations"


def newest() -> str:
    """The schema version that this code needs: the number that the newest migration's file begins with."""
    return max(path.name.partition("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))


async def migrate(dsn: str) -> str:
    """Brings the ledger at `dsn` to the newest schema and returns its version.

    Safe to run by several processes at once and on a ledger that is already there. Raises Fault("ledger-unreachable"),
    or Fault("settings-refused") for a server older than PostgreSQL 15.
    """
    # Imported here: a third of the time in which each program starts would be theirs.
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import Connection, text
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    def upgrade(connection: Connection) -> None:
        if connection.dialect.server_version_info < (15,):  # type: ignore[operator]  # a tuple on PostgreSQL
            raise Fault("settings-refused", "the ledger needs PostgreSQL 15 or newer; this server is older")
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        # Alembic would otherwise split the path at spaces and colons.
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    # Raw asyncpg connections, so that every form of DSN that the pool takes works here too.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda *_, **__: asyncpg.connect(dsn, timeout=5), poolclass=NullPool
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(upgrade)
    except (
        OSError,
        TimeoutError,
        asyncpg.PostgresConnectionError,
        asyncpg.CannotConnectNowError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ) as error:
        raise unreachable(dsn, error) from None
    finally:
        await engine.dispose()
    return newest()


async def current(connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) -> str | None:
    """The schema version that the ledger has, or None for an empty database."""
    if await connection.fetchval("select to_regclass('alembic_version')") is None:
        return None
    version: str | None = await connection.fetchval("select version_num from alembic_version")
    return version


async def check(connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) -> None:
    """Raises Fault("settings-refused") where the ledger's schema is older than this code needs.

    A newer one is accepted: schema changes only add, so that workers of the version before go on under them.
    """
    have, need = await current(connection), newest()
    if have is None or have < need:
        raise Fault(
            "settings-refused",
            f"the ledger's schema is {have or 'none'}, this code needs {need}: run `python -m ledger migrate`",
        )


def unreachable(dsn: str, error: Exception) -> Fault:
    """The fault for a ledger that cannot be connected to: names the address tried, never the password."""
    # What says that a DSN cannot be read quotes the part that it stumbled over, which may be the password's.
    seen = type(error).__name__ if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return Fault(
        "ledger-unreachable",
        f"PostgreSQL at {address(dsn)} cannot be reached ({seen}); start it, "
        "run `make up` for the embedded one, or set LONGHAUL_LEDGER__DSN (postgresql://user:password@host:port/name)",
    )


def address(dsn: str) -> str:
    """host:port/database of a DSN, without user and password."""
    scheme, separator, rest = dsn.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        return "an address that is no postgresql://…"
    return rest.rsplit("@", 1)[-1].split("?", 1)[0] or "its local socket"
