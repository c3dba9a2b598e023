"""Claims and fences: who works which rows, and whose writes count.

A window's rows are claimed by one conditional statement that stamps a new, higher number, the fence. Every later write
carries it, and a write whose fence is no longer on the row changes nothing. Concurrent claimers skip each other's rows
(`for update skip locked`), so each row goes to one of them; a claim whose lease has passed is free again, and the
death is counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from ledger.assets import Row
from ledger.engine import Connection, Engine, clean
from ledger.transitions import PHASE_STATES, pairs


@dataclass(frozen=True, slots=True)
class Window:
    """Rows claimed together under one fence."""

    fence: int
    rows: Sequence[Row]


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


_CLAIM: Final = """
with gate as (
    -- A paused, parked or cancelled run gives out no rows, nor does a phase that someone else has opened since.
    select 1 from run join phase using (run)
    where run.run = $1 and run.state = 'running' and phase.phase = $2 and phase.fence = $4 and phase.closed_at is null
), free as (
    select ref, state, claim is distinct from $5 as fresh, claim is not null and claim <> $5 as abandoned,
           intent_at is not null as intent
    from asset
    where run = $1 and page = $3 and state = any($6) and exists (select from gate)
      and (claim = $5 or ((claim is null or claim_until <= clock_timestamp())
                          and (not_before is null or not_before <= clock_timestamp())
                          and (quiet_until is null or quiet_until <= clock_timestamp())))
    order by position, ref
    limit $7
    for update skip locked
), number as (
    select nextval('fence_number') as fence
), ours as (
    update asset a set
        fence = number.fence, claim = $5, claim_key = $8, claimed_by = $9,
        claim_until = clock_timestamp() + make_interval(secs => $10),
        attempts = a.attempts + free.fresh::int, deaths = a.deaths + free.abandoned::int,
        state = coalesce($11, a.state),
        intent_at = case when $11 = 'creating' then clock_timestamp() else a.intent_at end,
        quiet_until = case when $11 = 'creating' then clock_timestamp() + make_interval(secs => $12)
                           else a.quiet_until end,
        not_before = null, updated_at = now()
    from free, number
    where a.ref = free.ref
    returning a.ref, a.tenant, a.source_id, a.title, a.locator, a.position, a.size, a.claimed_duration_ms, a.metadata,
              free.state, a.attempts, a.deaths, free.intent, a.facts, a.duration_ms, a.remote_id, a.fence
), lost as (
    update step set ended_at = now(), outcome = 'lost', reason = 'worker-died'
    from free where step.ref = free.ref and free.abandoned and step.outcome is null
), steps as (
    insert into step (ref, fence, run, phase, attempt, worker)
    select ref, fence, $1, $2, attempts, $9 from ours
)
select * from ours order by position, ref
"""


async def claim(
    engine: Engine,
    place: Place,
    *,
    worker: str,
    key: str,
    limit: int,
    lease_s: float,
    quiet_s: float | None = None,
) -> Window | None:
    """Claims up to `limit` rows of the page that may be worked now, or None where there are none.

    `key` names the execution that works the page (see `expire`). The attempt is counted here, before the work. With
    `quiet_s` the claim is an intent to create: the rows go to "creating", and nobody else may call for them before
    that many seconds have passed, even if this worker dies. Sent again after a lost connection, it gives the same rows.
    """
    states = PHASE_STATES[place.phase]
    number = uuid.uuid4()
    records = await engine.fetch(
        _CLAIM,
        place.run,
        place.phase,
        place.page,
        place.fence,
        number,
        list(states),
        limit,
        key,
        worker,
        lease_s,
        None if quiet_s is None else "creating",
        quiet_s or 0.0,
    )
    if not records:
        return None
    return Window(records[0]["fence"], [Row.from_record(record) for record in records])


_EXPIRE: Final = """
update asset set claim_until = clock_timestamp()
where run = $1 and page = $2 and state = any($3) and claim_key = $4 and claim_until > clock_timestamp()
"""


async def expire(engine: Engine, place: Place, key: str) -> None:
    """Ends the claims of an earlier attempt of the same execution, which Temporal has declared dead, so that this one
    need not wait for the lease. A create's quiet time stays."""
    await engine.execute(_EXPIRE, place.run, place.page, list(PHASE_STATES[place.phase]), key)


_FINISH: Final = """
with result as (
    select * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::bool[],
                         $9::bool[], $10::jsonb[], $11::bigint[], $12::text[], $13::bigint[], $14::int[], $15::int[],
                         $16::bigint[], $17::text[])
        as r(ref, state, outcome, reason, detail, wait_s, refund, call_open, facts, duration_ms, remote_id,
             remote_duration_ms, remote_width, remote_height, remote_size, playback)
), legal as (
    select * from unnest($18::text[], $19::text[]) as l(source, target)
), written as (
    update asset a set
        state = r.state, reason = r.reason, detail = r.detail,
        claim = null, claim_key = null, claimed_by = null, claim_until = null,
        attempts = case when r.refund then greatest(a.attempts - 1, 0)
                        when r.state = a.state then a.attempts else 0 end,
        deaths = case when r.state = a.state then a.deaths else 0 end,
        not_before = clock_timestamp() + make_interval(secs => r.wait_s),
        intent_at = case when r.call_open then a.intent_at end,
        quiet_until = case when r.call_open then a.quiet_until end,
        facts = coalesce(r.facts, a.facts), duration_ms = coalesce(r.duration_ms, a.duration_ms),
        remote_id = coalesce(r.remote_id, a.remote_id),
        remote_duration_ms = coalesce(r.remote_duration_ms, a.remote_duration_ms),
        remote_width = coalesce(r.remote_width, a.remote_width),
        remote_height = coalesce(r.remote_height, a.remote_height),
        remote_size = coalesce(r.remote_size, a.remote_size), playback = coalesce(r.playback, a.playback),
        processing_at = case when r.state = 'processing' then now() else a.processing_at end,
        updated_at = now()
    from result r, legal l
    where a.ref = r.ref and a.fence = $1 and a.claim is not null and l.source = a.state and l.target = r.state
    returning a.ref
), steps as (
    update step set ended_at = clock_timestamp(), reason = r.reason, detail = r.detail,
        outcome = case when r.ref in (select ref from written) then r.outcome else 'overtaken' end
    from result r where step.ref = r.ref and step.fence = $1 and step.outcome is null
)
select ref from written
union
-- Written by this very call before its connection was lost: ours all the same.
select a.ref from asset a join result r using (ref) where a.fence = $1 and a.claim is null and a.state = r.state
"""


async def finish(engine: Engine, fence: int, outcomes: Sequence[Outcome]) -> frozenset[str]:
    """Writes what the work came to, and returns the refs whose rows took it.

    A row that is missing in the answer was taken by another worker, or moved on by an event: the result is discarded.
    Where one row's data is refused by PostgreSQL, the rows are written one by one, each under a savepoint, so that the
    others survive (25 of them, below the 64 subtransactions that PostgreSQL caches).
    """
    if not outcomes:
        return frozenset()
    try:
        return frozenset(record["ref"] for record in await engine.fetch(_FINISH, *_arguments(fence, outcomes)))
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError):
        if len(outcomes) > 64:
            raise

    async def one_by_one(connection: Connection) -> frozenset[str]:
        taken: set[str] = set()
        for outcome in outcomes:
            try:
                async with connection.transaction():
                    taken |= {r["ref"] for r in await connection.fetch(_FINISH, *_arguments(fence, [outcome]))}
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
                bare = Outcome(outcome.ref, "failed", "failed", "unknown", f"the result could not be stored: {error}")
                taken |= {r["ref"] for r in await connection.fetch(_FINISH, *_arguments(fence, [bare]))}
        return frozenset(taken)

    return await engine.transaction(one_by_one)


def _arguments(fence: int, outcomes: Sequence[Outcome]) -> list[Any]:
    columns = [
        "ref", "state", "outcome", "reason", "detail", "wait_s", "refund", "call_open", "facts", "duration_ms",
        "remote_id", "remote_duration_ms", "remote_width", "remote_height", "remote_size", "playback",
    ]  # fmt: skip
    targets = {outcome.state for outcome in outcomes}
    sources, to = pairs(targets, stay=targets & {"pending", "inventoried", "creating", "processing", "ready"})
    return [fence, *([clean(getattr(outcome, name)) for outcome in outcomes] for name in columns), sources, to]


_LEFT: Final = """
select count(*) as left,
       min(extract(epoch from greatest(not_before, quiet_until, claim_until) - clock_timestamp()))::float8 as wait_s
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
    return Left(record["left"], max(0.0, record["wait_s"] or 0.0))
