"""Budgets in a real ledger: every worker's requests start in one row, whoever asks, whatever their clocks say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from faults import Fault
from governor.account import Governor, watch
from governor.budget import FINDING_SOON_S
from governor.pacing import RESOLUTION_S
from ledger import budgets
from ledger.budgets import Lease, Limit, Spent
from ledger.engine import Engine
from settings import AccountSettings

ACCOUNT = "main"
OpenEngine = Callable[[], Awaitable[Engine]]
SECOND = Limit("window", 10.0, 10.0, interval_s=1.0)
"""A request each second: five can be leased at once."""


_BEGAN: list[float] = [0.0]


@pytest.fixture(autouse=True)
def _from_here() -> None:
    _BEGAN[0] = time.monotonic()


def near(seconds: float | list[float]) -> object:
    """Slots lie on the database's clock, which runs on between two leases: by no more than the test has taken."""
    return pytest.approx(seconds, abs=time.monotonic() - _BEGAN[0])


async def lease(engine: Engine, requests: int, operation: str = "create", **more: Any) -> Lease:
    return await budgets.lease(engine, ACCOUNT, operation, requests, **more)


async def test_eight_workers_leases_lie_in_one_evenly_spaced_row(open_engine: OpenEngine) -> None:
    engines = [await open_engine() for _ in range(8)]
    await budgets.declare(engines[0], ACCOUNT, [Limit("window", 100, 1, interval_s=0.01)])
    slots: list[float] = []

    async def worker(engine: Engine, requests: int) -> None:
        for _ in range(5):
            leased = await lease(engine, requests)
            assert len(leased.starts) == requests
            slots.extend(leased.at + start for start in leased.starts)

    await asyncio.gather(*(worker(engine, number + 1) for number, engine in enumerate(engines)))
    slots.sort()
    count = 5 * sum(range(1, 9))
    assert len(slots) == count
    assert min(later - earlier for earlier, later in pairwise(slots)) > 0.0099
    assert await budgets.spent(engines[0], ACCOUNT) == Spent(requests=count, pauses=0)


async def test_only_near_starts_are_leased_and_a_far_one_is_told_without_being_taken(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    assert (await lease(engine, 25)).starts == near([0, 1, 2, 3, 4, 5])
    told = await lease(engine, 25)
    assert (told.starts, told.why) == ((), "slot")
    assert told.wait_s == near(3.5)
    assert (await budgets.spent(engine, ACCOUNT)).requests == 6


async def test_who_needs_time_before_its_calls_gets_later_starts_and_leaves_the_earlier_ones_to_others(
    engine: Engine,
) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    early = await lease(engine, 2)
    await budgets.give_back(engine, ACCOUNT, early, early.starts[1:])
    assert (await lease(engine, 2, lead_s=1.5)).starts == near([2, 3])
    assert (await lease(engine, 1)).starts == near([1])


async def test_an_account_that_stood_idle_has_saved_nothing_up_but_its_tolerance(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10, 10, interval_s=1.0, tolerance_s=2.0)])
    await engine.execute("update budget set free_at = free_at - 3600")
    assert (await lease(engine, 5)).starts == near([0, 0, 0, 1, 2])


async def test_of_several_limits_each_is_kept(engine: Engine) -> None:
    limits = [Limit("burst", 1, 1, interval_s=0.5), Limit("day", 1, 2, interval_s=2.0), Limit("loose", 9, 1, 0.01)]
    await budgets.declare(engine, ACCOUNT, limits)
    assert (await lease(engine, 3)).starts == near([0, 2, 4])


async def test_a_limit_counts_its_operations_only_at_their_prices(engine: Engine) -> None:
    posts = Limit("posts", 1, 1, interval_s=1.0, operations=("create",))
    priced = Limit("units", 10, 1, interval_s=0.5, prices={"list": 4.0, "delete": 0.0})
    await budgets.declare(engine, ACCOUNT, [posts, priced])
    assert (await lease(engine, 2)).starts == near([0, 1])
    assert (await lease(engine, 2, "list")).starts == near([1.5, 3.5]), "`units` counts the creates too"
    assert (await lease(engine, 25, "delete")).starts == near([0] * 25), "free of charge"


async def test_an_account_without_limits_starts_at_a_found_pace(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [])
    assert (await lease(engine, 3)).starts == near([0, 1 / 50, 2 / 50])
    assert await budgets.spent(engine, ACCOUNT) == Spent(3, 0)
    assert await budgets.spent(engine, "never-used") == Spent(0, 0)


async def test_accounts_do_not_spend_each_others_budget(engine: Engine) -> None:
    for account in ("one", "two"):
        await budgets.declare(engine, account, [SECOND])
    assert (await budgets.lease(engine, "one", "create", 3)).starts == near([0, 1, 2])
    assert (await budgets.lease(engine, "two", "create", 1)).starts == near([0])


async def test_what_goes_back_keeps_its_times_and_goes_to_whoever_asks_next(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    early = await lease(engine, 3)
    await budgets.give_back(engine, ACCOUNT, early, early.starts[1:])
    await budgets.give_back(engine, ACCOUNT, early, [])
    assert await budgets.spent(engine, ACCOUNT) == Spent(1, 0)
    assert (await lease(engine, 3)).starts == near([1, 2, 3])


async def test_a_slot_whose_time_has_passed_is_lost_and_nothing_stays_taken(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("window", 100, 1, interval_s=0.01)])
    old = await lease(engine, 25)
    await engine.execute("update budget set free_at = free_at - 60")
    await budgets.give_back(engine, ACCOUNT, Lease(old.starts, at=old.at - 60), old.starts)
    assert await engine.fetchval("select count(*) from spare") == 0
    assert len((await lease(engine, 25)).starts) == 25


async def test_a_daily_allowance_is_spent_as_it_comes_and_is_whole_again_at_its_hour(engine: Engine) -> None:
    day = Limit("day", 40, 86_400, even=False, resets_s=7 * 3600.0)
    await budgets.declare(engine, ACCOUNT, [day, Limit("loose", 1000, 1, interval_s=0.001)])
    assert len((await lease(engine, 25)).starts) == 25
    rest = await lease(engine, 25)
    assert len(rest.starts) == 15
    spent = await lease(engine, 1)
    assert (spent.starts, spent.why, spent.reason) == ((), "spent", "day")
    hour = await engine.fetchval("select extract(epoch from date_trunc('day', now() at time zone 'utc'))::float8")
    until = spent.at + spent.wait_s
    assert (until - hour) % 86_400 == pytest.approx(7 * 3600, abs=0.01)
    await budgets.give_back(engine, ACCOUNT, rest, rest.starts[-5:])
    assert len((await lease(engine, 25)).starts) == 5
    await engine.execute("update budget set used_from = used_from - 86400 where name = 'day'")
    assert len((await lease(engine, 25)).starts) == 25


async def test_a_sliding_allowance_comes_back_when_its_units_have_left_the_window(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [Limit("day", 20, 86_400, even=False), Limit("loose", 99, 1, 0.001)])
    first = await lease(engine, 25)
    assert len(first.starts) == 20
    assert (await lease(engine, 1)).wait_s == pytest.approx(86_400, rel=0.011)
    await budgets.give_back(engine, ACCOUNT, first, first.starts[-5:])
    assert len((await lease(engine, 25)).starts) == 5
    await engine.execute("update budget set slices = array(select s - 101 from unnest(slices) s) where name = 'day'")
    assert len((await lease(engine, 25)).starts) == 20


async def test_declaring_again_keeps_what_was_spent_and_drops_what_is_gone(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND, Limit("slow", 1, 60, interval_s=60.0)])
    await lease(engine, 2)
    await budgets.declare(engine, ACCOUNT, [Limit("window", 10, 10, interval_s=0.5)])
    assert (await lease(engine, 2)).starts == near([1, 1.5])


async def test_a_pause_blocks_every_worker_and_costs_no_request(open_engine: OpenEngine) -> None:
    one, other = await open_engine(), await open_engine()
    await budgets.declare(one, ACCOUNT, [SECOND])
    await budgets.pause(one, ACCOUNT, 60, "rate-limited")
    told = await lease(other, 5)
    assert (told.starts, told.why, told.reason) == ((), "paused", "rate-limited")
    assert 30 < told.wait_s <= 60
    assert await budgets.spent(one, ACCOUNT) == Spent(0, 1)
    await one.execute("update account set paused_until = now()")
    assert (await lease(other, 1)).starts == near([0]), "nothing was leased meanwhile"


async def test_refusals_while_the_account_is_paused_belong_to_the_event_that_paused_it(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [])
    await asyncio.gather(*(budgets.pause(engine, ACCOUNT, 60, "rate-limited") for _ in range(10)))
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 1
    await budgets.pause(engine, ACCOUNT, 1, "destination-busy")
    told = await lease(engine, 1)
    assert told.wait_s > 30 and told.reason == "rate-limited", "a shorter wish shortens no pause"
    await engine.execute("update account set paused_until = now()")
    await budgets.pause(engine, ACCOUNT, 60, "rate-limited")
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 2


async def test_an_account_that_was_deleted_under_a_running_fleet_keeps_its_limits(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    await engine.execute("delete from account")
    assert (await lease(engine, 3)).starts == near([0, 1, 2])
    await engine.execute("delete from account")
    await budgets.pause(engine, ACCOUNT, 60, "rate-limited")
    assert (await lease(engine, 1)).wait_s > 30


async def test_a_workers_wrong_clock_does_not_matter(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = await open_engine(), await open_engine()
    await budgets.declare(right, ACCOUNT, [SECOND])
    await lease(right, 1)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    assert (await lease(wrong, 1)).starts == near([1])
    monkeypatch.undo()
    assert (await lease(right, 1)).starts == near([2])


# ------------------------------------------------------------------------------------------------ the adaptive pace


async def test_many_refusals_of_what_was_leased_before_a_cut_are_one_event(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    leased = await lease(engine, 3)
    await engine.execute("update account set flow = 60, grown_s = 60")
    await asyncio.gather(*(budgets.pause(engine, ACCOUNT, 1, "rate-limited", cuts=leased.cuts) for _ in range(25)))
    standing = await budgets.pace_of(engine, ACCOUNT)
    assert (standing.cuts, standing.adaptive) == (1, pytest.approx(0.5, rel=0.1)), "half of what was sent on average"
    await engine.execute("update account set paused_until = null")
    await engine.execute("update budget set free_at = 0")
    later = await lease(engine, 5)
    assert later.starts == near([0]), "the next would be two seconds later, and is not leased so far ahead now"
    assert (await lease(engine, 1)).wait_s == near(1 / standing.adaptive - FINDING_SOON_S)
    await budgets.pause(engine, ACCOUNT, 1, "rate-limited", cuts=later.cuts)
    standing = await budgets.pace_of(engine, ACCOUNT)
    assert standing.cuts == 2 and standing.adaptive < 0.3


# ------------------------------------------------------------------------------------------------- a person's control


async def test_a_person_slows_stops_and_restores_the_pace_of_every_worker(open_engine: OpenEngine) -> None:
    one, other = await open_engine(), await open_engine()
    await budgets.declare(one, ACCOUNT, [SECOND])
    await budgets.set_pace(one, ACCOUNT, factor=0.5)
    assert (await lease(other, 2)).starts == near([0, 2])
    await budgets.set_pace(one, ACCOUNT, per_s=0.25)
    await one.execute("update budget set free_at = 0")
    assert (await lease(other, 2)).starts == near([0, 4])
    for stop in ({"stop": True}, {"factor": 0.0}, {"per_s": 0.0}):
        await budgets.set_pace(one, ACCOUNT, **stop)  # type: ignore[arg-type]
        assert (await lease(other, 1)).why == "stopped"
        assert (await budgets.pace_of(other, ACCOUNT)).stopped
    await budgets.set_pace(one, ACCOUNT, restore=True)
    await one.execute("update budget set free_at = 0")
    assert (await lease(other, 3)).starts == near([0, 1, 2])


async def test_a_pace_that_was_very_slow_is_not_waited_for_once_it_is_restored(engine: Engine) -> None:
    await budgets.declare(engine, ACCOUNT, [SECOND])
    await budgets.set_pace(engine, ACCOUNT, factor=0.001)
    await lease(engine, 1)
    assert (await lease(engine, 1)).wait_s > 900
    await budgets.set_pace(engine, ACCOUNT, restore=True)
    assert (await lease(engine, 1)).wait_s < 10


@pytest.mark.parametrize(
    "wrong",
    [{}, {"factor": 1.5}, {"factor": -0.1}, {"factor": float("nan")}, {"per_s": -1.0}, {"per_s": float("inf")}]
    + [{"factor": 0.5, "stop": True}],
)
async def test_a_pace_that_makes_no_sense_is_refused(engine: Engine, wrong: dict[str, Any]) -> None:
    with pytest.raises(Fault) as fault:
        await budgets.set_pace(engine, ACCOUNT, **wrong)
    assert fault.value.code == "settings-refused"


async def test_how_an_account_stands_can_be_asked_at_any_time(engine: Engine) -> None:
    assert (await budgets.pace_of(engine, "never-seen")).requests == 0
    await budgets.declare(engine, ACCOUNT, [SECOND, Limit("day", 40, 86_400, even=False)])
    await lease(engine, 3, tenant="acme", weight=2.0)
    await budgets.pause(engine, ACCOUNT, 60, "rate-limited")
    standing = await budgets.pace_of(engine, ACCOUNT)
    assert (standing.requests, standing.pauses, standing.pause_reason) == (3, 1, "rate-limited")
    assert [(limit.name, limit.used) for limit in standing.limits] == [("day", 3.0), ("window", None)]
    assert standing.leased_ahead_s == near(3)
    assert [(t.tenant, t.lane, t.weight, t.leased) for t in standing.tenants] == [("acme", "bulk", 2.0, 3)]
    assert standing.in_flight == 0


# ---------------------------------------------------------------------------------------------------- the governor


def governor(engine: Engine, **more: object) -> Governor:
    limits = [{"requests": 100, "per_s": 90.0}]
    account = AccountSettings.model_validate(
        {"base_url": "http://host.example", "token": "t", "limits": limits, **more}
    )
    return Governor(engine, ACCOUNT, account)


async def test_a_governor_spends_its_share_of_the_declared_limit(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    leased = await pace.lease(3)
    interval = pace.limits[0].interval_s
    assert leased.starts == near([0, interval - 0.9, 2 * interval - 0.9])
    await pace.give_back(leased, leased.starts[2:])
    assert (await pace.lease(1)).starts == near([2 * interval - 0.9])


async def test_refusals_that_come_together_are_one_event(engine: Engine) -> None:
    """25 calls were under way when the first was refused: not 25 doublings of the pause."""
    now = 100.0
    pace = governor(engine)
    pace.clock = lambda: now
    await pace.declare()
    assert [await pace.push_back(Fault("rate-limited"), 0) for _ in range(25)] == [1.0] * 25
    assert (await budgets.spent(engine, ACCOUNT)).pauses == 1
    assert (await budgets.pace_of(engine, ACCOUNT)).cuts == 1
    now += 1.5
    assert [await pace.push_back(Fault("rate-limited")) for _ in range(3)] == [2.0] * 3
    pace.went_well()  # a call from before the pause
    now += 2.5
    assert await pace.push_back(Fault("destination-busy")) == 4.0
    now += 4.5
    pace.went_well()
    assert await pace.push_back(Fault("rate-limited")) == 1.0


async def test_what_is_leased_before_a_cut_is_void_also_for_the_process_that_was_refused(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    leased = await pace.lease(1)
    await pace.push_back(Fault("rate-limited"), leased.cuts)
    pace.clock = lambda: time.monotonic() + 60
    now = asyncio.get_running_loop().time()
    assert not await pace.start(now, leased.cuts)
    assert await pace.start(now, leased.cuts + 1)


async def test_calls_are_made_again_after_an_account_was_deleted_whose_pace_had_been_cut(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    await pace.push_back(Fault("rate-limited"), (await pace.lease(1)).cuts)
    pace.clock = lambda: time.monotonic() + 60
    await engine.execute("delete from account")
    for _ in range(2):
        leased = await pace.lease(1)
        await pace.give_back(leased, leased.starts)
    assert await pace.start(asyncio.get_running_loop().time(), leased.cuts)


async def test_what_the_destination_asks_for_reaches_every_worker(open_engine: OpenEngine) -> None:
    one, other = governor(await open_engine()), governor(await open_engine())
    await one.declare()
    assert await one.push_back(Fault("rate-limited", retry_after=120)) == 120
    told = await other.lease(1)
    assert 90 < told.wait_s <= 120
    assert told.reason == "rate-limited"


async def test_a_dropped_connection_pauses_nobody_and_several_in_a_row_do(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    dropped = Fault("destination-unreachable")
    assert [await pace.push_back(dropped, 0) for _ in range(2)] == [0.0, 0.0]
    pace.went_well()
    assert [await pace.push_back(dropped, 0) for _ in range(3)] == [0.0, 0.0, 1.0]
    standing = await budgets.pace_of(engine, ACCOUNT)
    assert (standing.pauses, standing.cuts) == (1, 0), "and the pace is not cut: nobody asked us to slow down"


async def test_a_spent_daily_allowance_is_the_runs_fault_with_the_time_at_which_it_goes_on(engine: Engine) -> None:
    day = {"requests": 20, "per_s": 86_400, "resets_at": 7, "floor": 10}
    pace = governor(engine, limits=[day])
    await pace.declare()
    assert len((await pace.lease(25)).starts) == 10, "the floor is left"
    assert not (await pace.lease(1)).starts, "others may be giving back what they leased too much"
    pace.clock = lambda: time.monotonic() + 5
    with pytest.raises(Fault) as fault:
        await pace.lease(1)
    assert fault.value.code == "allowance-spent"
    assert fault.value.retry_after is not None and 60 < fault.value.retry_after <= 86_400


async def test_a_limit_that_was_deleted_under_a_running_fleet_is_made_anew_as_if_just_spent(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    await pace.lease(3)
    await engine.execute("delete from budget")
    told = await pace.lease(3)
    assert (told.starts, told.why) == ((), "slot")
    assert told.wait_s == near(90 - 2.5)


async def test_a_pause_reaches_calls_that_other_processes_have_leased_already(open_engine: OpenEngine) -> None:
    one, other = governor(await open_engine()), governor(await open_engine())
    await one.declare()
    listening = asyncio.create_task(watch(other.engine, {ACCOUNT: other}))
    try:
        await _listens(one.engine)
        async with asyncio.timeout(20):
            at = asyncio.get_running_loop().time() + (await other.lease(1)).starts[0]
            assert await other.start(at)
            await one.push_back(Fault("rate-limited", retry_after=60))
            while not other.held:
                await asyncio.sleep(0.005)
            assert not await other.start(asyncio.get_running_loop().time())
            await budgets.set_pace(one.engine, ACCOUNT, restore=True)
            while other.held:
                await asyncio.sleep(0.005)
            await budgets.set_pace(one.engine, ACCOUNT, stop=True)
            while not other.held:
                await asyncio.sleep(0.005)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_a_call_whose_time_passed_while_its_process_stood_still_is_not_made(engine: Engine) -> None:
    pace = governor(engine)
    now = asyncio.get_running_loop().time()
    assert await pace.start(now - 0.1)
    assert not await pace.start(now - 5)


async def test_what_the_host_says_is_left_pauses_the_account_before_it_refuses(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    pace.observe({"RateLimit": '"default";r=20;t=60', "RateLimit-Policy": '"default";q=100;w=90'})
    assert not pace.held
    pace.observe({"RateLimit": '"default";r=5;t=60', "RateLimit-Policy": '"default";q=100;w=90'})
    assert pace.held
    async with asyncio.timeout(20):
        while (await pace.lease(1)).why != "paused":
            await asyncio.sleep(0.01)


async def test_who_waits_for_a_start_is_woken_by_a_cut_and_by_a_person(engine: Engine) -> None:
    pace = governor(engine)
    await pace.declare()
    listening = asyncio.create_task(watch(engine, {ACCOUNT: pace}))
    try:
        await _listens(engine)
        changed = pace.changed
        await pace.push_back(Fault("rate-limited"), (await pace.lease(1)).cuts)
        assert changed.is_set()
        changed = pace.changed
        await budgets.set_pace(engine, ACCOUNT, factor=0.5)
        await asyncio.wait_for(changed.wait(), 20)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_many_workers_that_lease_and_give_back_at_once_never_exceed_the_limit(open_engine: OpenEngine) -> None:
    engines = [await open_engine() for _ in range(6)]
    limit = Limit("window", 100, 1, interval_s=0.0101 + RESOLUTION_S, tolerance_s=0.01)
    day = Limit("day", 150, 86_400, even=False)
    await budgets.declare(engines[0], ACCOUNT, [limit, day])
    made: list[float] = []

    async def worker(engine: Engine, number: int) -> None:
        for turn in range(12):
            leased = await lease(engine, 1 + (number + turn) % 7, tenant=f"t{number % 3}")
            kept = len(leased.starts) - turn % 3
            await budgets.give_back(engine, ACCOUNT, leased, leased.starts[max(0, kept) :])
            made.extend(leased.at + start for start in leased.starts[: max(0, kept)])

    await asyncio.gather(*(worker(engine, number) for number, engine in enumerate(engines)))
    made.sort()
    standing = await budgets.pace_of(engines[0], ACCOUNT)
    assert standing.requests == len(made) == sum(tenant.leased for tenant in standing.tenants)
    assert [one.used for one in standing.limits if one.name == "day"] == [len(made)]
    assert len(made) <= 150
    for begin in made:
        assert sum(begin <= start < begin + 1 - 1e-6 for start in made) <= 100


async def _listens(engine: Engine) -> None:
    async with asyncio.timeout(20):
        while not await engine.fetchval(
            "select count(*) from pg_stat_activity where application_name = 'longhaul-listener'"
            " and datname = current_database() and query ilike 'listen%'"
        ):
            await asyncio.sleep(0.01)
