"""What a destination account lets us spend, shared by every worker through the ledger.

What is computed stands in the schema's functions `pace_…`, each of which is one short statement here, on the database's
clock; they are explained, and compared with, `governor/budget.py`. Nothing locks a row while calls are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

import asyncpg

from faults import Fault
from ledger.engine import Engine

CHANNEL: Final = "longhaul_pace"
"""Where a pause is told to every process that listens (`Engine.listen`): {"account": …, "seconds": …}."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit as it is spent: `units` in any `window_s` seconds.

    Evenly (`even`): a unit each `interval_s` seconds, up to `tolerance_s` early to catch up. Else as it comes: in
    windows that begin `resets_s` seconds after midnight UTC, or, None, in a sliding one. It counts the `operations`
    named (none named: all), each at its price in units, 1 where none is given, 0 where it is free.
    """

    name: str
    units: float
    window_s: float
    interval_s: float = 0.0
    tolerance_s: float = 0.0
    even: bool = True
    resets_s: float | None = None
    operations: tuple[str, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)

    def price(self, operation: str) -> float:
        """Units that one request costs; 0 where this limit does not count it."""
        if self.operations and operation not in self.operations:
            return 0.0
        return self.prices.get(operation, 1.0)

    @property
    def largest(self) -> float:
        """The highest price in units."""
        return max(map(self.price, self.operations)) if self.operations else max([1.0, *self.prices.values()])


Why = Literal["slot", "turn", "paused", "stopped", "spent", "undeclared"]


@dataclass(frozen=True, slots=True)
class Lease:
    """Leave for some requests: the seconds from now at which each may start.

    No start: nothing was leased, and after `wait_s` seconds it can be asked again. `why`: "slot", the next start is too
    far away to be taken now; "turn", others who share the account come first; "paused", with the `reason`; "stopped" by
    a person; "spent", the limit named by `reason` has nothing left. `cuts` counts the cuts of the pace so far: a
    refusal tells it, so that one event is cut once. `at` is the ledger's time in seconds since 1970.
    """

    starts: Sequence[float]
    wait_s: float = 0.0
    why: Why | None = None
    reason: str | None = None
    cuts: int = 0
    at: float = 0.0
    charge: float = 0.0
    operation: str = "create"
    tenant: str = "default"
    lane: str = "bulk"


def as_given(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits as the ledger's function takes them."""
    return [
        {
            "name": limit.name,
            "units": limit.units,
            "window_s": limit.window_s,
            "interval_s": limit.interval_s,
            "tolerance_s": limit.tolerance_s,
            "even": limit.even,
            "resets_s": limit.resets_s,
            "operations": list(limit.operations),
            "prices": dict(limit.prices),
            "largest": limit.largest,
        }
        for limit in limits
    ]


async def declare(
    engine: Engine, account: str, limits: Sequence[Limit], *, only_missing: bool = False, spent: bool = False
) -> None:
    """Makes the ledger's limits of this account those of the settings. What was spent stays spent. With `spent`, a
    limit that is new counts as if its window had just been used up; with `only_missing` nothing else changes."""
    await engine.execute("select pace_declare($1, $2, $3, $4)", account, as_given(limits), only_missing, spent)


async def lease(
    engine: Engine,
    account: str,
    operation: str,
    requests: int,
    *,
    tenant: str = "default",
    lane: str = "bulk",
    weight: float = 1.0,
    reserve: float = 0.1,
    limits: Sequence[str] = (),
    lead_s: float = 0.0,
) -> Lease:
    """Leases up to so many requests, at once for all of the account's limits, none of which starts within the next
    `lead_s` seconds; see `Lease`. `why` is "undeclared" where the ledger lacks one of the `limits` named."""
    found: dict[str, Any] = await engine.fetchval(
        "select pace_lease($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        account,
        operation,
        requests,
        tenant,
        lane,
        weight,
        reserve,
        list(limits),
        lead_s,
    )
    return lease_of(found, operation, tenant, lane)


def lease_of(found: Mapping[str, Any], operation: str, tenant: str, lane: str) -> Lease:
    """The lease in what the ledger's function answers."""
    at = float(found.get("at", 0.0))
    return Lease(
        tuple(start - at for start in found.get("starts", ())),
        wait_s=float(found.get("wait", 0.0)),
        why=found.get("why"),
        reason=found.get("reason"),
        cuts=found.get("cuts", 0),
        at=at,
        charge=float(found.get("charge", 0.0)),
        operation=operation,
        tenant=tenant,
        lane=lane,
    )


async def give_back(engine: Engine, account: str, lease: Lease, starts: Sequence[float]) -> None:
    """Returns requests of a lease that were not made, by their starts as the lease gave them. Their slots go to whoever
    asks next, at the same times; those whose time has passed are lost, and nothing is taken for longer."""
    if starts:
        await engine.execute(
            "select pace_return($1, $2, $3, $4, $5, $6, $7, $8)",
            account,
            lease.operation,
            [lease.at + start for start in starts],
            lease.tenant,
            lease.lane,
            lease.at,
            lease.charge,
            lease.cuts,
        )


async def pause(engine: Engine, account: str, seconds: float, reason: str, *, cuts: int | None = None) -> None:
    """Pauses every worker's calls to this account for at least so long. With `cuts`, of the refused request's lease,
    the adaptive pace is halved, once for all that was leased since the last cut."""
    await engine.execute("select pace_push_back($1, $2, $3, $4)", account, seconds, reason, cuts)


# --------------------------------------------------------------------------------------------------- a person's control


async def set_pace(
    engine: Engine,
    account: str,
    *,
    factor: float | None = None,
    per_s: float | None = None,
    stop: bool = False,
    restore: bool = False,
) -> None:
    """Sets the account's pace while runs are under way; the next lease of every worker obeys, and a stop reaches calls
    that are leased already. Exactly one of: `factor`, the share of the declared (or found) pace, from 0 (stop) to 1;
    `per_s`, requests a second at most, 0 is a stop; `stop`; `restore`, as the settings say, an end of a pause
    included. The pace never exceeds what the settings declare.

    Raises Fault("settings-refused") for anything else.
    """
    if [factor is not None, per_s is not None, stop, restore].count(True) != 1:
        raise Fault("settings-refused", "give one of: a factor, requests a second, stop, restore")
    if factor is not None and not 0 <= factor <= 1:
        raise Fault("settings-refused", f"factor: {factor:g} is not from 0 to 1")
    if per_s is not None and not 0 <= per_s < float("inf"):
        raise Fault("settings-refused", f"per_s: {per_s:g} is no number of requests a second")
    if stop or per_s == 0 or factor == 0:
        factor, per_s = 0.0, None
    await engine.execute("select pace_set($1, $2, $3, $4)", account, 1.0 if factor is None else factor, per_s, restore)


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """One limit now. `used` in units, of those spent as they come (None: it is spent evenly). `free_in_s`: seconds
    until the next request may start."""

    name: str
    units: float
    window_s: float
    even: bool
    used: float | None
    free_in_s: float

    def words(self) -> str:
        """As a person reads it."""
        what = f"{self.name}: {self.units:g} in {self.window_s:g} s"
        if self.used is None:
            return f"{what}, spent evenly, the next in {self.free_in_s:.1f} s"
        left = max(0.0, self.units - self.used)
        return f"{what}, {self.used:g} used, {left:g} left" + (
            f", more in {self.free_in_s:.0f} s" if self.free_in_s > 0 else ""
        )


@dataclass(frozen=True, slots=True)
class TenantStanding:
    """One tenant in one lane: its weight, what was leased for it in all, whether it waits for more, and by how much
    (in requests, over its share due) it is ahead of whoever is furthest behind."""

    lane: str
    tenant: str
    weight: float
    leased: int
    waiting: bool
    ahead: float


@dataclass(frozen=True, slots=True)
class PaceStanding:
    """How an account stands. `adaptive`: the share of the declared limits in use, or, where none is declared, requests
    a second; `in_flight`: videos that are being made or processed there; `leased_ahead`: seconds for which starts are
    given out already; `returned`: leased requests that came back and wait to be used."""

    account: str
    limits: Sequence[LimitStanding]
    tenants: Sequence[TenantStanding]
    requests: int
    in_flight: int
    leased_ahead_s: float
    returned: int
    factor: float
    per_s: float | None
    adaptive: float
    known: bool
    cuts: int
    pauses: int
    paused_s: float
    pause_reason: str | None

    @property
    def stopped(self) -> bool:
        return self.factor == 0


_PACE: Final = """
with clock as (select extract(epoch from clock_timestamp())::float8 as now),
standing as (
    select c.now, $1::text as account, coalesce(a.requests, 0) as requests, coalesce(a.factor, 1) as factor, a.per_s,
        coalesce(a.cuts, 0) as cuts, coalesce(a.pauses, 0) as pauses, a.pause_reason,
        greatest(coalesce(extract(epoch from a.paused_until)::float8, 0) - c.now, 0) as paused_s,
        coalesce(a.virtual, 0) as virtual, coalesce(a.free_at, 0) as free_at, a.ceiling,
        coalesce(a.grown_s, 0) as grown_s, exists (select from budget b where b.account = $1 and b.even) as known
    from clock c left join account a on a.account = $1
)
select s.*, pace_value(s.ceiling, s.grown_s, s.known) as adaptive,
    (select count(*) from asset x join run r on r.run = x.run
     where r.account = $1 and x.state in ('creating', 'processing')) as in_flight,
    (select count(*) from spare p where p.account = $1 and p.start >= s.now) as returned,
    (select coalesce(jsonb_agg(jsonb_build_object('name', b.name, 'units', b.units, 'window_s', b.window_s,
        'even', b.even, 'used', case when b.even then null else (pace_used(b, s.now)).used end,
        'free_in_s', greatest(0, b.closed_until - s.now, case
            when b.even then b.free_at - b.tolerance_s - s.now
            when (pace_used(b, s.now)).used >= b.units then (pace_used(b, s.now)).frees - s.now end)) order by b.name),
        '[]')
     from budget b where b.account = $1) as limits,
    (select coalesce(jsonb_agg(jsonb_build_object('lane', h.lane, 'tenant', h.tenant, 'weight', h.weight,
        'leased', h.leased, 'waiting', h.asks_until >= s.now, 'virtual', h.virtual) order by h.lane, h.tenant), '[]')
     from share h where h.account = $1) as tenants
from standing s
"""


async def pace_of(engine: Engine, account: str) -> PaceStanding:
    """How the account stands: limits, what is spent and leased, pauses, the adaptive pace, tenants' shares."""
    record = await engine.fetchrow(_PACE, account)
    assert record is not None, "one row, whether the account is known or not"
    limits = [LimitStanding(**limit) for limit in record["limits"]]
    tenants = record["tenants"]
    least = min((t["virtual"] for t in tenants if t["waiting"]), default=0.0)
    ahead = [limit.free_in_s for limit in limits if limit.even]
    ahead += [] if record["known"] else [max(0.0, record["free_at"] - record["now"])]
    return PaceStanding(
        account=account,
        limits=limits,
        tenants=[
            TenantStanding(
                lane=t["lane"],
                tenant=t["tenant"],
                weight=t["weight"],
                leased=t["leased"],
                waiting=t["waiting"],
                ahead=max(0.0, t["virtual"] - least) if t["waiting"] else 0.0,
            )
            for t in tenants
        ],
        requests=record["requests"],
        in_flight=record["in_flight"],
        leased_ahead_s=max(ahead, default=0.0),
        returned=record["returned"],
        factor=record["factor"],
        per_s=record["per_s"],
        adaptive=record["adaptive"],
        known=record["known"],
        cuts=record["cuts"],
        pauses=record["pauses"],
        paused_s=record["paused_s"],
        pause_reason=record["pause_reason"] if record["paused_s"] > 0 else None,
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests made so far and pauses taken, over all runs of the account."""

    requests: int
    pauses: int


async def spent(engine: Engine, account: str) -> Spent:
    record = await engine.fetchrow("select requests, pauses from account where account = $1", account)
    return Spent(0, 0) if record is None else Spent(record["requests"], record["pauses"])


# ------------------------------------------------------------------------------------------------------ word of pauses


@dataclass(frozen=True, slots=True)
class Word:
    """What a process is told of an account: pause for so many seconds (None: as before), it was stopped, a place for
    one more video was freed, or the pace was cut for this time."""

    account: str
    seconds: float | None
    stopped: bool | None
    freed: bool = False
    cuts: int | None = None


def word_of(payload: str) -> Word:
    """What a message on `CHANNEL` says."""
    said = json.loads(payload)
    return Word(said["account"], said.get("seconds"), said.get("stopped"), said.get("freed", False), said.get("cuts"))


async def words(engine: Engine) -> Sequence[Word]:
    """What every account's last message would be now: for a process that was not listening."""
    records = await engine.fetch(
        "select account, greatest(extract(epoch from paused_until - clock_timestamp())::float8, 0) as seconds,"
        " factor = 0 as stopped, cuts from account"
    )
    return [
        Word(record["account"], record["seconds"] or 0.0, record["stopped"], cuts=record["cuts"]) for record in records
    ]


async def follow(engine: Engine, told: Callable[[Word], None]) -> NoReturn:
    """Tells of every pause and stop as it is made, for ever. What was missed while the connection was lost is told when
    it is back, and everything once a minute: a word that got lost costs no more than that."""
    while True:
        with contextlib.suppress(Fault, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with engine.listening(CHANNEL, lambda payload: told(word_of(payload))) as lost:
                while not lost.is_set():
                    for word in await words(engine):
                        told(word)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(lost.wait(), _AGAIN_S)
        await asyncio.sleep(_RECONNECT_S)


_AGAIN_S: Final = 60.0
_RECONNECT_S: Final = 1.0
