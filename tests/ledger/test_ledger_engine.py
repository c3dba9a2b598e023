"""The engine: what goes wrong between us and PostgreSQL is run again, and is nobody's attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from ledger_rig import Library, somebody_waits_for_a_lock, until

from faults import Fault
from ledger import claims
from ledger import engine as engine_module
from ledger.claims import Outcome
from ledger.engine import Connection, Engine
from settings import LedgerSettings


async def test_a_serialization_failure_is_run_again_from_its_start(library: Library, connection) -> None:
    await library.fill(1)
    tries = 0

    async def work(inside: Connection) -> int:
        nonlocal tries
        tries += 1
        await inside.execute("set transaction isolation level repeatable read")
        seen = await inside.fetchval("select page from asset")
        if tries == 1:
            await connection.execute("update asset set page = 10")
        await inside.execute("update asset set page = $1", seen + 1)
        return seen

    assert await library.engine.transaction(work) == 10
    assert tries == 2
    assert (await library.row())["page"] == 11


async def test_the_victim_of_a_deadlock_is_run_again_from_its_start(library: Library, connection) -> None:
    await library.fill(2)
    first, second = library.refs
    add = "update asset set page = page + 1 where ref = $1"
    tries = 0
    theirs = connection.transaction()
    await theirs.start()
    await connection.execute(add, first)
    waiting: asyncio.Task[Any] | None = None

    async def work(inside: Connection) -> None:
        nonlocal tries, waiting
        tries += 1
        await inside.execute("set local deadlock_timeout = '10ms'")  # ours looks first, so ours is the victim
        await inside.execute(add, second)
        if waiting is None:
            waiting = asyncio.create_task(connection.execute(add, second))
            await until(lambda: somebody_waits_for_a_lock(library.engine))
        await inside.execute(add, first)

    ours = asyncio.create_task(library.engine.transaction(work))
    await until(lambda: _done(lambda: waiting))
    assert waiting is not None
    await waiting
    await theirs.commit()
    await ours
    assert tries >= 2
    assert [(await library.row(ref))["page"] for ref in library.refs] == [3, 3], "each added once"


async def _done(task: Any) -> bool:
    return task() is not None


async def test_a_lock_that_is_held_for_too_long_costs_a_wait_and_no_attempt(
    library: Library, connection, open_engine
) -> None:
    await library.fill(2)
    place = await library.open("inventory")
    window = await library.claimed(place)
    impatient = await open_engine(lock_timeout_ms=50)
    held = connection.transaction()
    await held.start()
    await connection.execute("select from asset where ref = $1 for update", library.refs[0])
    outcomes = [Outcome(row.ref, "inventoried", "inventoried") for row in window.rows]
    finishing = asyncio.create_task(claims.finish(impatient, window.fence, outcomes))

    async def sent_again() -> bool:
        return impatient.statements >= 3

    await until(sent_again)
    assert not finishing.done()
    await held.commit()
    assert await finishing == set(library.refs)
    assert [(step["attempt"], step["outcome"]) for step in await library.steps()] == [(1, "inventoried")]


async def test_a_lock_that_is_never_given_ends_as_an_engine_error(library: Library, connection, open_engine) -> None:
    await library.fill(1)
    impatient = await open_engine(lock_timeout_ms=50)
    held = connection.transaction()
    await held.start()
    await connection.execute("select from asset for update")
    with pytest.raises(Fault) as fault:
        await impatient.execute("update asset set page = 3")
    assert fault.value.code == "ledger-conflict"
    assert impatient.statements == engine_module._CONFLICT_TRIES
    await held.rollback()


async def test_a_statement_that_takes_too_long_is_cancelled_and_sent_again(open_engine) -> None:
    engine = await open_engine(statement_timeout_ms=100)
    await engine.execute("create sequence tries")
    # The first try sleeps; a sequence is not rolled back with it.
    assert (
        await engine.fetchval("select case when nextval('tries') = 1 then pg_sleep(60)::text else 'done' end") == "done"
    )
    assert engine.statements == 3
    await engine.execute("drop sequence tries")


async def test_a_connection_that_is_cut_in_the_middle_is_replaced_and_the_work_done_once(
    library: Library, connection
) -> None:
    await library.fill(1)
    tries = 0

    async def work(inside: Connection) -> int:
        nonlocal tries
        tries += 1
        await inside.execute("update asset set page = page + 1")
        if tries == 1:
            pid = await inside.fetchval("select pg_backend_pid()")
            await connection.execute("select pg_terminate_backend($1)", pid)
        return int(await inside.fetchval("select page from asset"))

    assert await library.engine.transaction(work) == 2
    assert tries == 2
    assert (await library.row())["page"] == 2


async def test_connections_that_were_all_cut_while_idle_are_replaced(engine: Engine, connection) -> None:
    await asyncio.gather(*(engine.fetchval("select pg_sleep(0.05)") for _ in range(4)))
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    assert await asyncio.gather(*(engine.fetchval("select 1") for _ in range(8))) == [1] * 8


async def test_a_mistake_in_a_statement_or_its_data_is_not_repeated(engine: Engine) -> None:
    for mistake, error in [
        (("select 1 / 0",), asyncpg.DivisionByZeroError),
        (("select nothing",), asyncpg.UndefinedColumnError),
        (("select $1::int", 2**40), asyncpg.DataError),
    ]:
        before = engine.statements
        with pytest.raises(error):
            await engine.fetch(*mistake)
        assert engine.statements == before + 1


async def test_a_full_disk_is_the_servers_trouble(engine: Engine, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "_DOWN_TRIES", 2)
    with pytest.raises(Fault) as fault:
        await engine.execute("do $$ begin raise exception 'no space left' using errcode = '53100'; end $$")
    assert fault.value.code == "ledger-unreachable"
    assert engine.statements == 2


async def test_more_work_than_connections_is_done_in_turn(library: Library, open_engine) -> None:
    await library.fill(60)
    place = await library.open("inventory")
    narrow = await open_engine(pool_size=1)

    async def one(number: int) -> int:
        window = await claims.claim(narrow, place, worker=f"w{number}", key="k", limit=3, lease_s=60)
        assert window is not None
        return len(
            await claims.finish(
                narrow, window.fence, [Outcome(row.ref, "inventoried", "inventoried") for row in window.rows]
            )
        )

    assert sum(await asyncio.gather(*(one(number) for number in range(20)))) == 60
    assert await library.states() == {"inventoried": 60}


async def test_a_cancelled_statement_leaves_a_usable_pool_and_no_open_transaction(
    library: Library, open_engine
) -> None:
    await library.fill(1)
    narrow = await open_engine(pool_size=1)
    inside = asyncio.Event()

    async def work(connection: Connection) -> None:
        await connection.execute("update asset set page = 77")
        inside.set()
        await connection.execute("select pg_sleep(60)")

    task = asyncio.create_task(narrow.transaction(work))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await narrow.fetchval("select page from asset") == 1


async def test_a_server_that_is_not_there_is_named_within_seconds_and_its_password_is_not() -> None:
    with pytest.raises(Fault) as fault:
        async with asyncio.timeout(60):
            await Engine.open(LedgerSettings(dsn="postgresql://someone:s3cret@127.0.0.1:9/library?application_name=x"))
    assert fault.value.code == "ledger-unreachable"
    assert "127.0.0.1:9/library" in str(fault.value)
    assert "LONGHAUL_LEDGER__DSN" in str(fault.value)
    assert "s3cret" not in str(fault.value)
    assert "someone" not in str(fault.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://someone:s3cret@127.0.0.1:port/library",
        "postgresql://someone:s3cret/more@127.0.0.1:9/library",
        "mysql://someone:s3cret@127.0.0.1:9/library",
        "host=127.0.0.1 password=s3cret",
    ],
)
async def test_a_dsn_that_cannot_be_read_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises(Fault) as fault:
        await Engine.open(LedgerSettings(dsn=dsn))
    assert fault.value.code == "ledger-unreachable"
    assert "s3cret" not in str(fault.value)


async def test_a_wrong_password_is_said_and_not_shown(database: str) -> None:
    head, tail = database.split("@", 1)
    user = head.split("://", 1)[1].split(":", 1)[0]
    with pytest.raises(Fault) as fault:
        await Engine.open(LedgerSettings(dsn=f"postgresql://{user}:n0t-it@{tail}"))
    assert fault.value.code == "ledger-unreachable"
    assert "n0t-it" not in str(fault.value)


async def test_a_closed_engine_says_that_the_ledger_is_away(open_engine, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "_DOWN_TRIES", 2)
    engine = await open_engine()
    await engine.close()
    with pytest.raises(Fault, match="ledger-unreachable"):
        await engine.fetchval("select 1")
