"""What a destination account lets us spend, shared by every worker through the ledger.

Each declared limit is one row of a generic cell rate algorithm (ITU-T I.371, Annex A): `free_at` is the theoretical
arrival time, `interval_s` the emission interval. A lease moves it on by the requests it takes and hands out their start
times, in one short statement and on the database's clock; nothing locks a row while calls are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ledger.engine import Engine


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit as it is spent: a request each `interval_s` seconds, `burst` of them at once."""

    name: str
    interval_s: float
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Lease:
    """Leave for some requests: the seconds from now at which each may start. `paused_s` > 0 means that the account is
    paused and nothing was leased. `until` is where the lease ends in each limit, by name: who gives back the end of a
    lease proves with it that nobody has leased behind."""

    starts: Sequence[float]
    paused_s: float = 0.0
    pause_reason: str | None = None
    until: Mapping[str, datetime] = field(default_factory=dict)


_DECLARE: Final = """
with kept as (
    insert into budget (account, name, interval_s, burst)
    select $1, * from unnest($2::text[], $3::float8[], $4::int[])
    on conflict (account, name) do update set interval_s = excluded.interval_s, burst = excluded.burst
), gone as (
    delete from budget where account = $1 and not name = any($2)
)
insert into account (account) values ($1) on conflict do nothing
"""


async def declare(engine: Engine, account: str, limits: Sequence[Limit]) -> None:
    """Makes the ledger's limits of this account those of the settings. What was spent stays spent."""
    await engine.execute(
        _DECLARE,
        account,
        [limit.name for limit in limits],
        [limit.interval_s for limit in limits],
        [limit.burst for limit in limits],
    )


_LEASE: Final = """
with clock as (
    select clock_timestamp() as now
), gate as (
    insert into account (account, requests, updated_at) select $1, $2, now from clock
    on conflict (account) do update set updated_at = excluded.updated_at, requests = account.requests
        + case when coalesce(account.paused_until, excluded.updated_at) <= excluded.updated_at then $2 else 0 end
    returning coalesce(paused_until, updated_at) <= updated_at as open, paused_until, pause_reason
), held as (
    select name, free_at from budget where account = $1 and (select open from gate) order by name for update
), leased as (
    update budget b set free_at = greatest(b.free_at, clock.now) + make_interval(secs => b.interval_s * $2)
    from held, clock where b.account = $1 and b.name = held.name
    returning b.name, b.free_at, b.interval_s, b.burst,
        extract(epoch from greatest(held.free_at, clock.now) - clock.now)::float8 as behind
)
select gate.open, extract(epoch from gate.paused_until - clock.now)::float8 as paused_s, gate.pause_reason,
       leased.name, leased.free_at, leased.interval_s, leased.burst, leased.behind
from gate cross join clock left join leased on true
"""


async def lease(engine: Engine, account: str, requests: int) -> Lease:
    """Leases so many requests, at once for all of the account's limits; see `Lease`."""
    records = await engine.fetch(_LEASE, account, requests)
    if not records[0]["open"]:
        return Lease([], max(records[0]["paused_s"] or 0.0, 0.05), records[0]["pause_reason"])
    limits = [record for record in records if record["interval_s"] is not None]
    starts = [
        max((limit["behind"] + (k - limit["burst"] + 1) * limit["interval_s"] for limit in limits), default=0.0)
        for k in range(requests)
    ]
    return Lease([max(0.0, start) for start in starts], until={limit["name"]: limit["free_at"] for limit in limits})


_RETURN: Final = """
with fewer as (
    update account set requests = greatest(requests - $2, 0) where account = $1
)
update budget b set free_at = b.free_at - make_interval(secs => b.interval_s * $2)
from unnest($3::text[], $4::timestamptz[]) as lease(name, until)
where b.account = $1 and b.name = lease.name and b.free_at = lease.until
"""


async def give_back(engine: Engine, account: str, lease: Lease, requests: int) -> None:
    """Returns the last `requests` of a lease, which were not made. Where someone has leased behind it in the meantime
    they are lost: handed out again, they would start between the others' requests."""
    if requests > 0:
        await engine.execute(_RETURN, account, requests, list(lease.until), list(lease.until.values()))


_PAUSE: Final = """
insert into account (account, paused_until, pause_reason, pauses)
values ($1, clock_timestamp() + make_interval(secs => $2), $3, 1)
on conflict (account) do update set
    paused_until = greatest(account.paused_until, excluded.paused_until), pause_reason = excluded.pause_reason,
    -- Refusals that arrive while the account is paused belong to the event that paused it.
    pauses = account.pauses
        + case when coalesce(account.paused_until, '-infinity') <= clock_timestamp() then 1 else 0 end
"""


async def pause(engine: Engine, account: str, seconds: float, reason: str) -> None:
    """Pauses every worker's calls to this account for at least so long."""
    await engine.execute(_PAUSE, account, seconds, reason)


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests made so far and pauses taken, over all runs of the account."""

    requests: int
    pauses: int


async def spent(engine: Engine, account: str) -> Spent:
    record = await engine.fetchrow("select requests, pauses from account where account = $1", account)
    return Spent(0, 0) if record is None else Spent(record["requests"], record["pauses"])
