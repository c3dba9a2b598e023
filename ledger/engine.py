"""The connection to PostgreSQL: a pool, whole statements retried on engine errors, and text made fit to be stored.

An engine error (serialization failure, deadlock, time-out, lost connection) is nobody's attempt: the statement or
transaction is rolled back and run again here, and only what stays down is raised, as Fault("ledger-unreachable") or
Fault("ledger-conflict"). No connection is held between calls.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

import asyncpg

import faults
from faults import Fault
from ledger import schema
from settings import LedgerSettings

T = TypeVar("T")
Connection = asyncpg.pool.PoolConnectionProxy

_CONFLICT_TRIES: Final = 8
_DOWN_TRIES: Final = 6
"""Together about 6 seconds; after that Temporal's retry of the activity takes over."""


_ENGINE_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class Engine:
    """A pool of connections to one ledger. Made by `Engine.open`, closed by `close`."""

    def __init__(self, pool: asyncpg.Pool, dsn: str) -> None:
        self._pool = pool
        self._dsn = dsn
        self.statements = 0
        """Statements sent, for the benchmark and the metrics."""

    @classmethod
    async def open(cls, settings: LedgerSettings, *, name: str = "longhaul", check_schema: bool = True) -> Self:
        """Connects, and checks that the schema is new enough.

        Raises Fault("ledger-unreachable") within seconds where nothing answers, naming the address tried, and
        Fault("settings-refused") for a wrong schema version.
        """
        dsn = settings.dsn.get_secret_value()
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=settings.pool_size,
                timeout=5,
                command_timeout=settings.statement_timeout_ms / 1000 + 5,
                init=_prepare_connection,
                reset=_no_reset,
                server_settings={
                    "application_name": name,
                    "statement_timeout": str(settings.statement_timeout_ms),
                    "lock_timeout": str(settings.lock_timeout_ms),
                    "timezone": "UTC",
                },
            )
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            raise schema.unreachable(dsn, error) from None
        engine = cls(pool, dsn)
        if check_schema:
            try:
                async with pool.acquire() as connection:
                    await schema.check(connection)
            except BaseException:
                await engine.close()
                raise
        return engine

    async def close(self) -> None:
        """Closes the pool; connections that don't end in two seconds are cut."""
        try:
            await asyncio.wait_for(self._pool.close(), timeout=2)
        except TimeoutError:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        return await self.run(lambda connection: self._count(connection.fetch(sql, *args)))

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        return await self.run(lambda connection: self._count(connection.fetchrow(sql, *args)))

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return await self.run(lambda connection: self._count(connection.fetchval(sql, *args)))

    async def execute(self, sql: str, *args: Any) -> str:
        return await self.run(lambda connection: self._count(connection.execute(sql, *args)))

    async def transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs `work` in one transaction, again from its start after an engine error: it must have no effect beside the
        statements that it sends on the connection it is given."""

        async def whole(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self.run(whole)

    @asynccontextmanager
    async def listening(self, channel: str, heard: Callable[[str], None]) -> AsyncIterator[asyncio.Event]:
        """Calls `heard` with each notification's payload while the block runs, on a connection beside the pool. The
        event is set when that is lost. Raises Fault("ledger-unreachable") where none can be had."""
        lost = asyncio.Event()
        try:
            connection = await asyncpg.connect(
                self._dsn, timeout=5, server_settings={"application_name": "longhaul-listener"}
            )
        except _ENGINE_ERRORS as error:
            raise schema.unreachable(self._dsn, error) from error
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(channel, lambda _c, _pid, _channel, payload: heard(str(payload)))
            yield lost
        finally:
            connection.terminate()

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs `work` on a connection, again after an engine error.

        Raises Fault("ledger-conflict" | "ledger-unreachable") where the engine stays in the way, and asyncpg's own
        error where the statement or its data is at fault.
        """
        conflicts = downs = 0
        while True:
            try:
                async with self._pool.acquire(timeout=10) as connection:
                    try:
                        return await work(connection)
                    except asyncpg.InternalClientError:
                        # The driver's word for a connection that the server was just ending while we took it.
                        connection.terminate()
                        raise
            except _ENGINE_ERRORS as error:
                code = _classify(error)
                if code is None:
                    raise
                if code == "ledger-conflict":
                    conflicts += 1
                    if conflicts >= _CONFLICT_TRIES:
                        raise Fault(code, f"{type(error).__name__}: {error}") from error
                    wait = 0.02 * 2.0**conflicts
                else:
                    downs += 1
                    if downs >= _DOWN_TRIES:
                        raise schema.unreachable(self._dsn, error) from error
                    wait = 0.1 * 2.0**downs
                # Full jitter, so that workers that collided don't collide again.
                await asyncio.sleep(wait * random.random())  # noqa: S311  # no secret hangs on it

    async def _count(self, statement: Awaitable[T]) -> T:
        self.statements += 1
        return await statement


def _classify(error: BaseException) -> str | None:
    if isinstance(error, asyncpg.PostgresError):
        code = faults.of_sqlstate(error.sqlstate)
        if code is None and (error.sqlstate or "").startswith(("53", "58")):
            return "ledger-unreachable"  # disk full, out of memory, I/O errors: the server's trouble, not the data's
        return code
    if isinstance(error, asyncpg.InterfaceError):
        # A connection that died under us. A mistake in our own arguments (DataError) is an InterfaceError too.
        return None if isinstance(error, (asyncpg.DataError, ValueError)) else "ledger-unreachable"
    return "ledger-unreachable"  # OSError, TimeoutError, InternalClientError


async def _no_reset(connection: asyncpg.Connection) -> None:
    """Nothing of ours leaves state on a connection, so the four statements that the pool would send to clear it after
    each use are saved."""


async def _prepare_connection(connection: asyncpg.Connection) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=_dump, decoder=json.loads, format="text")


def _dump(value: Any) -> str:
    return json.dumps(clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


DEPTH: Final = 100
"""Lists and objects in one another that are kept: each costs two frames here and a piece of the server's stack."""


def clean(value: Any, limit: int = 20_000, depth: int = DEPTH) -> Any:
    """`value` as PostgreSQL can store it: NUL characters become U+FFFD, lone surrogates "?", NaN and infinities None;
    texts over `limit` characters keep head and tail; what is nested deeper than `depth` is left out."""
    match value:
        case dict() | list() | tuple() if depth == 0:
            return None
        case str():
            if "\0" in value:
                value = value.replace("\0", "\ufffd")
            if not value.isascii():
                value = value.encode("utf-8", "replace" if _has_surrogate(value) else "strict").decode("utf-8")
            return faults.truncate(value, limit)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {clean(str(key)): clean(item, limit, depth - 1) for key, item in value.items()}
        case list() | tuple():
            return [clean(item, limit, depth - 1) for item in value]
        case _:
            return value


def fit(number: int | None, bits: int = 63) -> int | None:
    """`number` if it fits a column of so many bits besides its sign; one that doesn't is as good as unknown."""
    return number if number is not None and -(2**bits) <= number < 2**bits else None


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
