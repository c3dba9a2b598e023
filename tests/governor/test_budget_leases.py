"""Budgets: every worker's requests start in one evenly spaced row, whoever asks, whatever their clocks say."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest
import pytest_asyncio

from faults import Fault
from governor.account import Governor
from ledger import budgets
from ledger.budgets import Limit, Spent
from ledger.engine import Engine
from settings import AccountSettings, LedgerSettings

ACCOUNT = "main"
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


def near(seconds: list[float]) -> object:
    """Slots lie on the database's clock, which runs on between two leases."""
    return pytest.approx(seconds, abs=0.5)


async def test_eight_workers_leases_lie_in_one_evenly_spaced_row(open_engine: OpenEngine) -> None:
    engines = [await open_engine() for _ in range(8)]
    interval = 10.0
    await budgets.declare(engines[0], ACCOUNT, [Limit("window", interval)])
    slots: list[float] = []

    async def worker(engine: Engine, requests: int) -> None:
        for _ in range(5):
            lease = await budgets.lease(engine, ACCOUNT, requests)
            now = time.monotonic()
            assert len(lease.starts) == requests
            slots.extend(now + start for start in lease.starts)

    await asyncio.gather(*(worker(engine, number + 1) for number, engine in enumerate(engines)))
    slots.sort()
    count = 5 * sum(range(1, 9))
    assert len(slots) == count
    for earlier, later in pairwise(slots):
        assert later - earlier == pytest.approx(interval, abs=0.5)
    assert slots[-1] - slots[0] == pytest.approx((count - 1) * interval, abs=0.5)
    assert await budgets.spent(engines[0], ACCOUNT) == Spent(requests=count, pauses=0)


async def test_an_account_that_stood_idle_has_saved_nothing_up(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10)])
    await engine.execute("update budget set free_at = now() - interval '1 hour'")
    assert (await budgets.lease(engine, ACCOUNT, 3)).starts == near([0, 10, 20])


async def test_a_burst_starts_at_once_and_the_rest_in_turn(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10, burst=3)])
    assert (await budgets.lease(engine, ACCOUNT, 5)).starts == near([0, 0, 0, 10, 20])
    assert (await budgets.lease(engine, ACCOUNT, 1)).starts == near([30])


async def test_of_several_limits_each_is_kept(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("burst", 10), Limit("day", 30), Limit("loose", 1)])
    assert (await budgets.lease(engine, ACCOUNT, 3)).starts == near([0, 30, 60])
    assert (await budgets.lease(engine, ACCOUNT, 2)).starts == near([90, 120])


async def test_an_account_without_limits_has_no_pace_to_keep(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [])
    assert await budgets.lease(engine, ACCOUNT, 3) == budgets.Lease([0, 0, 0])
    assert await budgets.lease(engine, "never-declared", 2) == budgets.Lease([0, 0])
    assert await budgets.spent(engine, "never-declared") == Spent(2, 0)
    assert await budgets.spent(engine, "never-used") == Spent(0, 0)


async def test_accounts_do_not_spend_each_others_budget(engine: Engine) -> None:
    for account in ("one", "two"):
        await budgets.declare(engine, account, [Limit("window", 10)])
    assert (await budgets.lease(engine, "one", 3)).starts == near([0, 10, 20])
    assert (await budgets.lease(engine, "two", 1)).starts == near([0])


async def test_what_was_not_spent_goes_back(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10), Limit("day", 20)])
    lease = await budgets.lease(engine, ACCOUNT, 5)
    await budgets.give_back(engine, ACCOUNT, lease, 3)
    await budgets.give_back(engine, ACCOUNT, lease, 0)
    assert (await budgets.lease(engine, ACCOUNT, 1)).starts == near([40])
    assert await budgets.spent(engine, ACCOUNT) == Spent(3, 0)


async def test_what_goes_back_is_not_handed_out_between_the_requests_of_a_later_lease(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10)])
    early = await budgets.lease(engine, ACCOUNT, 5)
    assert (await budgets.lease(engine, ACCOUNT, 2)).starts == near([50, 60])
    await budgets.give_back(engine, ACCOUNT, early, 3)
    assert (await budgets.lease(engine, ACCOUNT, 1)).starts == near([70]), "not 40: that is too near to 50"


async def test_declaring_again_keeps_what_was_spent_and_drops_what_is_gone(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10), Limit("slow", 1000)])
    await budgets.lease(engine, ACCOUNT, 2)
    await budgets.declare(engine, ACCOUNT, [Limit("window", 5)])
    assert (await budgets.lease(engine, ACCOUNT, 2)).starts == near([20, 25])


async def test_a_pause_blocks_every_worker_and_costs_no_request(open_engine: OpenEngine) -> None:
    one, other = await open_engine(), await open_engine()
    await budgets.declare(one, ACCOUNT, [Limit("window", 10)])
    await budgets.pause(one, ACCOUNT, 60, "rate-limited")
    lease = await budgets.lease(other, ACCOUNT, 5)
    assert not lease.starts
    assert 55 < lease.paused_s <= 60
    assert lease.pause_reason == "rate-limited"
    assert await budgets.spent(one, ACCOUNT) == Spent(0, 1)
    await one.execute("update account set paused_until = now()")
    assert (await budgets.lease(other, ACCOUNT, 1)).starts == near([0]), "nothing was leased meanwhile"


async def test_refusals_while_the_account_is_paused_belong_to_the_event_that_paused_it(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [])
    await asyncio.gather(*(budgets.pause(engine, ACCOUNT, 60, "rate-limited") for _ in range(10)))
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 1
    await budgets.pause(engine, ACCOUNT, 1, "destination-busy")
    assert (await budgets.lease(engine, ACCOUNT, 1)).paused_s > 50, "a shorter wish shortens no pause"
    await engine.execute("update account set paused_until = now()")
    await budgets.pause(engine, ACCOUNT, 60, "rate-limited")
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 2


async def test_an_account_that_was_deleted_under_a_running_fleet_keeps_its_limits(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10)])
    await engine.execute("delete from account")
    assert (await budgets.lease(engine, ACCOUNT, 3)).starts == near([0, 10, 20])
    await engine.execute("delete from account")
    await budgets.pause(engine, ACCOUNT, 60, "rate-limited")
    assert (await budgets.lease(engine, ACCOUNT, 1)).paused_s > 50
    await engine.execute("update account set paused_until = null")
    await engine.execute("delete from budget")
    assert (await budgets.lease(engine, ACCOUNT, 2)).starts == [0, 0]
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10)])
    assert (await budgets.lease(engine, ACCOUNT, 2)).starts == near([0, 10])


async def test_a_workers_wrong_clock_does_not_matter(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = await open_engine(), await open_engine()
    await budgets.declare(right, ACCOUNT, [Limit("window", 10)])
    await budgets.lease(right, ACCOUNT, 2)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    assert (await budgets.lease(wrong, ACCOUNT, 2)).starts == near([20, 30])
    monkeypatch.undo()
    assert (await budgets.lease(right, ACCOUNT, 1)).starts == near([40])


# ---------------------------------------------------------------------------------------------------- the governor


def governor(engine: Engine, **more: object) -> Governor:
    limits = [{"requests": 10, "per_s": 90.0}]
    account = AccountSettings.model_validate(
        {"base_url": "http://host.example", "token": "t", "limits": limits, **more}
    )
    return Governor(engine, ACCOUNT, account)


async def test_a_governor_spends_its_share_of_the_declared_limit(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    lease = await pace.lease(3)
    assert lease.starts == near([0, 10, 20])
    await pace.give_back(lease, 2)
    assert (await pace.lease(1)).starts == near([10])


async def test_refusals_that_come_together_are_one_event(engine: Engine) -> None:
    """25 calls were under way when the first was refused: not 25 doublings of the pause."""
    now = 100.0
    pace = governor(engine)
    pace.clock = lambda: now
    await pace.declare()
    assert [await pace.push_back(Fault("rate-limited")) for _ in range(25)] == [1.0] * 25
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 1
    now += 1.5
    assert [await pace.push_back(Fault("rate-limited")) for _ in range(3)] == [2.0] * 3
    pace.went_well()  # a call from before the pause
    now += 2.5
    assert await pace.push_back(Fault("destination-busy")) == 4.0
    now += 4.5
    pace.went_well()
    assert await pace.push_back(Fault("rate-limited")) == 1.0


async def test_what_the_destination_asks_for_reaches_every_worker(open_engine: OpenEngine) -> None:
    one, other = governor(await open_engine()), governor(await open_engine())
    await one.declare()
    assert await one.push_back(Fault("rate-limited", retry_after=120)) == 120
    lease = await other.lease(1)
    assert 115 < lease.paused_s <= 120
    assert lease.pause_reason == "rate-limited"
