"""Claims and fences: who works which rows, and whose writes count.

A window's rows are claimed by one conditional statement that stamps a new, higher number, the fence. Every later write
carries it, and a write whose fence is no longer on the row changes nothing. Concurrent claimers skip each other's rows
(`for update skip locked`), so each row goes to one of them; a claim whose lease has passed is free again, and the
death is counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from faults import attempts_allowed
from ledger.assets import Row
from ledger.engine import Connection, Engine, clean, fit
from ledger.transitions import PHASE_STATES, WITHIN_PHASE, steps


@dataclass(frozen=True, slots=True)
class Window:
    """Rows claimed together under one fence. `full` says that there are none because the account's places are taken."""

    fence: int
    rows: Sequence[Row]
    full: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """How many videos an account may have in the making at once, over all its runs."""

    account: str
    places: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page's work stands: what a claim must agree with. `fence` is the phase's."""

    run: str
    phase: str
    page: int
    fence: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the work on one row came to.

    `state` is the one to go to; the state it was claimed from means "again later", after `wait_s` seconds. `refund`
    gives the attempt back: nothing was learned of the row. `call_open` keeps the create intent on the row: a call may
    still be under way or have landed.
    """

    ref: str
    state: str
    outcome: str
    reason: str | None = None
    detail: str | None = None
    wait_s: float | None = None
    refund: bool = False
    call_open: bool = False
    facts: dict[str, Any] | None = None
    duration_ms: int | None = None
    remote_id: str | None = None
    remote_duration_ms: int | None = None
    remote_width: int | None = None
    remote_height: int | None = None
    remote_size: int | None = None
    playback: str | None = None


ALONE_AFTER: Final = 2
"""Deaths after which a row is worked alone: what it did to its workers is then nobody else's death."""

_ROW: Final = """a.ref, a.tenant, a.source_id, a.title, a.locator, a.position, a.size, a.claimed_duration_ms,
              a.metadata, a.about, a.attempts, a.deaths, a.facts, a.duration_ms, a.remote_id, a.retired,
              a.reason, a.detail, a.transfer, a.fence"""

_CLAIM: Final = f"""
with gate as (
    -- A paused, parked or cancelled run gives out no rows, nor does a phase that someone else has opened since.
    select 1 from run join phase using (run)
    where run.run = $1 and run.state = 'running' and phase.phase = $2 and phase.fence = $4 and phase.closed_at is null
), free as (
    select ref, position, state, claim is not null as abandoned, intent_at is not null as intent,
           deaths + (claim is not null)::int as died, claim is not null and attempts >= $13 as condemned
    from asset
    where run = $1 and page = $3 and state = any($6) and exists (select from gate)
      and (claim is null or claim_until <= clock_timestamp())
      and (not_before is null or not_before <= clock_timestamp())
      and (quiet_until is null or quiet_until <= clock_timestamp())
    order by greatest(deaths + (claim is not null)::int, $14 - 1), position, ref
    limit $7
    for update skip locked
), placed as (
    -- Only a row that is new to the host needs a place there: one whose call is open has its own.
    select *, case when state = 'inventoried' then row_number() over (partition by state order by position, ref) end
                  <= $16 is not false as has_place
    from free
), together as (
    select * from placed where not condemned and has_place and died < $14
), chosen as (
    select * from together
    union all
    (select * from placed
     where not condemned and has_place and died >= $14 and not exists (select from together)
       and not exists (select from asset where run = $1 and page = $3 and claim_until > clock_timestamp())
     order by died, position, ref limit 1)
), number as (
    select nextval('fence_number') as fence
), ours as (
    update asset a set
        fence = number.fence, claim = $5, claim_key = $8, claimed_by = $9,
        claim_until = clock_timestamp() + make_interval(secs => $10),
        attempts = a.attempts + 1, deaths = c.died,
        state = coalesce($11, a.state),
        intent_at = case when $11 = 'creating' then clock_timestamp() else a.intent_at end,
        quiet_until = case when $11 = 'creating' then clock_timestamp() + make_interval(secs => $12)
                           else a.quiet_until end,
        not_before = null, updated_at = now()
    from chosen c, number
    where a.ref = c.ref
    returning {_ROW}, c.state, c.intent
), quarantined as (
    update asset a set
        state = $15, reason = 'worker-died', deaths = c.died,
        detail = 'no worker was left at the end of attempt ' || a.attempts || '; ' || c.died || ' died over it',
        claim = null, claim_key = null, claimed_by = null, claim_until = null, updated_at = now()
    from free c
    where c.condemned and a.ref = c.ref
), lost as (
    update step set ended_at = now(), outcome = 'lost', reason = 'worker-died'
    where step.outcome is null
      and step.ref = any(array(select ref from chosen where abandoned union all select ref from free where condemned))
), steps as (
    insert into step (ref, fence, run, phase, attempt, worker)
    select ref, fence, $1, $2, attempts, $9 from ours
)
select * from ours order by position, ref
"""  # noqa: S608  # composed of constants

_ACCOUNT_LOCK: Final = """
insert into account (account) values ($1) on conflict (account) do update set awaits_place = account.awaits_place
"""

_ROOM: Final = """
select $2 - (select count(*) from asset where account = $1 and state in ('creating', 'processing'))::int
"""

_AWAIT_PLACE: Final = """
update account set awaits_place = true
where account = $1 and exists (
    select from asset where run = $2 and page = $3 and state = 'inventoried'
      and (claim is null or claim_until <= clock_timestamp())
      and (not_before is null or not_before <= clock_timestamp()))
returning account
"""

_CLAIMED: Final = f"""
select {_ROW}, a.state, a.intent_at is not null as intent
from asset a where a.run = $1 and a.page = $2 and a.claim = $3 order by a.position, a.ref
"""  # noqa: S608  # composed of constants


async def claim(
    engine: Engine,
    place: Place,
    *,
    worker: str,
    key: str,
    limit: int,
    lease_s: float,
    quiet_s: float | None = None,
    places: Places | None = None,
) -> Window | None:
    """Claims up to `limit` rows of the page that may be worked now, or None where there are none.

    `key` names the execution that works the page (see `expire`). The attempt is counted here, before the work. With
    `quiet_s` the claim is an intent to create: the rows go to "creating", and nobody else may call for them before
    that many seconds have passed, even if this worker dies. Sent again after a lost connection, it gives the same rows.

    A row in whose work `ALONE_AFTER` workers have died is given out last, by itself, and while nothing else of its page
    is being worked; one whose attempts have ended in a death, the last one too, fails as "worker-died" instead.

    With `places`, no more rows are given out than the account has places for, exactly, however many claim at once: a
    window that is `full` says that rows wait for one, and whoever frees one tells it (`budgets.CHANNEL`).
    """
    states = list(PHASE_STATES[place.phase])
    number = uuid.uuid4()
    sent = full = False

    async def work(connection: Connection) -> list[asyncpg.Record]:
        nonlocal sent, full
        room: int | None = None
        if places is not None:
            # Whoever claims for this account next waits here, and then counts what we have taken.
            await connection.execute(_ACCOUNT_LOCK, places.account)
            room = max(0, await connection.fetchval(_ROOM, places.account, places.places))
        engine.statements += 1
        if sent:
            # The connection was lost: the claim may stand, and its attempts are counted already.
            records = await connection.fetch(_CLAIMED, place.run, place.page, number)
            if records:
                return records
        sent = True
        records = await connection.fetch(
            _CLAIM,
            place.run,
            place.phase,
            place.page,
            place.fence,
            number,
            states,
            limit,
            key,
            worker,
            lease_s,
            None if quiet_s is None else "creating",
            quiet_s or 0.0,
            attempts_allowed("worker-died"),
            ALONE_AFTER,
            "mismatched" if place.phase in ("attach", "reconcile") else "failed",
            room,
        )
        if not records and room == 0 and places is not None:
            full = await connection.fetchval(_AWAIT_PLACE, places.account, place.run, place.page) is not None
        return records

    records = await (engine.run(work) if places is None else engine.transaction(work))
    if not records:
        return Window(0, (), full=True) if full else None
    return Window(records[0]["fence"], [Row.from_record(record) for record in records])


_EXPIRE: Final = """
update asset set claim_until = clock_timestamp()
where run = $1 and page = $2 and state = any($3) and claim_key = $4 and claim_until > clock_timestamp()
"""


async def expire(engine: Engine, place: Place, key: str) -> None:
    """Ends the claims of an earlier attempt of the same execution, which Temporal has declared dead, so that this one
    need not wait for the lease. A create's quiet time stays."""
    await engine.execute(_EXPIRE, place.run, place.page, list(PHASE_STATES[place.phase]), key)


_RENEW: Final = """
update asset a set claim_until = greatest(a.claim_until, clock_timestamp() + make_interval(secs => $3))
from unnest($1::text[], $2::bigint[]) as held(ref, fence)
where a.ref = held.ref and a.fence = held.fence and a.claim_until > clock_timestamp()
"""


async def renew(engine: Engine, held: Collection[tuple[int, str]], lease_s: float) -> None:
    """Lengthens the claims on rows, by fence and ref, that a living worker still works. One that has run out, or was
    ended by `expire`, stays so."""
    fences, refs = [fence for fence, _ in held], [ref for _, ref in held]
    await engine.execute(_RENEW, refs, fences, lease_s)


_KEEP_TRANSFER: Final = """
update asset set transfer = $3, updated_at = now() where ref = $1 and fence = $2 and claim is not null returning ref
"""


async def keep_transfer(engine: Engine, ref: str, fence: int, transfer: Mapping[str, Any]) -> bool:
    """Writes how far a row's file has been sent; False where another has taken the row over since."""
    return await engine.fetchval(_KEEP_TRANSFER, ref, fence, dict(transfer)) is not None


_FINISH: Final = """
with result as (
    select * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::bool[],
                         $9::bool[], $10::jsonb[], $11::bigint[], $12::text[], $13::bigint[], $14::int[], $15::int[],
                         $16::bigint[], $17::text[])
        as r(ref, state, outcome, reason, detail, wait_s, refund, call_open, facts, duration_ms, remote_id,
             remote_duration_ms, remote_width, remote_height, remote_size, playback)
), written as (
    update asset a set
        state = r.state, reason = r.reason, detail = r.detail,
        claim = null, claim_key = null, claimed_by = null, claim_until = null,
        -- They count until the row leaves the phase: "creating" and back to "inventoried" is the same one.
        attempts = case when r.refund then greatest(a.attempts - 1, 0)
                        when a.state || '>' || r.state = any($19) then a.attempts else 0 end,
        deaths = case when a.state || '>' || r.state = any($19) then a.deaths else 0 end,
        not_before = clock_timestamp() + make_interval(secs => r.wait_s),
        intent_at = case when r.call_open then a.intent_at end,
        quiet_until = case when r.call_open then a.quiet_until end,
        facts = coalesce(r.facts, a.facts), duration_ms = coalesce(r.duration_ms, a.duration_ms),
        remote_id = coalesce(a.remote_id, r.remote_id),
        remote_duration_ms = coalesce(r.remote_duration_ms, a.remote_duration_ms),
        remote_width = coalesce(r.remote_width, a.remote_width),
        remote_height = coalesce(r.remote_height, a.remote_height),
        remote_size = coalesce(r.remote_size, a.remote_size), playback = coalesce(r.playback, a.playback),
        transfer = case when r.remote_id is null then a.transfer end,
        processing_at = case when r.state = 'processing' then now() else a.processing_at end,
        updated_at = now()
    from result r
    where a.ref = r.ref and a.fence = $1 and a.claim is not null and a.state || '>' || r.state = any($18)
    returning a.ref
), ours as (
    select ref from written
    union
    -- Written by this very call before its connection was lost, or an event for this very video was faster.
    select r.ref from result r join asset a using (ref) join step s on s.ref = a.ref and s.fence = a.fence
    where a.fence = $1 and (s.outcome = r.outcome or (a.claim is null and a.remote_id = r.remote_id))
), steps as (
    update step set ended_at = clock_timestamp(), reason = r.reason, detail = r.detail,
        outcome = case when r.ref in (select ref from ours) then r.outcome else 'overtaken' end
    from result r where step.ref = r.ref and step.fence = $1 and step.outcome is null
)
select ref from ours
"""


_REFUSED: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    ValueError,
)
"""What is said of one row's data, by the server or, of a value that cannot even be sent, by the driver."""


async def finish(engine: Engine, fence: int, outcomes: Sequence[Outcome]) -> frozenset[str]:
    """Writes what the work came to, and returns the refs whose rows took it.

    A row that is missing in the answer was taken by another worker, or moved on by an event: the result is discarded.
    Where one row's data is refused by PostgreSQL, the rows are written one by one, each under a savepoint, so that the
    others survive (25 of them, below the 64 subtransactions that PostgreSQL caches).
    """
    if not outcomes:
        return frozenset()
    try:
        taken = frozenset(record["ref"] for record in await engine.fetch(_FINISH, *_arguments(fence, outcomes)))
    except _REFUSED:
        if len(outcomes) > 64:
            raise
    else:
        return taken | await _overtaken_by_own_event(engine, fence, [o for o in outcomes if o.ref not in taken])

    async def one_by_one(connection: Connection) -> frozenset[str]:
        taken: set[str] = set()
        for outcome in outcomes:
            try:
                async with connection.transaction():
                    taken |= {r["ref"] for r in await connection.fetch(_FINISH, *_arguments(fence, [outcome]))}
            except _REFUSED as error:
                # A video that is there already cannot fail to be made.
                end = "mismatched" if outcome.state in ("attached", "verified", "mismatched") else "failed"
                bare = Outcome(outcome.ref, end, end, "unknown", f"the result could not be stored: {error}")
                taken |= {r["ref"] for r in await connection.fetch(_FINISH, *_arguments(fence, [bare]))}
        return frozenset(taken)

    return await engine.transaction(one_by_one)


_OWN_EVENT: Final = """
update step s set outcome = r.outcome
from unnest($2::text[], $3::text[], $4::text[]) as r(ref, outcome, remote_id), asset a
where s.ref = r.ref and s.fence = $1 and s.outcome = 'overtaken'
  and a.ref = r.ref and a.fence = $1 and a.remote_id = r.remote_id
returning s.ref
"""


async def _overtaken_by_own_event(engine: Engine, fence: int, outcomes: Sequence[Outcome]) -> frozenset[str]:
    """The refs whose row an event for the very video that we made has moved on while we waited to write it: our result
    counts. Only a new statement sees what the one that had to wait could not."""
    made = [outcome for outcome in outcomes if outcome.remote_id is not None]
    if not made:
        return frozenset()
    columns = [[getattr(outcome, name) for outcome in made] for name in ("ref", "outcome", "remote_id")]
    return frozenset(record["ref"] for record in await engine.fetch(_OWN_EVENT, fence, *columns))


def _arguments(fence: int, outcomes: Sequence[Outcome]) -> list[Any]:
    columns = [
        "ref", "state", "outcome", "reason", "detail", "wait_s", "refund", "call_open", "facts", "duration_ms",
        "remote_id", "remote_duration_ms", "remote_width", "remote_height", "remote_size", "playback",
    ]  # fmt: skip
    targets = {outcome.state for outcome in outcomes}
    values = {name: [_fitted(name, getattr(outcome, name)) for outcome in outcomes] for name in columns}
    return [fence, *values.values(), steps(targets, stay=targets & _WORKED), WITHIN_PHASE]


_WORKED: Final = frozenset(state for states in PHASE_STATES.values() for state in states)
"""The states that a row can be claimed in, and so come back to."""
_BITS: Final = {
    "duration_ms": 63, "remote_duration_ms": 63, "remote_size": 63, "remote_width": 31, "remote_height": 31
}  # fmt: skip


def _fitted(name: str, value: Any) -> Any:
    return fit(value, _BITS[name]) if name in _BITS and isinstance(value, int) else clean(value)


_LEFT: Final = """
select count(*) as left,
       min(greatest(extract(epoch from greatest(not_before, quiet_until, claim_until) - clock_timestamp()), 0))::float8
           as wait_s
from asset where run = $1 and page = $2 and state = any($3)
"""


@dataclass(frozen=True, slots=True)
class Left:
    """How many rows of a page the phase still holds, and the seconds until the first may be worked (0: now)."""

    rows: int
    wait_s: float


async def left(engine: Engine, place: Place) -> Left:
    record = await engine.fetchrow(_LEFT, place.run, place.page, list(PHASE_STATES[place.phase]))
    assert record is not None, "an aggregate has a row"
    return Left(record["left"], record["wait_s"] or 0.0)
