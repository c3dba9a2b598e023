"""The ledger's functions and the pure ones in governor/budget.py do the same, whatever is asked of them and when."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from governor import budget as pure
from governor.budget import Ask, Budget
from ledger import budgets
from ledger.budgets import Lease, Limit
from ledger.engine import Engine
from settings import LedgerSettings

BEGIN = 1_800_000_000.0
TICK = 1 / 64
"""Moments are multiples of it, which a `timestamptz` holds exactly."""
LIMITS = (
    Limit("burst", 5.0, 1.0, 0.25, 0.125),
    Limit("window", 100.0, 30.0, 0.5, 2.0, prices={"create": 5.0, "delete": 0.0}),
    Limit("posts", 10.0, 10.0, 1.0, 0.0, operations=("create",)),
    Limit("slow", 2.0, 60.0, 30.0, 0.0, operations=("delete",)),
    Limit("day", 60.0, 64.0, even=False, resets_s=8.0, prices={"create": 2.0}),
    Limit("slides", 40.0, 50.0, even=False, operations=("list", "create")),
)
some_limits = st.lists(st.sampled_from(LIMITS), unique_by=lambda limit: limit.name)
ticks = st.one_of(st.integers(0, 8 * 64), st.integers(0, 100 * 64), st.just(0))
operations = st.sampled_from(["create", "list", "delete", "get"])
steps = st.one_of(
    st.tuples(
        st.just("lease"),
        operations,
        st.integers(1, 30),
        st.sampled_from(["acme", "bulky", "tiny"]),
        st.sampled_from(["bulk", "live"]),
        st.sampled_from([1.0, 3.0, 0.5]),
        st.sampled_from([0.0, 0.1, 0.25]),
        st.sampled_from([0.0, 0.0, 0.25, 1.0, pure.LEAD_S]),
    ),
    st.tuples(st.just("back"), st.integers(0, 5), st.integers(1, 25)),
    st.tuples(st.just("refused"), st.integers(0, 5), st.sampled_from([1.0, 2.5, 30.0]), st.booleans()),
    st.tuples(st.just("pace"), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([None, 0.5, 4.0])),
    st.tuples(st.just("declare"), some_limits, st.booleans(), st.booleans()),
)
stories = st.lists(st.tuples(ticks, steps), min_size=1, max_size=25)


@given(declared=some_limits, story=stories)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_ledger_computes_what_the_pure_functions_do(
    declared: list[Limit], story: list[tuple[int, Any]], database: str, postgres: Any
) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_played(database, declared, story))
    finally:
        loop.close()


async def _played(dsn: str, declared: list[Limit], story: list[tuple[int, Any]]) -> None:
    engine = await Engine.open(LedgerSettings(dsn=dsn, pool_size=1))
    try:
        for table in ("account", "budget", "share", "spare"):
            await engine.execute(f"delete from {table}")
        now = BEGIN
        model = pure.declared(Budget(), sorted(declared, key=lambda limit: limit.name), now)
        await _declare(engine, declared, now)
        leases: list[Lease] = []
        for wait, step in story:
            now += wait * TICK
            match step:
                case ("lease", operation, count, tenant, lane, weight, reserve, lead_s):
                    model, given = pure.lease(model, Ask(operation, count, tenant, lane, weight, reserve, lead_s), now)
                    answer = await engine.fetchval(
                        "select pace_lease('main', $1, $2, $3, $4, $5, $6, '{}', $7, $8)",
                        *(operation, count, tenant, lane, weight, reserve, lead_s, now),
                    )
                    assert not given.starts or given.starts[0] >= lead_s
                    found = budgets.lease_of(answer, operation, tenant, lane)
                    assert (found.starts, found.why, found.reason, found.cuts) == (
                        given.starts,
                        given.why,
                        given.reason,
                        given.cuts,
                    )
                    assert (found.wait_s, found.charge) == pytest.approx((given.wait_s, given.charge), abs=1e-9)
                    if given.starts:
                        leases.append(given)
                case ("back", which, count):
                    if leases:
                        lease = leases.pop(-1 - which % len(leases))
                        starts = lease.starts[-count:]
                        model = pure.give_back(model, lease, starts, now)
                        await engine.execute(
                            "select pace_return('main', $1, $2, $3, $4, $5, $6, $7, $8)",
                            *(lease.operation, [lease.at + s for s in starts], lease.tenant, lease.lane),
                            *(lease.at, lease.charge, lease.cuts, now),
                        )
                case ("refused", age, seconds, congested):
                    cuts = max(0, model.cuts - age % 2) if congested else None
                    model = pure.push_back(model, seconds, "rate-limited", cuts, now)
                    await engine.execute(
                        "select pace_push_back('main', $1, 'rate-limited', $2, $3)", seconds, cuts, now
                    )
                case ("pace", factor, per_s):
                    model = pure.replace(model, factor=factor, per_s=per_s)
                    await engine.execute("update account set factor = $1, per_s = $2", factor, per_s)
                case ("declare", limits, only_missing, spent):
                    ordered = sorted(limits, key=lambda limit: limit.name)
                    model = pure.declared(model, ordered, now, only_missing=only_missing, spent=spent)
                    await _declare(engine, limits, now, only_missing, spent)
            await _alike(engine, model)
    finally:
        await engine.close()


async def _declare(
    engine: Engine, limits: list[Limit], now: float, only_missing: bool = False, spent: bool = False
) -> None:
    await engine.execute(
        "select pace_declare('main', $1, $2, $3, $4)", budgets.as_given(limits), only_missing, spent, now
    )


async def _alike(engine: Engine, model: Budget) -> None:
    account = await engine.fetchrow("select *, extract(epoch from paused_until)::float8 as pause from account")
    assert account is not None
    assert (account["requests"], account["pauses"], account["cuts"], account["pause"] or 0.0) == (
        model.requests,
        model.pauses,
        model.cuts,
        model.paused_until,
    )
    names = ("free_at", "grown_s", "virtual", "flow")
    assert [account[name] for name in names] == pytest.approx([getattr(model, name) for name in names], abs=1e-6)
    assert account["ceiling"] == (None if model.ceiling is None else pytest.approx(model.ceiling))
    rows: list[asyncpg.Record] = await engine.fetch('select * from budget order by name collate "C"')
    assert [row["name"] for row in rows] == [spending.limit.name for spending in model.limits]
    for row, spending in zip(rows, model.limits, strict=True):
        slices = tuple(zip(row["slices"], row["slice_units"], strict=True))
        assert (row["used"], row["used_from"], slices) == (spending.used, spending.used_from, spending.slices)
        assert (row["free_at"], row["closed_until"]) == pytest.approx(
            (spending.free_at, spending.closed_until), abs=1e-6
        )
    shares = await engine.fetch("select * from share")
    assert {(row["lane"], row["tenant"]): row["leased"] for row in shares} == {
        who: share.leased for who, share in model.shares.items()
    }
    for row in shares:
        share = model.shares[row["lane"], row["tenant"]]
        assert (row["virtual"], row["asks_until"], row["told"]) == pytest.approx(
            (share.virtual, share.asks_until, share.told), abs=1e-6
        )
    spares = await engine.fetch("select operation, start from spare")
    assert sorted(map(tuple, spares)) == sorted(model.spares)


def test_the_model_does_not_change_what_it_is_given() -> None:
    before = pure.declared(Budget(), LIMITS[:2], BEGIN)
    after, lease = pure.lease(before, Ask("list", 3), BEGIN)
    assert len(lease.starts) == 3
    assert before == pure.declared(Budget(shares=MappingProxyType({})), LIMITS[:2], BEGIN)
    assert after != before
